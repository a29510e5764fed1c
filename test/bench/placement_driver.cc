// SPDX-License-Identifier: Apache-2.0
//
// The same workload as in placement_bench, given to hami-scheduler itself: a driver plays kube-scheduler (it knows CPU
// and memory of the nodes, names those that fit in random order, posts /filter and /bind) and the kubelet, beside an
// in-memory API server. Prints what part of the cards was given away, and the simulation's figure.
//   placement_driver SCHEDULER [--mix NAME] [--seed N] [--nodes N] [--within POINTS]
// --nodes: so many of the 1,204 nodes. Exit status 1 where the two figures are further apart than --within (0.5).

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/strings.h"
#include "device/sign_of_life.h"
#include "kube/testing/fake_apiserver.h"
#include "net/client.h"
#include "simcluster/simulation.h"
#include "simcluster/workloads.h"
#include "test/integration/child.h"
#include "test/integration/objects.h"

namespace {

using namespace hami;
using simcluster::TraceNode;
using simcluster::TracePod;
namespace json = base::json;

constexpr double kDemand = 1.3;
constexpr int kWhole = 1000;

json::value NodeOf(const TraceNode& trace) {
  json::value node = testcluster::GpuNode(trace.name, trace.cards);
  json::object& annotations = node.at("metadata").at("annotations").as_object();
  json::value cards = *base::ParseJson(std::string(annotations.at("hami.io/node-nvidia-register").as_string()));
  for (json::value& card : cards.as_array()) {
    card.as_object()["devmem"] = trace.card_memory;
    card.as_object()["type"] = "NVIDIA-" + trace.model;
    card.as_object()["numa"] = 0;
  }
  const std::string registered = json::serialize(cards);
  annotations["hami.io/node-nvidia-register"] = registered;
  annotations[device::kConcurrentAllocate] = "1";
  annotations[device::kPluginAlive] = device::FormatAlive(std::time(nullptr), registered);
  for (const char* field : {"allocatable", "capacity"}) {
    json::object& shares = node.at("status").at(field).as_object();
    shares["cpu"] = std::to_string(trace.host.cpu) + "m";
    shares["memory"] = std::to_string(trace.host.memory) + "Mi";
  }
  return node;
}

json::value PodOf(const TracePod& trace) {
  json::value pod = testcluster::PendingPod(trace.name, 1, 1);
  json::object requests{{"cpu", std::to_string(trace.host.cpu) + "m"},
                        {"memory", std::to_string(trace.host.memory) + "Mi"}};
  json::object limits;
  if (trace.cards > 0) {
    limits["nvidia.com/gpu"] = std::to_string(trace.cards);
    const bool plain = trace.milli % 10 == 0;
    limits[plain ? "nvidia.com/gpumem-percentage" : "nvidia.com/gpumem"] =
        std::to_string(plain ? trace.milli / 10 : trace.milli * 16);
    limits["nvidia.com/gpucores"] = std::to_string(std::max(trace.milli / 10, 1));
  }
  pod.at("spec").at("containers").as_array()[0].as_object()["resources"] =
      json::object{{"limits", std::move(limits)}, {"requests", std::move(requests)}};
  if (!trace.models.empty()) {
    pod.at("metadata").as_object()["annotations"] =
        json::object{{"nvidia.com/use-gputype", base::Join(trace.models, ",")}};
  }
  return pod;
}

class Driver {
 public:
  Driver(const std::vector<TraceNode>& nodes, std::uint64_t seed) : random_(seed) {
    for (const TraceNode& node : nodes) {
      api_.Put(kube::kNodes, NodeOf(node));
      free_.emplace_back(node.name, node.host);
      all_[node.name] = node.host.cpu;
    }
  }

