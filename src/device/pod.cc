// SPDX-License-Identifier: Apache-2.0

#include "device/pod.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <optional>
#include <utility>

#include "base/strings.h"
#include "device/annotations.h"
#include "device/lists.h"
#include "device/quantity.h"

namespace hami::device {
namespace {

using base::Result;
namespace json = base::json;

constexpr const char* kNoQuantity = "?";  // no parser takes it for one
constexpr const char* kNever = "Never";
constexpr const char* kUser = "runAsUser";
constexpr std::string_view kGroupLabel = "scheduling.x-k8s.io/pod-group";
// Of a container's environment.
constexpr std::array<std::string_view, 4> kTerms = {"CUDA_DISABLE_CONTROL", "CUDA_OVERSUBSCRIBE", "CUDA_TASK_PRIORITY",
                                                    "GPU_CORE_UTILIZATION_POLICY"};

// Of a number, true, false or null.
std::string WordQuantity(std::string_view word) {
  const char* const end = word.data() + word.size();
  std::int64_t number = 0;
  if (const auto read = std::from_chars(word.data(), end, number); read.ec == std::errc() && read.ptr == end) {
    return std::to_string(number);
  }
  std::uint64_t large = 0;
  const auto read = std::from_chars(word.data(), end, large);
  return read.ec == std::errc() && read.ptr == end ? std::to_string(large) : kNoQuantity;
}

bool Wants(std::span<const std::string_view> wanted, std::string_view key) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), key) != wanted.end();
}

// Each function takes the value that the cursor stands before, and first forgets what an earlier one of that name said;
// false: it is not JSON.
class PodReader {
 public:
  PodReader(base::JsonCursor& cursor, const PodFields& fields, PodObject& out)
      : cursor_(cursor), fields_(fields), out_(out), pod_(out.pod) {}

  bool Read() {
    const bool taken = Members([this](std::string_view key) {
      if (key == "metadata") return Metadata();
      if (key == "spec") return Spec();
      if (key == "status") return Status();
      return Pass();
    });
    out_.group = labelled_ || grouped_ || working_;
    pod_.init_done = never_ && !inits_again_ && !containers_again_ && InitDone();
    pod_.traits.best_effort = quality_.empty() ? fields_.resources && AsksNoHost() : quality_ == "BestEffort";
    return taken;
  }

 private:
  bool Pass() {
    std::string_view passed;
    return cursor_.TakeValue(passed);
  }

  // EACH takes the value of a member.
  template <typename Each>
  bool Members(Each each) {
    if (cursor_.Next() != '{') return Pass();
    return cursor_.TakeObject([&](std::string_view key, bool plain) {
      return plain ? each(key) : each(std::string_view(base::DecodeJsonString(key)));
    });
  }

  // EACH takes an item that is an object.
  template <typename Each>
  bool Objects(Each each) {
    if (cursor_.Next() != '[') return Pass();
    return cursor_.TakeList([&] { return cursor_.Next() == '{' ? each() : Pass(); });
  }

  bool Text(std::string& out) {
    out.clear();
    if (cursor_.Next() != '"') return Pass();
    std::string_view inside;
    bool plain = false;
    if (!cursor_.TakeString(inside, plain)) return false;
    if (plain) {
      out = inside;
    } else {
      out = base::DecodeJsonString(inside);
    }
    return true;
  }

  bool Quantity(std::string& out) {
    const char next = cursor_.Next();
    if (next == '"') return Text(out);
    out = kNoQuantity;
    if (next == '{' || next == '[') return Pass();
    std::string_view word;
    if (!cursor_.TakeWord(word)) return false;
    out = WordQuantity(word);
    return true;
  }

  // At the end, as servers write the members of a map in order.
  static std::string& At(StringMap& map, std::string_view key) {
    return map.emplace_hint(map.end(), std::string(key), std::string())->second;
  }

  bool Quantities(StringMap& map) {
    map.clear();
    return Members(
        [&](std::string_view key) { return Wants(fields_.quantities, key) ? Quantity(At(map, key)) : Pass(); });
  }

  bool Annotations() {
    pod_.annotations.clear();
    return Members([this](std::string_view key) {
      if (!Wants(fields_.annotations, key) && !IsAllocatedKey(key)) return Pass();
      if (cursor_.Next() == '"') return Text(At(pod_.annotations, key));
      pod_.annotations.erase(std::string(key));
      return Pass();
    });
  }

