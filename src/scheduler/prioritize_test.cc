// SPDX-License-Identifier: Apache-2.0
//
// kube-scheduler chooses among the nodes that a Filter names: what it is told, and that no capacity is given twice
// whatever it chooses.

#include <gtest/gtest.h>

#include <random>

#include "base/log.h"
#include "base/strings.h"
#include "scheduler/extender.h"
#include "scheduler/extender_body.h"
#include "scheduler/testing/sim_cluster.h"

namespace hami::scheduler {
namespace {

namespace json = base::json;
using testing::SimApi;
using testing::SimCluster;
using testing::SimWatch;

constexpr std::size_t kOffered = 3;

class PrioritizeTest : public ::testing::Test {
 protected:
  PrioritizeTest()
      : books_(sched::testing::NvidiaOnly(), {}),
        api_(cluster_),
        record_([this](const PodName&, const sched::Event& event) { events_.push_back(event.message); }),
        lease_(api_, cluster_, {}, {.enabled = false}),
        binder_(books_, api_, cluster_, lease_, record_, {}),
        extender_(books_, binder_, cluster_, record_, [] { return true; }, {.offer_nodes = kOffered}) {
    base::StartLog("test", base::LogLevel::kOff);
    for (const char* name : {"n1", "n2", "n3", "n4"}) {
      cluster_.AddNode(name, sched::testing::Cards(name, 1, 16000), true);
    }
    watch_ = std::make_unique<SimWatch>(cluster_, books_, registration_);
  }
  static std::string PodText(const std::string& uid, int memory, const json::object& labels) {
    return json::serialize(json::object{
        {"metadata",
         {{"name", "pod-" + uid},
          {"namespace", "default"},
          {"uid", uid},
          {"resourceVersion", "1"},
          {"labels", labels}}},
        {"spec",
         {{"containers",
           json::array{json::object{
               {"name", "c"},
               {"resources",
                {{"limits", {{"nvidia.com/gpu", "1"}, {"nvidia.com/gpumem", std::to_string(memory)}}}}}}}}}}});
  }
  // The names that kube-scheduler may choose from.
  std::vector<std::string> Filter(const std::string& uid, int memory, const json::object& labels = {},
                                  const std::string& names = R"(["n4","n3","n2","n1"])") {
    if (cluster_.FindPod("default", "pod-" + uid) == nullptr) {
      cluster_.AddPod(sched::testing::PodOf(uid, sched::testing::Wants(1, memory)));
    }
    const Reply reply =
        extender_.Filter(base::Concat({R"({"Pod":)", PodText(uid, memory, labels), R"(,"NodeNames":)", names, "}"}),
                         [] { return false; });
    const json::value answer = *base::ParseJson(reply.body);
    std::vector<std::string> out;
    if (const json::array* list = answer.at("NodeNames").if_array()) {
      for (const json::value& name : *list) out.emplace_back(name.as_string());
    }
    return out;
  }
  std::string Prioritize(const std::string& uid, const std::string& names) {
    const Reply reply =
        extender_.Prioritize(base::Concat({R"({"Pod":)", PodText(uid, 1, {}), R"(,"NodeNames":)", names, "}"}));
    EXPECT_EQ(reply.status, 200);
    return reply.body;
  }
  std::string Bind(const std::string& uid, const std::string& node) {
    const Reply reply =
        extender_.Bind(base::Concat({R"({"PodName":"pod-)", uid, R"(","PodNamespace":"default","PodUID":")", uid,
                                     R"(","Node":")", node, R"("})"}),
                       [] { return false; });
    return *base::GetString(base::ParseJson(reply.body)->as_object(), "Error");
  }
  device::MiB Used(const std::string& node) {
    return books_.Read([&](const State& state) { return state.ledger.node(state.ledger.Find(node)).used()[0].memory; });
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
  std::unique_ptr<SimWatch> watch_;
};

TEST_F(PrioritizeTest, TheNodesThatFitAreNamedBestFirst) {
  ASSERT_EQ(Filter("a", 4000).front(), "n1");
  ASSERT_EQ(Bind("a", "n3"), "");
  EXPECT_EQ(Filter("b", 4000), (std::vector<std::string>{"n3", "n1", "n2"})) << "the fullest, and no more than three";
  EXPECT_EQ(events_.back(), "find 3 fit nodes among 4 nodes, the best is node(n3)");
  EXPECT_EQ(Filter("c", 14000), (std::vector<std::string>{"n1", "n2", "n4"})) << "n3 has not that much";
  EXPECT_TRUE(Filter("d", 17000).empty());
}

TEST_F(PrioritizeTest, TheBestAloneHasTheHighestScore) {
  ASSERT_EQ(Bind("none", "n1").find("pod default/pod-none holds no placement"), 0U);
  Filter("a", 8000);
  ASSERT_EQ(Bind("a", "n2"), "");
  Filter("b", 1000);
  EXPECT_EQ(Prioritize("b", R"(["n1","n2","n3","n4"])"),
            R"([{"Host":"n1","Score":0},{"Host":"n2","Score":10},{"Host":"n3","Score":0},{"Host":"n4","Score":0}])");
  Filter("c", 12000);  // n1, n3 and n4 are equal
  EXPECT_EQ(Prioritize("c", R"(["n3","n1"])"), R"([{"Host":"n3","Score":0},{"Host":"n1","Score":10}])");
}

TEST_F(PrioritizeTest, WhatIsNotKnownScoresNothing) {
  EXPECT_EQ(Prioritize("nobody", R"(["n1"])"), R"([{"Host":"n1","Score":0}])");
  EXPECT_EQ(Prioritize("nobody", "[]"), "[]");
  EXPECT_EQ(extender_.Prioritize("").status, 400);
  EXPECT_EQ(extender_.Prioritize("{}").status, 400);
  EXPECT_EQ(extender_.Prioritize("no json").status, 400);
}

TEST_F(PrioritizeTest, TheGrantIsDecidedOnTheNodeThatWasChosen) {
  Filter("a", 4000);
  ASSERT_EQ(Used("n1"), 4000) << "where it will mostly go";
  ASSERT_EQ(Bind("a", "n3"), "");
  EXPECT_EQ(Used("n1"), 0);
  EXPECT_EQ(Used("n3"), 4000);
  const device::Pod& pod = cluster_.FindPod("default", "pod-a")->pod;
  EXPECT_EQ(pod.node_name, "n3");
  EXPECT_EQ(*device::Find(pod.annotations, device::kAssignedNode), "n3");
  EXPECT_EQ(*device::Find(pod.annotations, "hami.io/vgpu-devices-allocated"), "n3-0,NVIDIA,4000,0:;");
}

TEST_F(PrioritizeTest, ANodeThatWasTakenMeanwhileIsRefused) {
  Filter("a", 12000);
  Filter("b", 12000);
  ASSERT_EQ(Bind("b", "n3"), "");
  EXPECT_EQ(Bind("a", "n3"), "node n3 has no room for the pod any more; it will be placed again");
  EXPECT_EQ(Used("n1"), 0);
  EXPECT_EQ(Filter("a", 12000).size(), 3U);
  EXPECT_EQ(Bind("a", "n4"), "");
}

TEST_F(PrioritizeTest, ANodeThatWasNotNamedIsRefused) {
  Filter("a", 4000, {}, R"(["n1","n2"])");
  EXPECT_EQ(Bind("a", "n3"), "the pod was placed on node n1 and not on n3");
  EXPECT_EQ(Used("n1") + Used("n3"), 0);
}

// It may wait for the others for minutes, with what it was charged.
TEST_F(PrioritizeTest, AMemberOfAGroupIsNamedItsNodeAlone) {
  EXPECT_EQ(Filter("a", 4000, {{"scheduling.x-k8s.io/pod-group", "g"}}), std::vector<std::string>{"n1"});
  EXPECT_EQ(Bind("a", "n1"), "");
}

// Pods by turns, some bound where they were not expected, some late, some never.
TEST_F(PrioritizeTest, NoCapacityIsGivenTwiceWhateverIsChosen) {
  std::mt19937 random(5);
  const auto upto = [&](std::size_t most) { return static_cast<std::size_t>(random() % most); };
  int bound = 0;
  for (int round = 0; round < 30; ++round) {
    std::vector<std::pair<std::string, std::vector<std::string>>> waiting;
    for (int i = 0; i < 8; ++i) {
      const std::string uid = std::to_string(round) + "-" + std::to_string(i);
      std::vector<std::string> names = Filter(uid, 2000 * (1 + static_cast<int>(upto(5))));
      if (!names.empty()) waiting.emplace_back(uid, std::move(names));
      if (waiting.empty() || upto(2) == 0) continue;
      const std::size_t which = upto(waiting.size());
      const auto& [chosen, where] = waiting[which];
      if (Bind(chosen, where[upto(where.size())]).empty()) ++bound;
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(which));
    }
    for (const char* node : {"n1", "n2", "n3", "n4"}) ASSERT_LE(Used(node), 16000) << round;
    ASSERT_TRUE(cluster_.violations.empty()) << cluster_.violations.front();
    watch_->Drain();
    if (round % 3 != 2) continue;
    const auto pods = cluster_.pods;
    for (const auto& [key, pod] : pods) cluster_.RemovePod(pod.pod.ns, pod.pod.name);
    watch_->Drain();
  }
  EXPECT_GT(bound, 20);
}

}  // namespace
}  // namespace hami::scheduler
