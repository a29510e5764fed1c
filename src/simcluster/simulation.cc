// SPDX-License-Identifier: Apache-2.0

#include "simcluster/simulation.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <tuple>

#include "base/strings.h"
#include "device/annotations.h"
#include "device/vendors/nvidia.h"
#include "sched/filter.h"
#include "sched/workload_text.h"

namespace hami::simcluster {
namespace {

constexpr const char* kCount = "nvidia.com/gpu";
constexpr const char* kMemory = "nvidia.com/gpumem";
constexpr const char* kPercent = "nvidia.com/gpumem-percentage";
constexpr const char* kCores = "nvidia.com/gpucores";
constexpr int kSlots = 10;                     // shares of a card, the device plugin's default
constexpr int kWhole = 1000;                   // thousandths
constexpr device::MiB kMiBPerThousandth = 16;  // of the usual card of a trace, 16,000 MiB
constexpr device::UnixSeconds kForever = 1LL << 40;

device::Vendors OneVendor() {
  device::NvidiaConfig config;
  config.count_resource = kCount;
  config.memory_resource = kMemory;
  config.memory_percent_resource = kPercent;
  config.core_resource = kCores;
  device::Vendors vendors;
  vendors.push_back(std::make_unique<device::NvidiaVendor>(std::move(config)));
  return vendors;
}

device::NodeCards CardsOf(const TraceNode& node) {
  device::NodeCards cards;
  for (int i = 0; i < node.cards; ++i) {
    device::Device card;
    card.uuid = base::Concat({node.name, "/", std::to_string(i)});
    card.index = i;
    card.count = kSlots;
    card.memory = node.card_memory;
    card.cores = 100;
    card.type = "NVIDIA-" + node.model;
    card.mode = device::kModeHamiCore;
    card.healthy = true;
    cards.devices.push_back(std::move(card));
  }
  return cards;
}

// The pod as a user writes it. Whole per cents are asked for as such; finer shares in MiB of a usual card.
device::Pod PodOf(const TracePod& trace, const std::string& uid) {
  device::Pod pod;
  pod.ns = "trace";
  pod.name = trace.name;
  pod.uid = uid;
  device::Container container;
  container.name = "main";
  container.requests["cpu"] = std::to_string(trace.host.cpu) + "m";
  container.requests["memory"] = std::to_string(trace.host.memory) + "Mi";
  if (trace.cards > 0) {
    container.limits[kCount] = std::to_string(trace.cards);
    const bool plain = trace.milli % 10 == 0;
    container.limits[plain ? kPercent : kMemory] =
        std::to_string(plain ? trace.milli / 10 : trace.milli * kMiBPerThousandth);
    container.limits[kCores] = std::to_string(std::max(trace.milli / 10, 1));
  }
  pod.containers.push_back(std::move(container));
  if (!trace.models.empty()) pod.annotations["nvidia.com/use-gputype"] = base::Join(trace.models, ",");
  return pod;
}

enum class Kind { kEnd, kNodeBack, kNodeFails, kArrival };  // of one moment, in this order
struct Event {
  Seconds at = 0;
  Kind kind = Kind::kArrival;
  std::size_t index = 0;
  std::uint64_t run = 0;  // of the pod: an end that was meant for an earlier placement is none
  bool operator>(const Event& other) const {
    return std::tie(at, kind, index) > std::tie(other.at, other.kind, other.index);
  }
};

}  // namespace

base::Result<std::vector<sched::RequestClass>> ReadWorkload(std::string_view text, const std::string& file) {
  return sched::ReadWorkload(text, file, OneVendor());
}

struct Simulation::Cluster {
  Cluster(const std::vector<TraceNode>& trace_nodes, const SimulationOptions& with)
      : options(with),
        nodes(trace_nodes),
        vendors(OneVendor()),
        ledger(vendors),
        filter(ledger, vendors, options.policy, hosts),
        random(options.seed) {
    filter.workload().Tune(options.tuning);
    if (!options.workload.empty()) filter.workload().Fix(options.workload);
    for (const TraceNode& node : nodes) {
      Up(node);
      capacity += std::int64_t{node.cards} * kWhole;
    }
  }

  struct Running {
    const TracePod* trace = nullptr;
    device::Pod pod;
    std::string node;
    bool tried = false;
    std::uint64_t run = 0;
  };

  void Up(const TraceNode& node) {
    hosts.SetNode(node.name, node.host);
    ledger.SetCards(node.name, 0, CardsOf(node));
    up.push_back(node.name);
  }

  bool FitsHost(const std::string& name, const sched::HostAmounts& wanted) const {
    const sched::HostRoom room = hosts.Room(name);
    return room.known && wanted.cpu <= room.free.cpu && wanted.memory <= room.free.memory;
  }

