// SPDX-License-Identifier: Apache-2.0
//
// Pods with every result that a hostile tenant may write on them, in any order and over each other, beside one pod that
// was granted its share. Nobody costs others more than it asks for, the granted one gives nothing back, nothing is
// granted that a card has not, and when the hostile ones are gone the books are as they were.
//
// An input is a list of steps, a line each: a byte of what the pod is, then fields after tabs, as they come on the pod.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/strings.h"
#include "device/annotations.h"
#include "device/grant_seal.h"
#include "sched/testing/samples.h"
#include "sched/trust.h"

namespace {

using namespace hami;
using sched::Trust;

constexpr device::MiB kCard = 16000;
constexpr const char* kKeys[] = {"hami.io/vgpu-devices-allocated",
                                 device::kAssignedNode,
                                 device::kMigAllocations,
                                 device::kAssignedTime,
                                 device::kBindPhase,
                                 device::kGrantSeal,
                                 "hami.io/vgpu-devices-to-allocate",
                                 device::kBindTime};
constexpr std::size_t kPods = 3;

void Check(bool holds) {
  if (!holds) std::abort();
}

struct Asked {
  int gpus = 0;
  device::MiB memory = 0;  // 0: the whole card
  int cores = 0;           // 0: all of them
};
// What each hostile pod asks for: nothing, a part of a card, two whole ones.
constexpr Asked kAsked[kPods] = {{0, 0, 0}, {1, 3000, 20}, {2, 0, 0}};

device::Pod HostilePod(std::size_t which) {
  const Asked& asked = kAsked[which];
  return sched::testing::PodOf("h" + std::to_string(which),
                               asked.gpus == 0 ? device::Container{"main", {}, {}, {}}
                                               : sched::testing::Wants(asked.gpus, asked.memory, asked.cores));
}

const sched::Node& NodeOf(const sched::Ledger& ledger) { return ledger.node(ledger.Find("a")); }

void CheckBooks(const sched::Ledger& ledger) {
  Check(ledger.FindPod("h0") == nullptr);  // it asks for nothing
  for (std::size_t which = 1; which < kPods; ++which) {
    const sched::PodRecord* record = ledger.FindPod("h" + std::to_string(which));
    if (record == nullptr) continue;
    const Asked& asked = kAsked[which];
    int slots = 0;
    for (const sched::PodCharge& card : record->charge.cards) {
      slots += card.slots;
      const bool known = card.uuid.substr(0, 2) == "a-";
      if (asked.memory > 0) Check(card.memory <= asked.memory * card.slots);
      if (known && asked.memory == 0) Check(card.memory <= kCard * card.slots);
      Check(card.memory >= 0 && card.cores >= 0);
      Check(card.cores <= (asked.cores > 0 ? asked.cores : 100) * card.slots);
    }
    Check(slots <= asked.gpus);
    Check(static_cast<int>(record->charge.reservations.size()) <= asked.gpus);
  }
  const sched::PodRecord* granted = ledger.FindPod("granted");
  Check(granted != nullptr && granted->charge.cards.size() == 1 && granted->charge.cards[0].memory == 9000);
}

// What is given to one more pod, the cards have.
void CheckGrant(sched::Ledger& ledger, const device::Vendors& vendors) {
  sched::Filter filter(ledger, vendors, {});
  const sched::Decision decision =
      filter.DecideAny(sched::testing::PodOf("new", sched::testing::Wants(1, 4000, 10)), {.now = 1, .explain = false});
  if (decision.outcome != sched::Outcome::kPlaced) return;
  const sched::Node& node = NodeOf(ledger);
  for (const auto& [vendor, grant] : decision.allocation.grants) {
    for (const device::ContainerGrant& row : grant) {
      for (const device::Share& share : row) {
        const auto& cards = node.devices();
        const auto card =
            std::find_if(cards.begin(), cards.end(), [&](const auto& one) { return one.uuid == share.uuid; });
        Check(card != cards.end());
        const auto& used = node.used()[static_cast<std::size_t>(card - cards.begin())];
        Check(used.memory + share.memory <= card->memory && used.cores + share.cores <= card->cores);
        Check(used.slots < card->count);
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const device::Vendors vendors = sched::testing::NvidiaOnly();
  sched::Ledger ledger(vendors);
  ledger.SetCards("a", 0, sched::testing::Cards("a", 3, kCard));
  device::Pod granted = sched::testing::PodOf("granted", sched::testing::Wants(1, 9000));
  ledger.Assume(granted, "a", {{{0, {{{"a-0", "NVIDIA", 9000, 0}}}}}, {}}, 100);
  ledger.Confirm("granted");
  const auto before = NodeOf(ledger).used();

  std::vector<device::Pod> pods;
  for (std::size_t which = 0; which < kPods; ++which) pods.push_back(HostilePod(which));
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> steps = base::Split(text, '\n');
  if (steps.size() > 16) steps.resize(16);
  for (const std::string& step : steps) {
    if (step.empty()) continue;
    const auto kind = static_cast<unsigned char>(step.front());
    const std::size_t which = kind % (kPods + 1);
    device::Pod& pod = which < kPods ? pods[which] : granted;
    pod.annotations.clear();
    const std::vector<std::string> fields = base::Split(step.substr(1), '\t');
    for (std::size_t i = 0; i < fields.size() && i < std::size(kKeys); ++i) {
      if (fields[i] != "-") pod.annotations[kKeys[i]] = fields[i];
    }
    if ((kind & 16U) != 0 || which == kPods) pod.node_name = "a";
    ledger.UpsertPod(pod, (kind & 32U) != 0 ? Trust::kDoubted : Trust::kBelieved);
    CheckBooks(ledger);
    CheckGrant(ledger, vendors);
  }
  for (const device::Pod& pod : pods) ledger.RemovePod(pod.uid);
  Check(NodeOf(ledger).used() == before && NodeOf(ledger).readable());
  for (std::size_t card = 0; card < before.size(); ++card) Check(NodeOf(ledger).usable(card));
  return 0;
}
