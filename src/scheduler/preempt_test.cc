// SPDX-License-Identifier: Apache-2.0
//
// Pods that go for others of higher priority: by our own choice where kube-scheduler sees no reason, and as a check of
// kube-scheduler's.

#include <gtest/gtest.h>

#include "base/log.h"
#include "base/strings.h"
#include "scheduler/evictor.h"
#include "scheduler/extender.h"
#include "scheduler/extender_body.h"
#include "scheduler/keeper.h"
#include "scheduler/testing/sim_cluster.h"

namespace hami::scheduler {
namespace {

namespace json = base::json;
using testing::SimApi;
using testing::SimCluster;
using testing::SimWatch;

class PreemptTest : public ::testing::Test {
 protected:
  PreemptTest()
      : books_(sched::testing::NvidiaOnly(), {}),
        api_(cluster_),
        record_([this](const PodName& pod, const sched::Event& event) {
          events_.push_back(base::Concat({pod.name, " ", event.reason, ": ", event.message}));
        }),
        lease_(api_, cluster_, {}, {.enabled = false}),
        binder_(books_, api_, cluster_, lease_, record_, {}),
        extender_(books_, binder_, cluster_, record_, [] { return true; }, {.preempt = true}),
        evictor_(books_, api_, record_) {
    base::StartLog("test", base::LogLevel::kOff);
    for (const char* name : {"n1", "n2"}) cluster_.AddNode(name, sched::testing::Cards(name, 1, 16000), true);
    watch_ = std::make_unique<SimWatch>(cluster_, books_, registration_);
  }
  static json::object PodOf(const std::string& uid, int memory, int priority, const char* policy) {
    return {{"metadata", {{"name", "pod-" + uid}, {"namespace", "default"}, {"uid", uid}, {"resourceVersion", "1"}}},
            {"spec",
             {{"priority", priority},
              {"preemptionPolicy", policy},
              {"containers",
               json::array{json::object{
                   {"name", "c"},
                   {"resources",
                    {{"limits", {{"nvidia.com/gpu", "1"}, {"nvidia.com/gpumem", std::to_string(memory)}}}}}}}}}}};
  }
  // The node that /filter names; empty: none.
  std::string Filter(const std::string& uid, int memory, int priority, const char* policy = "PreemptLowerPriority",
                     const char* names = R"(["n1","n2"])") {
    if (cluster_.FindPod("default", "pod-" + uid) == nullptr) {
      device::Pod pod = sched::testing::PodOf(uid, sched::testing::Wants(1, memory));
      pod.priority = priority;
      cluster_.AddPod(pod);
    }
    const Reply reply =
        extender_.Filter(base::Concat({R"({"Pod":)", json::serialize(PodOf(uid, memory, priority, policy)),
                                       R"(,"NodeNames":)", names, "}"}),
                         [] { return false; });
    const json::value answer = *base::ParseJson(reply.body);
    const json::array* list = answer.at("NodeNames").if_array();
    return list == nullptr ? std::string() : std::string(list->at(0).as_string());
  }
  void Run(const std::string& uid, const char* node, int memory, int priority) {
    const std::string names = base::Concat({R"([")", node, R"("])"});
    ASSERT_EQ(Filter(uid, memory, priority, "Never", names.c_str()), node);
    const Reply reply =
        extender_.Bind(base::Concat({R"({"PodName":"pod-)", uid, R"(","PodNamespace":"default","PodUID":")", uid,
                                     R"(","Node":")", node, R"("})"}),
                       [] { return false; });
    ASSERT_EQ(reply.body, R"({"Error":""})");
    testing::SimPod* pod = cluster_.FindPod("default", "pod-" + uid);
    pod->pod.annotations[device::kBindPhase] = device::kPhaseSuccess;
    cluster_.PodChanged(*pod);
    watch_->Drain();
  }
  void Evict() {
    evictor_.RunOnce();
    watch_->Drain();
  }
  std::string Preempt(const std::string& victims, int memory = 16000, int priority = 100) {
    const Reply reply =
        extender_.Preempt(base::Concat({R"({"Pod":)", json::serialize(PodOf("new", memory, priority, "")),
                                        R"(,"NodeNameToVictims":null,"NodeNameToMetaVictims":)", victims, "}"}));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.body;
  }

