// SPDX-License-Identifier: Apache-2.0
//
// Vastai: shares by count alone. Where a node registers the dies of its boards (custominfo `DeviceStrategy: die`, and
// the board as `AIC`), the dies of a container come from as few boards as can be.

#include <algorithm>
#include <charconv>

#include "base/strings.h"
#include "device/vendors/plain.h"
#include "device/vendors/sections.h"

namespace hami::device {
namespace {

constexpr const char* kDie = "die";

class VastaiVendor final : public PlainVendor {
 public:
  using PlainVendor::PlainVendor;

  bool has_bonus() const override { return true; }
  // The more of a container's dies are on one board, the better. Spread takes the lowest score.
  float Bonus(const BonusInput& input) const override {
    float bonus = 0;
    for (const Picks& picks : input.picks) {
      if (picks.empty() || CardAt(input.cards, picks.front()).mode != kDie) continue;
      bonus += static_cast<float>(ByGroup(input.cards, picks).front().size()) / static_cast<float>(picks.size());
    }
    return input.spread ? -bonus : bonus;
  }

 protected:
  void Adopt(Device& device, const NodeFacts&) const override {
    const base::json::object info = CustomInfo(device);
    if (base::GetString(info, "DeviceStrategy") != kDie) return;
    device.mode = kDie;
    device.group = static_cast<int>(NumberIn(info, "AIC", -1));
    if (const auto text = base::GetString(info, "AIC")) {
      std::from_chars(text->data(), text->data() + text->size(), device.group);
    }
  }

  bool Chooses(const FitInput& input) const override {
    if (input.walk.empty()) return false;
    return input.cards[static_cast<std::size_t>(input.walk.front())].device->mode == kDie;
  }

  Picks Choose(const FitInput& input, Picks picks) const override {
    const auto wanted = static_cast<std::size_t>(input.request.count);
    if (wanted == 1) return {picks.front()};
    Picks chosen;
    for (const Picks& board : ByGroup(input.cards, picks)) {
      for (const Pick& pick : ByIndex(input, board)) {
        if (chosen.size() < wanted) chosen.push_back(pick);
      }
    }
    return chosen;
  }

  // A pod that wants dies to itself wants their boards to itself.
  std::optional<Reason> Late(const FitInput& input, const CardView& card, const Picks&) const override {
    if (!input.mutex || card.device->mode != kDie) return std::nullopt;
    const bool shared = std::any_of(input.walk.begin(), input.walk.end(), [&](int other) {
      const CardView& view = input.cards[static_cast<std::size_t>(other)];
      return view.device->group == card.device->group && view.state.slots > 0;
    });
    return shared ? std::optional<Reason>(Reason::kExclusiveDeviceAllocateConflict) : std::nullopt;
  }
};

}  // namespace

void AddVastai(const OtherSections& config, Vendors& out) {
  PlainSpec spec{.key = "Vastai",
                 .count_resource = Section(config, "vastai").Text("resourceCountName"),
                 .count_only = true,
                 .registered = base::Concat({kHamiDomain, "node-va-register"}),
                 .handshake = base::Concat({kHamiDomain, "node-handshake-va"})};
  spec.GrantAs("Vastai");
  spec.ListUuids("vastaitech.com");
  AddNamed(std::make_unique<VastaiVendor>(std::move(spec)), out);
}

}  // namespace hami::device
