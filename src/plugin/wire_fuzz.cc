// SPDX-License-Identifier: Apache-2.0
//
// What the allocator reads and others may have written: pods, the node lock, the records on disk. What is understood
// must read back as itself, and no pod may lead to a decision that names a container it does not have.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "plugin/origin.h"
#include "plugin/resolve.h"
#include "plugin/settle.h"

using namespace hami;

namespace {

constexpr const char* kFirst = "GPU-a";
constexpr const char* kSecond = "GPU-b";
constexpr device::MiB kCardMemory = 16384;
constexpr device::MiB kGiven = 4096;  // of the first card, to another pod

void Check(bool condition) {
  if (!condition) std::abort();
}

plugin::Cards TwoCards() {
  plugin::Cards cards;
  for (const char* uuid : {kFirst, kSecond}) {
    plugin::Card card;
    card.uuid = uuid;
    card.memory = kCardMemory;
    card.cores = 100;
    cards.cards.push_back(std::move(card));
  }
  return cards;
}

// Whatever a pod writes on itself: what is believed of it fits beside what others have, and into what it asks for.
void Judge(const plugin::PodPtr& shared) {
  static const plugin::Cards cards = TwoCards();
  const device::NvidiaVendor vendor = plugin::VendorOf(cards.settings);
  plugin::PodView pod = *shared;
  if (const auto placed = plugin::PutInPlace(pod, vendor)) {
    Check(!plugin::PutInPlace(*placed, vendor));
    pod = *placed;
  }
  plugin::PodView other;
  other.uid = pod.uid + "-other";
  other.status_phase = "Running";
  const std::vector<plugin::PodPtr> pods = {std::make_shared<const plugin::PodView>(other),
                                            std::make_shared<const plugin::PodView>(pod)};
  plugin::Record record;
  record.owner.uid = other.uid;
  record.grant = {{kFirst, "NVIDIA", kGiven, 10}};
  const plugin::Records records = {record};
  const plugin::OriginRules rules{{"hami-*"}, false, {}, {}};
  if (!plugin::Distrust(pod, true, {&rules, &cards, &pods, &records, 0}).empty()) return;
  const std::vector<int> counts = plugin::CountsOf(pod, vendor);
  device::MiB first = kGiven;
  for (std::size_t row = 0; row < pod.to_allocate.size(); ++row) {
    Check(pod.to_allocate[row].empty() || pod.to_allocate[row].size() == static_cast<std::size_t>(counts.at(row)));
    for (const device::Share& share : pod.to_allocate[row]) {
      const bool here = share.uuid == kFirst || share.uuid == kSecond;
      Check(!here || share.memory <= kCardMemory);
      if (share.uuid == kFirst && !pod.containers.at(row).init && share.memory > 0) first += share.memory;
    }
  }
  Check(first <= kCardMemory);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)plugin::ReadLock(text);
  if (const auto records = plugin::DecodeRecords(text)) {
    const auto again = plugin::DecodeRecords(plugin::EncodeRecords(*records));
    if (!again || *again != *records) std::abort();
  }
  const auto document = base::ParseJson(text);
  if (!document) return 0;
  auto pod = plugin::ReadPodView(*document);
  if (!pod) return 0;
  const auto shared = std::make_shared<const plugin::PodView>(*std::move(pod));
  const auto next = plugin::NextOf(shared, {}, shared->node, true);
  if (next && (static_cast<std::size_t>(next->container) >= shared->to_allocate.size() || next->grant.empty())) {
    std::abort();
  }
  (void)plugin::DesiredAnnotations(*shared, {});
  Judge(shared);
  return 0;
}
