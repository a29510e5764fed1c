// SPDX-License-Identifier: Apache-2.0

#include "sched/webhook.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/strings.h"
#include "device/annotations.h"
#include "device/json_edit.h"
#include "device/lists.h"
#include "sched/accounting.h"
#include "sched/json_patch.h"
#include "sched/plan.h"
#include "sched/policy.h"

namespace hami::sched {
namespace {

using base::Result;
namespace json = base::json;

constexpr const char* kContainerLists[] = {"initContainers", "containers"};

Admission Deny(int code, std::string message) { return {false, code, std::move(message), {}}; }

const json::object* MapIn(const json::object* object, std::string_view key) {
  const json::value* member =
      object == nullptr ? nullptr : object->if_contains(json::string_view(key.data(), key.size()));
  return member == nullptr ? nullptr : member->if_object();
}

device::StringMap Texts(const json::object& map) {
  device::StringMap texts;
  for (const json::key_value_pair& pair : map) {
    if (const json::string* text = pair.value().if_string()) {
      texts[std::string(pair.key().data(), pair.key().size())] = std::string(text->data(), text->size());
    }
  }
  return texts;
}

std::string Name(const json::object& container) { return base::GetString(container, "name").value_or(""); }

bool Privileged(const json::object& container) {
  const json::value* context = container.if_contains("securityContext");
  if (context == nullptr || !context->is_object()) return false;
  return base::GetBool(context->get_object(), "privileged").value_or(false);
}

// The first privileged container, init containers first.
std::optional<std::string> PrivilegedContainer(const json::object& spec) {
  for (const char* key : kContainerLists) {
    const json::array* list = base::GetArray(spec, key);
    if (list == nullptr) continue;
    for (const json::value& item : *list) {
      if (item.is_object() && Privileged(item.get_object())) return Name(item.get_object());
    }
  }
  return std::nullopt;
}

// What the pod asks of VENDOR at most at one time. A percentage is of a card that is not chosen yet and counts nothing
// here.
QuotaUse Asked(const std::vector<ContainerPlan>& containers, int vendor) {
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < containers.size(); ++i) {
    for (const Ask& ask : containers[i].asks) {
      if (ask.vendor != vendor) continue;
      const device::Request& request = ask.request;
      const device::MiB memory = std::min(request.memory * request.count, kMostAsked);
      const std::int64_t cores = std::min(std::int64_t{request.cores} * request.count, kMostAsked);
      entries.push_back({0, static_cast<int>(i), containers[i].role, memory, cores});
    }
  }
  QuotaUse use;
  for (const CardCharge& charge : Collapse(entries, false)) {
    use.memory += charge.memory;
    use.cores += charge.cores;
  }
  return use;
}

// What a decision about the pod will not go by, though it says so; and why there can be none.
void RemarkPolicies(const device::StringMap& annotations, device::Warnings& warnings) {
  const auto say = [&](const char* key, std::string_view what) {
    warnings.push_back(base::Concat({"annotation ", key, what}));
  };
  const std::string_view node = device::TextAt(annotations, device::kNodePolicy);
  if (!node.empty() && node != "binpack" && node != "spread" && node != kFragmentation) {
    say(device::kNodePolicy, base::Concat({" ", node, " is not known: binpack is taken"}));
  }
  const std::string_view card = device::TextAt(annotations, device::kDevicePolicy);
  if (!KnownDevicePolicy(card)) say(device::kDevicePolicy, base::Concat({" ", card, " is not wholly known"}));
  const std::string_view weights = device::TextAt(annotations, device::kScoringWeights);
  const auto read = weights.empty() ? Result<device::ScoringWeights>() : device::ParseScoringWeights(weights);
  if (!read) warnings.push_back(read.error().message);
  for (const auto& [key, text] : annotations) {
    if (key.starts_with("hami.io/vgpu") || key.starts_with("hami.io/bind")) continue;  // the protocol's
    const auto meant = device::Misspelt(key, {device::kNodePolicy, device::kDevicePolicy, device::kScoringWeights});
    if (meant) say(key.c_str(), base::Concat({" says nothing: ", *meant, " may be meant"}));
  }
}

class Reviewer {
 public:
  Reviewer(const WebhookConfig& config, const device::Vendors& vendors, const RoomOf& room)
      : config_(config), vendors_(vendors), room_(room) {}

  Admission Review(const json::value& submitted) {
    json::value pod = submitted;
    Admission admission = Judge(pod);
    if (admission.allowed && admission.message.empty()) admission.patch = DiffJson(submitted, pod);
    admission.warnings = std::move(warnings_);
    return admission;
  }

