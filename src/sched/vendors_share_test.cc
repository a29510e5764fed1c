// SPDX-License-Identifier: Apache-2.0
//
// Every vendor counts memory and cores in a unit of its own: percent, compute units, sixteenths, masks, slices, or
// shares alone. What a share is of a card, and what it leaves, is a part between 0 and 1 with each of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "sched/filter.h"
#include "sched/fragmentation.h"
#include "sched/testing/vendors.h"

namespace hami::sched {
namespace {

using device::StringMap;

struct Row {
  const char* vendor;
  device::Device card;
  StringMap asks;
  double part;  // of the card
  StringMap annotations{};
};

device::Device CardOf(device::MiB memory, int cores, int count) {
  device::Device card;
  card.memory = memory;
  card.cores = cores;
  card.count = count;
  card.healthy = true;
  return card;
}

device::Device Soft(device::Device card) {
  card.mode = device::kModeHamiCore;
  return card;
}

device::Device Sliced(device::Device card) {
  card.mig_profiles = {{"3g.20gb", 20480, 50, 3, {}}, {"6g.40gb", 40960, 100, 6, {}}};
  return card;
}

std::vector<Row> Rows() {
  return {
      {"NVIDIA", CardOf(16000, 100, 10), {{"nvidia.com/gpu", "1"}, {"nvidia.com/gpumem", "8000"}}, 0.5},
      {"AMD",
       CardOf(16000, 304, 10),
       {{"amd.com/gpu", "1"}, {"amd.com/gpumem", "4000"}, {"amd.com/gpucores", "50"}},
       0.5},
      {"AWSNeuron", CardOf(0, 3, 2), {{"aws.amazon.com/neuroncore", "1"}}, 0.5},
      {"AWSNeuron", CardOf(0, 255, 8), {{"aws.amazon.com/neuroncore", "2"}}, 0.25},
      {"AWSNeuron", CardOf(0, 3, 2), {{"aws.amazon.com/neuron", "1"}}, 1},
      {"Biren", CardOf(32768, 100, 2), {{"birentech.com/gpu", "1"}}, 0.5},
      {"MLU",
       CardOf(65536, 100, 100),
       {{"cambricon.com/vmlu", "1"}, {"cambricon.com/mlu.smlu.vmemory", "64"}, {"cambricon.com/mlu.smlu.vcore", "50"}},
       0.5},
      {"GCU", CardOf(100, 100, 1), {{"enflame.com/gcu", "1"}}, 1},
      {"Enflame", Sliced(CardOf(40960, 100, 6)), {{"enflame.com/drs-gcu", "3"}}, 0.5},
      {"DCU",
       CardOf(16000, 100, 4),
       {{"hygon.com/dcunum", "1"}, {"hygon.com/dcumem", "8000"}, {"hygon.com/dcucores", "25"}},
       0.5},
      {"MR-V100",
       CardOf(16384, 100, 100),
       {{"iluvatar.ai/MR-V100-vgpu", "1"}, {"iluvatar.ai/MR-V100.vMem", "32"}, {"iluvatar.ai/MR-V100.vCore", "50"}},
       0.5},
      {"kunlun", CardOf(98304, 100, 100), {{"kunlunxin.com/xpu", "1"}}, 1},
      {"XPU", CardOf(98304, 100, 4), {{"kunlunxin.com/vxpu", "1"}, {"kunlunxin.com/vxpu-memory", "49152"}}, 0.5},
      {"Metax-GPU", CardOf(65536, 100, 1), {{"metax-tech.com/gpu", "1"}}, 1},
      {"Metax-SGPU",
       CardOf(65536, 100, 16),
       {{"metax-tech.com/sgpu", "1"}, {"metax-tech.com/vmemory", "16"}, {"metax-tech.com/vcore", "50"}},
       0.5},
      {"Mthreads",
       CardOf(49152, 16, 100),
       {{"mthreads.com/vgpu", "1"}, {"mthreads.com/sgpu-memory", "16"}, {"mthreads.com/sgpu-core", "8"}},
       0.5},
      {"Vastai", CardOf(16384, 100, 2), {{"vastaitech.com/va", "1"}}, 0.5},
      {"Ascend910B4",
       Soft(CardOf(32768, 20, 10)),
       {{"huawei.com/Ascend910B4", "1"},
        {"huawei.com/Ascend910B4-memory", "8192"},
        {"huawei.com/Ascend910B4-core", "50"}},
       0.5,
       {{"huawei.com/vnpu-mode", "hami-core"}}},
      {"Ascend910B4",
       CardOf(32768, 20, 4),
       {{"huawei.com/Ascend910B4", "1"}, {"huawei.com/Ascend910B4-memory", "8192"}},
       0.25},
  };
}

// The fragmentation policy's decision for a pod that asks as ROW says, on a node with two cards of its kind.
struct Placement {
  explicit Placement(const Row& row, const device::Vendors& all)
      : vendors(all), ledger(vendors), filter(ledger, vendors, {"fragmentation", "fragmentation"}, hosts) {
    const auto own =
        std::find_if(vendors.begin(), vendors.end(), [&](const auto& one) { return one->key() == row.vendor; });
    vendor = static_cast<int>(own - vendors.begin());
    device::NodeCards cards;
    for (int i = 0; i < 2; ++i) {
      cards.devices.push_back(row.card);
      cards.devices.back().uuid = "card-" + std::to_string(i);
      cards.devices.back().index = i;
      cards.devices.back().type = row.vendor;
    }
    ledger.SetCards("n", vendor, cards);
    device::Container container;
    container.name = "main";
    container.limits = row.asks;
    pod = testing::PodOf("p", container);
    pod.annotations = row.annotations;
  }
  double Free() const {
    return FragmentsOf(ledger.node(ledger.Find("n")), vendors, {}, filter.workload().Current()).free_share;
  }

