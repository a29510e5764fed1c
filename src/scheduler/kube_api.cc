// SPDX-License-Identifier: Apache-2.0

#include "scheduler/kube_api.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <random>

#include "base/log.h"
#include "base/strings.h"
#include "device/annotations.h"
#include "kube/timestamp.h"
#include "kube/views.h"
#include "sched/plan.h"
#include "scheduler/bind_lease.h"
#include "scheduler/cache.h"

namespace hami::scheduler {
namespace {

namespace json = base::json;

json::string_view View(std::string_view text) { return {text.data(), text.size()}; }

json::object Annotations(const Changes& changes) {
  json::object annotations;
  for (const auto& [key, value] : changes) {
    if (value) {
      annotations[key] = *value;
    } else {
      annotations[key] = nullptr;
    }
  }
  return annotations;
}

json::object Texts(const device::StringMap& map) {
  json::object object;
  for (const auto& [key, value] : map) object[key] = value;
  return object;
}

// Changes of annotations, as long as the object has this version or uid.
json::value Patch(std::string_view precondition, std::string_view expected, const Changes& changes) {
  json::object metadata{{"annotations", Annotations(changes)}};
  if (!expected.empty()) metadata[View(precondition)] = View(expected);
  return {{"metadata", std::move(metadata)}};
}

constexpr int kLeaseSeconds = 8;  // for readers: how long a beat may stand still (BindLeaseOptions::patience)

kube::Result<LeaseView> ReadLeaseView(const json::value& object) {
  auto lease = kube::ReadLease(object);
  if (!lease) return tl::unexpected(lease.error());
  const device::StringMap& annotations = lease->metadata.annotations;
  const std::string* members = device::Find(annotations, kMembers);
  LeaseView view;
  view.uid = std::move(lease->metadata.uid);
  view.version = std::move(lease->metadata.resource_version);
  view.holder = std::move(lease->holder);
  view.members = members == nullptr ? std::string() : *members;
  view.unclean = device::Find(annotations, kUnclean) != nullptr;
  view.transitions = lease->transitions;
  return view;
}

}  // namespace

kube::Result<NodeView> KubeApi::GetNode(std::string_view node) {
  const auto object = client_.Get(kube::kNodes, {}, node, {give_up_, timeout_, kNodeParts});
  if (!object) return tl::unexpected(object.error());
  return ReadNode(*object, vendors_, selector_);
}

kube::Result<NodeView> KubeApi::PatchNode(std::string_view node, std::string_view version, const Changes& changes) {
  const auto object = client_.Patch(kube::kNodes, {}, node, kube::PatchType::kMerge,
                                    Patch("resourceVersion", version, changes), {give_up_, timeout_, kNodeParts});
  if (!object) return tl::unexpected(object.error());
  return ReadNode(*object, vendors_, selector_);
}

kube::Result<PodView> KubeApi::GetPod(std::string_view ns, std::string_view name) {
  const auto object = client_.Get(kube::kPods, ns, name, {give_up_, timeout_});
  if (!object) return tl::unexpected(object.error());
  return ReadPodView(*object);
}

kube::Result<PodView> KubeApi::PatchPod(std::string_view ns, std::string_view name, std::string_view uid,
                                        const Changes& changes) {
  const auto object =
      client_.Patch(kube::kPods, ns, name, kube::PatchType::kMerge, Patch("uid", uid, changes), {give_up_, timeout_});
  if (!object) return tl::unexpected(object.error());
  return ReadPodView(*object);
}

kube::Result<std::vector<device::Pod>> KubeApi::PodsOn(std::string_view node) {
  std::vector<device::Pod> pods;
  device::PodObject read;
  kube::ListSink sink;
  sink.item = [&](const json::value&) { pods.push_back(std::move(read.pod)); };
  sink.restart = [&] { pods.clear(); };
  const kube::ListRequest request{{{}, base::Concat({"spec.nodeName=", node})}, 500};
  const auto listed = client_.List(kube::kPods, {}, request, sink, {give_up_, timeout_, {}, ReadPods({}, read)});
  if (!listed) return tl::unexpected(listed.error());
  return pods;
}

kube::Status KubeApi::Bind(const Binding& binding) {
  kube::Status bound = client_.PostBinding(binding, {give_up_, timeout_});
  if (bound) BringLabels(binding);
  return bound;
}

kube::Status KubeApi::Evict(const Owner& pod, bool only_try) {
  return client_.Evict(pod.ns, pod.name, pod.uid, only_try, {give_up_, timeout_});
}

// The pod is bound and nothing here changes that: who reads the label (the node's monitor) can wait, or do without.
void KubeApi::BringLabels(const Binding& binding) {
  if (binding.labels.empty() || labels_ == Labels::kCarried) return;
  if (labels_ == Labels::kUnknown && BroughtAlong(binding)) return;
  const json::value patch = {{"metadata", {{"uid", binding.uid}, {"labels", Texts(binding.labels)}}}};
  const auto patched =
      client_.Patch(kube::kPods, binding.ns, binding.name, kube::PatchType::kMerge, patch, {give_up_, timeout_});
  if (!patched) {
    base::LogWarning(base::Concat({"pod ", binding.ns, "/", binding.name, " has no label ", device::kAssignedNode, ": ",
                                   patched.error().message}));
  }
}

// Whether the pod has the labels of its Binding, which says so of all Bindings. False where nobody can tell now.
bool KubeApi::BroughtAlong(const Binding& binding) {
  const auto object = client_.Get(kube::kPods, binding.ns, binding.name, {give_up_, timeout_});
  if (!object) return false;
  const auto metadata = kube::ReadMetadata(*object);
  if (!metadata || metadata->uid != binding.uid) return false;
  const bool carried = std::all_of(binding.labels.begin(), binding.labels.end(),
                                   [&](const auto& label) { return metadata->labels.count(label.first) > 0; });
  labels_ = carried ? Labels::kCarried : Labels::kLeftBehind;
  if (!carried) base::LogInfo("the API server leaves a Binding's labels behind; they cost one more write a pod");
  return carried;
}

kube::Result<std::vector<Owner>> KubeApi::Unbound() {
  std::vector<Owner> found;
  device::PodObject read;
  kube::ListSink sink;
  sink.item = [&](const json::value&) {
    const device::Pod& pod = read.pod;
    const auto plan = sched::MakePlan(pod, vendors_, {});
    // Weights that are not understood are no reason to leave a pod out.
    if (!plan || !plan->empty()) found.push_back({pod.ns, pod.name, pod.uid});
  };
  sink.restart = [&] { found.clear(); };
  const kube::ListRequest request{{{}, "spec.nodeName=,status.phase!=Succeeded,status.phase!=Failed"}, 500};
  const auto listed = client_.List(kube::kPods, {}, request, sink, {give_up_, timeout_, {}, ReadPods({}, read)});
  if (!listed) return tl::unexpected(listed.error());
  return found;
}

// A list of nothing says how far the server has come, and costs it as much as nothing.
kube::Result<Versions> KubeApi::Heads() {
  const kube::ListSink sink{[](const json::value&) {}, [] {}};
  const kube::ListRequest nothing{{{}, "metadata.name=hami-cpp-is-no-name-of-any"}, 1};
  const auto head = [&](const kube::Resource& resource, std::string_view ns) -> kube::Result<std::uint64_t> {
    const auto version = client_.List(resource, ns, nothing, sink, {give_up_, lease_time_});
    if (!version) return tl::unexpected(version.error());
    const auto number = base::ParseNumber(*version);
    // Nothing that is no number is ever reached: every node is read anew.
    return number ? *number : std::numeric_limits<std::uint64_t>::max();
  };
  const auto pods = head(kube::kPods, lease_.ns);
  if (!pods) return tl::unexpected(pods.error());
  const auto nodes = head(kube::kNodes, {});
  if (!nodes) return tl::unexpected(nodes.error());
  return Versions{*pods, *nodes};
}

kube::Result<LeaseView> KubeApi::GetLease() {
  const auto object = client_.Get(kube::kLeases, lease_.ns, lease_.name, {give_up_, lease_time_});
  if (!object) return tl::unexpected(object.error());
  return ReadLeaseView(*object);
}

kube::Result<LeaseView> KubeApi::WriteLease(const LeaseView& lease) {
  json::object annotations{{kMembers, lease.members}};
  annotations[kUnclean] = lease.unclean ? json::value("1") : json::value(nullptr);
  json::object spec{{"renewTime", kube::FormatMicroTime(std::chrono::system_clock::now())},
                    {"leaseDurationSeconds", kLeaseSeconds},
                    {"leaseTransitions", lease.transitions}};
  spec["holderIdentity"] = lease.holder.empty() ? json::value(nullptr) : json::value(lease.holder);
  json::object metadata{{"annotations", std::move(annotations)}};
  const bool made = lease.version.empty();
  if (made) {
    metadata["namespace"] = lease_.ns;
    metadata["name"] = lease_.name;
    if (!lease.unclean) metadata["annotations"].as_object().erase(kUnclean);
    if (lease.holder.empty()) spec.erase("holderIdentity");
  } else {
    metadata["resourceVersion"] = lease.version;
  }
  json::object whole{{"metadata", std::move(metadata)}, {"spec", std::move(spec)}};
  if (made) {
    whole["apiVersion"] = View(kube::kLeases.group_version);
    whole["kind"] = View(kube::kLeases.kind);
  }
  const auto object = made ? client_.Create(kube::kLeases, lease_.ns, whole, {give_up_, lease_time_})
                           : client_.Patch(kube::kLeases, lease_.ns, lease_.name, kube::PatchType::kMerge, whole,
                                           {give_up_, lease_time_});
  if (!object) return tl::unexpected(object.error());
  return ReadLeaseView(*object);
}

Millis WallTime::Steady() {
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);  // goes on while the machine sleeps
  return now.tv_sec * kSecond + now.tv_nsec / 1'000'000;
}

Millis WallTime::Now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

int WallTime::UtcOffset() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  return localtime_r(&now, &local) == nullptr ? 0 : static_cast<int>(local.tm_gmtoff);
}

bool WallTime::Sleep(Millis span) { return stop_.SleepUntil(net::After(std::chrono::milliseconds(span))); }

std::string NewWriterName() {
  std::random_device device;
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string name = "hami-cpp-";
  for (int i = 0; i < 16; ++i) name += kDigits[device() % 16];
  return name;
}

}  // namespace hami::scheduler
