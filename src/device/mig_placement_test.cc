// SPDX-License-Identifier: Apache-2.0
//
// The choice of a MIG profile and its place against one that tries everything, on random cards with random instances.

#include "device/vendors/mig_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

namespace hami::device {
namespace {

constexpr int kSlices = 8;

unsigned Mask(const MigPlacement& place) {
  unsigned mask = 0;
  for (int slice = place.start; slice < place.start + place.size; ++slice) mask |= 1U << static_cast<unsigned>(slice);
  return mask;
}

class Cards {
 public:
  explicit Cards(unsigned seed) : random_(seed) {}
  int Upto(int most) { return static_cast<int>(random_() % static_cast<unsigned>(most + 1)); }

  std::vector<MigProfile> Profiles() {
    std::vector<MigProfile> profiles;
    const int count = 1 + Upto(5);
    for (int i = 0; i < count; ++i) {
      MigProfile profile;
      profile.slices = 1 + Upto(6);
      profile.name = std::to_string(profile.slices) + "g." + std::to_string(i) + "gb";
      profile.memory = 1000 * (1 + Upto(5));
      profile.cores = 10;
      const int size = 1 + Upto(3);
      for (int start = 0; start + size <= kSlices; ++start) {
        if (Upto(2) > 0) profile.placements.push_back({start, size});
      }
      std::shuffle(profile.placements.begin(), profile.placements.end(), random_);
      profiles.push_back(std::move(profile));
    }
    return profiles;
  }

 private:
  std::mt19937 random_;
};

// Everything that would do, and of that the best by the rule's own words.
std::optional<MigChoice> TryEverything(const std::vector<MigProfile>& profiles, MiB memory, unsigned taken) {
  using Rank = std::tuple<MiB, int, int, int>;  // memory, slices, position, start or its opposite
  std::optional<std::pair<Rank, MigChoice>> best;
  for (int i = 0; i < static_cast<int>(profiles.size()); ++i) {
    const MigProfile& profile = profiles[static_cast<std::size_t>(i)];
    const bool high = profile.slices == 1 || profile.slices == 3;
    for (const MigPlacement& place : profile.placements) {
      if (profile.memory < memory || (Mask(place) & taken) != 0) continue;
      const Rank rank{profile.memory, profile.slices, i, high ? -place.start : place.start};
      if (!best || rank < best->first) best = {rank, MigChoice{i, place}};
    }
  }
  return best ? std::optional(best->second) : std::nullopt;
}

TEST(MigPlacement, RandomCardsFilledUp_EveryChoiceIsTheBestOfAll) {
  for (unsigned seed = 0; seed < 5000; ++seed) {
    SCOPED_TRACE(seed);
    Cards cards(seed);
    const std::vector<MigProfile> profiles = cards.Profiles();
    std::vector<MigPlacement> taken;
    unsigned mask = 0;
    for (int step = 0; step < 12; ++step) {
      const MiB memory = 500 * cards.Upto(13);
      const auto chosen = ChooseMig(profiles, memory, taken);
      const auto best = TryEverything(profiles, memory, mask);
      ASSERT_EQ(chosen.has_value(), best.has_value());
      if (!chosen) continue;
      ASSERT_EQ(chosen->profile, best->profile);
      ASSERT_EQ(chosen->placement, best->placement);
      ASSERT_EQ(mask & Mask(chosen->placement), 0U) << "no slice is given twice";
      mask |= Mask(chosen->placement);
      taken.push_back(chosen->placement);
      // Now and then one goes.
      if (cards.Upto(3) == 0) {
        mask &= ~Mask(taken.front());
        taken.erase(taken.begin());
      }
    }
  }
}

TEST(MigOldForm, TemplateSlot_NamesItsGpu) {
  EXPECT_EQ(GpuOfOldInstance("GPU-abc[1-0]"), "GPU-abc");
  for (const char* text : {"GPU-abc", "GPU-abc[]", "GPU-abc[1]", "[1-0]", "GPU-abc[1-0", "GPU-abc[a-0]"}) {
    EXPECT_EQ(GpuOfOldInstance(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace hami::device
