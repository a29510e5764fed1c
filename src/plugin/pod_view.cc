// SPDX-License-Identifier: Apache-2.0

#include "plugin/pod_view.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/strings.h"
#include "device/allocation_codec.h"
#include "device/annotations.h"
#include "device/grant_seal.h"
#include "device/lists.h"
#include "kube/timestamp.h"
#include "kube/views.h"

namespace hami::plugin {
namespace {

namespace json = base::json;

const json::object* Object(const json::object* parent, std::string_view key) {
  const json::value* value =
      parent == nullptr ? nullptr : parent->if_contains(json::string_view(key.data(), key.size()));
  return value == nullptr ? nullptr : value->if_object();
}

std::optional<std::uint32_t> UserOf(const json::object* context) {
  const json::value* value = context == nullptr ? nullptr : context->if_contains("runAsUser");
  if (value == nullptr || !value->is_int64() || value->get_int64() < 0) return std::nullopt;
  const std::int64_t user = value->get_int64();
  if (user > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
  return static_cast<std::uint32_t>(user);
}

std::optional<CorePolicy> PolicyOf(const std::string& text) {
  const std::string lower = base::ToLower(text);
  if (lower == "force") return CorePolicy::kForce;
  if (lower == "disable") return CorePolicy::kDisable;
  return CorePolicy::kDefault;
}

// Only literal values count, as in HAMi: what a reference resolves to is not known here. The last of a name wins.
void ReadEnvironment(const json::object& object, ContainerView& container) {
  const json::array* list = base::GetArray(object, "env");
  if (list == nullptr) return;
  for (const json::value& item : *list) {
    const json::object* entry = item.if_object();
    if (entry == nullptr) continue;
    const std::string name = base::GetString(*entry, "name").value_or("");
    const std::string value = base::GetString(*entry, "value").value_or("");
    if (name == "CUDA_DISABLE_CONTROL") container.control_disabled = device::ParseBool(value).value_or(false);
    if (name == "CUDA_TASK_PRIORITY") container.priority = value == "0" ? 0 : 1;
    if (name == "GPU_CORE_UTILIZATION_POLICY") container.core_policy = PolicyOf(value);
    if (name == "CUDA_OVERSUBSCRIBE") container.oversubscribe = device::ParseBool(value).value_or(false);
  }
}

// Extended resources have a '/' in their names, and they alone are asked of plugins.
void ReadAmounts(const json::object* amounts, device::StringMap& out) {
  if (amounts == nullptr) return;
  for (const auto& [key, value] : *amounts) {
    const std::string name = key;
    if (name.find('/') != std::string::npos) out[name] = device::QuantityText(value);
  }
}

void ReadAsk(const json::object& container, device::Container& ask) {
  const json::object* resources = Object(&container, "resources");
  ReadAmounts(Object(resources, "limits"), ask.limits);
  ReadAmounts(Object(resources, "requests"), ask.requests);
}

// When the API server bound it. One that was made with the name of a node was never bound.
std::int64_t BoundAt(const json::object* metadata, const json::object* status) {
  const json::array* conditions = status == nullptr ? nullptr : base::GetArray(*status, "conditions");
  if (conditions != nullptr) {
    for (const json::value& item : *conditions) {
      const json::object* condition = item.if_object();
      if (condition == nullptr || base::GetString(*condition, "type") != "PodScheduled") continue;
      const auto at = kube::ParseUnixTime(base::GetString(*condition, "lastTransitionTime").value_or(""));
      if (at && base::GetString(*condition, "status") == "True") return *at;
    }
  }
  if (metadata == nullptr) return 0;
  return kube::ParseUnixTime(base::GetString(*metadata, "creationTimestamp").value_or("")).value_or(0);
}

void ReadContainers(const json::object* spec, const char* key, bool init, PodView& pod) {
  const json::array* list = spec == nullptr ? nullptr : base::GetArray(*spec, key);
  if (list == nullptr) return;
  // In a user namespace the container's ids are others than the node's.
  const bool mapped = base::GetBool(*spec, "hostUsers") == false;
  const std::optional<std::uint32_t> pods_user = UserOf(Object(spec, "securityContext"));
  for (const json::value& item : *list) {
    const json::object* object = item.if_object();
    if (object == nullptr) continue;
    ContainerView& container = pod.containers.emplace_back();
    container.name = base::GetString(*object, "name").value_or("");
    container.init = init;
    ReadEnvironment(*object, container);
    const std::optional<std::uint32_t> own = UserOf(Object(object, "securityContext"));
    if (!mapped) container.runs_as = own ? own : pods_user;
    ReadAsk(*object, pod.asks.emplace_back());
  }
}

bool HasShare(std::string_view grant) { return grant.find_first_not_of("; ") != std::string_view::npos; }

void ReadGrants(const kube::StringMap& annotations, PodView& pod) {
  const auto read = [&](const char* key, device::PodGrant& out) {
    const std::string* text = device::Find(annotations, key);
    if (text == nullptr) return;
    auto grant = device::DecodeGrant(*text);
    if (grant) {
      out = *std::move(grant);
    } else {
      pod.grant_error = base::Concat({key, ": ", grant.error().message});
    }
  };
  read(kToAllocate, pod.to_allocate);
  read(kAllocated, pod.allocated);
  if (const std::string* text = device::Find(annotations, device::kMigAllocations)) {
    auto reservations = device::DecodeReservations(*text);
    if (reservations) {
      pod.reservations = *std::move(reservations);
    } else {
      pod.grant_error = base::Concat({device::kMigAllocations, ": ", reservations.error().message});
    }
  }
  for (const auto& [key, value] : annotations) {
    if (key != kToAllocate && key.ends_with("devices-to-allocate") && HasShare(value)) pod.others_pending = true;
    const bool claim = device::IsAllocatedKey(key) || key == device::kMigAllocations || key == device::kGrantSeal;
    if (claim) pod.claims[key] = value;
  }
}

}  // namespace

kube::Result<PodView> ReadPodView(const json::value& document) {
  const auto metadata = kube::ReadMetadata(document);
  if (!metadata) return tl::unexpected(metadata.error());
  PodView pod;
  pod.ns = metadata->ns;
  pod.name = metadata->name;
  pod.uid = metadata->uid;
  pod.deleting = metadata->deleting;
  const json::object* spec = Object(document.if_object(), "spec");
  const json::object* status = Object(document.if_object(), "status");
  if (spec != nullptr) pod.node = base::GetString(*spec, "nodeName").value_or("");
  if (spec != nullptr) pod.scheduler_name = base::GetString(*spec, "schedulerName").value_or("");
  if (status != nullptr) pod.status_phase = base::GetString(*status, "phase").value_or("");
  pod.admitted = status != nullptr && status->contains("startTime");
  pod.bound_at = BoundAt(Object(document.if_object(), "metadata"), status);
  ReadContainers(spec, "initContainers", true, pod);
  ReadContainers(spec, "containers", false, pod);
  const auto text = [&](const char* key) {
    const std::string* value = device::Find(metadata->annotations, key);
    return value == nullptr ? std::string() : *value;
  };
  pod.assigned_node = text(device::kAssignedNode);
  pod.bind_phase = text(device::kBindPhase);
  const auto bound = base::ParseNumber(text(device::kBindTime));
  pod.bind_time = bound && *bound < std::uint64_t{1} << 40 ? static_cast<std::int64_t>(*bound) : 0;
  ReadGrants(metadata->annotations, pod);
  return pod;
}

std::vector<device::MigReservation> ReservationsOf(const PodView& pod, int container) {
  std::vector<device::MigReservation> found;
  std::copy_if(pod.reservations.begin(), pod.reservations.end(), std::back_inserter(found),
               [&](const device::MigReservation& one) { return one.container == container; });
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.device < b.device; });
  return found;
}

std::optional<LockOwner> ReadLock(std::string_view value) {
  const std::vector<std::string> parts = base::Split(value, ',');
  if (parts.size() != 3 || parts[1].empty() || parts[2].empty()) return std::nullopt;
  return LockOwner{parts[1], parts[2]};
}

}  // namespace hami::plugin
