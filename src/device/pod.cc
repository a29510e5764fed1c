// SPDX-License-Identifier: Apache-2.0

#include "device/pod.h"

#include <algorithm>
#include <array>

#include "device/lists.h"

namespace hami::device {
namespace {

using base::GetArray;
using base::GetString;
using base::Result;
namespace json = base::json;

const json::object* Object(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(json::string_view(key.data(), key.size()));
  return value == nullptr ? nullptr : value->if_object();
}

StringMap Texts(const json::object* object, bool quantities) {
  StringMap map;
  if (object == nullptr) return map;
  for (const json::key_value_pair& pair : *object) {
    if (!pair.value().is_string() && !quantities) continue;
    // At the end, as servers write the members of a map in order.
    map.emplace_hint(map.end(), std::string(pair.key().data(), pair.key().size()), QuantityText(pair.value()));
  }
  return map;
}

template <typename Each>
void ForEach(const json::object* parent, std::string_view key, Each each) {
  const json::array* list = parent == nullptr ? nullptr : GetArray(*parent, key);
  if (list == nullptr) return;
  for (const json::value& item : *list) {
    if (const json::object* object = item.if_object()) each(*object);
  }
}

// Of a name that is there twice the last counts, as in the container.
void ReadTerms(const json::object& object, const json::object& spec, StringMap& terms) {
  constexpr std::array kNames = {"CUDA_DISABLE_CONTROL", "CUDA_OVERSUBSCRIBE", "CUDA_TASK_PRIORITY",
                                 "GPU_CORE_UTILIZATION_POLICY"};
  ForEach(&object, "env", [&](const json::object& variable) {
    std::string name = GetString(variable, "name").value_or("");
    if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) return;
    terms[std::move(name)] = GetString(variable, "value").value_or("");
  });
  for (const json::object* context : {Object(spec, "securityContext"), Object(object, "securityContext")}) {
    const json::value* user = context == nullptr ? nullptr : context->if_contains("runAsUser");
    if (user != nullptr) terms["runAsUser"] = QuantityText(*user);
  }
  // In a user namespace the container's ids are others than the node's.
  if (base::GetBool(spec, "hostUsers") == false) terms["hostUsers"] = "false";
}

void ReadContainer(const json::object& object, const json::object& spec, Container& out) {
  out.name = GetString(object, "name").value_or("");
  if (const json::object* resources = Object(object, "resources")) {
    out.limits = Texts(Object(*resources, "limits"), true);
    out.requests = Texts(Object(*resources, "requests"), true);
  }
  ReadTerms(object, spec, out.terms);
}

bool EndedWell(const json::object& status) {
  const json::object* state = Object(status, "state");
  const json::object* terminated = state == nullptr ? nullptr : Object(*state, "terminated");
  if (terminated == nullptr) return false;
  const json::value* code = terminated->if_contains("exitCode");
  return code == nullptr || (code->is_int64() && code->get_int64() == 0);
}

bool InitDone(const std::vector<InitContainer>& containers, const json::object* status) {
  std::map<std::string, bool, std::less<>> ended;
  ForEach(status, "initContainerStatuses",
          [&](const json::object& one) { ended[GetString(one, "name").value_or("")] = EndedWell(one); });
  const auto ordinary = std::count_if(containers.begin(), containers.end(), [](const auto& c) { return !c.sidecar; });
  return ordinary > 0 && std::all_of(containers.begin(), containers.end(), [&](const InitContainer& container) {
           const auto found = ended.find(container.name);
           return container.sidecar || (found != ended.end() && found->second);
         });
}

}  // namespace

const std::string* Container::Resource(std::string_view resource) const {
  if (resource.empty()) return nullptr;
  const std::string* limit = Find(limits, resource);
  return limit != nullptr ? limit : Find(requests, resource);
}

std::string QuantityText(const json::value& value) {
  if (value.is_string()) return std::string(value.get_string().data(), value.get_string().size());
  if (value.is_int64() || value.is_uint64()) return json::serialize(value);
  return "?";  // no quantity, and no parser takes it for one
}

Result<Pod> ReadPod(const json::value& document) {
  const json::object* object = document.if_object();
  if (object == nullptr) return base::Fail("the pod is not a JSON object");
  Pod pod;
  if (const json::object* metadata = Object(*object, "metadata")) {
    pod.ns = GetString(*metadata, "namespace").value_or("");
    pod.name = GetString(*metadata, "name").value_or("");
    pod.uid = GetString(*metadata, "uid").value_or("");
    pod.annotations = Texts(Object(*metadata, "annotations"), false);
  }
  const json::object* spec = Object(*object, "spec");
  if (spec != nullptr) pod.node_name = GetString(*spec, "nodeName").value_or("");
  ForEach(spec, "initContainers", [&](const json::object& item) {
    InitContainer& container = pod.init_containers.emplace_back();
    ReadContainer(item, *spec, container);
    container.sidecar = GetString(item, "restartPolicy").value_or("") == "Always";
  });
  ForEach(spec, "containers",
          [&](const json::object& item) { ReadContainer(item, *spec, pod.containers.emplace_back()); });
  const json::object* status = Object(*object, "status");
  if (status != nullptr) {
    const std::string phase = GetString(*status, "phase").value_or("");
    pod.terminated = phase == "Succeeded" || phase == "Failed";
  }
  pod.init_done = InitDone(pod.init_containers, status);
  return pod;
}

}  // namespace hami::device