  const device::Vendors& vendors;
  HostBooks hosts;
  Ledger ledger;
  mutable Filter filter;
  int vendor = 0;
  device::Pod pod;
};

TEST(VendorSharesTest, AShareLeavesTheRestOfTheCard) {
  const device::Vendors vendors = testing::AllVendors();
  std::set<std::string> tried;
  for (const Row& row : Rows()) {
    tried.insert(row.vendor);
    Placement placement(row, vendors);
    EXPECT_DOUBLE_EQ(placement.Free(), 2) << row.vendor;
    const Decision decision = placement.filter.DecideAny(placement.pod, {});
    ASSERT_EQ(decision.outcome, Outcome::kPlaced) << row.vendor << ": " << decision.error;
    placement.ledger.Assume(placement.pod, decision.node, decision.allocation, 1LL << 40);
    EXPECT_NEAR(placement.Free(), 2 - row.part, 1e-9) << row.vendor;
  }
  for (const auto& vendor : vendors) {
    if (vendor->key() == "Ascend910C") continue;  // as the other Ascend
    EXPECT_EQ(tried.count(std::string(vendor->key())), 1U) << vendor->key();
  }
}

TEST(VendorSharesTest, ARequestIsThePartThatItTakes) {
  const device::Vendors vendors = testing::AllVendors();
  for (const Row& row : Rows()) {
    const Placement placement(row, vendors);
    const auto plan = MakePlan(placement.pod, vendors, {});
    ASSERT_TRUE(plan) << row.vendor;
    const Ask& ask = plan->containers.front().asks.front();
    ASSERT_EQ(ask.vendor, placement.vendor) << row.vendor;
    const device::Vendor& vendor = *vendors[static_cast<std::size_t>(ask.vendor)];
    const double part = PartOfCard(vendor, row.card, ask.request, plan->rules[static_cast<std::size_t>(ask.vendor)]);
    EXPECT_NEAR(part, row.part, 1e-9) << row.vendor;
  }
}

// The second pod of a kind that fits twice on a card joins the first: another card would be left in pieces.
TEST(VendorSharesTest, TheSecondHalfGoesBesideTheFirst) {
  const device::Vendors vendors = testing::AllVendors();
  for (const Row& row : Rows()) {
    if (row.part != 0.5) continue;
    Placement placement(row, vendors);
    const Decision first = placement.filter.DecideAny(placement.pod, {});
    ASSERT_EQ(first.outcome, Outcome::kPlaced) << row.vendor;
    placement.ledger.Assume(placement.pod, first.node, first.allocation, 1LL << 40);
    placement.pod.uid = "q";
    const Decision second = placement.filter.DecideAny(placement.pod, {});
    ASSERT_EQ(second.outcome, Outcome::kPlaced) << row.vendor << ": " << second.error;
    const auto card = [](const Decision& decision) {
      return decision.allocation.grants.front().second.front().front().uuid;
    };
    EXPECT_EQ(card(second), card(first)) << row.vendor;
  }
}

TEST(VendorSharesTest, PartsAreBetweenNothingAndAllOnAnyNode) {
  const device::Vendors vendors = testing::AllVendors();
  std::mt19937_64 random(5);
  const testing::Chance below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
  int placed = 0;
  for (int round = 0; round < 900; ++round) {
    HostBooks hosts;
    Ledger ledger(vendors);
    Filter filter(ledger, vendors, {"fragmentation", "fragmentation"}, hosts);
    const SimulatedNode facts = testing::AnyNode("n", below);
    for (std::size_t v = 0; v < vendors.size(); ++v) {
      const auto cards = vendors[v]->ReadNode(facts.facts());
      if (cards) ledger.SetCards("n", static_cast<int>(v), *cards);
    }
    if (ledger.Find("n") == kNoNode) continue;
    for (int i = 0; i < 20; ++i) {
      const testing::VendorAsk ask = testing::AnyAsk(below);
      device::Pod pod = testing::PodOf(std::to_string(i), ask.container);
      pod.annotations.insert(ask.annotations.begin(), ask.annotations.end());
      const Node& node = ledger.node(ledger.Find("n"));
      const auto measure = [&] { return FragmentsOf(node, vendors, {}, filter.workload().Current()); };
      const double before = measure().free_share;
      const Decision decision = filter.DecideAny(pod, {});
      if (decision.outcome != Outcome::kPlaced) continue;
      ++placed;
      ledger.Assume(pod, decision.node, decision.allocation, 1LL << 40);
      const NodeFragments after = measure();
      ASSERT_LE(after.free_share, before + 1e-9) << round;
      ASSERT_GE(after.free_share, 0) << round;
      ASSERT_GE(after.fragmented, -1e-9) << round;
      ASSERT_LE(after.fragmented, after.free_share + 1e-9) << round;
      for (std::size_t c = 0; c < node.devices().size(); ++c) {
        for (const RequestClass& one : filter.workload().Current().classes) {
          if (!node.belongs(c, one.ask.vendor)) continue;
          const device::Vendor& vendor = *vendors[static_cast<std::size_t>(one.ask.vendor)];
          const double part = PartOfCard(vendor, node.devices()[c], one.ask.request, one.rules);
          ASSERT_GE(part, 0) << vendor.key();
          ASSERT_LE(part, 1) << vendor.key();
        }
      }
    }
  }
  EXPECT_GT(placed, 1000);
}

}  // namespace
}  // namespace hami::sched
