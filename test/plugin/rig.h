// SPDX-License-Identifier: Apache-2.0
//
// hami-device-plugin as its neighbours meet it: the real program between a fake kubelet, a fake API server and
// simulated GPUs, everything below one temporary folder.

#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "kube/testing/fake_apiserver.h"
#include "net/http.h"
#include "plugin/testing/fake_kubelet.h"
#include "test/integration/child.h"

namespace hami::plugintest {

namespace json = base::json;

inline constexpr const char* kNode = "node-1";

class Rig {
 public:
  // GPUS as in SIMGPU: "2xH100".
  explicit Rig(const std::string& gpus);
  ~Rig();

  // With variables that win over the rig's own.
  void StartPlugin(const testcluster::Child::Variables& more = {});
  // Another one on the same node.
  void StartSecond() { second_ = Launch({}); }
  testcluster::Child& second() { return *second_; }
  // What the node configuration says from now on.
  void WriteNodeConfig(const std::string& text) const;
  // How long until the kubelet and the API server know it, from the start of the process; nothing when they never do.
  bool WaitUntilRegistered(std::size_t registrations = 1);
  void RestartKubelet();
  void StopKubelet() { kubelet_.reset(); }
  // What the plugin answers to a GET; status 0 when it does not.
  net::Response Ask(const std::string& target);
  // Does to the simulated machine what STATEMENT says.
  void Inject(const std::string& statement);

  // What the plugin registered with the scheduler.
  std::vector<std::string> CardsOfNode() const;
  // A pod that a scheduler bound: COUNT cards from CARDS, MEMORY MiB each, with the node lock if LOCKED.
  void BindPod(const std::string& name, const std::vector<std::string>& cards, int memory, bool locked);
  std::string PodAnnotation(const std::string& name, const std::string& key) const;
  std::string NodeAnnotation(const std::string& key) const;
  void SetPodPhase(const std::string& name, const std::string& phase);

  std::string socket() const { return folder_.path() + "/nvidia-gpu.sock"; }
  std::string folder() const { return folder_.path(); }
  std::string hook() const { return folder_.path() + "/hook"; }
  kube::FakeApiServer& api() { return api_; }
  plugin::FakeKubelet& kubelet() { return *kubelet_; }
  testcluster::Child& plugin() { return *plugin_; }
  void KillPlugin();

 private:
  plugin::TempFolder folder_;
  kube::FakeApiServer api_;
  std::unique_ptr<plugin::FakeKubelet> kubelet_;
  std::unique_ptr<testcluster::Child> plugin_;
  std::unique_ptr<testcluster::Child> second_;
  testcluster::Child::Variables Machine() const;
  std::unique_ptr<testcluster::Child> Launch(const testcluster::Child::Variables& more);

  const std::string gpus_;
  std::string port_;  // of the plugin's probes
  int lives_ = 0;
};

// Polls CONDITION until it holds; false after half a minute. For what another process does.
template <typename Condition>
bool Eventually(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + plugin::kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace hami::plugintest
