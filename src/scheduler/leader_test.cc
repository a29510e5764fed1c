// SPDX-License-Identifier: Apache-2.0

#include "scheduler/leader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "kube/testing/fake_apiserver.h"

namespace hami::scheduler {
namespace {

namespace json = base::json;
using testing::ElementsAre;
using testing::IsEmpty;

Replica Self(std::string role, bool ready = true) { return {"a", std::move(role), ready, true}; }
Replica Other(std::string role, bool ready = true) { return {"b", std::move(role), ready, false}; }

TEST(PlanRoles, ALeaderTakesTheLabelBeforeItTakesItFromOthers) {
  EXPECT_THAT(PlanRoles({Other("leader"), Self("follower")}, true),
              ElementsAre(RoleChange{"a", "leader"}, RoleChange{"b", "follower"}));
  EXPECT_THAT(PlanRoles({Self("leader"), Other("follower")}, true), IsEmpty());
  EXPECT_THAT(PlanRoles({Self("leader"), Other("")}, true), ElementsAre(RoleChange{"b", "follower"}));
}

TEST(PlanRoles, ALeaderThatIsNotReadyLeavesTheEndpointToWhoHasIt) {
  EXPECT_THAT(PlanRoles({Self("", false), Other("leader")}, true), ElementsAre(RoleChange{"a", "leader"}));
}

TEST(PlanRoles, GivenLostLease_ThenReplicaKeepsLabelUntilNextLeaderTakesIt) {
  EXPECT_THAT(PlanRoles({Self("leader"), Other("follower")}, false), IsEmpty());
  EXPECT_THAT(PlanRoles({Self("leader"), Other("leader")}, false), IsEmpty());
}

TEST(PlanRoles, AFollowerStandsInWhereNoReadyReplicaHasTheLabel) {
  EXPECT_THAT(PlanRoles({Self("follower")}, false), ElementsAre(RoleChange{"a", "leader"}));
  EXPECT_THAT(PlanRoles({Self(""), Other("follower")}, false), ElementsAre(RoleChange{"a", "leader"}));
  EXPECT_THAT(PlanRoles({Self("follower"), Other("leader", false)}, false), ElementsAre(RoleChange{"a", "leader"}));
  EXPECT_THAT(PlanRoles({Self(""), Other("leader")}, false), ElementsAre(RoleChange{"a", "follower"}));
}

TEST(PlanRoles, WithoutOurOwnPodNothingIsWritten) { EXPECT_THAT(PlanRoles({Other("")}, true), IsEmpty()); }

class LeaderTest : public testing::Test {
 protected:
  static json::value PodNamed(const std::string& name, const std::string& role, bool ready = true) {
    json::object labels{{"app.kubernetes.io/component", "hami-scheduler"}};
    if (!role.empty()) labels[kRoleLabel] = role;
    return {{"metadata", {{"name", name}, {"namespace", "system"}, {"labels", labels}}},
            {"status", {{"conditions", json::array{{{"type", "Ready"}, {"status", ready ? "True" : "False"}}}}}}};
  }
  static json::value LeaseOf(const std::string& holder, const std::string& renewed) {
    return {{"metadata", {{"name", "sched"}, {"namespace", "system"}}},
            {"spec", {{"holderIdentity", holder}, {"leaseDurationSeconds", 3600}, {"renewTime", renewed}}}};
  }
  std::string RoleOf(const std::string& pod) const {
    const json::value now = *api_.Get(kube::kPods, "system", pod);
    return base::GetString(now.at("metadata").at("labels").as_object(), kRoleLabel).value_or("");
  }
  std::unique_ptr<Leader> Watch(bool elect, net::Duration label_interval = std::chrono::milliseconds(5)) {
    LeaderOptions options;
    options.elect = elect;
    options.lease_name = "sched";
    options.lease_namespace = "system";
    options.host = "host-1";
    options.pod_name = "a";
    options.pod_namespace = "system";
    options.label_interval = label_interval;
    options.on_change = [this](bool leads) {
      const std::scoped_lock lock(mutex_);
      told_.push_back(leads);
      changed_.notify_all();
    };
    auto leader = std::make_unique<Leader>(*client_, options);
    leader->Start();
    return leader;
  }
  bool Told(const std::vector<bool>& expected) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), [&] { return told_ == expected; });
  }
  static bool Eventually(const std::function<bool()>& condition) {
    const auto end = net::After(std::chrono::seconds(30));
    while (!condition()) {
      if (net::Clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }

  kube::FakeApiServer api_;
  std::unique_ptr<kube::Client> client_ = *kube::Client::Make(api_.config());
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> told_;
};

TEST_F(LeaderTest, WithoutElectionTheOnlyReplicaLeadsAndSaysSo) {
  api_.Put(kube::kPods, PodNamed("a", ""));
  api_.Put(kube::kPods, PodNamed("b", "leader"));
  const auto leader = Watch(false);
  EXPECT_TRUE(leader->leads());
  EXPECT_TRUE(Eventually([&] { return RoleOf("a") == "leader" && RoleOf("b") == "follower"; }));
}

TEST_F(LeaderTest, LeadershipFollowsTheLeaseOfTheKubeSchedulerBesideUs) {
  api_.Put(kube::kPods, PodNamed("a", ""));
  api_.Put(kube::kPods, PodNamed("b", ""));
  api_.Put(kube::kLeases, LeaseOf("host-10_x", "2026-01-01T00:00:00Z"));
  const auto leader = Watch(true);
  EXPECT_TRUE(Told({false}));
  EXPECT_FALSE(leader->leads());
  // Nobody had the label: we stand in, for the webhook.
  EXPECT_TRUE(Eventually([&] { return RoleOf("a") == "leader"; }));
  api_.Put(kube::kLeases, LeaseOf("host-1_x", "2026-01-01T00:00:10Z"));
  EXPECT_TRUE(Told({false, true}));
  EXPECT_TRUE(leader->leads());
  EXPECT_TRUE(Eventually([&] { return RoleOf("a") == "leader" && RoleOf("b") == "follower"; }));
  ASSERT_TRUE(api_.Remove(kube::kLeases, "system", "sched"));
  EXPECT_TRUE(Told({false, true, false}));
  EXPECT_EQ(RoleOf("a"), "leader");
}

TEST_F(LeaderTest, AFollowerStandsInAsSoonAsTheLeaderIsNotReadyOrGone) {
  api_.Put(kube::kPods, PodNamed("a", "follower"));
  api_.Put(kube::kPods, PodNamed("b", "leader"));
  api_.Put(kube::kLeases, LeaseOf("host-2_x", "2026-01-01T00:00:00Z"));
  const auto leader = Watch(true, std::chrono::hours(1));
  ASSERT_TRUE(Told({false}));
  ASSERT_TRUE(Eventually([&] { return api_.watching() == 2; }));
  EXPECT_EQ(RoleOf("a"), "follower");
  api_.Put(kube::kPods, PodNamed("b", "leader", false));
  EXPECT_TRUE(Eventually([&] { return RoleOf("a") == "leader"; }));
  api_.Put(kube::kPods, PodNamed("b", "leader"));
  api_.Put(kube::kPods, PodNamed("a", "follower"));
  ASSERT_TRUE(api_.Remove(kube::kPods, "system", "b"));
  EXPECT_TRUE(Eventually([&] { return RoleOf("a") == "leader"; }));
}

TEST_F(LeaderTest, NobodyIsDemotedWhileOurOwnLabelCanNotBeWritten) {
  api_.Put(kube::kPods, PodNamed("a", ""));
  api_.Put(kube::kPods, PodNamed("b", "leader"));
  api_.Add({.kind = kube::FakeFault::Kind::kStatus, .method = "PATCH", .path_part = "/pods/a", .times = 1'000'000});
  const auto leader = Watch(false);
  EXPECT_TRUE(Eventually([&] { return api_.Asked("PATCH") >= 3; }));
  EXPECT_EQ(RoleOf("b"), "leader");
}

}  // namespace
}  // namespace hami::scheduler
