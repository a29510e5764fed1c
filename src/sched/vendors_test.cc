// SPDX-License-Identifier: Apache-2.0
//
// What the core promises to vendors beside the one there is: a say in the choice of the node, and pods that ask
// several.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "sched/filter.h"
#include "sched/ledger.h"
#include "sched/testing/samples.h"

namespace hami::sched {
namespace {

using testing::Card;
using testing::PodOf;
using testing::Wants;

// Takes the first cards of the walk whole, and wants pods on large cards whatever the policy of the nodes is.
class OtherVendor final : public device::Vendor {
 public:
  std::string_view key() const override { return "Other"; }
  std::string_view to_allocate_annotation() const override { return "other/to-allocate"; }
  std::string_view allocated_annotation() const override { return "other/allocated"; }
  std::string_view register_annotation() const override { return "other/register"; }
  std::string_view count_resource() const override { return "other/card"; }
  std::vector<std::string_view> resources() const override { return {count_resource()}; }
  std::optional<device::Request> MostOf(const device::Container& container) const override {
    return *ParseRequest(container);
  }
  base::Result<std::optional<device::Request>> ParseRequest(const device::Container& container) const override {
    const std::string* count = container.Resource(std::string(count_resource()));
    if (count == nullptr) return std::optional<device::Request>();
    device::Request request;
    request.count = std::stoi(*count);
    return std::optional<device::Request>(request);
  }
  device::CardRules ParseRules(const device::StringMap&) const override { return {}; }
  base::Result<device::NodeCards> ReadNode(const device::NodeFacts&) const override { return device::NodeCards{}; }
  device::FitResult Fit(const device::FitInput& input) const override {
    device::FitResult result;
    for (const int card : input.walk.first(static_cast<std::size_t>(input.request.count))) {
      const device::Device& device = *input.cards[static_cast<std::size_t>(card)].device;
      result.picks.push_back({card, device.memory, device.cores, -1, {}});
    }
    result.fits = true;
    return result;
  }
  bool has_bonus() const override { return true; }
  float Bonus(const device::BonusInput& input) const override {
    float bonus = 0;
    for (const device::Picks& container : input.picks) {
      for (const device::Pick& pick : container) bonus += static_cast<float>(pick.memory);
    }
    return input.spread ? -bonus : bonus;
  }
  void Annotate(const device::GrantInfo& grant, device::StringMap& out) const override {
    out["other/containers"] = std::to_string(grant.grant.size());
  }
  base::Result<bool> Mutate(base::json::object&, device::PodDraft&, device::Warnings&) const override { return false; }
};

device::Vendors Both() {
  device::Vendors vendors = testing::NvidiaOnly();
  vendors.push_back(std::make_unique<OtherVendor>());
  return vendors;
}

device::NodeCards OtherCard(const char* uuid, device::MiB memory) {
  device::NodeCards cards;
  cards.devices.push_back(Card(uuid, memory));
  cards.devices.back().type = "OTHER-1";
  return cards;
}

class VendorsTest : public ::testing::Test {
 protected:
  Decision Decide(const device::Pod& pod, const char* node_policy = "binpack") {
    Filter filter(ledger_, vendors_, {node_policy, "spread"});
    const std::string_view names[] = {"a", "b"};
    return filter.Decide(pod, names, {.now = 100, .explain = true});
  }
  void SetUp() override {
    ledger_.SetCards("a", 1, OtherCard("a-other", 10));
    ledger_.SetCards("b", 1, OtherCard("b-other", 20));
  }

  const device::Vendors vendors_ = Both();
  Ledger ledger_{vendors_, 300};
};

TEST_F(VendorsTest, GivenVendorsWish_WhenNodesTie_ThenItDecidesInEitherPolicy) {
  device::Pod pod = PodOf("p", {});
  pod.containers.resize(2);
  pod.containers[1].limits["other/card"] = "1";
  for (const auto& [policy, bonus] : std::map<const char*, float>{{"binpack", 20.0F}, {"spread", -20.0F}}) {
    const Decision decision = Decide(pod, policy);
    EXPECT_EQ(decision.node, "b") << policy << ": by name it were the other";
    EXPECT_EQ(decision.score, bonus);
  }
}

TEST_F(VendorsTest, GivenPodForTwoVendors_ThenNodeWithBothIsTakenAndEachHasRows) {
  ledger_.SetCards("a", 0, testing::Cards("a", 1));
  device::Pod pod = PodOf("p", Wants(1, 100));
  pod.containers.push_back(Wants(1, 50));
  pod.containers[1].limits["other/card"] = "1";
  pod.containers.emplace_back();
  const Decision decision = Decide(pod);
  ASSERT_EQ(decision.outcome, Outcome::kPlaced);
  EXPECT_EQ(decision.node, "a");
  ASSERT_EQ(decision.failures.size(), 1U);
  EXPECT_EQ(decision.failures[0].reason, "NodeInsufficientDevice");
  const std::map<std::string, std::optional<std::string>> written(decision.annotations.begin(),
                                                                  decision.annotations.end());
  EXPECT_EQ(written.at("hami.io/vgpu-devices-allocated"), "a-0,NVIDIA,100,0:;a-0,NVIDIA,50,0:;;");
  EXPECT_EQ(written.at("other/allocated"), ";a-other,Other,10,100:;;");
  EXPECT_EQ(written.at("other/to-allocate"), written.at("other/allocated"));
  EXPECT_EQ(written.at("other/containers"), "3");

  ledger_.Assume(pod, decision.node, decision.allocation, 1000);
  const Node& node = ledger_.node(ledger_.Find("a"));
  EXPECT_EQ(node.used()[0].memory, 150);
  EXPECT_EQ(node.used()[1].memory, 10);
  EXPECT_EQ(Decide(PodOf("q", Wants(1, 16384 - 150))).node, "a") << "the other vendor's use is not this card's";
}

}  // namespace
}  // namespace hami::sched
