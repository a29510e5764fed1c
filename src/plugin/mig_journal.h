// SPDX-License-Identifier: Apache-2.0
//
// The MIG instances that this node's plugin made, as they are kept on disk. An entry is an *intent* before its instance
// is made and names the instance afterwards: whatever the moment of a death, an instance of ours has an entry. Owns the
// text form; refuses a text that does not read back whole, for an entry that is lost is an instance that nobody
// removes.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/types.h"
#include "plugin/record.h"

namespace hami::plugin {

struct MigEntry {
  PodKey owner;       // for which it was made, or taken over last
  int container = 0;  // position in the grants
  int device = 0;     // position in the container's grant
  std::string gpu_uuid;
  std::string profile;  // the driver's name
  device::MigPlacement placement;
  int gpu_instance = -1;  // -1: an intent, or one that died half way
  int compute_instance = -1;
  std::string mig_uuid;
  bool operator==(const MigEntry&) const = default;

  bool Made() const { return !mig_uuid.empty(); }
};
using MigEntries = std::vector<MigEntry>;

// "1g.10gb at slice 3 of GPU-…".
std::string Describe(const MigEntry& entry);

std::string EncodeMigJournal(const MigEntries& entries);
base::Result<MigEntries> DecodeMigJournal(std::string_view text);

}  // namespace hami::plugin