  bool Metadata() {
    pod_.ns.clear();
    pod_.name.clear();
    pod_.uid.clear();
    out_.version.clear();
    pod_.annotations.clear();
    labelled_ = false;
    return Members([this](std::string_view key) {
      if (key == "namespace") return Text(pod_.ns);
      if (key == "name") return Text(pod_.name);
      if (key == "uid") return Text(pod_.uid);
      if (key == "resourceVersion") return Text(out_.version);
      if (key == "annotations") return Annotations();
      if (key == "labels") return Filled(kGroupLabel, labelled_);
      return Pass();
    });
  }

  // Whether an object has a text at KEY that is not empty.
  bool Filled(std::string_view wanted, bool& filled) {
    filled = false;
    return Members([&](std::string_view key) {
      if (key != wanted) return Pass();
      const bool taken = Text(text_);
      filled = !text_.empty();
      return taken;
    });
  }

  bool Spec() {
    pod_.node_name.clear();
    pod_.init_containers.clear();
    pod_.containers.clear();
    pod_.traits = {};
    whole_ = {};
    pod_.priority = 0;
    out_.preempts = true;
    grouped_ = working_ = never_ = inits_again_ = containers_again_ = false;
    std::optional<std::string> user;
    bool own_users = false;  // in a user namespace the container's ids are others than the node's
    const bool taken = Members([&](std::string_view key) {
      if (key == "nodeName") return Text(pod_.node_name);
      if (key == "containers") return Containers();
      if (key == "initContainers") return InitContainers();
      if (key == "securityContext") return User(user);
      if (key == "hostUsers") return IsFalse(own_users);
      if (key == "schedulingGroup") return Filled("podGroupName", grouped_);
      if (key == "workloadRef") return Filled("podGroup", working_);
      if (key == "priority") return Priority();
      if (key == "preemptionPolicy") return Preempts();
      if (key == "restartPolicy") return Never();
      if (key == "priorityClassName") return Text(pod_.traits.priority_class);
      if (key == "activeDeadlineSeconds") return Deadline();
      if (key == "affinity") return Affinity();
      if (key == "resources") return fields_.resources ? Resources(whole_) : Pass();
      return Pass();
    });
    const auto add = [&](Container& container) {
      if (user) container.terms.emplace(kUser, *user);  // unless it has its own
      if (own_users) container.terms["hostUsers"] = "false";
    };
    std::for_each(pod_.init_containers.begin(), pod_.init_containers.end(), add);
    std::for_each(pod_.containers.begin(), pod_.containers.end(), add);
    return taken;
  }

  bool IsFalse(bool& out) {
    std::string_view value;
    if (!cursor_.TakeValue(value)) return false;
    out = value == "false";
    return true;
  }

  bool User(std::optional<std::string>& user) {
    user.reset();
    return Members([&](std::string_view key) { return key == kUser ? Quantity(user.emplace()) : Pass(); });
  }

  bool Never() {
    const bool taken = Text(text_);
    never_ = text_ == kNever;
    return taken;
  }

  bool Priority() {
    const bool taken = Quantity(text_);
    pod_.priority = PriorityOf(text_);
    return taken;
  }

  bool Preempts() {
    const bool taken = Text(text_);
    out_.preempts = text_ != kNever;
    return taken;
  }

  bool Deadline() {
    const bool taken = Quantity(text_);
    pod_.traits.terminating = !text_.empty() && text_[0] >= '0' && text_[0] <= '9';
    return taken;
  }

  bool Affinity() {
    bool to = false;
    bool away = false;
    const bool taken = Members([&](std::string_view key) {
      if (key == "podAffinity") return AffinityTerms(to);
      if (key == "podAntiAffinity") return AffinityTerms(away);
      return Pass();
    });
    pod_.traits.cross_namespace = to || away;
    return taken;
  }

  // Whether some term is about pods of other namespaces.
  bool AffinityTerms(bool& crosses) {
    bool required = false;
    bool preferred = false;
    const bool taken = Members([&](std::string_view key) {
      if (key == "requiredDuringSchedulingIgnoredDuringExecution") {
        required = false;
        return Objects([&] { return AffinityTerm(required); });
      }
      if (key != "preferredDuringSchedulingIgnoredDuringExecution") return Pass();
      preferred = false;
      return Objects([&] {
        bool one = false;
        const bool read = Members([&](std::string_view part) {
          one = one && part != "podAffinityTerm";
          return part == "podAffinityTerm" ? AffinityTerm(one) : Pass();
        });
        preferred = preferred || one;
        return read;
      });
    });
    crosses = required || preferred;
    return taken;
  }

