// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "kube/testing/fake_apiserver.h"
#include "upgrade/carry.h"
#include "upgrade/command.h"

namespace hami::upgrade {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json::value Deployment(const std::string& name, int replicas, const std::string& lease = "hami-scheduler",
                       const std::string& writers = "system:serviceaccount:kube-system:hami-*") {
  return {
      {"metadata", {{"name", name}, {"namespace", "kube-system"}, {"generation", 1}}},
      {"spec",
       {{"replicas", replicas},
        {"template",
         {{"spec",
           {{"containers", json::array{{{"name", "x"},
                                        {"args", json::array{"--leader-elect", "--leader-elect-resource-name=" + lease,
                                                             "--leader-elect-resource-namespace=kube-system",
                                                             "--trusted-writers=" + writers}}}}}}}}}}},
      {"status", {{"observedGeneration", 1}, {"replicas", replicas}, {"availableReplicas", replicas}}}};
}

json::value DaemonSet(const std::string& name, const json::value& selector) {
  return {{"metadata", {{"name", name}, {"namespace", "kube-system"}}},
          {"spec", {{"template", {{"spec", {{"nodeSelector", selector}}}}}}}};
}

json::value Webhook(const std::string& name) {
  return {{"metadata", {{"name", name}}},
          {"webhooks", json::array{{{"name", "vgpu.hami.io"},
                                    {"failurePolicy", "Fail"},
                                    {"objectSelector", {{"matchLabels", {{"team", "a"}}}}},
                                    {"clientConfig", {{"caBundle", "b2xk"}}}}}}};
}

// An API server with both releases and one node, and what Kubernetes' controllers would do.
class UpgradeTest : public ::testing::Test {
 protected:
  UpgradeTest() {
    server_.Put(kDeployments, Deployment("hami-scheduler", 1));
    server_.Put(kDeployments, Deployment("hami-cpp-scheduler", 0));
    server_.Put(kDaemonSets, DaemonSet("hami-device-plugin", {{"all", "1"}, {"gpu", "on"}}));
    server_.Put(kDaemonSets, DaemonSet("hami-cpp-device-plugin", {{"all", "1"}, {kNodeLabel, kNodeValue}}));
    server_.Put(kWebhooks, Webhook("hami-webhook"));
    server_.Put(kWebhooks, Webhook("hami-cpp-webhook"));
    server_.Put(kube::kNodes, {{"metadata", {{"name", "a"}, {"labels", {{"gpu", "on"}}}}}, {"spec", json::object{}}});
    PutPod("train", {{"hami.io/vgpu-node", "a"}, {"hami.io/bind-phase", "success"}}, "");
    MovePlugins();
    controllers_ = std::thread([this] {
      while (!over_) {
        MovePlugins();
        for (const char* name : {"hami-scheduler", "hami-cpp-scheduler"}) Follow(name);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
  }
  ~UpgradeTest() override {
    over_ = true;
    controllers_.join();
  }

  void PutPod(const std::string& name, const json::value& notes, const std::string& owner) {
    json::object pod{
        {"metadata", {{"name", name}, {"namespace", "kube-system"}, {"annotations", notes}}},
        {"spec", {{"nodeName", "a"}}},
        {"status", {{"phase", "Running"}, {"conditions", json::array{{{"type", "Ready"}, {"status", "True"}}}}}}};
    if (!owner.empty()) {
      pod["metadata"].get_object()["ownerReferences"] = json::array{{{"kind", "DaemonSet"}, {"name", owner}}};
    }
    server_.Put(kube::kPods, pod);
  }
  // The DaemonSets' controller: each plugin where its label is.
  void MovePlugins() {
    const json::value node = *server_.Get(kube::kNodes, "", "a");
    const json::object& labels = node.at("metadata").at("labels").get_object();
    const auto is = [&](const char* key, const char* value) { return labels.contains(key) && labels.at(key) == value; };
    for (const auto& [plugin, wanted] : {std::pair("hami-device-plugin", is("gpu", "on")),
                                         std::pair("hami-cpp-device-plugin", is(kNodeLabel, kNodeValue))}) {
      const bool there = server_.Get(kube::kPods, "kube-system", plugin).has_value();
      if (wanted && !there) PutPod(plugin, json::object{}, plugin);
      if (!wanted && there) server_.Remove(kube::kPods, "kube-system", plugin);
    }
  }
  // The Deployments' controller.
  void Follow(const std::string& name) {
    server_.Edit(kDeployments, "kube-system", name, [&](json::value& object) {
      object.at("status").get_object()["replicas"] = object.at("spec").at("replicas");
      object.at("status").get_object()["availableReplicas"] = object.at("spec").at("replicas");
    });
  }

  Cluster Now() { return Read(*client_, {}).value(); }
  static std::vector<std::string> Texts(const base::Result<std::vector<Step>>& steps) {
    std::vector<std::string> texts;
    if (!steps) return {steps.error().message};
    for (const Step& step : *steps) texts.push_back(step.text);
    return texts;
  }
  base::Status Do(const Plan& plan) {
    return Carry(*client_, {}, plan, std::chrono::seconds(20), [&](const Step& step) { said_.push_back(step.text); });
  }
  static Plan Scheduler(bool back) {
    return [back](const Cluster& cluster) { return PlanScheduler(cluster, 2, back); };
  }
  static Plan Node(bool back) {
    return [back](const Cluster& cluster) { return PlanNode(cluster, "a", back); };
  }
  std::int64_t Replicas(const std::string& name) {
    return server_.Get(kDeployments, "kube-system", name)->at("spec").at("replicas").as_int64();
  }
  json::value Hook(const std::string& name) { return server_.Get(kWebhooks, "", name)->at("webhooks").as_array()[0]; }
  json::value NodeA() { return *server_.Get(kube::kNodes, "", "a"); }

  kube::FakeApiServer server_;
  std::unique_ptr<kube::Client> client_ = *kube::Client::Make(server_.config());
  std::vector<std::string> said_;
  std::atomic<bool> over_ = false;
  std::thread controllers_;
};

TEST_F(UpgradeTest, SchedulerChangesAndChangesBack) {
  const json::value before = Hook("hami-webhook");
  ASSERT_TRUE(Do(Scheduler(false)));
  EXPECT_EQ(Replicas("hami-scheduler"), 0);
  EXPECT_EQ(Replicas("hami-cpp-scheduler"), 2);
  EXPECT_EQ(Hook("hami-webhook").at("failurePolicy"), "Ignore");
  EXPECT_EQ(Hook("hami-webhook").at("objectSelector").at("matchLabels").at(kNodeLabel), "set-aside");
  EXPECT_EQ(Hook("hami-cpp-webhook"), before) << "ours answers";
  // Its certificate is renewed meanwhile.
  server_.Edit(kWebhooks, "", "hami-webhook", [](json::value& object) {
    object.at("webhooks").as_array()[0].at("clientConfig").get_object()["caBundle"] = "bmV3";
  });
  ASSERT_TRUE(Do(Scheduler(true)));
  EXPECT_EQ(Replicas("hami-scheduler"), 1) << "what it had";
  EXPECT_EQ(Replicas("hami-cpp-scheduler"), 0);
  EXPECT_EQ(Hook("hami-webhook").at("failurePolicy"), "Fail");
  EXPECT_EQ(Hook("hami-webhook").at("objectSelector"), before.at("objectSelector"));
  EXPECT_EQ(Hook("hami-webhook").at("clientConfig").at("caBundle"), "bmV3");
  EXPECT_EQ(Hook("hami-cpp-webhook").at("failurePolicy"), "Ignore");
  ASSERT_TRUE(Do(Scheduler(false)));
  EXPECT_EQ(Replicas("hami-cpp-scheduler"), 2) << "what it had";
}

TEST_F(UpgradeTest, OtherSchedulerIsReadyBeforeTheOneGoes) {
  const auto texts = Texts(PlanScheduler(Now(), 2, false));
  EXPECT_THAT(texts,
              ElementsAre(HasSubstr("scale hami-cpp's"), HasSubstr("is ready"), HasSubstr("set aside HAMi's"),
                          HasSubstr("scale HAMi's scheduler (Deployment kube-system/hami-scheduler) from 1 to 0"),
                          HasSubstr("are gone")));
}

TEST_F(UpgradeTest, SchedulersWithoutACommonLeaseAreRefused) {
  server_.Put(kDeployments, Deployment("hami-cpp-scheduler", 0, "another"));
  const auto plan = PlanScheduler(Now(), 2, false);
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message, HasSubstr("kube-system/hami-scheduler, hami-cpp: kube-system/another"));
  EXPECT_THAT(plan.error().hint, HasSubstr("leaderElect=true"));
  server_.Remove(kDeployments, "kube-system", "hami-cpp-scheduler");
  EXPECT_THAT(Texts(PlanScheduler(Now(), 2, false))[0], HasSubstr("no Deployment kube-system/hami-cpp-scheduler"));
}

TEST_F(UpgradeTest, SchedulerThatDisbelievesHamisPluginIsRefused) {
  const std::string ours = "system:serviceaccount:kube-system:hami-cpp-*";
  server_.Put(kDeployments, Deployment("hami-cpp-scheduler", 0, "hami-scheduler", ours));
  const auto plan = PlanScheduler(Now(), 2, false);
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message, HasSubstr("does not believe system:serviceaccount:kube-system:hami-device-plugin"));
  EXPECT_THAT(plan.error().hint, HasSubstr("compat.besideRelease"));
  EXPECT_TRUE(PlanScheduler(Now(), 2, true)) << "the way back needs none of it";
  const std::string both = ours + ",system:serviceaccount:kube-system:hami-*";
  server_.Put(kDeployments, Deployment("hami-cpp-scheduler", 0, "hami-scheduler", both));
  EXPECT_TRUE(PlanScheduler(Now(), 2, false));
}

TEST_F(UpgradeTest, NodeChangesItsPluginAndChangesBack) {
  ASSERT_TRUE(Do(Node(false)));
  EXPECT_THAT(said_,
              ElementsAre(HasSubstr("cordon a"), HasSubstr("label a for hami-cpp's plugin in place of HAMi's; 1 pods"),
                          HasSubstr("wait until hami-cpp's plugin serves a"), HasSubstr("uncordon a")));
  EXPECT_EQ(NodeA().at("metadata").at("labels").at(kNodeLabel), kNodeValue);
  EXPECT_NE(NodeA().at("metadata").at("labels").at("gpu"), "on");
  EXPECT_FALSE(NodeA().at("spec").as_object().contains("unschedulable"));
  EXPECT_THAT(Texts(PlanNode(Now(), "a", false)), ElementsAre(HasSubstr("wait until"))) << "done twice is done once";
  ASSERT_TRUE(Do(Node(true)));
  EXPECT_EQ(NodeA().at("metadata").at("labels").at("gpu"), "on");
  EXPECT_FALSE(NodeA().at("metadata").at("labels").as_object().contains(kNodeLabel));
  EXPECT_TRUE(server_.Get(kube::kPods, "kube-system", "train")) << "and the pod has not moved";
}

TEST_F(UpgradeTest, NodeWaitsForThePodThatIsBeingAllocated) {
  PutPod("late", {{"hami.io/vgpu-node", "a"}, {"hami.io/bind-phase", "allocating"}}, "");
  const auto done = Carry(*client_, {}, Node(false), std::chrono::seconds(1), [](const Step&) {});
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("wait until no pod of a is between its binding and Allocate"));
  EXPECT_EQ(NodeA().at("metadata").at("labels").at("gpu"), "on") << "its plugin stays";
  PutPod("late", {{"hami.io/vgpu-node", "a"}, {"hami.io/bind-phase", "success"}}, "");
  ASSERT_TRUE(Do(Node(false))) << "and it goes on where it stopped";
  EXPECT_FALSE(NodeA().at("spec").as_object().contains("unschedulable"));
}

TEST_F(UpgradeTest, NodeThatWasCordonedStaysSo) {
  server_.Edit(kube::kNodes, "", "a", [](json::value& node) { node.at("spec").get_object()["unschedulable"] = true; });
  ASSERT_TRUE(Do(Node(false)));
  EXPECT_EQ(NodeA().at("spec").at("unschedulable"), true);
}

TEST_F(UpgradeTest, PluginsThatWouldMeetOnANodeAreRefused) {
  server_.Put(kDaemonSets, DaemonSet("hami-cpp-device-plugin", {{"gpu", "on"}}));
  const auto plan = PlanNode(Now(), "a", false);
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message, HasSubstr("both plugins would come to one node"));
  EXPECT_THAT(Texts(PlanNode(Now(), "b", false))[0], HasSubstr("both plugins"));
}

