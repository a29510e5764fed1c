// SPDX-License-Identifier: Apache-2.0

#include "plugin/kube_cluster.h"

#include <algorithm>

#include "base/strings.h"
#include "device/annotations.h"
#include "device/lists.h"
#include "kube/views.h"

namespace hami::plugin {
namespace {

namespace json = base::json;
using kube::Reason;

constexpr const char* kComponent = "hami-device-plugin";
// Longer than a list is used after it was asked for.
constexpr net::Duration kGoneFor = std::chrono::minutes(2);
constexpr int kReleaseTries = 5;
// "hami.io/mutex.lock" in a JSON pointer.
constexpr const char* kLockPointer = "/metadata/annotations/hami.io~1mutex.lock";

net::Duration Left(net::Deadline deadline) {
  // Zero would mean the client's own timeout.
  return std::max<net::Duration>(deadline - net::Clock::now(), std::chrono::milliseconds(1));
}

kube::Selection PodsOf(const std::string& node) { return {"", "spec.nodeName=" + node}; }

kube::ReflectorOptions Named(const char* name) {
  kube::ReflectorOptions options;
  options.name = name;
  return options;
}

kube::RecorderOptions Recorder(const std::string& node) {
  kube::RecorderOptions options;
  options.component = kComponent;
  options.host = node;
  return options;
}

}  // namespace

KubeCluster::KubeCluster(kube::Client& client, std::string node, std::function<void()> on_change)
    : client_(client),
      node_(std::move(node)),
      on_change_(std::move(on_change)),
      pods_(ReadPodView,
            [this](const auto& before, const auto& after) {
              SeePod(before, after);
              if (!before || !after || *before != *after) Changed();
            }),
      pods_source_(client_, kube::kPods, "", PodsOf(node_)),
      pods_reflector_(pods_source_, pods_, Named("the pods of this node")),
      events_(client_, Recorder(node_)) {}

KubeCluster::~KubeCluster() { Stop(); }

void KubeCluster::Start() { pods_reflector_.Start(); }

void KubeCluster::Stop() {
  stop_.Cancel();
  pods_reflector_.Stop();
  events_.Stop(std::chrono::seconds(1));
}

void KubeCluster::SeeLock(std::optional<std::string> text) {
  {
    const std::scoped_lock lock(mutex_);
    if (node_seen_ && lock_ == text) return;
    node_seen_ = true;
    lock_ = std::move(text);
  }
  Changed();
}

// A pod made anew under the same name may follow without a word of the first one's end.
void KubeCluster::SeePod(const PodPtr& before, const PodPtr& after) {
  const bool synced = pods_reflector_.synced();
  const std::scoped_lock lock(mutex_);
  if (before && (!after || before->uid != after->uid)) {
    arrivals_.erase(before->uid);
    const net::Deadline now = net::Clock::now();
    std::erase_if(gone_, [now](const auto& gone) { return gone.second < now; });
    gone_[before->uid] = now + kGoneFor;
  }
  // The first list says nothing of the order in which they came.
  if (after && synced && (!before || before->uid != after->uid)) arrivals_[after->uid] = changes_ + 1;
}

bool KubeCluster::IsGone(const std::string& uid) {
  const std::scoped_lock lock(mutex_);
  return gone_.contains(uid);
}

std::vector<PodPtr> KubeCluster::InOrder(std::vector<PodPtr> pods) {
  const std::scoped_lock lock(mutex_);
  for (PodPtr& pod : pods) {
    const auto found = arrivals_.find(pod->uid);
    if (found == arrivals_.end()) continue;
    PodView placed = *pod;
    placed.arrival = found->second;
    pod = std::make_shared<const PodView>(std::move(placed));
  }
  return pods;
}

std::vector<PodPtr> KubeCluster::Pods() { return InOrder(pods_.All()); }

void KubeCluster::Changed() {
  {
    const std::scoped_lock lock(mutex_);
    ++changes_;
  }
  changed_.notify_all();
  on_change_();
}

std::uint64_t KubeCluster::Changes() {
  const std::scoped_lock lock(mutex_);
  return changes_;
}

bool KubeCluster::AwaitChange(std::uint64_t seen, net::Deadline deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return changes_ != seen; });
}

std::optional<std::string> KubeCluster::Lock() {
  const std::scoped_lock lock(mutex_);
  return lock_;
}

bool KubeCluster::Synced() {
  const std::scoped_lock lock(mutex_);
  return node_seen_ && pods_reflector_.synced();
}

kube::Result<std::vector<PodPtr>> KubeCluster::ListPods(net::Deadline deadline) {
  std::vector<PodPtr> pods;
  kube::ListSink sink;
  sink.item = [&](const json::value& item) {
    if (auto pod = ReadPodView(item)) pods.push_back(std::make_shared<const PodView>(*std::move(pod)));
  };
  sink.restart = [&] { pods.clear(); };
  const auto listed = client_.List(kube::kPods, "", {PodsOf(node_)}, sink, {&stop_, Left(deadline)});
  if (!listed) return tl::unexpected(listed.error());
  return InOrder(std::move(pods));
}

kube::Result<PodPtr> KubeCluster::GetPod(const std::string& ns, const std::string& name, net::Deadline deadline) {
  const auto got = client_.Get(kube::kPods, ns, name, {&stop_, Left(deadline)});
  if (!got && got.error().reason == Reason::kNotFound) return PodPtr();
  if (!got) return tl::unexpected(got.error());
  auto pod = ReadPodView(*got);
  if (!pod) return tl::unexpected(pod.error());
  return std::make_shared<const PodView>(*std::move(pod));
}

kube::Status KubeCluster::PatchPod(const PodKey& pod, const device::StringMap& annotations, net::Deadline deadline) {
  json::object texts;
  for (const auto& [key, value] : annotations) texts[key] = value;
  // A merge patch that names another uid than the pod's is refused, as a conflict or as a change of what is immutable.
  const json::value patch = {{"metadata", {{"uid", pod.uid}, {"annotations", std::move(texts)}}}};
  auto done = client_.Patch(kube::kPods, pod.ns, pod.name, kube::PatchType::kMerge, patch, {&stop_, Left(deadline)});
  if (done) return {};
  kube::Error error = std::move(done).error();
  if (error.reason == Reason::kInvalid) error.reason = Reason::kConflict;
  return tl::unexpected(std::move(error));
}

kube::Status KubeCluster::ReleaseLock(const std::string& value, net::Deadline deadline) {
  const json::value patch = json::array{{{"op", "test"}, {"path", kLockPointer}, {"value", value}},
                                        {{"op", "remove"}, {"path", kLockPointer}}};
  for (int left = kReleaseTries;; --left) {
    const auto done = client_.Patch(kube::kNodes, "", node_, kube::PatchType::kJson, patch, {&stop_, Left(deadline)});
    if (done) return {};
    // The test failed: somebody else's lock, or none, which is what we wanted. A node that is gone has none, either.
    const Reason reason = done.error().reason;
    if (reason == Reason::kInvalid || reason == Reason::kNotFound) return {};
    // Something else of the node was written at the same moment; the lock is as it was.
    if (reason != Reason::kConflict || left == 1 || net::Clock::now() >= deadline) {
      return tl::unexpected(done.error());
    }
  }
}

void KubeCluster::Warn(const PodKey& pod, std::string_view reason, std::string_view message) {
  kube::EventTarget target;
  target.ns = pod.ns;
  target.name = pod.name;
  target.uid = pod.uid;
  events_.Record(target, kube::EventType::kWarning, reason, message);
}

}  // namespace hami::plugin
