// SPDX-License-Identifier: Apache-2.0
//
// What hami-device-plugin costs: start to registered, Allocate spaced and back to back, writes per Allocate, memory.
// Against a fake API server on the loopback and eight simulated GPUs. Prints one line per figure.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/strings.h"
#include "test/plugin/rig.h"

namespace {

using namespace hami;
using Clock = std::chrono::steady_clock;

constexpr int kPodsOfNode = 30;

double Milliseconds(Clock::duration span) { return std::chrono::duration<double, std::milli>(span).count(); }

void Print(const char* what, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) { return values[static_cast<std::size_t>(part * double(values.size() - 1))]; };
  std::printf("%-34s p50 %7.2f ms   p99 %7.2f ms   most %7.2f ms   n=%zu\n", what, at(0.5), at(0.99), values.back(),
              values.size());
}

long ResidentKib(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::atol(line.c_str() + 6);
  }
  return 0;
}

// One pod after the other, bound just before it is admitted; PAUSE between them.
std::vector<double> Allocations(plugintest::Rig& rig, const std::string& prefix, int count, bool locked,
                                std::chrono::milliseconds pause) {
  const std::vector<std::string> cards = rig.CardsOfNode();
  plugin::PluginClient client(rig.socket());
  std::vector<double> spans;
  for (int i = 0; i < count; ++i) {
    const std::string pod = prefix + std::to_string(i);
    const std::string slot = cards[0] + "-" + std::to_string(i % 10);
    rig.BindPod(pod, {cards[0]}, 100, locked);
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    v1beta1::AllocateResponse response;
    const auto begin = Clock::now();
    const grpc::Status done = client.Allocate({slot}, &response);
    spans.push_back(Milliseconds(Clock::now() - begin));
    if (!done.ok()) {
      std::fprintf(stderr, "allocate %s: %s\n%s\n", pod.c_str(), done.error_message().c_str(),
                   rig.plugin().Log().c_str());
      std::exit(1);
    }
    rig.kubelet().ForgetHoldings();  // the one before has ended
    rig.kubelet().AddHolding("default", pod, "main", "nvidia.com/gpu", {slot});
    rig.SetPodPhase(pod, "Succeeded");
    // A node has some dozens of pods, not all that ever were.
    if (i >= kPodsOfNode) rig.api().Remove(kube::kPods, "default", prefix + std::to_string(i - kPodsOfNode));
  }
  return spans;
}

}  // namespace

int main() {
  std::vector<double> starts;
  for (int i = 0; i < 5; ++i) {
    plugintest::Rig rig("8xH100");
    const auto begin = Clock::now();
    rig.StartPlugin();
    if (!rig.WaitUntilRegistered()) {
      std::fprintf(stderr, "it does not register:\n%s\n", rig.plugin().Log().c_str());
      return 1;
    }
    starts.push_back(Milliseconds(Clock::now() - begin));
  }
  Print("start to registered, 8 GPUs", starts);

  plugintest::Rig rig("8xH100");
  rig.StartPlugin();
  if (!rig.WaitUntilRegistered()) return 1;
  Print("Allocate, 100 ms apart", Allocations(rig, "spaced-", 50, true, std::chrono::milliseconds(100)));
  const auto writes = rig.api().Asked("PATCH");
  constexpr int kMany = 300;
  Print("Allocate, back to back, node lock", Allocations(rig, "locked-", kMany, true, {}));
  std::printf("%-34s %.2f\n", "writes per Allocate, node lock", double(rig.api().Asked("PATCH") - writes) / kMany);
  Print("Allocate, back to back, no lock", Allocations(rig, "free-", kMany, false, {}));
  std::printf("%-34s %.1f MiB\n", "resident memory", double(ResidentKib(rig.plugin().pid())) / 1024);
  return 0;
}
