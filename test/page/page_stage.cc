// SPDX-License-Identifier: Apache-2.0
//
// The page over an invented cluster, for a browser to look at. Serves the very routes that hami-scheduler serves, on a
// port of its own that it prints, and changes the cluster as the lines of its input say:
//
//   page_stage NODES CARDS [TOKEN]
//   sick NODE CARD | well NODE CARD | pod NODE CARD NAME MIB | wait NAME REASON… | settle NAME | lock NODE NAME
//   unlock NODE | gone NODE | mig NODE CARD
//   use NODE (an hour of it, of every pod) | uses NODE CARD POD MIB (now) | silent NODE REASON…
//   clock SECONDS (later) | leave NODE POD
//
// Each line is answered with `ok`. Ends with its input.

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>

#include "page/routes.h"
#include "page/use_history.h"
#include "page/waiting.h"

namespace {

using hami::page::Card;
using hami::page::Node;
using hami::page::Snapshot;

constexpr std::int64_t kStart = 1'790'000'000;

std::string Team(int card) { return "team-" + std::string(1, static_cast<char>('a' + card % 4)); }

void AddPod(Node& node, int card, const std::string& name, std::int64_t memory, std::int64_t cores) {
  Card& on = node.cards.at(static_cast<std::size_t>(card));
  on.used.memory += memory;
  on.used.cores += cores;
  ++on.used.slots;
  node.pods.push_back({Team(card), name, node.name + name, "bound", false, {{card, memory, cores, 1}}});
}

Node MakeNode(int number, int cards) {
  Node node;
  node.name = "node-" + std::to_string(number);
  for (int i = 0; i < cards; ++i) {
    Card card;
    card.uuid = "GPU-" + std::to_string(number) + "-" + std::to_string(i);
    card.index = i;
    card.type = number % 3 == 0 ? "NVIDIA-Tesla T4" : "NVIDIA-H100 80GB HBM3";
    card.mode = "hami-core";
    card.memory = number % 3 == 0 ? 16384 : 81920;
    card.cores = 100;
    card.count = 10;
    card.numa = i * 2 / cards;
    card.healthy = card.usable = true;
    node.cards.push_back(card);
  }
  for (int i = 0; i < cards; ++i) {
    for (int k = 0; k < (number * 7 + i * 3) % 4; ++k) {
      AddPod(node, i, "train-" + std::to_string(i) + "-" + std::to_string(k),
             node.cards[static_cast<std::size_t>(i)].memory / 4, 20);
    }
  }
  return node;
}

class Stage {
 public:
  Stage(int nodes, int cards) {
    for (int i = 1; i <= nodes; ++i) {
      Node node = MakeNode(i, cards);
      nodes_[node.name] = std::move(node);
    }
  }

  Snapshot Take() {
    const std::scoped_lock lock(mutex_);
    Snapshot snapshot;
    for (const auto& [name, node] : nodes_) snapshot.nodes.push_back(node);
    snapshot.quotas = {{"team-a", "limits.nvidia.com/gpumem", 30000, 40960},
                       {"team-b", "limits.nvidia.com/gpucores", 90, 100},
                       {"team-c", "limits.nvidia.com/gpumem", 1024, std::nullopt}};
    snapshot.waiting = waiting_.List(now_);
    return snapshot;
  }

  void Do(std::istringstream line) {
    std::string verb;
    std::string name;
    line >> verb >> name;
    if (verb == "clock") return static_cast<void>(now_ += std::stoll(name));
    const std::scoped_lock lock(mutex_);
    if (verb == "wait") return Refuse(name, line);
    if (verb == "settle") return waiting_.Gone(name);
    if (verb == "gone") return static_cast<void>(nodes_.erase(name));
    if (verb == "silent") {
      std::string reason;
      std::getline(line >> std::ws, reason);
      return use_.Silent(name, reason, now_);
    }
    Node& node = nodes_.at(name);
    if (verb == "use") return InventUse(node);
    if (verb == "leave") {
      std::string pod;
      line >> pod;
      std::erase_if(node.pods, [&](const auto& one) { return one.name == pod; });
      return;
    }
    if (verb == "unlock") return node.lock.reset();
    if (verb == "lock") {
      std::string pod;
      line >> pod;
      node.lock = hami::page::ReadLock("2026-09-21T13:00:00Z,team-a," + pod);
      return;
    }
    int card = 0;
    line >> card;
    Card& on = node.cards.at(static_cast<std::size_t>(card));
    if (verb == "sick" || verb == "well") on.healthy = on.usable = verb == "well";
    if (verb == "mig") {
      on.mode = "mig";
      on.instances = {{"3g.40gb", {0, 4}, "team-a/train-1", "MIG-1"}, {"1g.10gb", {6, 1}, "team-b/serve-2", "MIG-2"}};
    }
    if (verb == "uses") {
      std::string pod;
      hami::device::MiB mib = 0;
      line >> pod >> mib;
      use_.Answered(name, {name, {{Team(card), pod, "main", on.uuid, mib, on.memory / 4, 20, 11}}}, now_);
    }
    if (verb == "pod") {
      std::string pod;
      std::int64_t memory = 0;
      line >> pod >> memory;
      AddPod(node, card, pod, memory, 10);
    }
  }

