// SPDX-License-Identifier: Apache-2.0
//
// What holds for every vendor on any set of cards: no card gives what it has not, a container gets as many cards as it
// asks for, what was written reads back, and cards that lie together are chosen as well as brute force would.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "device/allocation_codec.h"
#include "device/vendors/sections.h"
#include "sched/testing/vendors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace hami::sched {
namespace {

using testing::AllVendors;
using testing::AnyAsk;
using testing::AnyNode;
using testing::VendorAsk;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  int Below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }

 private:
  std::mt19937_64 random_;
};

// One pod after the other on one node until none fits, some of them ending in between.
void Fill(std::uint64_t seed, const device::Vendors& vendors) {
  Dice dice(seed);
  const auto below = [&](int n) { return dice.Below(n); };
  Ledger ledger(vendors);
  const SimulatedNode facts = AnyNode("n", below);
  for (std::size_t v = 0; v < vendors.size(); ++v) {
    const auto cards = vendors[v]->ReadNode(facts.facts());
    ASSERT_TRUE(cards) << vendors[v]->key() << ": " << cards.error().message;
    ledger.SetCards("n", static_cast<int>(v), *cards);
  }
  Filter filter(ledger, vendors, {"binpack", below(2) == 0 ? "spread" : "binpack"});
  std::vector<std::string> running;
  for (int i = 0; i < 30; ++i) {
    if (!running.empty() && below(4) == 0) {
      ledger.RemovePod(running.back());
      running.pop_back();
    }
    const VendorAsk ask = AnyAsk(below);
    device::Pod pod = testing::PodOf(std::to_string(i), ask.container);
    pod.annotations = ask.annotations;
    if (below(3) == 0) pod.containers.push_back(ask.container);
    const Decision decision = filter.DecideAny(pod, {.now = 1, .explain = false});
    if (decision.outcome != Outcome::kPlaced) continue;
    for (const auto& [vendor, grant] : decision.allocation.grants) {
      EXPECT_EQ(*device::DecodeGrant(device::EncodeGrant(grant)), grant);
      for (const device::ContainerGrant& row : grant) {
        for (std::size_t a = 0; a < row.size(); ++a) {
          for (std::size_t b = 0; b < a; ++b) EXPECT_NE(row[a].uuid, row[b].uuid) << "two shares, one card";
        }
        EXPECT_GE(row.size(), static_cast<std::size_t>(ask.cards)) << vendors[static_cast<std::size_t>(vendor)]->key();
      }
    }
    ledger.UpsertPod(testing::Written(pod, decision, true));
    running.push_back(pod.uid);
    const Node& node = ledger.node(ledger.Find("n"));
    for (std::size_t card = 0; card < node.devices().size(); ++card) {
      const device::Device& device = node.devices()[card];
      const device::CardState& used = node.used()[card];
      ASSERT_LE(used.slots, device.count) << device.uuid;
      ASSERT_LE(used.memory, device.memory) << device.uuid;
      // Soft split takes the cores of an Ascend chip for a hundred.
      ASSERT_LE(used.cores, std::max(device.cores, 100)) << device.uuid;
    }
  }
  for (const std::string& uid : running) ledger.RemovePod(uid);
  for (const device::CardState& used : ledger.node(ledger.Find("n")).used()) EXPECT_EQ(used, device::CardState{});
}

TEST(VendorsProperty, NothingIsOvercommittedOnAnyCards) {
  const device::Vendors vendors = AllVendors();
  for (std::uint64_t seed = 0; seed < 400 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Fill(seed, vendors);
  }
}

// A believed claim costs at most what the pod asks, and never less than what it was given.
TEST(VendorsProperty, AGrantIsWorthTheSameWhenItIsOnlyBelieved) {
  const device::Vendors vendors = AllVendors();
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice(seed);
    const auto below = [&](int n) { return dice.Below(n); };
    Ledger ledger(vendors);
    const SimulatedNode facts = AnyNode("n", below);
    for (std::size_t v = 0; v < vendors.size(); ++v) {
      ledger.SetCards("n", static_cast<int>(v), *vendors[v]->ReadNode(facts.facts()));
    }
    Filter filter(ledger, vendors, {});
    const VendorAsk ask = AnyAsk(below);
    device::Pod pod = testing::PodOf("p", ask.container);
    pod.annotations = ask.annotations;
    const Decision decision = filter.DecideAny(pod, {.now = 1, .explain = false});
    if (decision.outcome != Outcome::kPlaced) continue;
    const device::Pod written = testing::Written(pod, decision, true);
    ledger.UpsertPod(written, Trust::kProven);
    const auto proven = ledger.node(ledger.Find("n")).used();
    ledger.RemovePod("p");
    ledger.UpsertPod(written, Trust::kBelieved);
    EXPECT_EQ(ledger.node(ledger.Find("n")).used(), proven) << written.annotations.begin()->first;
  }
}

