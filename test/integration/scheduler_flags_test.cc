// SPDX-License-Identifier: Apache-2.0
//
// Every flag of hami-scheduler that decides something, by what the running program then does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <ctime>

#include "kube/base64.h"
#include "kube/testing/json_patch.h"
#include "test/integration/scheduler_program.h"

namespace hami::testcluster {
namespace {

using testing::HasSubstr;
using testing::Not;

class SchedulerFlags : public SchedulerProgram {
 protected:
  void ServeSynced(const std::vector<std::string>& flags) {
    Serve(flags);
    ASSERT_TRUE(
        Eventually([&] { return Scrape().find("hami_scheduler_synced{zone=\"vGPU\"} 1") != std::string::npos; }));
  }
  json::value NewPod(const std::string& name, int memory_mib = 1000) {
    return api_.Put(kube::kPods, PendingPod(name, memory_mib, 10));
  }
  // The node that the extender names; or why none.
  std::string Filter(const json::value& pod, const std::vector<std::string>& names) {
    const json::value answer = Post("/filter", FilterBody(pod, names));
    if (answer.at("NodeNames").is_null()) return json::serialize(answer.at("FailedNodes"));
    return answer.at("NodeNames").at(0).as_string().c_str();
  }
  std::string Bind(const json::value& pod, const std::string& node) {
    return Post("/bind", BindBody(pod, node)).at("Error").as_string().c_str();
  }
  std::string CardOf(const std::string& pod) const {
    const json::value bound = *api_.Get(kube::kPods, "default", pod);
    const json::value& notes = bound.at("metadata").at("annotations");
    const std::string grant = notes.at("hami.io/vgpu-devices-allocated").as_string().c_str();
    return grant.substr(0, grant.find(','));
  }
  // What the node's plugin does for a pod that was bound.
  void Served(const std::string& pod, const std::string& node) {
    api_.Edit(kube::kPods, "default", pod, [](json::value& object) {
      object.at("metadata").at("annotations").as_object()["hami.io/bind-phase"] = "success";
    });
    api_.Edit(kube::kNodes, "", node, [](json::value& object) {
      object.at("metadata").at("annotations").as_object().erase("hami.io/mutex.lock");
    });
  }
  // Which scheduler a pod has that was made for SCHEDULER.
  std::string AdmittedFrom(const char* scheduler) {
    json::value pod = PendingPod("new", 1000, 10);
    pod.at("spec").as_object()["schedulerName"] = scheduler;
    const json::value review = Post("/webhook", ReviewBody(pod));
    if (!review.at("response").as_object().contains("patch")) return "unchanged";
    const auto patch = kube::Base64Decode(std::string(review.at("response").at("patch").as_string()));
    EXPECT_TRUE(patch && kube::ApplyJsonPatch(pod, json::parse(*patch)));
    return pod.at("spec").at("schedulerName").as_string().c_str();
  }
  // Another pod has locked NODE a moment ago, and is on its way to it.
  void LockNode(const std::string& node) {
    api_.Put(kube::kPods, PendingPod("owner", 1000, 10));
    api_.Edit(kube::kNodes, "", node, [](json::value& object) {
      object.at("metadata").at("annotations").as_object()["hami.io/mutex.lock"] = Now() + ",default,owner";
    });
  }
  static std::string Now() {
    std::array<char, 32> text{};
    const std::time_t now = std::time(nullptr);
    std::tm date{};
    ::gmtime_r(&now, &date);
    std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &date);
    return text.data();
  }
};

TEST_F(SchedulerFlags, PoliciesOfNodesAndCards) {
  for (const char* name : {"node-1", "node-2"}) api_.Put(kube::kNodes, GpuNode(name, 2));
  api_.Put(kube::kPods, RunningPod("old", "node-1", 0, 1000, 10));
  ServeSynced({});
  const json::value usual = NewPod("usual");
  EXPECT_EQ(Filter(usual, {"node-1", "node-2"}), "node-1") << "the fullest";
  EXPECT_EQ(Bind(usual, "node-1"), "");
  EXPECT_EQ(CardOf("usual"), "node-1-gpu-1") << "the emptiest";
  Served("usual", "node-1");
  EXPECT_EQ(End(), 0);
  api_.Remove(kube::kPods, "default", "usual");

  ServeSynced({"--node-scheduler-policy=spread", "--gpu-scheduler-policy=binpack"});
  EXPECT_EQ(Filter(NewPod("other"), {"node-1", "node-2"}), "node-2") << "the emptiest";
  const json::value full = NewPod("full");
  EXPECT_EQ(Filter(full, {"node-1"}), "node-1");
  EXPECT_EQ(Bind(full, "node-1"), "");
  EXPECT_EQ(CardOf("full"), "node-1-gpu-0") << "the fullest";
}

TEST_F(SchedulerFlags, NodeLabelSelector) {
  api_.Put(kube::kNodes, GpuNode("node-1", 1));
  json::value marked = GpuNode("node-2", 1);
  marked.at("metadata").at("labels").as_object()["zone"] = "a";
  api_.Put(kube::kNodes, marked);
  ServeSynced({"--node-label-selector=gpu=on,zone=a"});
  EXPECT_EQ(Filter(NewPod("p"), {"node-1"}), R"({"node-1":"node unregistered"})");
  EXPECT_EQ(Filter(NewPod("q"), {"node-1", "node-2"}), "node-2");
}

TEST_F(SchedulerFlags, SchedulerNameAndWhomItTakesOver) {
  api_.Put(kube::kNodes, GpuNode("node-1", 1));
  ServeSynced({"--scheduler-name=gpu-sched"});
  EXPECT_EQ(AdmittedFrom("default-scheduler"), "gpu-sched");
  EXPECT_EQ(AdmittedFrom("gpu-sched"), "unchanged");
  EXPECT_EQ(AdmittedFrom("hami-scheduler"), "unchanged") << "it is somebody else's";
  EXPECT_EQ(Filter(NewPod("p"), {"node-1"}), "node-1");
  ASSERT_TRUE(Eventually([&] { return api_.Count(kube::kEvents) >= 1; }));
  EXPECT_EQ(api_.All(kube::kEvents).front().at("source").at("component"), "gpu-sched");
  EXPECT_EQ(End(), 0);
  ServeSynced({"--scheduler-name=gpu-sched", "--force-overwrite-default-scheduler=false"});
  EXPECT_EQ(AdmittedFrom("default-scheduler"), "unchanged");
}

TEST_F(SchedulerFlags, LegacyMetrics) {
  api_.Put(kube::kNodes, GpuNode("node-1", 1));
  ServeSynced({});
  EXPECT_THAT(Scrape(), Not(HasSubstr("GPUDeviceMemoryLimit")));
  EXPECT_EQ(End(), 0);
  ServeSynced({"--legacy-metrics"});
  EXPECT_THAT(Scrape(), HasSubstr("GPUDeviceMemoryLimit{zone=\"vGPU\",nodeid=\"node-1\""));
}

TEST_F(SchedulerFlags, NodeLockTimeout) {
  api_.Put(kube::kNodes, GpuNode("node-1", 1));
  ServeSynced({"--node-lock-timeout=7m"});
  const json::value pod = NewPod("p");
  ASSERT_EQ(Filter(pod, {"node-1"}), "node-1");
  LockNode("node-1");
  EXPECT_EQ(Bind(pod, "node-1"), "node node-1 has been locked within 7m0s: node lock contention");
}

TEST_F(SchedulerFlags, NodeLockRetryTimeoutIsForGroupsOnly) {
  api_.Put(kube::kNodes, GpuNode("node-1", 1));
  ServeSynced({"--node-lock-retry-timeout=300ms"});
  json::value member = PendingPod("member", 1000, 10);
  member.at("metadata").at("labels").as_object()["scheduling.x-k8s.io/pod-group"] = "g";
  member = api_.Put(kube::kPods, member);
  ASSERT_EQ(Filter(member, {"node-1"}), "node-1");
  LockNode("node-1");
  EXPECT_EQ(Bind(member, "node-1"),
            "timed out after 300ms waiting for node node-1 to be unlocked: node lock contention");
}

TEST_F(SchedulerFlags, KubeQpsAndBurst) {
  api_.Put(kube::kNodes, GpuNode("node-1", 1));
  // Enough saved up to begin with, and nothing for hours after that.
  ServeSynced({"--kube-qps=0.0001", "--kube-burst=40"});
  // The books are complete with the lists; a watch begins when it begins.
  EXPECT_TRUE(Eventually([&] { return api_.AskedInAll() >= 6; })) << "three lists and three watches";
  int bound = 0;
  for (; bound < 60; ++bound) {
    const std::string name = "p" + std::to_string(bound);
    const json::value pod = NewPod(name, 10);
    ASSERT_EQ(Filter(pod, {"node-1"}), "node-1");
    net::Call call = Get("/bind");
    call.method = "POST";
    call.body = BindBody(pod, "node-1");
    call.deadline = net::After(std::chrono::seconds(3));
    const auto answer = Send(call, authority_);
    if (!answer || json::parse(answer->body).at("Error") != "") break;
    Served(name, "node-1");
  }
  EXPECT_GT(bound, 3U) << "the burst is more than the usual ten";
  EXPECT_LE(api_.AskedInAll(), 40U);
  EXPECT_GT(api_.AskedInAll(), 15U);
}

TEST_F(SchedulerFlags, KubeTimeout) {
  api_.Put(kube::kNodes, GpuNode("node-1", 1));
  ServeSynced({"--kube-timeout=1"});
  const json::value pod = NewPod("p");
  ASSERT_EQ(Filter(pod, {"node-1"}), "node-1");
  api_.Add({.kind = kube::FakeFault::Kind::kDelay,
            .method = "PATCH",
            .path_part = "/nodes/node-1",
            .times = 1,
            .delay = std::chrono::seconds(3)});
  EXPECT_THAT(Bind(pod, "node-1"), HasSubstr("timed out")) << "the usual ten seconds would have been enough";
}

}  // namespace
}  // namespace hami::testcluster
