// SPDX-License-Identifier: Apache-2.0

#include "kube/views.h"

#include <algorithm>

namespace hami::kube {
namespace {

namespace json = base::json;

const json::value* Find(const json::value& value, std::string_view key) {
  const json::object* object = value.if_object();
  return object == nullptr ? nullptr : object->if_contains(json::string_view(key.data(), key.size()));
}

// Along a path of keys; nullptr where it ends early.
const json::value* Find(const json::value& value, std::initializer_list<std::string_view> path) {
  const json::value* at = &value;
  for (const std::string_view key : path) {
    if (at != nullptr) at = Find(*at, key);
  }
  return at;
}

std::string Text(const json::value* value) {
  if (value == nullptr || !value->is_string()) return {};
  return std::string(value->get_string().data(), value->get_string().size());
}

bool IsTrue(const json::value* value) { return value != nullptr && value->is_bool() && value->get_bool(); }

// A map of strings. Quantities may be written as JSON numbers.
StringMap TextMap(const json::value* value, const KeepKey& keep = {}) {
  StringMap map;
  if (value == nullptr || !value->is_object()) return map;
  for (const auto& [key, item] : value->get_object()) {
    const std::string_view name(key.data(), key.size());
    if (keep && !keep(name)) continue;
    if (item.is_string()) {
      map.emplace(name, Text(&item));
    } else if (item.is_number()) {
      map.emplace(name, json::serialize(item));
    }
  }
  return map;
}

template <typename Read>
auto ReadArray(const json::value* value, Read read) {
  std::vector<decltype(read(*value))> items;
  if (value == nullptr || !value->is_array()) return items;
  items.reserve(value->get_array().size());
  for (const json::value& item : value->get_array()) items.push_back(read(item));
  return items;
}

Container ReadContainer(const json::value& value) {
  return {Text(Find(value, "name")), TextMap(Find(value, {"resources", "limits"})),
          TextMap(Find(value, {"resources", "requests"})), Text(Find(value, "restartPolicy")) == "Always"};
}

ContainerStatus ReadStatus(const json::value& value) {
  const json::value* code = Find(value, {"state", "terminated", "exitCode"});
  json::error_code error;
  const bool zero = code != nullptr && code->to_number<std::int64_t>(error) == 0 && !error;
  return {Text(Find(value, "name")), zero};
}

std::uint64_t Number(const json::value* value, std::uint64_t otherwise) {
  if (value == nullptr) return otherwise;
  json::error_code error;
  const auto number = value->to_number<std::uint64_t>(error);
  return error ? otherwise : number;
}

std::vector<std::string> Texts(const json::value* list) {
  std::vector<std::string> texts;
  const json::array* array = list == nullptr ? nullptr : list->if_array();
  if (array == nullptr) return texts;
  for (const json::value& item : *array) texts.push_back(Text(&item));
  return texts;
}

std::vector<QuotaScope> ReadScopes(const json::value& object) {
  std::vector<QuotaScope> scopes;
  for (std::string& name : Texts(Find(object, {"spec", "scopes"}))) scopes.push_back({std::move(name), "Exists", {}});
  const auto expressions =
      ReadArray(Find(object, {"spec", "scopeSelector", "matchExpressions"}), [](const json::value& value) {
        return QuotaScope{Text(Find(value, "scopeName")), Text(Find(value, "operator")), Texts(Find(value, "values"))};
      });
  scopes.insert(scopes.end(), expressions.begin(), expressions.end());
  return scopes;
}

}  // namespace

Result<Metadata> ReadMetadata(const json::value& object, const KeepKey& keep_annotation) {
  const json::value* own = Find(object, "metadata");
  Metadata metadata;
  if (own != nullptr) metadata.name = Text(Find(*own, "name"));
  if (metadata.name.empty()) return Fail(Reason::kBadAnswer, "an object without a name");
  metadata.ns = Text(Find(*own, "namespace"));
  metadata.uid = Text(Find(*own, "uid"));
  metadata.resource_version = Text(Find(*own, "resourceVersion"));
  metadata.labels = TextMap(Find(*own, "labels"));
  metadata.annotations = TextMap(Find(*own, "annotations"), keep_annotation);
  metadata.deleting = !Text(Find(*own, "deletionTimestamp")).empty();
  return metadata;
}

Result<Pod> ReadPod(const json::value& object, const KeepKey& keep_annotation) {
  auto metadata = ReadMetadata(object, keep_annotation);
  if (!metadata) return tl::unexpected(metadata.error());
  Pod pod;
  pod.metadata = *std::move(metadata);
  pod.node_name = Text(Find(object, {"spec", "nodeName"}));
  pod.scheduler_name = Text(Find(object, {"spec", "schedulerName"}));
  pod.phase = Text(Find(object, {"status", "phase"}));
  pod.containers = ReadArray(Find(object, {"spec", "containers"}), ReadContainer);
  pod.init_containers = ReadArray(Find(object, {"spec", "initContainers"}), ReadContainer);
  pod.init_statuses = ReadArray(Find(object, {"status", "initContainerStatuses"}), ReadStatus);
  return pod;
}

Result<Node> ReadNode(const json::value& object, const KeepKey& keep_annotation, const KeepKey& keep_resource) {
  auto metadata = ReadMetadata(object, keep_annotation);
  if (!metadata) return tl::unexpected(metadata.error());
  Node node;
  node.metadata = *std::move(metadata);
  node.unschedulable = IsTrue(Find(object, {"spec", "unschedulable"}));
  node.allocatable = TextMap(Find(object, {"status", "allocatable"}), keep_resource);
  node.capacity = TextMap(Find(object, {"status", "capacity"}), keep_resource);
  if (const json::value* conditions = Find(object, {"status", "conditions"}); conditions && conditions->is_array()) {
    for (const json::value& condition : conditions->get_array()) {
      if (Text(Find(condition, "type")) == "Ready") node.ready = Text(Find(condition, "status")) == "True";
    }
  }
  return node;
}

Result<Quota> ReadQuota(const json::value& object) {
  auto metadata = ReadMetadata(object);
  if (!metadata) return tl::unexpected(metadata.error());
  return Quota{*std::move(metadata), TextMap(Find(object, {"spec", "hard"})), TextMap(Find(object, {"status", "used"})),
               ReadScopes(object)};
}

Result<Lease> ReadLease(const json::value& object) {
  auto metadata = ReadMetadata(object);
  if (!metadata) return tl::unexpected(metadata.error());
  constexpr std::uint64_t kMostSeconds = 24 * 3600;
  Lease lease;
  lease.metadata = *std::move(metadata);
  lease.holder = Text(Find(object, {"spec", "holderIdentity"}));
  lease.duration = std::chrono::seconds(std::min(
      Number(Find(object, {"spec", "leaseDurationSeconds"}), static_cast<std::uint64_t>(lease.duration.count())),
      kMostSeconds));
  lease.renew_time = Text(Find(object, {"spec", "renewTime"}));
  lease.transitions = Number(Find(object, {"spec", "leaseTransitions"}), 0);
  return lease;
}

void LeaderView::Observe(const Lease& lease, Time now) {
  // A relist or a bookkeeping change shows the same renewal again: that is no sign of life.
  const bool renewed = !seen_ || lease.renew_time != renew_time_ || lease.holder != holder_;
  seen_ = true;
  holder_ = lease.holder;
  renew_time_ = lease.renew_time;
  if (renewed) expires_ = now + lease.duration;
}

bool LeaderView::LeadsFrom(std::string_view host, Time now) const {
  if (host.empty() || !Valid(now) || !std::string_view(holder_).starts_with(host)) return false;
  return holder_.size() == host.size() || holder_[host.size()] == '_';
}

}  // namespace hami::kube
