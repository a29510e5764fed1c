// SPDX-License-Identifier: Apache-2.0
//
// Nodes and pods as a GPU cluster has them, and requests as kube-scheduler and the API server send them. For tests and
// benchmarks that talk to hami-scheduler from outside.

#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace hami::testcluster {

namespace json = base::json;

// COUNT cards of 16 GiB, `NODE-gpu-0`…, registered as the device plugin registers them.
inline json::value GpuNode(const std::string& name, int count) {
  json::array cards;
  for (int i = 0; i < count; ++i) {
    cards.push_back(json::object{{"id", name + "-gpu-" + std::to_string(i)},
                                 {"index", i},
                                 {"count", 10},
                                 {"devmem", 16384},
                                 {"devcore", 100},
                                 {"type", "NVIDIA-Tesla T4"},
                                 {"numa", i * 2 / (count + 1)},
                                 {"mode", "hami-core"},
                                 {"health", true}});
  }
  const json::object shares{{"nvidia.com/gpu", std::to_string(count * 10)}, {"cpu", "96"}, {"memory", "512Gi"}};
  return {{"kind", "Node"},
          {"apiVersion", "v1"},
          {"metadata",
           {{"name", name},
            {"labels", {{"kubernetes.io/hostname", name}, {"gpu", "on"}}},
            {"annotations", {{"hami.io/node-nvidia-register", json::serialize(cards)}}}}},
          {"status",
           {{"allocatable", shares},
            {"capacity", shares},
            {"conditions", json::array{{{"type", "Ready"}, {"status", "True"}}}}}}};
}

// Asks for one share of one card. Padded to the size of what kube-scheduler sends: about 2 KiB.
inline json::value PendingPod(const std::string& name, int memory_mib, int cores) {
  const json::object limits{{"nvidia.com/gpu", "1"},
                            {"nvidia.com/gpumem", std::to_string(memory_mib)},
                            {"nvidia.com/gpucores", std::to_string(cores)}};
  json::object container{{"name", "main"},
                         {"image", "registry.example/team/train:1.2.3"},
                         {"command", {"python3", "-m", "train", "--epochs", "10"}},
                         {"env", {{{"name", "MODE"}, {"value", "batch"}}}},
                         {"resources", {{"limits", limits}, {"requests", limits}}},
                         {"terminationMessagePath", "/dev/termination-log"},
                         {"imagePullPolicy", "IfNotPresent"}};
  return {
      {"kind", "Pod"},
      {"apiVersion", "v1"},
      {"metadata",
       {{"name", name},
        {"namespace", "default"},
        {"labels", {{"app", "train"}, {"job-name", name}}},
        {"ownerReferences",
         {{{"apiVersion", "batch/v1"},
           {"kind", "Job"},
           {"name", "train"},
           {"uid", "5f0c6f3e-5e0a-4d6e-9d55-cc2f4f1c0001"},
           {"controller", true}}}}}},
      {"spec",
       {{"schedulerName", "hami-scheduler"},
        {"restartPolicy", "Never"},
        {"serviceAccountName", "default"},
        {"priority", 0},
        {"tolerations", {{{"key", "node.kubernetes.io/not-ready"}, {"operator", "Exists"}, {"effect", "NoExecute"}}}},
        {"containers", {container}}}},
      {"status", {{"phase", "Pending"}, {"qosClass", "BestEffort"}}}};
}

// A pod that has its share of card CARD of NODE for long.
inline json::value RunningPod(const std::string& name, const std::string& node, int card, int memory_mib, int cores) {
  json::value pod = PendingPod(name, memory_mib, cores);
  const std::string grant = node + "-gpu-" + std::to_string(card) + ",NVIDIA," + std::to_string(memory_mib) + "," +
                            std::to_string(cores) + ":;";
  json::object& metadata = pod.at("metadata").as_object();
  metadata["annotations"] = {{"hami.io/vgpu-node", node},
                             {"hami.io/vgpu-time", "1790000000"},
                             {"hami.io/bind-phase", "success"},
                             {"hami.io/vgpu-devices-allocated", grant}};
  pod.at("spec").as_object()["nodeName"] = node;
  pod.at("status").as_object()["phase"] = "Running";
  return pod;
}

// A node and a running pod as above, of AMD's cards.
inline void MakeAmd(json::value& node, int count) {
  json::object& annotations = node.at("metadata").at("annotations").as_object();
  json::value cards = *base::ParseJson(std::string(annotations.at("hami.io/node-nvidia-register").as_string()));
  for (json::value& card : cards.as_array()) {
    card.as_object()["type"] = "AMD Instinct MI210";
    card.as_object()["devcore"] = 104;
    card.as_object().erase("mode");
  }
  annotations.erase("hami.io/node-nvidia-register");
  annotations["hami.io/node-amd-register"] = json::serialize(cards);
  for (const char* field : {"allocatable", "capacity"}) {
    json::object& shares = node.at("status").at(field).as_object();
    shares.erase("nvidia.com/gpu");
    shares["amd.com/gpu"] = std::to_string(count * 10);
  }
}
inline void MakeAmdPod(json::value& pod) {
  json::object& annotations = pod.at("metadata").at("annotations").as_object();
  std::string grant(annotations.at("hami.io/vgpu-devices-allocated").as_string());
  grant.replace(grant.find("NVIDIA"), 6, "AMD Instinct MI210");
  annotations.erase("hami.io/vgpu-devices-allocated");
  annotations["hami.io/amd-devices-allocated"] = grant;
  json::object& container = pod.at("spec").at("containers").as_array()[0].as_object();
  const json::object& asked = container.at("resources").at("limits").as_object();
  const json::object limits{{"amd.com/gpu", "1"},
                            {"amd.com/gpumem", asked.at("nvidia.com/gpumem")},
                            {"amd.com/gpucores", asked.at("nvidia.com/gpucores")}};
  container["resources"] = json::object{{"limits", limits}, {"requests", limits}};
}

