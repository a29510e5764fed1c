// SPDX-License-Identifier: Apache-2.0
//
// What this node gave to whom, one record per container: the answer to the question that the kubelet never asks. A
// record is *given* when its grant was promised to a set of slots, and *owed* when its pod is still to come for it:
// then it stands in place of the pod's own annotation. The owner of a given record may be *assumed*, as long as only
// the kubelet knows which of several like pods holds the slots. Owns the text form of the records; refuses a text that
// does not read back whole, for a record that is lost is a grant that is given twice.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/types.h"

namespace hami::plugin {

struct PodKey {
  std::string ns;
  std::string name;
  std::string uid;
  bool operator==(const PodKey&) const = default;
};

struct Record {
  PodKey owner;
  int container = 0;  // position in the grants: init containers first
  std::string container_name;
  device::ContainerGrant grant;
  std::vector<device::MigReservation> mig;  // one for each share that is a MIG instance, or none at all
  bool owed = false;
  bool assumed = false;
  bool alike = false;  // of an assumed one: whoever it is, what it says of its share is known

  // Where it was given; of an owed record, where it was promised before and never taken, if it was.
  std::vector<std::string> slots;  // sorted; empty once the kubelet gave them to somebody else
  std::string folder;              // of the container's region, below <hook path>/vgpu
  std::string cache;               // the region's file in it
  std::string library;             // the libvgpu.so that the container mounts
  bool preload = true;             // false: the container asked to be left alone
  bool share_file = false;         // its folder has one, which the container mounts (region/layout.h)
  std::int64_t given_at = 0;       // unix seconds: to the slots, or to its owner
  bool operator==(const Record&) const = default;
};
using Records = std::vector<Record>;

const Record* FindRecord(const Records& records, std::string_view uid, int container);
Record* FindRecord(Records& records, std::string_view uid, int container);
bool HasRecords(const Records& records, std::string_view uid);

std::string EncodeRecords(const Records& records);
base::Result<Records> DecodeRecords(std::string_view text);

}  // namespace hami::plugin