  bool AffinityTerm(bool& crosses) {
    bool named = false;
    bool selected = false;
    const bool taken = Members([&](std::string_view key) {
      if (key == "namespaces") return Some(named);
      if (key != "namespaceSelector") return Pass();
      std::string_view value;
      const bool read = cursor_.TakeValue(value);
      selected = value != "null";
      return read;
    });
    crosses = crosses || named || selected;
    return taken;
  }

  // Whether a list has something in it.
  bool Some(bool& some) {
    some = false;
    if (cursor_.Next() != '[') return Pass();
    return cursor_.TakeList([&] {
      some = true;
      return Pass();
    });
  }

  bool Containers() {
    pod_.containers.clear();
    containers_again_ = false;
    bool sidecar = false;
    return Objects([&] { return ReadContainer(pod_.containers.emplace_back(), sidecar, containers_again_); });
  }

  bool InitContainers() {
    pod_.init_containers.clear();
    inits_again_ = false;
    return Objects([this] {
      InitContainer& container = pod_.init_containers.emplace_back();
      return ReadContainer(container, container.sidecar, inits_again_);
    });
  }

  // AGAIN becomes true of one that may be started anew whatever the pod's own policy is.
  bool ReadContainer(Container& out, bool& sidecar, bool& again) {
    std::optional<std::string> user;
    bool rules = false;
    std::string policy;
    const bool taken = Members([&](std::string_view key) {
      if (key == "name") return Text(out.name);
      if (key == "resources") return fields_.resources ? Resources(out) : Pass();
      if (key == "env") return Environment(out.terms);
      if (key == "securityContext") return User(user);
      if (key == "restartPolicy") return Text(policy);
      if (key == "restartPolicyRules") return Some(rules);
      return Pass();
    });
    sidecar = policy == "Always";
    again = again || rules || (!policy.empty() && policy != kNever);
    if (user) out.terms[kUser] = *std::move(user);
    return taken;
  }

  bool Resources(Container& out) {
    out.limits.clear();
    out.requests.clear();
    return Members([&](std::string_view key) {
      if (key == "limits") return Quantities(out.limits);
      if (key == "requests") return Quantities(out.requests);
      return Pass();
    });
  }

  // Of a name that is there twice the last counts, as in the container.
  bool Environment(StringMap& terms) {
    terms.clear();
    return Objects([&] {
      text_.clear();
      value_.clear();
      const bool taken = Members([this](std::string_view key) {
        if (key == "name") return Text(text_);
        if (key == "value") return Text(value_);
        return Pass();
      });
      if (std::find(kTerms.begin(), kTerms.end(), text_) != kTerms.end()) terms[text_] = value_;
      return taken;
    });
  }

  bool Status() {
    pod_.terminated = false;
    ended_.clear();
    quality_.clear();
    out_.refusal = 0;
    return Members([this](std::string_view key) {
      if (key == "phase") return Phase();
      if (key == "qosClass") return Text(quality_);
      if (key == "conditions") return Conditions();
      if (key == "initContainerStatuses") return InitStatuses();
      return Pass();
    });
  }

  bool Phase() {
    const bool taken = Text(text_);
    pod_.terminated = text_ == "Succeeded" || text_ == "Failed";
    return taken;
  }

  bool Conditions() {
    out_.refusal = 0;
    return Objects([this] {
      std::string type;
      std::string status;
      std::array<std::string, 3> words;
      const bool taken = Members([&](std::string_view key) {
        if (key == "type") return Text(type);
        if (key == "status") return Text(status);
        if (key == "reason") return Text(words[0]);
        if (key == "message") return Text(words[1]);
        if (key == "lastTransitionTime") return Text(words[2]);
        return Pass();
      });
      if (type == "PodScheduled" && status == "False") out_.refusal = RefusalOf(words[0], words[1], words[2]);
      return taken;
    });
  }

  bool InitStatuses() {
    ended_.clear();
    return Objects([this] {
      std::string name;
      bool well = false;
      const bool taken = Members([&](std::string_view key) {
        if (key == "name") return Text(name);
        if (key == "state") return State(well);
        return Pass();
      });
      ended_[std::move(name)] = well;
      return taken;
    });
  }