  // The nodes that kube-scheduler names, in random order: of all, or of ONE.
  std::vector<std::string_view> Named(const TracePod& pod, const std::string* one) {
    if (one != nullptr && FitsHost(*one, pod.host)) return {*one};
    if (one != nullptr) return {};
    std::vector<std::string_view> names;
    for (const std::string& name : up) {
      if (FitsHost(name, pod.host)) names.emplace_back(name);
    }
    std::shuffle(names.begin(), names.end(), random);
    const std::size_t most = (names.size() * static_cast<std::size_t>(options.sample_percent) + 99) / 100;
    if (names.size() > most) names.resize(most);
    return names;
  }

  bool Place(Running& running, const std::string* one) {
    const TracePod& trace = *running.trace;
    if (trace.cards == 0) return PlaceOnHost(running);
    const std::vector<std::string_view> names = Named(trace, one);
    if (names.empty()) return false;
    const sched::Decision decision = filter.Decide(running.pod, names, {});
    if (decision.outcome != sched::Outcome::kPlaced) return false;
    Settle(running, decision.node, decision.allocation);
    return true;
  }

  void Settle(Running& running, const std::string& node, const device::Allocation& allocation) {
    ledger.Assume(running.pod, node, allocation, kForever);
    Placed(running, node);
    allocated += running.trace->demand();
    most_allocated = std::max(most_allocated, allocated);
  }

  bool PlaceOnHost(Running& running) {
    const std::string* best = nullptr;
    double least = 2;
    for (const std::string& name : up) {
      if (!FitsHost(name, running.trace->host)) continue;
      const sched::HostRoom room = hosts.Room(name);
      const double used =
          1 - static_cast<double>(room.free.cpu) / static_cast<double>(std::max<std::int64_t>(room.all.cpu, 1));
      if (used < least) {
        least = used;
        best = &name;
      }
    }
    if (best == nullptr) return false;
    Placed(running, *best);
    return true;
  }

  void Placed(Running& running, const std::string& node) {
    running.node = node;
    ++running.run;
    hosts.Use(running.pod.uid, node, running.trace->host);
    if (running.trace->cards == 0) ledger.HostChanged(node);
  }

  void Remove(Running& running) {
    if (running.node.empty()) return;
    hosts.Drop(running.pod.uid);
    if (running.trace->cards > 0) {
      ledger.RemovePod(running.pod.uid);
      allocated -= running.trace->demand();
    } else {
      ledger.HostChanged(running.node);
    }
    running.node.clear();
  }

  SimulationOptions options;
  std::vector<TraceNode> nodes;
  device::Vendors vendors;
  sched::HostBooks hosts;
  sched::Ledger ledger;
  sched::Filter filter;
  std::mt19937_64 random;
  std::vector<std::string> up;
  std::deque<Running> pods;  // of the last run
  std::int64_t capacity = 0;
  std::int64_t allocated = 0;
  std::int64_t most_allocated = 0;
};

namespace {

// One run of a cluster: the events, and the pods that wait for room.
template <typename Cluster>
class Replay {
 public:
  explicit Replay(Cluster& cluster) : cluster_(cluster) { report_.capacity = cluster.capacity; }

  Report Run(const std::vector<TracePod>& pods) {
    Submit(pods);
    for (std::size_t i = 0; i < cluster_.nodes.size(); ++i) {
      const TraceNode& node = cluster_.nodes[i];
      if (node.fails_at != kNever) events_.push({node.fails_at, Kind::kNodeFails, i, 0});
      if (node.back_at != kNever) events_.push({node.back_at, Kind::kNodeBack, i, 0});
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      Sum(event.at);
      const Room room = Handle(event);
      if (room.any) Retry(event.at, room.node.empty() ? nullptr : &room.node);
    }
    return Summary();
  }

 private:
  void Submit(const std::vector<TracePod>& pods) {
    std::vector<std::size_t> order(pods.size());
    for (std::size_t i = 0; i < pods.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return pods[a].arrives < pods[b].arrives; });
    if (!order.empty()) first_ = last_ = summed_ = pods[order.front()].arrives;
    const double most = cluster_.options.demand * static_cast<double>(cluster_.capacity);
    for (const std::size_t i : order) {
      if (most > 0 && static_cast<double>(report_.submitted) >= most) break;
      report_.submitted += pods[i].demand();
      last_ = pods[i].arrives;
      if (pods[i].cards > 0) ++report_.pods;
      cluster_.pods.push_back({&pods[i], PodOf(pods[i], "uid-" + std::to_string(i)), {}, false, 0});
      events_.push({pods[i].arrives, Kind::kArrival, cluster_.pods.size() - 1, 0});
    }
  }