  SimCluster cluster_;
  Books books_;
  SimApi api_;
  Registration registration_;
  std::vector<std::string> events_;
  RecordEvent record_;
  BindLease lease_;
  Binder binder_;
  Extender extender_;
  Evictor evictor_;
  std::unique_ptr<SimWatch> watch_;
};

TEST_F(PreemptTest, APodOfHigherPriorityGetsItsPlaceFromTheFewest) {
  Run("a", "n1", 8000, 0);
  Run("b", "n1", 8000, 0);
  Run("c", "n2", 16000, 0);
  ASSERT_EQ(Filter("high", 16000, 100), "");
  EXPECT_EQ(events_.back(),
            "pod-high Preempting: room is made on node(n2) by the eviction of 1 pods of lower priority: default/pod-c");
  Evict();
  EXPECT_EQ(events_.back(), "pod-c Preempted: evicted for pod default/pod-high, which has a higher priority");
  EXPECT_EQ(api_.calls["EVICT"], 1);
  EXPECT_EQ(Filter("high", 16000, 100), "n2");
}

TEST_F(PreemptTest, WhatTheyLeaveIsForNobodyElse) {
  Run("c", "n2", 16000, 0);
  Run("a", "n1", 16000, 50);
  ASSERT_EQ(Filter("high", 16000, 100), "");
  EXPECT_EQ(Filter("sneak", 1000, 0, "Never"), "");
  Evict();
  EXPECT_EQ(Filter("sneak", 1000, 0, "Never"), "");
  EXPECT_EQ(Filter("high", 16000, 100), "n2");
  cluster_.RemovePod("default", "pod-high");
  watch_->Drain();
  EXPECT_EQ(Filter("sneak", 1000, 0, "Never"), "n2") << "it is gone, and holds nothing any more";
}

TEST_F(PreemptTest, WhileTheyEndNoOthersAreChosen) {
  Run("a", "n1", 16000, 0);
  Run("c", "n2", 16000, 0);
  ASSERT_EQ(Filter("high", 16000, 100), "");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Filter("high", 16000, 100), "");
  EXPECT_EQ(books_.Locked([](State& state) { return state.TakeEvictions().size(); }), 1U);
  EXPECT_EQ(books_.Locked([](State& state) { return state.TakeRoom(); }), std::nullopt) << "it would be asked at once";
  cluster_.now += 11'000;  // nobody has heard of it
  EXPECT_EQ(Filter("high", 16000, 100), "");
  Evict();
  EXPECT_EQ(api_.calls["EVICT"], 1);
  EXPECT_EQ(Filter("high", 16000, 100), "n1");
}

TEST_F(PreemptTest, NobodyGoesForAPodThatDoesNotPreempt) {
  Run("a", "n1", 16000, 0);
  Run("c", "n2", 16000, 0);
  EXPECT_EQ(Filter("meek", 16000, 100, "Never"), "");
  EXPECT_EQ(Filter("equal", 16000, 0), "");
  Evict();
  EXPECT_EQ(api_.calls["EVICT"], 0);
}

TEST_F(PreemptTest, WhereABudgetKeepsOneNoneOfThemGoes) {
  Run("a", "n1", 8000, 0);
  Run("b", "n1", 8000, 0);
  Run("c", "n2", 16000, 50);
  cluster_.kept.insert("b");
  ASSERT_EQ(Filter("high", 16000, 100), "");
  Evict();
  EXPECT_EQ(api_.calls["EVICT"], 0);
  EXPECT_EQ(events_.back().find("pod-high PreemptionRefused: pod default/pod-b cannot be evicted"), 0U);
  ASSERT_EQ(Filter("high", 16000, 100), "");
  Evict();
  EXPECT_EQ(Filter("high", 16000, 100), "n2") << "another choice, though a dearer one";
}

TEST_F(PreemptTest, ANominationThatIsNotAskedForEnds) {
  Run("a", "n1", 16000, 50);
  Run("c", "n2", 16000, 0);
  ASSERT_EQ(Filter("high", 16000, 100), "");
  Evict();
  EXPECT_EQ(Filter("sneak", 1000, 0, "Never"), "");
  cluster_.now += 301'000;
  books_.Locked([&](State& state) { state.Expire(cluster_.now / 1000); });
  EXPECT_EQ(Filter("sneak", 1000, 0, "Never"), "n2");
}

TEST_F(PreemptTest, KubeSchedulersVictimsAreChecked) {
  Run("a", "n1", 4000, 0);
  Run("b", "n1", 12000, 0);
  Run("c", "n2", 16000, 100);  // of the same priority
  // By the rest of the node one pod without a GPU would be enough.
  EXPECT_EQ(Preempt(R"({"n1":{"Pods":[{"UID":"cpu"}],"NumPDBViolations":2},"n2":{"Pods":[{"UID":"cpu2"}]}})", 8000),
            R"({"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"cpu"},{"UID":"b"}],"NumPDBViolations":2}}})");
  EXPECT_EQ(Preempt(R"({"n1":{"Pods":[{"UID":"b"}],"NumPDBViolations":0}})", 12000),
            R"({"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"b"}],"NumPDBViolations":0}}})");
  EXPECT_EQ(Preempt(R"({"n1":{"Pods":[{"UID":"b"}],"NumPDBViolations":0}})"),
            R"({"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"b"},{"UID":"a"}],"NumPDBViolations":0}}})");
  EXPECT_EQ(Preempt("{}"), R"({"NodeNameToMetaVictims":{}})");
  EXPECT_EQ(api_.calls["EVICT"], 0);
}

TEST_F(PreemptTest, VictimsMayBeWholePods) {
  Run("b", "n1", 12000, 0);
  const Reply reply = extender_.Preempt(base::Concat(
      {R"({"Pod":)", json::serialize(PodOf("new", 12000, 100, "")),
       R"(,"NodeNameToVictims":{"n1":{"Pods":[{"metadata":{"uid":"b"},"spec":{}}],"NumPDBViolations":0}}})"}));
  EXPECT_EQ(reply.body, R"({"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"b"}],"NumPDBViolations":0}}})");
}

TEST_F(PreemptTest, VictimsThatCannotBeReadAreRefused) {
  for (const char* body : {"", "{}", "[]", R"({"Pod":{},"NodeNameToMetaVictims":3})",
                           R"({"Pod":{},"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":5}]}}})"}) {
    EXPECT_EQ(extender_.Preempt(body).status, 400) << body;
  }
}

}  // namespace
}  // namespace hami::scheduler
