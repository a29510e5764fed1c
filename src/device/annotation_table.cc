// SPDX-License-Identifier: Apache-2.0

#include "device/annotation_table.h"

#include <algorithm>

namespace hami::device {
namespace {

using enum Author;
using enum Carrier;

constexpr KeyRule kTable[] = {
    // What users ask for.
    {"nvidia.com/use-gputype", kTenant, kPod, "card types that the pod accepts"},
    {"nvidia.com/nouse-gputype", kTenant, kPod, "card types that it does not"},
    {"nvidia.com/use-gpuuuid", kTenant, kPod, "cards that the pod accepts"},
    {"nvidia.com/nouse-gpuuuid", kTenant, kPod, "cards that it does not"},
    {"nvidia.com/numa-bind", kTenant, kPod, "all cards of a container on one NUMA node"},
    {"nvidia.com/vgpu-mode", kTenant, kPod, "the mode of card that the pod accepts"},
    {"hami.io/node-scheduler-policy", kTenant, kPod, "which node is taken"},
    {"hami.io/gpu-scheduler-policy", kTenant, kPod, "which card is taken"},
    {"hami.io/device-scoring-weights", kTenant, kPod, "how much shares, cores and memory weigh in a card's score"},
    {"hami.io/numa-alignment", kTenant, kPod, "CPU and GPU on one NUMA node, in later versions of HAMi"},
    {"hami.io/use-*-uuid", kTenant, kPod, "another vendor's cards that the pod accepts"},
    {"hami.io/no-use-*-uuid", kTenant, kPod, "another vendor's cards that it does not"},
    {"hami.io/webhook", kTenant, kPod, "label: `ignore` keeps the pod away from the webhook"},
    {"hami-cpp/resize", kTenant, kPod, "memory and cores of a running container, within its grant"},
    // What the scheduler decided.
    {"hami.io/vgpu-node", kScheduler, kPod, "the node of the grant; also a label"},
    {"hami.io/vgpu-time", kScheduler, kPod, "when it was granted"},
    {"hami.io/bind-time", kScheduler, kPod, "when it was bound"},
    {"hami.io/bind-phase", kPlugin, kPod, "allocating, by the scheduler; success or failed, by the plugin"},
    {"hami.io/vgpu-devices-to-allocate", kScheduler, kPod, "what the plugin has still to hand out"},
    {"hami.io/vgpu-devices-allocated", kScheduler, kPod, "what the pod holds"},
    {"hami.io/vgpu-mig-allocations", kScheduler, kPod, "its MIG instances; the plugin adds their identities"},
    {"hami.io/*-devices-to-allocate", kScheduler, kPod, "the same of another vendor"},
    {"hami.io/*-devices-allocated", kScheduler, kPod, "the same of another vendor"},
    {"hami.io/kunlun-allocated", kScheduler, kPod, "the same of Kunlun's whole cards"},
    {"hami.io/scheduler-role", kScheduler, kPod, "label of the scheduler's own pods: leader or follower"},
    {"hami-cpp/bound-by", kScheduler, kPod, "the scheduler whose Binding it was"},
    {"hami-cpp/bind-revoked", kScheduler, kPod, "makes a Binding that is on its way fail"},
    {"hami-cpp/grant-seal", kScheduler, kPod, "the proof that the grant is the scheduler's"},
    {"hami-cpp/allocate-failure", kPlugin, kPod, "why the pod was not served"},
    // What other vendors' plugins read under names of their own.
    {"huawei.com/Ascend910A", kScheduler, kPod, "the cards of that Ascend chip"},
    {"huawei.com/Ascend910B2", kScheduler, kPod, "the cards of that Ascend chip"},
    {"huawei.com/Ascend910B3", kScheduler, kPod, "the cards of that Ascend chip"},
    {"huawei.com/Ascend910B4", kScheduler, kPod, "the cards of that Ascend chip"},
    {"huawei.com/Ascend910B4-1", kScheduler, kPod, "the cards of that Ascend chip"},
    {"huawei.com/Ascend910C", kScheduler, kPod, "the cards of that Ascend chip"},
    {"huawei.com/Ascend310P", kScheduler, kPod, "the cards of that Ascend chip"},
    {"predicate-time", kScheduler, kPod, "when an Ascend chip was granted"},
    {"AWS_NEURON_IDS", kScheduler, kPod, "the Neuron devices or cores"},
    {"NEURON_ALLOC_TIME", kScheduler, kPod, "when they were granted"},
    {"NEURON_ALLOCATED", kScheduler, kPod, "whether their plugin has handed them out"},
    {"NEURON_RESOURCE_TYPE", kScheduler, kPod, "that cores are meant"},
    {"aws.amazon.com/predicate-node", kScheduler, kPod, "their node"},
    {"CAMBRICON_DSMLU_ASSIGNED", kScheduler, kPod, "whether the MLU's plugin has handed it out"},
    {"CAMBRICON_DSMLU_PROFILE", kScheduler, kPod, "the MLU, its cores and memory"},
    {"enflame.com/gcu-assigned", kScheduler, kPod, "whether the slices' plugin has handed them out"},
    {"enflame.com/gcu-assigned-id", kScheduler, kPod, "their card"},
    {"enflame.com/gcu-assigned-index", kScheduler, kPod, "its index"},
    {"enflame.com/gcu-assigned-minor", kScheduler, kPod, "its minor number"},
    {"enflame.com/gcu-assigned-time", kScheduler, kPod, "when they were granted"},
    {"enflame.com/gcu-request-size", kScheduler, kPod, "how many they are"},
    {"assigned-containers", kScheduler, kPod, "the slices of each container"},
    {"BAIDU_COM_DEVICE_IDX", kScheduler, kPod, "Kunlun's cards"},
    {"metax-tech.com/gpu-devices-allocated", kScheduler, kPod, "MetaX's sGPUs"},
    {"metax-tech.com/predicate-time", kScheduler, kPod, "when they were granted"},
    {"mthreads.com/gpu-index", kScheduler, kPod, "Moore Threads' cards"},
    {"mthreads.com/predicate-time", kScheduler, kPod, "when they were granted"},
    {"mthreads.com/predicate-node", kScheduler, kPod, "their node"},
    // Nodes.
    {"hami.io/device-cordon", kOperator, kNode, "cards that take no new pods"},
    {"hami.io/node-nvidia-register", kPlugin, kNode, "the node's cards"},
    {"hami.io/node-nvidia-score", kPlugin, kNode, "how near its cards are to each other"},
    {"hami.io/node-*-register", kPlugin, kNode, "the cards of another vendor"},
    {"hami.io/node-register-*", kPlugin, kNode, "the cards of another vendor"},
    {"hami.io/node-handshake", kScheduler, kNode, "whether the plugin lives"},
    {"hami.io/node-handshake-*", kScheduler, kNode, "whether another vendor's plugin lives"},
    {"hami.io/mutex.lock", kScheduler, kNode, "the pod that is between its binding and Allocate"},
    {"cambricon.com/dsmlu.lock", kScheduler, kNode, "the same for Cambricon's plugin"},
    {"hami-cpp/bind-ticket", kScheduler, kNode, "the pods whose Binding is about to be posted"},
    {"hami-cpp/room-made", kScheduler, kNode, "when room was last made"},
    {"hami-cpp/concurrent-allocate", kPlugin, kNode, "the plugin needs no lock"},
    {"hami-cpp/plugin-alive", kPlugin, kNode, "when the plugin last said that it serves the node"},
    {"hami-cpp/gpu-health", kPlugin, kNode, "the state of each card"},
    // The lease of the schedulers.
    {"hami-cpp/binders", kScheduler, kLease, "who binds or wants to"},
    {"hami-cpp/unclean", kScheduler, kLease, "what a dead holder posted may still arrive"},
};

// A pattern has one * at most.
bool Matches(std::string_view pattern, std::string_view key) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == key;
  const std::string_view head = pattern.substr(0, star);
  const std::string_view tail = pattern.substr(star + 1);
  return key.size() > head.size() + tail.size() && key.substr(0, head.size()) == head &&
         key.substr(key.size() - tail.size()) == tail;
}

bool IsOurDomain(std::string_view key) { return key.substr(0, 8) == "hami.io/" || key.substr(0, 9) == "hami-cpp/"; }

}  // namespace

std::span<const KeyRule> AnnotationTable() { return kTable; }

std::string_view NameOf(Author author) {
  switch (author) {
    case kTenant:
      return "tenant";
    case kOperator:
      return "operator";
    case kScheduler:
      return "scheduler";
    case kPlugin:
      return "plugin";
    case kMonitor:
      return "monitor";
  }
  return "";
}

bool IsGuarded(std::string_view key, Carrier carrier) {
  const bool ours = IsOurDomain(key);
  const auto named = [&](const KeyRule& rule) {
    const bool others = rule.author == kTenant || rule.author == kOperator;
    return others == ours && rule.carrier == carrier && Matches(rule.key, key);
  };
  // Of our domains all that is not somebody else's; of others only what is named.
  return std::any_of(std::begin(kTable), std::end(kTable), named) != ours;
}

}  // namespace hami::device