  // What was allocated until NOW, in the second half of the arrivals.
  void Sum(Seconds now) {
    const Seconds until = std::min(now, last_);
    const Seconds from = std::max(summed_, first_ + (last_ - first_) / 2);
    if (until > from) sum_ += static_cast<double>(cluster_.allocated) * static_cast<double>(until - from);
    summed_ = std::max(summed_, until);
  }

  // Where there may be room for those that wait: nowhere, on one node, or anywhere.
  struct Room {
    bool any = false;
    std::string node{};
  };
  Room Handle(const Event& event) {
    switch (event.kind) {
      case Kind::kArrival:
        LearnUntil(event);
        if (!Place(event.index, event.at, nullptr)) waiting_.push_back(event.index);
        return {};
      case Kind::kEnd: {
        auto& running = cluster_.pods[event.index];
        if (running.node.empty() || running.run != event.run) return {};
        Room room{true, running.node};
        // Where every node is named, those that wait were refused by all others, and nothing has changed there.
        if (cluster_.options.sample_percent < 100) room.node.clear();
        cluster_.Remove(running);
        return room;
      }
      case Kind::kNodeBack:
        cluster_.Up(cluster_.nodes[event.index]);
        return {true};
      case Kind::kNodeFails:
        Fail(cluster_.nodes[event.index].name);
        return {true};  // elsewhere, for the pods that were lost
    }
    return {};
  }

  void LearnUntil(const Event& event) {
    if (cluster_.options.ahead == 0) return cluster_.filter.Learn(cluster_.pods[event.index].pod);
    for (; learnt_ < cluster_.pods.size() && cluster_.pods[learnt_].trace->arrives <= event.at; ++learnt_) {
      device::Pod pod = cluster_.pods[learnt_].pod;
      cluster_.filter.Learn(pod);
      for (int again = 1; again < cluster_.options.ahead; ++again) {
        pod.uid += "+";
        cluster_.filter.Learn(pod);
      }
    }
  }

  bool Place(std::size_t index, Seconds now, const std::string* one) {
    auto& running = cluster_.pods[index];
    const bool placed = cluster_.Place(running, one);
    if (placed && running.tried && running.trace->cards > 0) ++report_.waited;
    running.tried = true;
    if (placed && running.trace->ends != kNever) {
      // It runs as long as it was meant to, however late it began.
      const Seconds length = running.trace->ends - running.trace->arrives;
      events_.push({now + length, Kind::kEnd, index, running.run});
    }
    return placed;
  }

  void Fail(const std::string& name) {
    cluster_.up.erase(std::remove(cluster_.up.begin(), cluster_.up.end(), name), cluster_.up.end());
    for (std::size_t i = 0; i < cluster_.pods.size(); ++i) {
      if (cluster_.pods[i].node != name) continue;
      cluster_.Remove(cluster_.pods[i]);
      ++report_.lost;
      waiting_.push_back(i);
    }
    cluster_.ledger.RemoveNode(name);
    cluster_.hosts.RemoveNode(name);
  }

  // Once each, longest wait first; on ONE node, if only there something has changed.
  void Retry(Seconds now, const std::string* one) {
    std::set<std::tuple<int, int, std::vector<std::string>>> refused;  // there, in this round: room only shrinks
    for (std::size_t left = waiting_.size(); left > 0; --left) {
      const std::size_t index = waiting_.front();
      waiting_.pop_front();
      const TracePod& trace = *cluster_.pods[index].trace;
      const bool asks_there = one != nullptr && trace.cards > 0;
      const auto ask = std::make_tuple(trace.cards, trace.milli, trace.models);
      const bool hopeless = asks_there && (!cluster_.FitsHost(*one, trace.host) || refused.count(ask) > 0);
      if (!hopeless && Place(index, now, one)) continue;
      if (asks_there && !hopeless) refused.insert(ask);
      waiting_.push_back(index);
    }
  }

  Report Summary() {
    report_.allocated = cluster_.allocated;
    report_.most_allocated = cluster_.most_allocated;
    const Seconds half = last_ - (first_ + (last_ - first_) / 2);
    report_.mean_allocated = half > 0 ? sum_ / static_cast<double>(half) : static_cast<double>(cluster_.allocated);
    for (const std::size_t index : waiting_) report_.refused += cluster_.pods[index].trace->cards > 0 ? 1U : 0U;
    const sched::Workload& workload = cluster_.filter.workload().Current();
    cluster_.ledger.ForEachNode([&](const sched::Node& node) {
      const sched::NodeFragments now =
          sched::FragmentsOf(node, cluster_.vendors, cluster_.hosts.Room(node.name()), workload);
      report_.free += now.free_share;
      report_.fragmented += now.fragmented;
      for (const device::CardState& used : node.used()) report_.whole_cards += used.slots == 0 ? 1 : 0;
    });
    return report_;
  }

