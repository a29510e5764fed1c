// SPDX-License-Identifier: Apache-2.0
//
// A pod as an allocation sees it: who it is, how far it is, what each container was granted. Reading is total for
// whatever carries a name: fields of the wrong shape read as absent, a grant that can not be read is kept as the
// sentence that says why, so that the pod can be told.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "device/pod.h"
#include "device/types.h"
#include "kube/error.h"

namespace hami::plugin {

inline constexpr const char* kToAllocate = "hami.io/vgpu-devices-to-allocate";
inline constexpr const char* kAllocated = "hami.io/vgpu-devices-allocated";
inline constexpr const char* kAllocateFailure = "hami-cpp/allocate-failure";

// What a container's own environment says to libvgpu, as far as it is written out in the pod.
enum class CorePolicy { kDefault = 0, kForce = 1, kDisable = 2 };  // the numbers of the region

struct ContainerView {
  std::string name;
  bool init = false;
  bool control_disabled = false;          // CUDA_DISABLE_CONTROL
  int priority = 1;                       // CUDA_TASK_PRIORITY
  std::optional<CorePolicy> core_policy;  // GPU_CORE_UTILIZATION_POLICY
  bool oversubscribe = false;             // CUDA_OVERSUBSCRIBE
  std::optional<std::uint32_t> runs_as;   // a user id that is certain
  bool operator==(const ContainerView&) const = default;
};

struct PodView {
  std::string ns;
  std::string name;
  std::string uid;
  std::string node;           // spec.nodeName
  std::string assigned_node;  // by the scheduler's filter
  std::string status_phase;   // Pending, Running, Succeeded, Failed
  std::string scheduler_name;
  bool deleting = false;
  std::int64_t bound_at = 0;  // unix seconds, by the API server: bound to its node, or made with one
  std::uint64_t arrival = 0;  // the place among the pods that the watch told of; 0: unknown
  bool admitted = false;      // the kubelet has said something of it
  std::string bind_phase;
  std::int64_t bind_time = 0;
  std::vector<ContainerView> containers;  // init containers first, as in grants
  std::vector<device::Container> asks;    // of the same containers: what they ask for, of what is no CPU or memory
  device::PodGrant to_allocate;           // what is still to be handed out
  device::PodGrant allocated;             // everything that the pod was granted
  std::vector<device::MigReservation> reservations;  // where its MIG instances are to be
  std::string grant_error;                           // why one of the two could not be read
  bool misplaced = false;                            // the annotations have rows at other places than these
  device::StringMap claims;                          // the annotations that a seal is of, and the seal
  bool others_pending = false;                       // another vendor's part is still to be handed out
  bool operator==(const PodView&) const = default;

  bool Ended() const { return status_phase == "Succeeded" || status_phase == "Failed"; }
  bool Pending() const { return status_phase.empty() || status_phase == "Pending"; }
  std::string FullName() const { return ns + "/" + name; }
};

// Of one container, in the order of its shares.
std::vector<device::MigReservation> ReservationsOf(const PodView& pod, int container);

using PodPtr = std::shared_ptr<const PodView>;

kube::Result<PodView> ReadPodView(const base::json::value& pod);

// `RFC3339,namespace,name` of the node lock. Nothing for the older form, a bare time, or for anything else.
struct LockOwner {
  std::string ns;
  std::string name;
  bool operator==(const LockOwner&) const = default;
};
std::optional<LockOwner> ReadLock(std::string_view value);

}  // namespace hami::plugin
