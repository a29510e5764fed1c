// SPDX-License-Identifier: Apache-2.0
//
// Two schedulers, one API server, and everything that can go wrong between them: lost watches, lists, lost answers,
// writes that arrive late, binds that come twice or never, crashes between any two calls, plugins that die, clocks that
// leap. On demand, tenants that write whatever they like on their pods. Bind calls run on threads of which only one
// moves at a time, and a random number says which; so a seed is a history. What the server finds bound after every
// Binding is compared with what the cards have.

#pragma once

#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "base/log.h"
#include "scheduler/binder.h"
#include "scheduler/keeper.h"
#include "scheduler/testing/hostile.h"
#include "scheduler/testing/sim_cluster.h"

namespace hami::scheduler::testing {

struct Crashed {};

// One run of one scheduler. KEYS: what grants are sealed with, and then no others count.
struct Racer {
  Racer(SimCluster& cluster, const std::string& name, device::GrantKeyring* keys)
      : books(sched::testing::NvidiaOnly(), {}, 300, keys == nullptr ? JudgeClaim() : JudgeSeals(*keys, false)),
        api(cluster),
        lease(api, cluster, Needs(), LeaseOptions(name)),
        binder(
            books, api, cluster, lease, [](const PodName&, const sched::Event&) {}, Options(name, keys)),
        keeper(books, api, cluster, binder, registration, [] { return true; }),
        watch(cluster, books, registration) {}

  static BindLeaseOptions LeaseOptions(const std::string& name) {
    BindLeaseOptions options;
    options.writer = name;
    // Things happen every other millisecond here.
    options.hold = 600;
    options.patience = 1000;
    return options;
  }
  BindLease::Needs Needs() {
    return {[this] { return wants; }, [this] { return binder.Unsettled(); }, [this] { return watch.Reached(); },
            [this](const Owner& pod) { return binder.RevokeBefore(pod); }};
  }
  static BinderOptions Options(const std::string& name, device::GrantKeyring* keys) {
    BinderOptions options;
    options.keys = keys;
    options.writer = name;
    options.group_wait = 1'000;
    options.other_wait = 200;
    return options;
  }

  Books books;
  SimApi api;
  Registration registration;
  bool wants = true;  // to bind: its kube-scheduler leads
  bool cut_off = false;
  bool blind = false;
  BindLease lease;
  Binder binder;
  Keeper keeper;
  SimWatch watch;
  std::vector<BindRequest> to_bind;
  bool crashed = false;
};

class Race {
 public:
  // HOSTILE: tenants write on their pods; grants are sealed then.
  Race(std::uint64_t seed, std::uint64_t steps, bool hostile = false)
      : hostile_(hostile), random_(seed), steps_left_(steps) {
    cluster_.claims_hold = !hostile;
    for (int i = 0; i < 4; ++i) {
      const std::string name = "n" + std::to_string(i);
      device::NodeCards cards = sched::testing::Cards(name, 2, 16000);
      for (device::Device& card : cards.devices) card.count = 4;
      // In every other history no node needs a lock: then tickets and the lease are all that there is.
      cluster_.AddNode(name, cards, i % 2 == 1 || seed % 2 == 1);
    }
    for (int i = 0; i < 2; ++i) schedulers_.push_back(NewScheduler(i));
    cluster_.yield = [this] { Yield(); };
    for (int i = 0; i < kActors; ++i) {
      actors_.push_back(std::make_unique<Actor>());
      actors_.back()->of = static_cast<std::size_t>(i % 2);
    }
    for (int i = 0; i < kActors; ++i) actors_[static_cast<std::size_t>(i)]->thread = std::thread([this, i] { Act(i); });
  }

  // Until the steps are used up and every bind call has ended.
  void Run() {
    std::unique_lock lock(mutex_);
    main_running_ = true;
    Loop(lock, kMain);
    stopping_ = true;
    changed_.notify_all();
    lock.unlock();
    for (const auto& actor : actors_) actor->thread.join();
    cluster_.yield = nullptr;
  }

  // Nothing goes wrong any more: the books of both must become what the cluster is.
  void ComeToRest() {
    calm_ = true;
    for (const auto& write : delayed_) write();
    if (hostile_) tenants_.ComeToRest();
    for (int round = 0; round < 40; ++round) {
      cluster_.now += 30'000;
      for (const auto& scheduler : schedulers_) {
        scheduler->watch.Relist();
        scheduler->keeper.RunOnce();
        scheduler->watch.Drain();
      }
    }
  }