  Cluster& cluster_;
  Report report_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::deque<std::size_t> waiting_;
  std::size_t learnt_ = 0;                     // pods that were learnt from ahead
  Seconds first_ = 0, last_ = 0, summed_ = 0;  // arrivals, and until when it was summed up
  double sum_ = 0;
};

}  // namespace

Simulation::Simulation(const std::vector<TraceNode>& nodes, const SimulationOptions& options)
    : cluster_(std::make_unique<Cluster>(nodes, options)) {}
Simulation::~Simulation() = default;

Report Simulation::Run(const std::vector<TracePod>& pods) { return Replay<Cluster>(*cluster_).Run(pods); }

namespace {

// The shares of one card that could go elsewhere.
struct UsedCard {
  std::string node;
  std::string uuid;
  std::int64_t demand = 0;
  std::vector<std::size_t> pods;
};

template <typename Cluster>
class Adviser {
 public:
  explicit Adviser(Cluster& cluster) : cluster_(cluster) {
    for (std::size_t i = 0; i < cluster_.pods.size(); ++i) {
      const auto& running = cluster_.pods[i];
      if (running.node.empty() || running.trace->cards == 0) continue;
      for (const sched::PodCharge& charge : cluster_.ledger.FindPod(running.pod.uid)->charge.cards) {
        UsedCard& card = cards_[charge.uuid];
        card.node = running.node;
        card.uuid = charge.uuid;
        card.demand += running.trace->milli;
        card.pods.push_back(i);
      }
    }
  }

  Advice Advise(std::size_t most_cards) {
    for (const UsedCard& card : Candidates(most_cards)) {
      if (receivers_.count(card.uuid) == 0) Try(card);
    }
    return std::move(advice_);
  }

 private:
  std::vector<UsedCard> Candidates(std::size_t most_cards) const {
    std::vector<UsedCard> order;
    for (const auto& [uuid, card] : cards_) {
      const bool shares = std::all_of(card.pods.begin(), card.pods.end(), [&](std::size_t i) {
        return cluster_.pods[i].trace->cards == 1 && cluster_.pods[i].trace->milli < kWhole;
      });
      if (shares) order.push_back(card);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const UsedCard& a, const UsedCard& b) { return a.demand < b.demand; });
    if (order.size() > most_cards) order.resize(most_cards);
    return order;
  }

  // All of the card's pods move, or none does.
  void Try(const UsedCard& card) {
    std::vector<Move> moves;
    std::vector<device::Allocation> before;
    for (const std::size_t i : card.pods) {
      before.push_back(cluster_.ledger.FindPod(cluster_.pods[i].pod.uid)->allocation);
      const std::optional<Move> move = MoveOne(cluster_.pods[i], card);
      if (!move) return Undo(card, before);
      moves.push_back(*move);
    }
    ++advice_.freed;
    for (const Move& move : moves) receivers_.insert(move.to_card);
    advice_.moves.insert(advice_.moves.end(), moves.begin(), moves.end());
    cards_.erase(card.uuid);
  }

  template <typename Running>
  std::optional<Move> MoveOne(Running& running, const UsedCard& from) {
    cluster_.Remove(running);
    device::Pod pod = running.pod;
    pod.annotations["nvidia.com/nouse-gpuuuid"] = from.uuid;
    // Whatever policy the pods were placed by: the fullest card is the one to fill.
    pod.annotations[device::kNodePolicy] = pod.annotations[device::kDevicePolicy] = "binpack";
    const sched::Decision decision = cluster_.filter.Decide(pod, cluster_.Named(*running.trace, nullptr), {});
    if (decision.outcome != sched::Outcome::kPlaced) return std::nullopt;
    const std::string to = decision.allocation.grants.front().second.front().front().uuid;
    if (cards_.count(to) == 0) return std::nullopt;  // nothing is won on an empty card
    cluster_.Settle(running, decision.node, decision.allocation);
    return Move{running.pod.name, from.node, from.uuid, decision.node, to};
  }

  void Undo(const UsedCard& card, const std::vector<device::Allocation>& before) {
    for (std::size_t k = 0; k < before.size(); ++k) {
      auto& running = cluster_.pods[card.pods[k]];
      cluster_.Remove(running);
      cluster_.Settle(running, card.node, before[k]);
    }
  }

  Cluster& cluster_;
  std::map<std::string, UsedCard> cards_;  // by uuid, with something on them
  std::set<std::string> receivers_;
  Advice advice_;
};

}  // namespace

Advice Simulation::Advise(std::size_t most_cards) { return Adviser<Cluster>(*cluster_).Advise(most_cards); }

}  // namespace hami::simcluster
