// SPDX-License-Identifier: Apache-2.0
//
// What the kubelet may say: slots that are asked for, slots to choose from, who holds which. Four lines of words: slots
// to choose from, those that must be among them, the cards of a grant, and slots that another pod holds. A choice
// is made of what was there to choose from; an allocation and the kubelet's book lose no record and give nothing twice.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/strings.h"
#include "plugin/preferred.h"
#include "plugin/resolve.h"
#include "plugin/settle.h"
#include "plugin/slots.h"

using namespace hami;

namespace {

using Words = std::vector<std::string>;

void Check(bool condition) {
  if (!condition) std::abort();
}

plugin::PodView Pod(const std::string& name, const device::ContainerGrant& grant) {
  plugin::PodView pod;
  pod.ns = "ns";
  pod.name = name;
  pod.uid = "uid-" + name;
  pod.node = pod.assigned_node = "node";
  pod.status_phase = "Pending";
  pod.bind_phase = "allocating";
  pod.containers.resize(1);
  pod.to_allocate = pod.allocated = {grant};
  return pod;
}

void Choose(const Words& available, const Words& must, const device::ContainerGrant& grant) {
  for (const std::size_t size : {grant.size(), must.size(), available.size()}) {
    const Words chosen = plugin::PreferSlots(available, must, size, grant);
    Check(chosen.size() == size || chosen == must);
    Check(std::equal(must.begin(), must.end(), chosen.begin()));
    for (const std::string& slot : chosen) {
      Check(std::find(available.begin(), available.end(), slot) != available.end() ||
            std::find(must.begin(), must.end(), slot) != must.end());
    }
  }
}

void Hold(const Words& asked, const Words& held, const device::ContainerGrant& grant) {
  const std::vector<plugin::PodPtr> pods = {std::make_shared<const plugin::PodView>(Pod("a", grant)),
                                            std::make_shared<const plugin::PodView>(Pod("b", grant))};
  plugin::Situation situation;
  situation.node = "node";
  situation.pods = pods;
  situation.concurrent = true;
  const plugin::Resolution found = plugin::Resolve(asked, asked.size(), situation, {});
  if (found.choice) Check(found.choice->grant.size() == asked.size() && found.choice->container == 0);
  plugin::Record record;
  record.owner = {"ns", "a", "uid-a"};
  record.grant = grant;
  record.slots = plugin::Sorted(asked);
  record.assumed = true;
  const plugin::Holdings holdings = {{"ns", "b", "c", plugin::Sorted(held)},
                                     {"other", "a", "c", plugin::Sorted(asked)}};
  const plugin::Settled settled = plugin::Settle({record}, pods, holdings, {1000, true});
  Check(settled.records.size() + settled.dropped.size() >= 1);
  for (const plugin::Record& one : settled.records) {
    for (const plugin::Record& two : settled.records) {
      Check(&one == &two || one.owner.uid != two.owner.uid || one.container != two.container);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 4096) return 0;
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<Words> lines;
  for (const std::string& line : base::Split(text, '\n')) lines.push_back(base::Split(line, ' '));
  lines.resize(4);
  device::ContainerGrant grant;
  for (const std::string& card : lines[2]) grant.push_back({card, "NVIDIA", 1000, 30});
  for (const Words& line : lines) {
    for (const std::string& slot : line) Check(slot.starts_with(plugin::CardOfSlot(slot)));
  }
  Choose(lines[0], lines[1], grant);
  Hold(lines[0], lines[3], grant);
  return 0;
}
