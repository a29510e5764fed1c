// SPDX-License-Identifier: Apache-2.0
//
// Two schedulers over the simulated server, for tests of the binder. Not part of any program.

#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "scheduler/binder.h"
#include "scheduler/keeper.h"
#include "scheduler/testing/sim_cluster.h"

namespace hami::scheduler::testing {

// One scheduler over the simulated server.
struct Scheduler {
  // LEASED: agrees with others by the lease; else it writes tickets, always.
  // KEYS: what grants are sealed with, and then no others are believed.
  Scheduler(SimCluster& cluster, const std::string& writer, bool leased = false, device::GrantKeyring* keys = nullptr)
      : books(sched::testing::NvidiaOnly(), {}, 300, JudgeBy(keys)),
        api(cluster),
        lease(api, cluster, Needs(), LeaseOptions(writer, leased)),
        binder(
            books, api, cluster, lease,
            [this](const PodName& pod, const sched::Event& event) {
              events.push_back(std::string(event.warning ? "Warning " : "Normal ") + std::string(pod.name) + " " +
                               event.reason + ": " + event.message);
            },
            Options(writer, keys)),
        keeper(books, api, cluster, binder, registration, [] { return true; }),
        watch(cluster, books, registration) {}
  static BinderOptions Options(const std::string& writer, device::GrantKeyring* keys = nullptr) {
    BinderOptions options;
    options.writer = writer;
    options.keys = keys;
    return options;
  }
  static JudgeClaim JudgeBy(device::GrantKeyring* keys) {
    return keys == nullptr ? JudgeClaim() : JudgeSeals(*keys, false);
  }
  static BindLeaseOptions LeaseOptions(const std::string& writer, bool leased) {
    BindLeaseOptions options;
    options.writer = writer;
    options.enabled = leased;
    return options;
  }
  BindLease::Needs Needs() {
    return {[this] { return wants; }, [this] { return binder.Unsettled(); }, [this] { return watch.Reached(); },
            [this](const Owner& pod) { return binder.RevokeBefore(pod); }};
  }
  std::size_t charged() {
    return books.Read([](const State& state) { return state.ledger.pod_count(); });
  }

  Books books;
  SimApi api;
  Registration registration;
  bool wants = true;
  std::vector<std::string> events;
  BindLease lease;
  Binder binder;
  Keeper keeper;
  SimWatch watch;
};

class BinderTest : public ::testing::Test {
 protected:
  BinderTest() {
    base::StartLog("test", base::LogLevel::kOff);
    cluster_.AddNode("n", sched::testing::Cards("n", 1, 16000), false);
    cluster_.AddNode("c", sched::testing::Cards("c", 1, 16000), true);
    a_ = std::make_unique<Scheduler>(cluster_, "a");
    b_ = std::make_unique<Scheduler>(cluster_, "b");
  }

  void AddPod(const std::string& uid, device::MiB memory = 4000) {
    cluster_.AddPod(sched::testing::PodOf(uid, sched::testing::Wants(1, memory)));
  }
  bool Place(Scheduler& scheduler, const std::string& uid, std::string_view node = "n") {
    const SimPod* pod = cluster_.FindPod("default", "pod-" + uid);
    const std::string_view names[] = {node};
    return scheduler.books
               .Locked([&](State& state) {
                 return state.Place({pod->pod, pod->version, false}, names, cluster_.now / 1000, false);
               })
               .outcome == sched::Outcome::kPlaced;
  }
  base::Status Bind(Scheduler& scheduler, const std::string& uid, const std::string& node = "n") {
    return scheduler.binder.Bind({"default", "pod-" + uid, uid, node}, [] { return false; });
  }
  const device::Pod& Pod(const std::string& uid) { return cluster_.FindPod("default", "pod-" + uid)->pod; }
  const std::string* Lock() { return device::Find(cluster_.nodes["n"].annotations, device::kNodeLock); }
  static std::function<Fault(const std::string&)> Once(const std::string& call, Fault fault) {
    return [call, fault, done = false](const std::string& now) mutable {
      if (done || now != call) return Fault::kNone;
      done = true;
      return fault;
    };
  }
  void LockByPAndPlaceMemberQ() {
    AddPod("p");
    AddPod("q");
    ASSERT_TRUE(Place(*a_, "p"));
    ASSERT_TRUE(Bind(*a_, "p"));
    ASSERT_TRUE(Place(*a_, "q"));
    a_->books.Locked([](State& state) { state.FindPending("q")->candidate.group = true; });
  }
  void PluginAnswers(const std::string& uid) {
    SimPod* pod = cluster_.FindPod("default", "pod-" + uid);
    pod->pod.annotations[device::kBindPhase] = "success";
    cluster_.PodChanged(*pod);
    (void)cluster_.PatchNode("n", "", {{device::kNodeLock, std::nullopt}});
  }

  SimCluster cluster_;
  std::unique_ptr<Scheduler> a_;
  std::unique_ptr<Scheduler> b_;
};

}  // namespace hami::scheduler::testing
