// SPDX-License-Identifier: Apache-2.0
//
// Tenants that may write anything on any pod, and the node's plugin beside them, which serves what is sealed, refuses
// what is not, and writes a grant anew that was written over. What a pod really holds is what its Binding said.

#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/grant_seal.h"
#include "scheduler/testing/sim_cluster.h"

namespace hami::scheduler::testing {

inline std::unique_ptr<device::GrantKeyring> TestKeys() {
  const auto look = [once = true]() mutable -> base::Result<std::optional<std::string>> {
    if (!std::exchange(once, false)) return std::optional<std::string>();
    return std::optional<std::string>("000102030405060708090a0b0c0d0e0f");
  };
  return device::GrantKeyring::Make(look, "keys").value();
}

class HostileTenants {
 public:
  HostileTenants(SimCluster& cluster, device::GrantKeyring* keys) : cluster_(cluster), keys_(keys) {}

  void Act(std::mt19937_64& random) {
    random_ = &random;
    const int kind = Below(10);
    if (kind < 4) return Plugin();
    if (kind < 5) return WriteAnew();
    SimPod* pod = AnyPod();
    if (pod == nullptr) return;
    ++forgeries_;
    if (kind < 8) {
      Forge(pod->pod.annotations);
    } else if (kind < 9) {
      Replay(*pod);
    } else {
      return AddStranger(pod->pod);
    }
    cluster_.PodChanged(*pod);
  }

  // What the plugins do sooner or later, and tenants stop.
  void ComeToRest() {
    for (auto& [key, pod] : cluster_.pods) {
      if (Restore(pod)) continue;
      pod.pod.annotations.clear();
      pod.pod.terminated = pod.pod.terminated || !pod.pod.node_name.empty();
      cluster_.PodChanged(pod);
    }
    for (auto& [name, node] : cluster_.nodes) {
      node.annotations.erase(device::kNodeLock);
      cluster_.NodeChanged(node);
    }
  }

  std::uint64_t forgeries() const { return forgeries_; }

 private:
  int Below(int n) { return static_cast<int>((*random_)() % static_cast<std::uint64_t>(n)); }
  template <typename T>
  T Any(std::initializer_list<T> some) {
    return some.begin()[Below(static_cast<int>(some.size()))];
  }

  SimPod* AnyPod() {
    if (cluster_.pods.empty()) return nullptr;
    return &std::next(cluster_.pods.begin(), Below(static_cast<int>(cluster_.pods.size())))->second;
  }

  void Forge(device::StringMap& annotations) {
    for (int i = 1 + Below(3); i > 0; --i) {
      const std::string key =
          Any<const char*>({device::kAssignedNode, device::kAssignedTime, device::kBindPhase, device::kBindTime,
                            device::kMigAllocations, device::kGrantSeal, kBoundBy, "hami.io/vgpu-devices-allocated",
                            "hami.io/vgpu-devices-to-allocate", "hami.io/dcu-devices-allocated"});
      if (Below(3) == 0) {
        annotations.erase(key);
      } else {
        annotations[key] = Text();
      }
    }
  }

  std::string Text() {
    const std::string card = Any<const char*>({"n0-0", "n0-1", "n1-0", "n2-1", "n3-0"});
    switch (Below(7)) {
      case 0:
        return "";
      case 1:
        return "nonsense";
      case 2:
        return card.substr(0, 2);
      case 3:
        return Any<const char*>({device::kPhaseAllocating, device::kPhaseSuccess, device::kPhaseFailed});
      case 4:
        return std::to_string(cluster_.now / 1000 + Below(1000) - 500);
      case 5:
        return card + ",NVIDIA," + Any<const char*>({"1", "16000", "99999999"}) + ",100:;";
      default:
        return R"([{"containerIndex":0,"deviceIndex":0,"gpuUUID":")" + card +
               R"(","profile":"1g","placement":{"start":0,"size":1}}])";
    }
  }

  // Another pod's annotations, or its own of before.
  void Replay(SimPod& pod) {
    const SimPod* from = AnyPod();
    const auto bound = cluster_.bound_with.find(from->pod.uid);
    if (Below(2) == 0 && bound != cluster_.bound_with.end()) {
      pod.pod.annotations = bound->second;
    } else {
      pod.pod.annotations = from->pod.annotations;
    }
  }

  // By whoever may post Bindings, with what another pod was granted.
  void AddStranger(const device::Pod& like) {
    if (cluster_.pods.size() >= 24) return;
    device::Pod pod = like;
    pod.uid = "stranger-" + std::to_string(++strangers_);
    pod.name = "pod-" + pod.uid;
    pod.node_name = Any<const char*>({"n0", "n1", "n2", "n3"});
    pod.terminated = false;
    if (Below(2) == 0) pod.annotations.clear();
    cluster_.AddPod(pod);
  }

  bool Proven(const device::Pod& pod) const {
    return device::IsSealed(keys_->Get().get(), pod.uid, pod.node_name, pod.annotations);
  }

  // One pod that waits: served for what its Binding said, if that is proven, else refused, which ends it.
  void Plugin() {
    NodeView& node = cluster_.nodes["n" + std::to_string(Below(4))];
    for (auto& [key, pod] : cluster_.pods) {
      if (pod.pod.node_name != node.name || pod.pod.terminated || served_.count(pod.pod.uid) > 0) continue;
      const bool good = Proven(pod.pod);
      if (good) served_.insert(pod.pod.uid);
      pod.pod.annotations[device::kBindPhase] = good ? device::kPhaseSuccess : device::kPhaseFailed;
      if (good) pod.pod.annotations["hami.io/vgpu-devices-to-allocate"] = ";";
      pod.pod.terminated = !good;
      cluster_.PodChanged(pod);
      const std::string* text = device::Find(node.annotations, device::kNodeLock);
      const auto lock = text == nullptr ? std::nullopt : ParseLock(*text);
      if (!lock || lock->ns != pod.pod.ns || lock->pod != pod.pod.name) return;
      node.annotations.erase(device::kNodeLock);
      return cluster_.NodeChanged(node);
    }
  }

  void WriteAnew() {
    SimPod* pod = AnyPod();
    if (pod != nullptr && served_.count(pod->pod.uid) > 0) Restore(*pod);
  }

  bool Restore(SimPod& pod) {
    const auto bound = cluster_.bound_with.find(pod.pod.uid);
    if (bound == cluster_.bound_with.end() || pod.pod.node_name.empty()) return false;
    pod.pod.annotations = bound->second;
    pod.pod.annotations[device::kBindPhase] = device::kPhaseSuccess;
    cluster_.PodChanged(pod);
    return true;
  }

  SimCluster& cluster_;
  device::GrantKeyring* const keys_;
  std::mt19937_64* random_ = nullptr;
  std::set<std::string> served_;  // uids
  std::uint64_t forgeries_ = 0;
  int strangers_ = 0;
};

}  // namespace hami::scheduler::testing
