// SPDX-License-Identifier: Apache-2.0
//
// Biren: whole shares of a card, by count alone.

#include "base/strings.h"
#include "device/vendors/plain.h"
#include "device/vendors/sections.h"

namespace hami::device {

void AddBiren(const OtherSections& config, Vendors& out) {
  PlainSpec spec{.key = "Biren",
                 .count_resource = Section(config, "biren").Text("resourceCountName"),
                 .count_only = true,
                 .registered = base::Concat({kHamiDomain, "node-biren-register"}),
                 .handshake = base::Concat({kHamiDomain, "node-handshake-biren"})};
  spec.GrantAs("Biren");
  spec.ListUuids("birentech.com");
  AddNamed(std::make_unique<PlainVendor>(std::move(spec)), out);
}

}  // namespace hami::device
