// SPDX-License-Identifier: Apache-2.0
//
// Hygon's DCUs: parts of a card by memory and percent of its cores; all cores unless less is asked.

#include <algorithm>

#include "base/strings.h"
#include "device/vendors/plain.h"
#include "device/vendors/sections.h"

namespace hami::device {

void AddHygon(const OtherSections& config, Vendors& out) {
  const Section section(config, "hygon");
  PlainSpec spec{.key = "DCU",
                 .count_resource = section.Text("resourceCountName"),
                 .memory_resource = section.Text("resourceMemoryName"),
                 .core_resource = section.Text("resourceCoreName"),
                 .memory_unit = std::max<std::int64_t>(section.Integer("memoryFactor"), 1),
                 .default_cores = kWholeCard,
                 .registered = base::Concat({kHamiDomain, "node-dcu-register"}),
                 .legacy_register = true,
                 .handshake = base::Concat({kHamiDomain, "node-handshake-dcu"}),
                 .use_type = "hygon.com/use-dcutype",
                 .avoid_type = "hygon.com/nouse-dcutype"};
  spec.GrantAs("dcu");
  spec.ListUuids("hygon.com");
  AddNamed(std::make_unique<PlainVendor>(std::move(spec)), out);
}

}  // namespace hami::device
