// SPDX-License-Identifier: Apache-2.0

#include "test/plugin/rig.h"

#include <signal.h>

#include <gtest/gtest.h>

#include <ctime>
#include <fstream>

#include "base/strings.h"
#include "device/annotations.h"
#include "device/types.h"
#include "net/client.h"
#include "net/url.h"

namespace hami::plugintest {

Rig::Rig(const std::string& gpus) : gpus_(gpus) {
  api_.Put(kube::kNodes, {{"kind", "Node"}, {"apiVersion", "v1"}, {"metadata", {{"name", kNode}}}});
  kubelet_ = std::make_unique<plugin::FakeKubelet>(folder_.path());
  std::ofstream(folder_.path() + "/kubeconfig")
      << "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
      << "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:" << api_.port() << "'}}]\n"
      << "users: [{name: u, user: {}}]\n";
}

Rig::~Rig() {
  if (second_) {
    second_->Signal(SIGKILL);
    second_->Wait(plugin::kPatience);
  }
  if (plugin_) KillPlugin();
}

testcluster::Child::Variables Rig::Machine() const {
  return {{"SIMGPU", gpus_}, {"SIMGPU_STATE", folder_.path() + "/simgpu"}, {"SIMGPU_PROFILE", "ideal"}};
}

void Rig::Inject(const std::string& statement) {
  testcluster::Child injector({HAMI_PLUGIN_INJECTOR, HAMI_SIMGPU_NVML, statement}, Machine(),
                              folder_.path() + "/inject");
  EXPECT_EQ(injector.Wait(plugin::kPatience), 0) << injector.Log();
}

net::Response Rig::Ask(const std::string& target) {
  if (port_.empty()) port_ = plugin_->Said(", port ", "\n");
  net::Call call;
  call.target = target;
  net::Response none;
  none.status = 0;
  const auto origin = net::ParseUrl("http://127.0.0.1:" + port_);
  if (!origin) return none;
  const auto client = net::Client::Make(*origin, {});
  if (!client) return none;
  return (*client)->Send(call).value_or(none);
}

void Rig::WriteNodeConfig(const std::string& text) const {
  const std::string path = folder_.path() + "/node-config.json";
  std::ofstream(path + ".new") << text;
  std::filesystem::rename(path + ".new", path);
}

void Rig::StartPlugin(const testcluster::Child::Variables& more) {
  port_.clear();
  plugin_ = Launch(more);
}

std::unique_ptr<testcluster::Child> Rig::Launch(const testcluster::Child::Variables& more) {
  const std::vector<std::string> words = {HAMI_PLUGIN_PROGRAM,
                                          "--node-name",
                                          kNode,
                                          "--kubeconfig",
                                          folder_.path() + "/kubeconfig",
                                          "--kubelet-socket",
                                          folder_.path() + "/kubelet.sock",
                                          "--pod-resources-socket",
                                          folder_.path() + "/pod-resources.sock",
                                          "--hook-path",
                                          hook(),
                                          "--node-config-file",
                                          folder_.path() + "/node-config.json",
                                          "--nvml-library",
                                          HAMI_SIMGPU_NVML,
                                          "--metrics-bind-address",
                                          "127.0.0.1:0"};
  testcluster::Child::Variables environment = Machine();
  environment["HAMI_LIBVGPU"] = HAMI_VGPU_LIBRARY;
  for (const auto& [name, value] : more) environment[name] = value;
  return std::make_unique<testcluster::Child>(words, environment, folder_.path() + "/log-" + std::to_string(lives_++));
}

bool Rig::WaitUntilRegistered(std::size_t registrations) {
  return kubelet_->WaitForRegistrations(registrations) &&
         Eventually([&] { return !NodeAnnotation("hami.io/node-nvidia-register").empty(); });
}

void Rig::KillPlugin() {
  plugin_->Signal(SIGKILL);
  plugin_->Wait(plugin::kPatience);
  plugin_.reset();
}

void Rig::RestartKubelet() {
  kubelet_.reset();
  std::error_code ignored;
  std::filesystem::remove(socket(), ignored);
  kubelet_ = std::make_unique<plugin::FakeKubelet>(folder_.path());
}

std::vector<std::string> Rig::CardsOfNode() const {
  std::vector<std::string> cards;
  const auto list = base::ParseJson(NodeAnnotation("hami.io/node-nvidia-register"));
  if (!list || !list->is_array()) return cards;
  for (const json::value& card : list->get_array()) cards.emplace_back(card.at("id").as_string().c_str());
  return cards;
}

void Rig::BindPod(const std::string& name, const std::vector<std::string>& cards, int memory, bool locked) {
  std::string grant;
  for (const std::string& card : cards) grant += base::Concat({card, ",NVIDIA,", std::to_string(memory), ",30:"});
  grant += ";";
  const json::value limits = {{"nvidia.com/gpu", std::to_string(cards.size())},
                              {"nvidia.com/gpumem", std::to_string(memory)},
                              {"nvidia.com/gpucores", "30"}};
  if (locked) {
    json::value node = *api_.Get(kube::kNodes, "", kNode);
    node.as_object()["metadata"].as_object()["annotations"].emplace_object();
    for (const char* key : {"hami.io/node-nvidia-register", "hami-cpp/concurrent-allocate", "hami-cpp/plugin-alive"}) {
      if (const std::string text = NodeAnnotation(key); !text.empty())
        node.at("metadata").at("annotations").as_object()[key] = text;
    }
    node.at("metadata").at("annotations").as_object()[device::kNodeLock] = "2026-08-01T10:00:00Z,default," + name;
    api_.Put(kube::kNodes, node);
  }
  api_.Put(kube::kPods, {{"kind", "Pod"},
                         {"apiVersion", "v1"},
                         {"metadata",
                          {{"name", name},
                           {"namespace", "default"},
                           {"annotations",
                            {{"hami.io/vgpu-devices-to-allocate", grant},
                             {"hami.io/vgpu-devices-allocated", grant},
                             {device::kBindPhase, "allocating"},
                             {device::kBindTime, std::to_string(std::time(nullptr))},
                             {device::kAssignedNode, kNode}}}}},
                         {"spec",
                          {{"nodeName", kNode},
                           {"schedulerName", "hami-scheduler"},
                           {"containers", json::array{{{"name", "main"}, {"resources", {{"limits", limits}}}}}}}},
                         {"status", {{"phase", "Pending"}}}});
}

void Rig::SetPodPhase(const std::string& name, const std::string& phase) {
  json::value pod = *api_.Get(kube::kPods, "default", name);
  pod.at("status").as_object()["phase"] = phase;
  api_.Put(kube::kPods, pod);
}

std::string Rig::PodAnnotation(const std::string& name, const std::string& key) const {
  const auto pod = api_.Get(kube::kPods, "default", name);
  if (!pod) return {};
  return base::GetString(pod->at("metadata").at("annotations").as_object(), key).value_or("");
}

std::string Rig::NodeAnnotation(const std::string& key) const {
  const auto node = api_.Get(kube::kNodes, "", kNode);
  const json::value* annotations = node ? node->at("metadata").as_object().if_contains("annotations") : nullptr;
  return annotations == nullptr ? "" : base::GetString(annotations->as_object(), key).value_or("");
}

}  // namespace hami::plugintest