// The fuzzer of vendors with what its corpus says, bent by chance.
TEST(VendorsProperty, BentTextsNeitherCrashNorGiveWhatIsNotThere) {
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::directory_iterator(HAMI_VENDOR_CORPUS)) {
    std::ifstream in(entry.path());
    texts.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  ASSERT_FALSE(texts.empty());
  Dice dice(1);
  for (int i = 0; i < 5'000; ++i) {
    std::string text = texts[static_cast<std::size_t>(dice.Below(static_cast<int>(texts.size())))];
    for (int bends = dice.Below(4); bends > 0 && !text.empty(); --bends) {
      const auto at = static_cast<std::size_t>(dice.Below(static_cast<int>(text.size())));
      if (dice.Below(2) == 0)
        text.erase(at, 1);
      else
        text[at] = static_cast<char>(' ' + dice.Below(95));
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  }
}

// By the rule's own words, over every subset: which 8-card states have a wing, twins or a quad for N.
bool KunlunCan(unsigned free, int wanted) {
  const int left = std::popcount(free & 15U);
  const int right = std::popcount(free >> 4U);
  if (wanted == 8) return free == 255U;
  if (wanted == 1) return free != 0;
  if (left >= wanted || right >= wanted) return true;
  if (wanted == 2) return (free & free >> 4U & 15U) != 0;
  const unsigned twins = free & free >> 4U & 15U;
  return std::popcount(twins) >= 2;
}

TEST(VendorsProperty, KunlunFindsCardsWheneverTheyLieTogether) {
  const device::Vendors vendors = AllVendors();
  const auto kunlun =
      std::find_if(vendors.begin(), vendors.end(), [](const auto& one) { return one->key() == "kunlun"; });
  const device::StringMap capacity = {{"kunlunxin.com/xpu", "8"}};
  const device::NodeCards cards = *(*kunlun)->ReadNode({"n", {}, capacity, {}});
  for (unsigned free = 0; free < 256; ++free) {
    std::vector<device::CardView> views;
    std::vector<int> walk;
    for (int i = 0; i < 8; ++i) {
      device::CardView view{&cards.devices[static_cast<std::size_t>(i)], "kunlun", {}, true};
      view.state.slots = (free >> i & 1U) == 0 ? 1 : 0;
      views.push_back(view);
      walk.insert(walk.begin(), i);  // as spread walks them
    }
    for (const int wanted : {1, 2, 4, 8}) {
      device::Request request;
      request.count = wanted;
      const device::CardRules rules;
      const device::FitInput input{.cards = views,
                                   .walk = walk,
                                   .instances = {},
                                   .pair_scores = {},
                                   .earlier = {},
                                   .request = request,
                                   .rules = rules};
      const device::FitResult result = (*kunlun)->Fit(input);
      EXPECT_EQ(result.fits, KunlunCan(free, wanted)) << free << " for " << wanted;
      for (const device::Pick& pick : result.picks) EXPECT_EQ(free >> pick.card & 1U, 1U);
      EXPECT_EQ(result.picks.size(), result.fits ? static_cast<std::size_t>(wanted) : 0U);
    }
  }
}

// The largest board or network that N candidates can come from is found.
TEST(VendorsProperty, GroupsAreFilledFromTheLargest) {
  const device::Vendors vendors = AllVendors();
  for (const char* key : {"Vastai", "Ascend910B4"}) {
    const auto vendor =
        std::find_if(vendors.begin(), vendors.end(), [&](const auto& one) { return one->key() == key; });
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      Dice dice(seed);
      std::vector<device::Device> devices(static_cast<std::size_t>(2 + dice.Below(9)));
      std::map<int, int> sizes;
      for (std::size_t i = 0; i < devices.size(); ++i) {
        devices[i] = testing::Card(std::to_string(i));
        devices[i].index = static_cast<int>(i);
        devices[i].mode = "die";
        ++sizes[devices[i].group = dice.Below(3)];
      }
      std::vector<device::CardView> views;
      std::vector<int> walk;
      for (std::size_t i = 0; i < devices.size(); ++i) {
        views.push_back({&devices[i], "x", {}, true});
        walk.push_back(static_cast<int>(i));
      }
      device::Request request;
      request.count = 2 + dice.Below(static_cast<int>(devices.size()) - 1);
      const device::CardRules rules;
      const device::FitResult result = (*vendor)->Fit({.cards = views,
                                                       .walk = walk,
                                                       .instances = {},
                                                       .pair_scores = {},
                                                       .earlier = {},
                                                       .request = request,
                                                       .rules = rules});
      ASSERT_TRUE(result.fits);
      std::map<int, int> taken;
      for (const device::Pick& pick : result.picks) ++taken[devices[static_cast<std::size_t>(pick.card)].group];
      int most = 0;
      for (const auto& [group, size] : sizes) most = std::max(most, std::min(size, request.count));
      int best = 0;
      for (const auto& [group, count] : taken) best = std::max(best, count);
      EXPECT_EQ(best, most) << key << " seed " << seed;
    }
  }
}

}  // namespace
}  // namespace hami::sched
