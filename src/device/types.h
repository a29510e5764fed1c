// SPDX-License-Identifier: Apache-2.0
//
// The words of the domain: a device is a physical card that a node registered, a request is what one container asks of
// one vendor, a share is a slice of one device given to a container, a grant is a container's list of shares. Plain
// values; memory is in MiB and cores in percent of one card, as in every annotation of the protocol.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace hami::device {

using MiB = std::int64_t;
using UnixSeconds = std::int64_t;

// Ordered, so that whatever is derived from annotations comes out the same every time.
using StringMap = std::map<std::string, std::string, std::less<>>;

// The half-open interval [start, start + size) of a card's memory slices.
struct MigPlacement {
  int start = 0;
  int size = 0;
  bool operator==(const MigPlacement&) const = default;
};

constexpr bool Overlap(const MigPlacement& a, const MigPlacement& b) {
  return std::int64_t{a.start} < std::int64_t{b.start} + b.size &&
         std::int64_t{b.start} < std::int64_t{a.start} + a.size;
}

struct MigProfile {
  std::string name;
  MiB memory = 0;
  int cores = 0;
  int slices = 0;
  std::vector<MigPlacement> placements;
  bool operator==(const MigProfile&) const = default;
};

inline constexpr const char* kModeMig = "mig";
inline constexpr const char* kModeHamiCore = "hami-core";

struct Device {
  std::string uuid;
  int index = 0;
  int count = 0;  // shares that may live on it at once
  MiB memory = 0;
  int cores = 0;
  std::string type;
  int numa = 0;
  std::string mode;
  bool healthy = false;
  bool cordoned = false;  // not on the wire: from the node's cordon list
  std::vector<MigProfile> mig_profiles;
  int group = -1;  // not on the wire as such: the network, link zone or board that it shares with others
  std::string vendor;
  std::string custom_info;  // a JSON object as text, or empty
  bool operator==(const Device&) const = default;

  bool IsMig() const { return mode == kModeMig; }
};

// No percentage was asked for.
inline constexpr int kPercentUnset = 101;

struct Request {
  int count = 0;
  MiB memory = 0;  // 0: as the percentage says
  int memory_percent = kPercentUnset;
  int cores = 0;
  bool operator==(const Request&) const = default;
};

struct Share {
  std::string uuid;
  std::string type;
  MiB memory = 0;
  int cores = 0;
  bool operator==(const Share&) const = default;
};

using ContainerGrant = std::vector<Share>;
// One entry per container, init containers first, whether or not the container has a share.
using PodGrant = std::vector<ContainerGrant>;

// A planned MIG instance. The plugin adds the identity of the real one, all three parts or none.
struct MigReservation {
  int container = 0;  // position among all containers, init first
  int device = 0;     // position inside the container's grant
  std::string gpu_uuid;
  std::string profile;
  MigPlacement placement;
  std::string mig_uuid;
  int gpu_instance = -1;
  int compute_instance = -1;
  bool operator==(const MigReservation&) const = default;

  bool Realised() const { return !mig_uuid.empty(); }
};

// Everything that one pod holds.
struct Allocation {
  std::vector<std::pair<int, PodGrant>> grants;  // (vendor's position in the list of vendors, grant)
  std::vector<MigReservation> reservations;
  bool operator==(const Allocation&) const = default;
};

}  // namespace hami::device