  void Listed() {
    std::vector<std::string> names;
    for (const auto& [name, node] : nodes_) names.push_back(name);
    use_.Listed(names, now_);
  }
  std::int64_t now() const { return now_; }
  std::string Use(const std::string& node) const { return use_.Render(node, now_); }

 private:
  // Each pod another wave under its limit; the first of a card ends half an hour ago, and the second was resized.
  void InventUse(const Node& node) {
    for (int minute = 59; minute >= 0; --minute) {
      hami::device::UseReport report{node.name, {}};
      int k = 0;
      for (const hami::page::Pod& pod : node.pods) {
        const auto& share = pod.shares.front();
        const Card& card = node.cards[static_cast<std::size_t>(share.card)];
        ++k;
        if (k % 3 == 1 && minute < 30) continue;
        const double wave = 0.5 + 0.4 * std::sin((minute + 7 * k) / 6.0);
        const std::int64_t limit = k % 3 == 2 && minute > 20 ? share.memory * 3 / 2 : share.memory;
        report.shares.push_back(
            {pod.ns, pod.name, "main", card.uuid, static_cast<hami::device::MiB>(wave * static_cast<double>(limit)),
             limit, static_cast<int>(share.cores), static_cast<int>(static_cast<double>(share.cores) * wave)});
        if (k % 4 == 0) report.shares.back().core_percent.reset();
      }
      use_.Answered(node.name, report, now_ - 60 * minute);
    }
  }

  void Refuse(const std::string& name, std::istringstream& line) {
    std::string reason;
    std::getline(line >> std::ws, reason);
    std::vector<hami::sched::NodeReason> failures;
    for (const auto& [node, unused] : nodes_) failures.push_back({node, reason});
    if (!failures.empty()) failures.front().reason = hami::device::kNodeUnregistered;
    waiting_.Refused("team-a", name, name, failures, now_ - 300);
  }

  std::atomic<std::int64_t> now_ = kStart;
  std::mutex mutex_;
  std::map<std::string, Node> nodes_;
  hami::page::Waiting waiting_;
  hami::page::UseHistory use_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: page_stage NODES CARDS [TOKEN]\n";
    return 2;
  }
  Stage stage(std::atoi(argv[1]), std::atoi(argv[2]));
  hami::net::Canceller stop;
  stage.Listed();
  hami::page::Live live("stage", "0.0-stage", {[&] { return stage.Take(); }, [&] { return stage.now(); }}, stop);
  hami::page::PageOptions options;
  options.loopback_only = true;
  const std::string token = argc > 3 ? argv[3] : "";
  hami::page::Gate gate([&](const std::string& given) {
    return given == token ? hami::page::Access::kAllowed : hami::page::Access::kUnknownToken;
  });
  if (!token.empty()) options.check = [&](const std::string* given) { return gate.Check(given); };
  auto server = hami::net::Server::Start(
      {}, hami::page::PageRoutes({[&](const auto& ask, const auto& abandoned) { return live.Answer(ask, abandoned); },
                                  [&](const std::string& node) { return stage.Use(node); }},
                                 options));
  if (!server) {
    std::cerr << server.error().message << "\n";
    return 1;
  }
  live.Start();
  std::cout << (*server)->port() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    stage.Do(std::istringstream(line));
    std::cout << "ok" << std::endl;
  }
  stop.Cancel();
  (*server)->Stop(std::chrono::seconds(1));
  live.Stop();
  return 0;
}