  bool State(bool& well) {
    well = false;
    return Members([&](std::string_view key) { return key == "terminated" ? Terminated(well) : Pass(); });
  }

  bool Terminated(bool& well) {
    well = cursor_.Next() == '{';  // Go leaves out what is zero
    return Members([&](std::string_view key) {
      if (key != "exitCode") return Pass();
      std::string_view code;
      const bool taken = cursor_.TakeValue(code);
      well = code == "0" || code == "-0";
      return taken;
    });
  }

  bool InitDone() const {
    const auto& containers = pod_.init_containers;
    const auto ordinary = std::count_if(containers.begin(), containers.end(), [](const auto& c) { return !c.sidecar; });
    return ordinary > 0 && std::all_of(containers.begin(), containers.end(), [&](const InitContainer& container) {
             const auto found = ended_.find(container.name);
             return container.sidecar || (found != ended_.end() && found->second);
           });
  }

  // Neither the pod nor any container asks for cpu or memory of the host.
  bool AsksNoHost() const {
    const auto asks = [](const Container& container) {
      const auto some = [&](const StringMap& map, const char* resource) {
        const std::string* text = Find(map, resource);
        const auto quantity = text == nullptr ? Result<device::Quantity>(device::Quantity{}) : ParseQuantity(*text);
        return quantity && quantity->value > 0;
      };
      return some(container.limits, "cpu") || some(container.limits, "memory") || some(container.requests, "cpu") ||
             some(container.requests, "memory");
    };
    return !asks(whole_) && std::none_of(pod_.containers.begin(), pod_.containers.end(), asks) &&
           std::none_of(pod_.init_containers.begin(), pod_.init_containers.end(), asks);
  }

  base::JsonCursor& cursor_;
  const PodFields& fields_;
  PodObject& out_;
  Pod& pod_;
  bool labelled_ = false;
  bool grouped_ = false;
  bool working_ = false;                            // by spec.workloadRef, as Kubernetes 1.35 has it
  bool never_ = false;                              // restartPolicy
  bool inits_again_ = false;                        // one of the containers has a policy or rules of its own
  bool containers_again_ = false;                   // likewise
  Container whole_;                                 // resources of the pod as a whole
  std::string quality_;                             // status.qosClass
  std::map<std::string, bool, std::less<>> ended_;  // init containers by name: with exit code 0?
  std::string text_;                                // of a value that is looked at once
  std::string value_;
};

}  // namespace

const Container* ContainerAt(const Pod& pod, std::size_t place) {
  const std::size_t inits = pod.init_containers.size();
  if (place < inits) return &pod.init_containers[place];
  return place - inits < pod.containers.size() ? &pod.containers[place - inits] : nullptr;
}

const std::string* Container::Resource(std::string_view resource) const {
  if (resource.empty()) return nullptr;
  const std::string* limit = Find(limits, resource);
  return limit != nullptr ? limit : Find(requests, resource);
}

std::int32_t PriorityOf(std::string_view quantity) {
  std::int32_t priority = 0;
  const char* const end = quantity.data() + quantity.size();
  const auto read = std::from_chars(quantity.data(), end, priority);
  return read.ec == std::errc() && read.ptr == end ? priority : 0;
}

std::string QuantityText(const json::value& value) {
  if (value.is_string()) return std::string(value.get_string().data(), value.get_string().size());
  if (value.is_int64() || value.is_uint64()) return json::serialize(value);
  return kNoQuantity;
}

std::uint64_t RefusalOf(std::string_view reason, std::string_view message, std::string_view since) {
  return std::hash<std::string>{}(base::Concat({reason, "\n", message, "\n", since})) | 1U;
}

bool TakePod(base::JsonCursor& cursor, const PodFields& fields, PodObject& out) {
  out = {};
  return PodReader(cursor, fields, out).Read();
}

Result<Pod> ReadPod(std::string_view text) {
  base::JsonCursor cursor(text);
  if (cursor.Next() != '{') return base::Fail("the pod is not a JSON object");
  PodObject object;
  if (!TakePod(cursor, {}, object) || !cursor.AtEnd()) return base::Fail("the pod is not valid JSON");
  return std::move(object.pod);
}

}  // namespace hami::device
