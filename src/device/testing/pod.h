// SPDX-License-Identifier: Apache-2.0
//
// For tests: the long way to a pod, by a parser and a document of the whole.

#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "device/pod.h"
#include "device/quantity.h"

namespace hami::device::testing {

namespace json = base::json;
using base::GetArray;
using base::GetString;

inline const json::object* Object(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(json::string_view(key.data(), key.size()));
  return value == nullptr ? nullptr : value->if_object();
}

inline StringMap Texts(const json::object* object, bool quantities) {
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
inline void ReadTerms(const json::object& object, const json::object& spec, StringMap& terms) {
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

inline void ReadContainer(const json::object& object, const json::object& spec, Container& out) {
  out.name = GetString(object, "name").value_or("");
  if (const json::object* resources = Object(object, "resources")) {
    out.limits = Texts(Object(*resources, "limits"), true);
    out.requests = Texts(Object(*resources, "requests"), true);
  }
  ReadTerms(object, spec, out.terms);
}

inline bool EndedWell(const json::object& status) {
  const json::object* state = Object(status, "state");
  const json::object* terminated = state == nullptr ? nullptr : Object(*state, "terminated");
  if (terminated == nullptr) return false;
  const json::value* code = terminated->if_contains("exitCode");
  return code == nullptr || (code->is_int64() && code->get_int64() == 0);
}

inline bool InitDone(const std::vector<InitContainer>& containers, const json::object* status) {
  std::map<std::string, bool, std::less<>> ended;
  ForEach(status, "initContainerStatuses",
          [&](const json::object& one) { ended[GetString(one, "name").value_or("")] = EndedWell(one); });
  const auto ordinary = std::count_if(containers.begin(), containers.end(), [](const auto& c) { return !c.sidecar; });
  return ordinary > 0 && std::all_of(containers.begin(), containers.end(), [&](const InitContainer& container) {
           const auto found = ended.find(container.name);
           return container.sidecar || (found != ended.end() && found->second);
         });
}

inline bool HasItems(const json::object& object, std::string_view key) {
  const json::array* list = GetArray(object, key);
  return list != nullptr && !list->empty();
}

// Nothing in the pod may be started anew.
inline bool NeverAgain(const json::object& spec) {
  bool never = GetString(spec, "restartPolicy") == "Never";
  for (const char* kind : {"containers", "initContainers"}) {
    ForEach(&spec, kind, [&](const json::object& container) {
      const std::string policy = GetString(container, "restartPolicy").value_or("");
      never = never && (policy.empty() || policy == "Never") && !HasItems(container, "restartPolicyRules");
    });
  }
  return never;
}

inline bool CrossesNamespaces(const json::object& spec) {
  bool crosses = false;
  const auto look = [&](const json::object& term) {
    const json::value* selector = term.if_contains("namespaceSelector");
    crosses = crosses || HasItems(term, "namespaces") || (selector != nullptr && !selector->is_null());
  };
  const json::object* affinity = Object(spec, "affinity");
  if (affinity == nullptr) return false;
  for (const char* kind : {"podAffinity", "podAntiAffinity"}) {
    const json::object* terms = Object(*affinity, kind);
    ForEach(terms, "requiredDuringSchedulingIgnoredDuringExecution", look);
    ForEach(terms, "preferredDuringSchedulingIgnoredDuringExecution", [&](const json::object& one) {
      if (const json::object* term = Object(one, "podAffinityTerm")) look(*term);
    });
  }
  return crosses;
}

inline bool AsksOfHost(const json::object& object) {
  const json::object* resources = Object(object, "resources");
  if (resources == nullptr) return false;
  for (const char* kind : {"limits", "requests"}) {
    const StringMap map = Texts(Object(*resources, kind), true);
    for (const char* resource : {"cpu", "memory"}) {
      const auto found = map.find(resource);
      const auto quantity = ParseQuantity(found == map.end() ? "0" : found->second);
      if (quantity && quantity->value > 0) return true;
    }
  }
  return false;
}

inline bool BestEffort(const json::object* spec, const json::object* status) {
  const std::string quality = status == nullptr ? "" : GetString(*status, "qosClass").value_or("");
  if (!quality.empty()) return quality == "BestEffort";
  bool asks = spec != nullptr && AsksOfHost(*spec);
  for (const char* kind : {"containers", "initContainers"}) {
    ForEach(spec, kind, [&](const json::object& container) { asks = asks || AsksOfHost(container); });
  }
  return !asks;
}

inline PodTraits ReadTraits(const json::object* spec, const json::object* status) {
  PodTraits traits;
  traits.best_effort = BestEffort(spec, status);
  if (spec == nullptr) return traits;
  traits.cross_namespace = CrossesNamespaces(*spec);
  traits.priority_class = GetString(*spec, "priorityClassName").value_or("");
  const json::value* deadline = spec->if_contains("activeDeadlineSeconds");
  const std::string seconds = deadline == nullptr ? "" : QuantityText(*deadline);
  traits.terminating = !seconds.empty() && seconds[0] >= '0' && seconds[0] <= '9';
  return traits;
}

inline PodObject FromDocument(const json::value& document) {
  PodObject out;
  const json::object* object = document.if_object();
  Pod& pod = out.pod;
  pod.traits = ReadTraits(nullptr, nullptr);
  if (object == nullptr) return out;
  if (const json::object* metadata = Object(*object, "metadata")) {
    pod.ns = GetString(*metadata, "namespace").value_or("");
    pod.name = GetString(*metadata, "name").value_or("");
    pod.uid = GetString(*metadata, "uid").value_or("");
    pod.annotations = Texts(Object(*metadata, "annotations"), false);
    out.version = GetString(*metadata, "resourceVersion").value_or("");
    const json::object* labels = Object(*metadata, "labels");
    out.group = labels != nullptr && !GetString(*labels, "scheduling.x-k8s.io/pod-group").value_or("").empty();
  }
  const json::object* spec = Object(*object, "spec");
  if (spec != nullptr) pod.node_name = GetString(*spec, "nodeName").value_or("");
  const json::object* group = spec == nullptr ? nullptr : Object(*spec, "schedulingGroup");
  if (group != nullptr && !GetString(*group, "podGroupName").value_or("").empty()) out.group = true;
  const json::object* work = spec == nullptr ? nullptr : Object(*spec, "workloadRef");
  if (work != nullptr && !GetString(*work, "podGroup").value_or("").empty()) out.group = true;
  const json::value* priority = spec == nullptr ? nullptr : spec->if_contains("priority");
  if (priority != nullptr) pod.priority = PriorityOf(QuantityText(*priority));
  if (spec != nullptr) out.preempts = GetString(*spec, "preemptionPolicy").value_or("") != "Never";
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
    ForEach(status, "conditions", [&](const json::object& condition) {
      const auto text = [&](const char* key) { return GetString(condition, key).value_or(""); };
      if (text("type") != "PodScheduled" || text("status") != "False") return;
      out.refusal = RefusalOf(text("reason"), text("message"), text("lastTransitionTime"));
    });
  }
  pod.init_done = spec != nullptr && NeverAgain(*spec) && InitDone(pod.init_containers, status);
  pod.traits = ReadTraits(spec, status);
  return out;
}

// What a parser makes of TEXT; nothing: it is not JSON.
inline std::optional<PodObject> PodByParser(std::string_view text) {
  json::error_code error;
  json::parse_options options;
  options.max_depth = base::JsonCursor::kMostDepth;
  const json::value document = json::parse({text.data(), text.size()}, error, {}, options);
  return error ? std::nullopt : std::optional<PodObject>(FromDocument(document));
}

inline std::optional<PodObject> PodByCursor(std::string_view text) {
  base::JsonCursor cursor(text);
  PodObject out;
  return TakePod(cursor, {}, out) && cursor.AtEnd() ? std::optional<PodObject>(std::move(out)) : std::nullopt;
}

// An exponent of eight digits and more somewhere, which a parser may refuse.
inline bool HasHugeExponent(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  for (std::size_t e = text.find_first_of("eE"); e != std::string_view::npos; e = text.find_first_of("eE", e + 1)) {
    if (e == 0 || kDigits.find(text[e - 1]) == std::string_view::npos) continue;
    std::string_view rest = text.substr(e + 1);
    if (!rest.empty() && (rest[0] == '+' || rest[0] == '-')) rest.remove_prefix(1);
    if (std::min(rest.find_first_not_of(kDigits), rest.size()) >= 8) return true;
  }
  return false;
}

// Both ways lead to the same. Exponents out of all bounds, which a parser refuses, are no harm.
inline bool ReadAlike(std::string_view text) {
  const auto expected = PodByParser(text);
  const auto read = PodByCursor(text);
  return read == expected || (!expected && HasHugeExponent(text));
}

}  // namespace hami::device::testing