  base::Status Start(const std::string& scheduler, const std::string& folder) {
    HAMI_TRY(base::WriteNewFile(folder + "/kubeconfig",
                                testcluster::Kubeconfig("http://127.0.0.1:" + std::to_string(api_.port())), 0600));
    HAMI_TRY(base::WriteNewFile(folder + "/device-config.yaml", testcluster::DeviceConfig(), 0600));
    child_ = std::make_unique<testcluster::Child>(
        std::vector<std::string>{scheduler, "--kubeconfig=" + folder + "/kubeconfig",
                                 "--device-config-file=" + folder + "/device-config.yaml", "--http_bind=127.0.0.1:0",
                                 "--metrics-bind-address=127.0.0.1:0",
                                 "--page-bind-address=", "--scheduler-name=hami-scheduler",
                                 "--node-scheduler-policy=fragmentation", "--gpu-scheduler-policy=fragmentation"},
        testcluster::Child::Variables{{"PATH", "/usr/bin:/bin"}}, folder + "/scheduler.log");
    const std::string port = child_->Said("serves http on 127.0.0.1:", ",");
    if (port.empty()) return base::Fail("hami-scheduler did not start:\n" + child_->Log());
    auto client = net::Client::Make(*net::ParseUrl("http://127.0.0.1:" + port), {});
    if (!client) return base::Fail(client.error().message);
    client_ = *std::move(client);
    for (int i = 0; i < 3000; ++i) {
      net::Call ask;
      ask.target = "/readyz";
      const auto ready = client_->Send(ask);
      if (ready && ready->body.find("books complete") != std::string::npos) return {};
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return base::Fail("hami-scheduler has not read the cluster:\n" + child_->Log());
  }

  // Thousandths of a card that were given away.
  base::Result<std::int64_t> Run(const std::vector<TracePod>& pods) {
    std::int64_t given = 0;
    for (const TracePod& pod : pods) {
      const json::value object = api_.Put(kube::kPods, PodOf(pod));
      std::vector<std::size_t> fit = Fitting(pod);
      if (fit.empty()) continue;
      if (pod.cards == 0) {
        Use(EmptiestOf(fit), pod);
        continue;
      }
      std::shuffle(fit.begin(), fit.end(), random_);
      std::vector<std::string> names;
      for (const std::size_t at : fit) names.push_back(free_[at].first);
      const auto answer = Post("/filter", testcluster::FilterBody(object, names));
      HAMI_TRY(answer);
      const json::array* chosen = base::GetArray(answer->as_object(), "NodeNames");
      if (chosen == nullptr || chosen->empty()) continue;
      const std::string node(chosen->front().as_string());
      const auto bound = Post("/bind", testcluster::BindBody(object, node));
      HAMI_TRY(bound);
      if (base::GetString(bound->as_object(), "Error").value_or("?") != "") {
        return base::Fail("bind: " + json::serialize(*bound));
      }
      api_.Edit(kube::kPods, "default", pod.name, [](json::value& now) {
        now.at("metadata").at("annotations").as_object()["hami.io/bind-phase"] = "success";
      });
      const auto at = std::find_if(free_.begin(), free_.end(), [&](const auto& one) { return one.first == node; });
      at->second.cpu -= pod.host.cpu;
      at->second.memory -= pod.host.memory;
      given += pod.demand();
    }
    return given;
  }

 private:
  std::vector<std::size_t> Fitting(const TracePod& pod) const {
    std::vector<std::size_t> fit;
    for (std::size_t i = 0; i < free_.size(); ++i) {
      const auto& free = free_[i].second;
      if (pod.host.cpu <= free.cpu && pod.host.memory <= free.memory) fit.push_back(i);
    }
    return fit;
  }
  std::size_t EmptiestOf(const std::vector<std::size_t>& fit) const {
    const auto part = [&](std::size_t i) {
      return static_cast<double>(free_[i].second.cpu) / static_cast<double>(all_.at(free_[i].first));
    };
    return *std::max_element(fit.begin(), fit.end(), [&](std::size_t a, std::size_t b) { return part(a) < part(b); });
  }
  void Use(std::size_t at, const TracePod& pod) {
    free_[at].second.cpu -= pod.host.cpu;
    free_[at].second.memory -= pod.host.memory;
    const std::string& node = free_[at].first;
    api_.Edit(kube::kPods, "default", pod.name,
              [&](json::value& now) { now.at("spec").as_object()["nodeName"] = node; });
  }
  base::Result<json::value> Post(const char* path, std::string body) {
    const auto response = client_->Send({"POST",
                                         path,
                                         {{"Content-Type", "application/json"}},
                                         std::move(body),
                                         net::After(std::chrono::seconds(30)),
                                         nullptr});
    if (!response) return base::Fail(response.error().message);
    auto answer = base::ParseJson(response->body);
    if (response->status != 200 || !answer) return base::Fail("status " + std::to_string(response->status));
    return answer;
  }

  kube::FakeApiServer api_;
  std::vector<std::pair<std::string, sched::HostAmounts>> free_;
  std::map<std::string, std::int64_t> all_;
  std::mt19937_64 random_;
  std::unique_ptr<testcluster::Child> child_;
  std::unique_ptr<net::Client> client_;
};

// A folder for the scheduler's files, gone with the object.
class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "placement-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Options {
  std::string scheduler;
  std::string mix = "mostly-shares";
  std::uint64_t seed = 1;
  std::uint64_t nodes = 0;  // 0: all
  double within = 0.5;
};

constexpr const char* kUsage =
    "usage: placement_driver SCHEDULER [--mix NAME] [--seed N] [--nodes N] [--within POINTS]\n";

std::optional<Options> ReadOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      options.scheduler = word;
      continue;
    }
    if (++i == argc) return std::nullopt;
    const auto number = base::ParseNumber(argv[i]);
    if (word == "--mix") {
      options.mix = argv[i];
    } else if (word == "--within") {
      options.within = std::strtod(argv[i], nullptr);
    } else if (word == "--seed" && number) {
      options.seed = *number;
    } else if (word == "--nodes" && number) {
      options.nodes = *number;
    } else {
      return std::nullopt;
    }
  }
  return options.scheduler.empty() ? std::nullopt : std::optional<Options>(options);
}