// As kube-scheduler writes it with nodeCacheCapable: true.
inline std::string FilterBody(const json::value& pod, const std::vector<std::string>& names) {
  json::array list(names.begin(), names.end());
  return json::serialize(json::object{{"Pod", pod}, {"Nodes", nullptr}, {"NodeNames", std::move(list)}});
}

inline std::string BindBody(const json::value& pod, const std::string& node) {
  const json::value& metadata = pod.at("metadata");
  return json::serialize(json::object{{"PodName", metadata.at("name")},
                                      {"PodNamespace", metadata.at("namespace")},
                                      {"PodUID", metadata.at("uid")},
                                      {"Node", node}});
}

inline std::string ReviewBody(const json::value& pod) {
  return json::serialize(json::object{{"kind", "AdmissionReview"},
                                      {"apiVersion", "admission.k8s.io/v1"},
                                      {"request",
                                       {{"uid", "review-1"},
                                        {"kind", {{"group", ""}, {"version", "v1"}, {"kind", "Pod"}}},
                                        {"namespace", "default"},
                                        {"operation", "CREATE"},
                                        {"object", pod}}}});
}

inline std::string DeviceConfig() {
  return "nvidia:\n"
         "  resourceCountName: nvidia.com/gpu\n"
         "  resourceMemoryName: nvidia.com/gpumem\n"
         "  resourceMemoryPercentageName: nvidia.com/gpumem-percentage\n"
         "  resourceCoreName: nvidia.com/gpucores\n"
         "  resourcePriorityName: nvidia.com/priority\n"
         "  defaultGPUNum: 1\n";
}

// A section of each other vendor; Ascend's and Iluvatar's count with their flags.
inline std::string OtherVendors() {
  return "cambricon: {resourceCountName: cambricon.com/vmlu, resourceMemoryName: cambricon.com/mlu.smlu.vmemory,\n"
         "  resourceCoreName: cambricon.com/mlu.smlu.vcore}\n"
         "hygon: {resourceCountName: hygon.com/dcunum, resourceMemoryName: hygon.com/dcumem,\n"
         "  resourceCoreName: hygon.com/dcucores, memoryFactor: 1}\n"
         "metax: {resourceCountName: metax-tech.com/gpu, resourceVCountName: metax-tech.com/sgpu,\n"
         "  resourceVMemoryName: metax-tech.com/vmemory, resourceVCoreName: metax-tech.com/vcore}\n"
         "enflame: {resourceNameGCU: enflame.com/gcu, resourceNameDRSGCU: enflame.com/drs-gcu,\n"
         "  resourceNameGCUMemory: enflame.com/gcu-memory, resourceNameGCUCore: enflame.com/gcu-core}\n"
         "mthreads: {resourceCountName: mthreads.com/vgpu, resourceMemoryName: mthreads.com/sgpu-memory,\n"
         "  resourceCoreName: mthreads.com/sgpu-core}\n"
         "kunlun: {resourceCountName: kunlunxin.com/xpu, resourceVCountName: kunlunxin.com/vxpu,\n"
         "  resourceVMemoryName: kunlunxin.com/vxpu-memory}\n"
         "awsneuron: {resourceCountName: aws.amazon.com/neuron, resourceCoreName: aws.amazon.com/neuroncore}\n"
         "amd: {resourceCountName: amd.com/gpu, resourceMemoryName: amd.com/gpumem, resourceCoreName: "
         "amd.com/gpucores}\n"
         "vastai: {resourceCountName: vastaitech.com/va}\n"
         "biren: {resourceCountName: birentech.com/gpu}\n"
         "iluvatars:\n"
         "- {chipName: MR-V100, commonWord: MR-V100, resourceCountName: iluvatar.ai/MR-V100-vgpu,\n"
         "   resourceMemoryName: iluvatar.ai/MR-V100.vMem, resourceCoreName: iluvatar.ai/MR-V100.vCore}\n"
         "vnpus:\n"
         "  configs:\n"
         "  - {chipName: 910B4, commonWord: Ascend910B4, resourceName: huawei.com/Ascend910B4,\n"
         "     resourceMemoryName: huawei.com/Ascend910B4-memory, memoryAllocatable: 32768, memoryCapacity: 32768,\n"
         "     aiCore: 20, templates: [{name: vir05_1c_8g, memory: 8192, aiCore: 5}]}\n";
}

inline std::string Kubeconfig(const std::string& server) {
  return "apiVersion: v1\nkind: Config\ncurrent-context: test\n"
         "clusters: [{name: test, cluster: {server: '" +
         server +
         "'}}]\n"
         "users: [{name: test, user: {}}]\n"
         "contexts: [{name: test, context: {cluster: test, user: test}}]\n";
}

}  // namespace hami::testcluster