TEST_F(UpgradeTest, SurveySaysWhatIsWhere) {
  server_.Edit(kube::kNodes, "", "a", [](json::value& node) {
    node.at("metadata").get_object()["annotations"] = {{"hami.io/mutex.lock", "now,ns,pod"}};
  });
  EXPECT_EQ(SurveyText(Now()),
            "HAMi: scheduler kube-system/hami-scheduler, 1 of 1 replicas ready\n"
            "hami-cpp: scheduler kube-system/hami-cpp-scheduler, 0 of 0 replicas ready\n"
            "1 node with a plugin or GPU pods\n"
            "NODE  PLUGIN  READY  PODS  LOCK\n"
            "a     HAMi    yes    1     now,ns,pod\n");
  EXPECT_EQ(Survey(Now()).at("nodes").as_array()[0].at("plugin"), "HAMi");
}

TEST(UpgradeCommand, MistakesAreNamed) {
  const auto said = [](const std::vector<std::string>& words) {
    const auto parsed = ParseOptions(words);
    const auto* message = std::get_if<Message>(&parsed);
    return message == nullptr ? "" : message->text;
  };
  EXPECT_THAT(said({"--apply"}), HasSubstr("which one?"));
  EXPECT_THAT(said({"node"}), HasSubstr("no node is named"));
  EXPECT_THAT(said({"pods"}), HasSubstr("neither scheduler nor node"));
  EXPECT_THAT(said({"--hami", "hami"}), HasSubstr("NAMESPACE/RELEASE"));
  EXPECT_THAT(said({"node", "a", "--back", "--hami", "gpu/x"}), IsEmpty());
  EXPECT_EQ(std::get<Options>(ParseOptions({"--hami", "gpu/x"})).names.hami, "x-hami");
}

}  // namespace
}  // namespace hami::upgrade