  std::string Difference(Racer& scheduler) {
    Books truth(sched::testing::NvidiaOnly(), {});
    Registration registration;
    SimWatch watch(cluster_, truth, registration);
    std::string difference;
    truth.Locked([&](State& right) {
      scheduler.books.Locked([&](State& mine) {
        if (!mine.pendings().empty()) difference = "a pod is still pending";
        for (const auto& [name, view] : cluster_.nodes) {
          const sched::NodeId a = right.ledger.Find(name);
          const sched::NodeId b = mine.ledger.Find(name);
          if (b == sched::kNoNode || right.ledger.node(a).used() != mine.ledger.node(b).used()) {
            difference = "the books of node " + name + " differ";
          }
        }
      });
    });
    return difference;
  }

  SimCluster& cluster() { return cluster_; }
  std::vector<std::shared_ptr<Racer>>& schedulers() { return schedulers_; }
  std::uint64_t events() const { return events_; }
  int crashes() const { return crashes_; }
  int steps_of_the_clock() const { return steps_of_the_clock_; }
  std::map<std::string, int> calls() const { return calls_; }
  std::uint64_t forgeries() const { return tenants_.forgeries(); }
  int bound_in(BindMode mode) { return bound_in_[static_cast<int>(mode)]; }

 private:
  static constexpr int kBinders = 6;
  static constexpr int kActors = kBinders + 2;  // and one for each scheduler's looks at the lease
  static constexpr int kMain = -1;

  struct Actor {
    std::thread thread;
    std::size_t of = 0;
    bool busy = false;  // in a bind call
    std::shared_ptr<Racer> scheduler;
    std::optional<BindRequest> request;  // nothing: looks at the lease
  };

  int Below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  bool OneIn(int n) { return Below(n) == 0; }

  std::shared_ptr<Racer> NewScheduler(int index) {
    auto scheduler = std::make_shared<Racer>(cluster_, "s" + std::to_string(index) + "-" + std::to_string(runs_++),
                                             hostile_ ? keys_.get() : nullptr);
    scheduler->api.fault = [this, who = scheduler.get()](const std::string& call) {
      if (call == "BIND") ++bound_in_[static_cast<int>(who->lease.term().mode)];
      // Now and then one is long on its way.
      for (int turns = call == "BIND" && !calm_ && OneIn(20) ? 40 : 0; turns > 0; --turns) Yield();
      if (who->cut_off && !calm_ && call.ends_with(" lease")) return Fault::kRefusedBefore;
      return NextFault(call);
    };
    scheduler->api.delay = [this](std::function<void()> write) { delayed_.push_back(std::move(write)); };
    return scheduler;
  }

  Fault NextFault(const std::string& call) {
    ++events_;
    ++calls_[call];
    if (calm_ || !OneIn(25)) return Fault::kNone;
    static constexpr Fault kFaults[] = {Fault::kRefusedBefore, Fault::kAnswerLost, Fault::kDelayed,
                                        Fault::kServerError};
    return kFaults[Below(4)];
  }

  // --- Taking turns. MUTEX_ is held by whoever moves.

  // Gives others their turn; returns when it is ours again.
  void Yield() {
    if (calm_) return;
    std::unique_lock lock(mutex_, std::adopt_lock);
    Loop(lock, self_);
    lock.release();
    if (self_ != kMain && actors_[static_cast<std::size_t>(self_)]->scheduler->crashed) throw Crashed();
  }

  bool MayMove(int who) const {
    if (who == kMain)
      return steps_left_ == 0 &&
             std::none_of(actors_.begin(), actors_.end(), [](const auto& actor) { return actor->busy; });
    return actors_[static_cast<std::size_t>(who)]->busy;
  }

  // Things happen until it is SELF's turn.
  void Loop(std::unique_lock<std::mutex>& lock, int self) {
    while (true) {
      const int next = Next();
      if (next == self && MayMove(self)) return;
      turn_ = next;
      changed_.notify_all();
      changed_.wait(lock, [&] { return turn_ == self || stopping_; });
      if (stopping_ || MayMove(self)) return;
    }
  }

  // Lets the world go on for a while and says who moves then.
  int Next() {
    while (true) {
      std::vector<int> ready;
      for (int i = 0; i < kActors; ++i) {
        if (actors_[static_cast<std::size_t>(i)]->busy) ready.push_back(i);
      }
      if (steps_left_ == 0 && ready.empty()) return kMain;
      if (!ready.empty() && (steps_left_ == 0 || OneIn(3)))
        return ready[static_cast<std::size_t>(Below(static_cast<int>(ready.size())))];
      if (steps_left_ > 0) {
        --steps_left_;
        Happen();
      }
    }
  }