 private:
  // Changes POD to what it implies.
  Admission Judge(json::value& pod) {
    json::object* object = pod.if_object();
    if (object == nullptr) return Deny(400, "the object is not a pod");
    json::value* spec_value = object->if_contains("spec");
    json::object* spec = spec_value == nullptr ? nullptr : spec_value->if_object();
    const json::array* containers = spec == nullptr ? nullptr : base::GetArray(*spec, "containers");
    if (containers == nullptr || containers->empty()) return Deny(403, "pod has no containers");
    if (OthersScheduler(*spec)) return {true, 200, "pod already has different scheduler assigned", {}};

    bool uses = false;
    const json::value* metadata = object->if_contains("metadata");
    const json::object* notes = metadata == nullptr ? nullptr : MapIn(metadata->if_object(), "annotations");
    device::PodDraft draft{*spec, device::StringMap{}};
    if (notes != nullptr) draft.annotations = Texts(*notes);
    if (auto error = Mutate(draft, uses)) return Deny(500, std::move(*error));
    if (!uses) return {};
    if (const auto name = PrivilegedContainer(*spec)) return Deny(403, "container " + *name + " is privileged");
    if (!config_.scheduler_name.empty()) {
      const auto node = base::GetString(*spec, "nodeName");
      if (node && !node->empty()) return Deny(403, "pod has node assigned");
      (*spec)["schedulerName"] = config_.scheduler_name;
    }
    for (const auto& [key, text] : draft.added) {
      device::ObjectAt(device::ObjectAt(*object, "metadata"), "annotations")[key] = text;
    }
    return JudgeAmounts(pod);
  }

  // As a decision about it will read the pod.
  Admission JudgeAmounts(const json::value& document) {
    const Result<device::Pod> pod = device::ReadPod(json::serialize(document));
    if (!pod) return Deny(400, pod.error().message);
    const auto containers = PlanContainers(*pod, vendors_);
    if (!containers) return Deny(500, containers.error().message);
    RemarkPolicies(pod->annotations, warnings_);
    for (const auto& vendor : vendors_) vendor->Remark(pod->annotations, warnings_);
    const std::vector<QuotaRoom> room = room_(pod->traits);
    for (std::size_t v = 0; v < vendors_.size(); ++v) {
      const QuotaUse use = Asked(*containers, static_cast<int>(v));
      if (use == QuotaUse{} || room[v].Admits(use.memory, use.cores)) continue;
      if (!room[v].complaint.empty()) warnings_.push_back(room[v].complaint);
      return Deny(403, "exceeding resource quota");
    }
    return {};
  }

  bool OthersScheduler(const json::object& spec) const {
    const std::string name = base::GetString(spec, "schedulerName").value_or("");
    if (name.empty() || name == config_.scheduler_name) return false;
    return name != "default-scheduler" || !config_.overwrite_default_scheduler;
  }

  // The error's text, if some container's request means nothing.
  std::optional<std::string> Mutate(device::PodDraft& draft, bool& uses) {
    json::object& spec = draft.spec;
    for (const char* key : kContainerLists) {
      json::value* member = spec.if_contains(key);
      if (member == nullptr || !member->is_array()) continue;
      // A vendor may add to the spec, which moves its members about: the list stays out of it meanwhile.
      json::value list = std::move(*member);
      for (json::value& item : list.get_array()) {
        if (!item.is_object()) continue;
        if (auto error = MutateOne(item.get_object(), draft, uses)) return error;
      }
      spec[key] = std::move(list);
    }
    return std::nullopt;
  }

  std::optional<std::string> MutateOne(json::object& container, device::PodDraft& draft, bool& uses) {
    for (const auto& vendor : vendors_) {
      const Result<bool> used = vendor->Mutate(container, draft, warnings_);
      if (!used) return used.error().message;
      uses = uses || *used;
    }
    return std::nullopt;
  }

  const WebhookConfig& config_;
  const device::Vendors& vendors_;
  const RoomOf& room_;
  device::Warnings warnings_;
};

}  // namespace

Admission Admit(const json::value& pod, const WebhookConfig& config, const device::Vendors& vendors,
                const RoomOf& room) {
  return Reviewer(config, vendors, room).Review(pod);
}

bool AsksForDevices(const json::value& pod, const device::Vendors& vendors) {
  const json::object* object = pod.if_object();
  const json::value* member = object == nullptr ? nullptr : object->if_contains("spec");
  if (member == nullptr || !member->is_object()) return false;
  json::object spec = member->get_object();
  device::PodDraft draft{spec, device::StringMap{}};
  const auto asks = [&](const json::value& item) {
    if (!item.is_object()) return false;
    json::object container = item.get_object();
    device::Warnings unsaid;
    return std::any_of(vendors.begin(), vendors.end(), [&](const auto& vendor) {
      const Result<bool> used = vendor->Mutate(container, draft, unsaid);
      return !used || *used;
    });
  };
  return std::any_of(std::begin(kContainerLists), std::end(kContainerLists), [&](const char* key) {
    const json::array* list = base::GetArray(member->get_object(), key);
    return list != nullptr && std::any_of(list->begin(), list->end(), asks);
  });
}

}  // namespace hami::sched
