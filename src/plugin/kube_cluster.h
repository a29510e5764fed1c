// SPDX-License-Identifier: Apache-2.0
//
// The API server as the allocator needs it: the pods of this node by watch, the rest by calls with a deadline. The
// node's lock it is told by whoever watches the node. Watches nothing beyond its own node.

#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "kube/client.h"
#include "kube/recorder.h"
#include "kube/reflector.h"
#include "kube/store.h"
#include "plugin/allocation_parts.h"

namespace hami::plugin {

class KubeCluster final : public Cluster {
 public:
  // CLIENT must outlive this. ON_CHANGE is told, on the thread of the watch or of SeeLock, that a pod or the lock is
  // not what it was.
  KubeCluster(kube::Client& client, std::string node, std::function<void()> on_change);
  ~KubeCluster() override;

  void Start();
  void Stop();
  // What the node says now; nothing: there is no lock.
  void SeeLock(std::optional<std::string> text);

  std::vector<PodPtr> Pods() override;
  std::optional<std::string> Lock() override;
  bool Synced() override;
  bool IsGone(const std::string& uid) override;
  std::uint64_t Changes() override;
  bool AwaitChange(std::uint64_t seen, net::Deadline deadline) override;
  kube::Result<std::vector<PodPtr>> ListPods(net::Deadline deadline) override;
  kube::Result<PodPtr> GetPod(const std::string& ns, const std::string& name, net::Deadline deadline) override;
  kube::Status PatchPod(const PodKey& pod, const device::StringMap& annotations, net::Deadline deadline) override;
  kube::Status ReleaseLock(const std::string& value, net::Deadline deadline) override;
  void Warn(const PodKey& pod, std::string_view reason, std::string_view message) override;

 private:
  void Changed();
  void SeePod(const PodPtr& before, const PodPtr& after);
  // PODS as they are, with their places in the order of the watch.
  std::vector<PodPtr> InOrder(std::vector<PodPtr> pods);

  kube::Client& client_;
  const std::string node_;
  const std::function<void()> on_change_;
  kube::Store<PodView> pods_;
  kube::ApiListWatcher pods_source_;
  kube::Reflector pods_reflector_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t changes_ = 0;
  bool node_seen_ = false;
  std::optional<std::string> lock_;
  std::map<std::string, std::uint64_t> arrivals_;  // by uid, of the pods that came after the first list
  std::map<std::string, net::Deadline> gone_;      // uids of pods that are no more; until when it is remembered
  net::Canceller stop_;
  kube::EventRecorder events_;
};

}  // namespace hami::plugin