// Whether the two figures are near each other.
base::Result<bool> Compare(const Options& options, const simcluster::Mix& mix) {
  std::vector<TraceNode> nodes = simcluster::UsualNodes(options.seed);
  if (options.nodes > 0 && options.nodes < nodes.size()) nodes.resize(options.nodes);
  std::int64_t capacity = 0;
  for (const TraceNode& node : nodes) capacity += std::int64_t{node.cards} * kWhole;
  const auto demand = static_cast<std::int64_t>(kDemand * static_cast<double>(capacity));
  const std::vector<TracePod> pods = simcluster::MakePods(mix, demand, 1000 + options.seed);

  const Folder folder;
  if (folder.path().empty()) return base::Fail("no folder for temporary files");
  Driver driver(nodes, options.seed);
  HAMI_TRY(driver.Start(options.scheduler, folder.path()));
  const base::Result<std::int64_t> given = driver.Run(pods);
  HAMI_TRY(given);
  simcluster::Simulation simulation(nodes, {.policy = {"fragmentation", "fragmentation"}, .seed = options.seed});
  const simcluster::Report report = simulation.Run(pods);
  const auto percent = [&](std::int64_t part) {
    return 100.0 * static_cast<double>(part) / static_cast<double>(capacity);
  };
  std::printf("%s, %zu nodes, seed %llu: extender %.2f %%, simulation %.2f %%\n", mix.name.c_str(), nodes.size(),
              static_cast<unsigned long long>(options.seed), percent(*given), percent(report.allocated));
  return std::abs(percent(*given) - percent(report.allocated)) <= options.within;
}

}  // namespace

int main(int argc, char** argv) {
  const std::optional<Options> options = ReadOptions(argc, argv);
  const simcluster::Mix* mix = options ? simcluster::FindMix(options->mix) : nullptr;
  if (mix == nullptr) {
    std::fputs(kUsage, stderr);
    for (const simcluster::Mix& one : simcluster::Mixes()) {
      std::fprintf(stderr, "  %-14s %s\n", one.name.c_str(), one.about.c_str());
    }
    return 2;
  }
  const base::Result<bool> near = Compare(*options, *mix);
  if (!near) std::fprintf(stderr, "placement_driver: %s\n", near.error().message.c_str());
  if (near && !*near) std::fprintf(stderr, "placement_driver: further apart than %.2f points\n", options->within);
  return near && *near ? 0 : 1;
}