  void Act(int index) {
    self_ = index;
    Actor& actor = *actors_[static_cast<std::size_t>(index)];
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return (turn_ == index && main_running_) || stopping_; });
    while (!stopping_) {
      if (actor.busy) {
        try {
          if (actor.request) {
            (void)actor.scheduler->binder.Bind(*actor.request, [] { return false; });
          } else {
            actor.scheduler->lease.Tick();
          }
        } catch (const Crashed&) {
        }
        actor.busy = false;
        actor.scheduler.reset();
      }
      // Hands the turn over for good, until it is busy again.
      turn_ = Next();
      changed_.notify_all();
      changed_.wait(lock, [&] { return (turn_ == index && actor.busy) || stopping_; });
    }
  }

  // --- What happens.

  void Happen() {
    ++events_;
    cluster_.now += Below(5);
    Racer& scheduler = *schedulers_[static_cast<std::size_t>(Below(2))];
    const int kind = Below(1000);
    if (kind < 330) {
      if (!scheduler.blind) scheduler.watch.Step();
    } else if (kind < 396) {
      StartTick(Below(2));
    } else if (kind < 400) {
      LeadershipMoves();
    } else if (kind < 560) {
      if (scheduler.wants || OneIn(8)) PlaceSome(scheduler);
    } else if (kind < 720) {
      StartBind();
    } else if (kind < 780) {
      AddPod();
    } else if (kind < 840) {
      EndPod();
    } else if (kind < 960) {
      if (hostile_) {
        tenants_.Act(random_);
      } else {
        Plugin();
      }
    } else if (kind < 980) {
      Rarely(scheduler);
    } else if (kind < 990) {
      TouchPod();
    } else {
      KubeletTouchesNode();
    }
  }

  void Rarely(Racer& scheduler) {
    const int kind = Below(40);
    if (kind < 6) scheduler.watch.Relist();
    if (kind < 12) RunDelayed();
    if (kind == 12) Crash();
    if (kind == 13) cluster_.now += 10'000;
    if (kind == 14 && OneIn(4)) cluster_.now += 70'000;
    if (kind == 15 && OneIn(10)) cluster_.now += 400'000;
    if (kind >= 16 && kind < 30) Housekeeping(scheduler);
    if (kind == 30) ClockIsSetForward();
  }

  // By more than a charge lasts, and whoever looks at the clock first is not who is in the middle of something.
  void ClockIsSetForward() {
    ++steps_of_the_clock_;
    cluster_.now += 400'000;
    for (const auto& scheduler : schedulers_) Housekeeping(*scheduler);
  }

  // Housekeeping makes calls of its own; here they are not interrupted.
  void Housekeeping(Racer& scheduler) {
    const auto yield = std::exchange(cluster_.yield, nullptr);
    scheduler.keeper.RunOnce();
    cluster_.yield = yield;
  }

  void RunDelayed() {
    if (delayed_.empty()) return;
    const auto at = delayed_.begin() + Below(static_cast<int>(delayed_.size()));
    const auto write = *at;
    delayed_.erase(at);
    write();
  }

  void Crash() {
    const int index = Below(2);
    ++crashes_;
    schedulers_[static_cast<std::size_t>(index)]->crashed = true;
    schedulers_[static_cast<std::size_t>(index)] = NewScheduler(index);
  }

  SimPod* AnyPod() {
    if (cluster_.pods.empty()) return nullptr;
    return &std::next(cluster_.pods.begin(), Below(static_cast<int>(cluster_.pods.size())))->second;
  }

  void StartTick(int index) {
    Actor& actor = *actors_[static_cast<std::size_t>(kBinders) + static_cast<std::size_t>(index)];
    if (actor.busy) return;
    actor.request.reset();
    actor.scheduler = schedulers_[static_cast<std::size_t>(index)];
    actor.busy = true;
  }

  // One leads, or the other, or both do without asking; the lease may be out of reach for one that can still bind, and
  // one may hear nothing of what happens.
  void LeadershipMoves() {
    const int who = Below(3);
    schedulers_[0]->wants = who != 1;
    schedulers_[1]->wants = who != 0;
    for (const auto& scheduler : schedulers_) {
      scheduler->cut_off = OneIn(3);
      scheduler->blind = OneIn(3);
    }
  }

  void AddPod() {
    if (cluster_.pods.size() >= 24) return;
    static constexpr device::MiB kMemory[] = {2000, 4000, 4000, 8000, 16000};
    static constexpr int kCores[] = {0, 0, 0, 30, 100};
    device::Pod pod = sched::testing::PodOf("u" + std::to_string(++uids_),
                                            sched::testing::Wants(1 + Below(2), kMemory[Below(5)], kCores[Below(5)]));
    pod.name = "pod-" + std::to_string(Below(40));  // names come back
    if (cluster_.FindPod(pod.ns, pod.name) == nullptr) cluster_.AddPod(pod);
  }

  void EndPod() {
    SimPod* pod = AnyPod();
    if (pod == nullptr || (pod->pod.node_name.empty() && !OneIn(6))) return;
    const device::Pod copy = pod->pod;
    if (OneIn(3)) {
      pod->pod.terminated = true;
      cluster_.PodChanged(*pod);
    } else if (OneIn(3)) {
      pod->deleting = true;
      cluster_.PodChanged(*pod);
    } else {
      cluster_.RemovePod(copy.ns, copy.name);
    }
  }

  void TouchPod() {
    if (SimPod* pod = AnyPod()) cluster_.PodChanged(*pod);
  }
  void KubeletTouchesNode() { cluster_.NodeChanged(cluster_.nodes["n" + std::to_string(Below(4))]); }

  void PlaceSome(Racer& scheduler) {
    const SimPod* pod = AnyPod();
    if (pod == nullptr || !pod->pod.node_name.empty() || pod->pod.terminated) return;
    const std::string_view names[] = {"n0", "n1", "n2", "n3"};
    const Candidate candidate{pod->pod, pod->version, OneIn(3)};
    const sched::Decision decision =
        scheduler.books.Locked([&](State& state) { return state.Place(candidate, names, cluster_.now / 1000, false); });
    if (decision.outcome != sched::Outcome::kPlaced || OneIn(20)) return;  // a bind that never comes
    const BindRequest request{pod->pod.ns, pod->pod.name, pod->pod.uid, decision.node};
    scheduler.to_bind.push_back(request);
    if (OneIn(20)) scheduler.to_bind.push_back(request);  // or twice
  }

  void StartBind() {
    Actor& actor = *actors_[static_cast<std::size_t>(Below(kBinders))];
    std::shared_ptr<Racer>& scheduler = schedulers_[actor.of];
    if (actor.busy || scheduler->to_bind.empty()) return;
    const auto at = scheduler->to_bind.begin() + Below(static_cast<int>(scheduler->to_bind.size()));
    actor.request = *at;
    scheduler->to_bind.erase(at);
    actor.scheduler = scheduler;
    actor.busy = true;
  }

  // A plugin that needs no lock says from time to time that it lives.
  void SayAlive(NodeView& node) {
    if (node.annotations.count(kConcurrentAllocate) == 0) return;
    std::string& said = node.annotations[device::kPluginAlive];
    const std::string& registered = node.annotations["hami.io/node-nvidia-register"];
    const device::UnixSeconds now = cluster_.now / kSecond;
    const auto since = device::AliveSince(said, registered);
    if (since && now < *since + device::kAliveEvery) return;
    said = device::FormatAlive(now, registered);
    cluster_.NodeChanged(node);
  }

  // Allocate on some node: the pod of the lock, or one that waits.
  void Plugin() {
    NodeView& node = cluster_.nodes["n" + std::to_string(Below(4))];
    if (!OneIn(20)) SayAlive(node);
    const std::string* text = device::Find(node.annotations, device::kNodeLock);
    const auto lock = text == nullptr ? std::nullopt : ParseLock(*text);
    for (auto& [key, pod] : cluster_.pods) {
      if (pod.pod.node_name != node.name || !SimCluster::Allocating(pod.pod)) continue;
      if (lock && (lock->ns != pod.pod.ns || lock->pod != pod.pod.name)) continue;
      if (OneIn(200)) return;  // died before
      pod.pod.annotations[device::kBindPhase] = OneIn(10) ? "failed" : "success";
      pod.pod.annotations["hami.io/vgpu-devices-to-allocate"] = ";";  // handed out
      cluster_.PodChanged(pod);
      if (lock && !OneIn(100)) {  // or died here
        node.annotations.erase(device::kNodeLock);
        cluster_.NodeChanged(node);
      }
      return;
    }
  }

  const bool hostile_;
  std::mt19937_64 random_;
  SimCluster cluster_;
  const std::unique_ptr<device::GrantKeyring> keys_ = TestKeys();
  HostileTenants tenants_{cluster_, keys_.get()};
  std::vector<std::shared_ptr<Racer>> schedulers_;
  std::vector<std::function<void()>> delayed_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::map<std::string, int> calls_;
  std::map<int, int> bound_in_;  // by BindMode
  std::uint64_t steps_left_;
  std::uint64_t events_ = 0;
  int runs_ = 0;
  int uids_ = 0;
  int crashes_ = 0;
  int steps_of_the_clock_ = 0;
  bool calm_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = kMain;
  bool main_running_ = false;
  bool stopping_ = false;
  static inline thread_local int self_ = -1;  // kMain
};

}  // namespace hami::scheduler::testing
