// SPDX-License-Identifier: Apache-2.0
//
// The API server as the allocator sees it, over real HTTP.

#include "plugin/kube_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "device/annotations.h"
#include "kube/testing/fake_apiserver.h"
#include "plugin/testing/allocation_world.h"

namespace hami::plugin {
namespace {

class ClusterTest : public ::testing::Test {
 protected:
  ClusterTest() {
    api_.Put(kube::kNodes, {{"metadata", {{"name", kNode}, {"annotations", {{device::kNodeLock, kLock}}}}}});
    api_.Put(kube::kPods,
             {{"metadata", {{"name", "a"}, {"namespace", "default"}, {"uid", "u1"}}}, {"spec", {{"nodeName", kNode}}}});
    api_.Put(kube::kPods, {{"metadata", {{"name", "b"}, {"namespace", "default"}, {"uid", "u2"}}},
                           {"spec", {{"nodeName", "node-2"}}}});
  }
  static net::Deadline Soon() { return net::After(std::chrono::seconds(10)); }

  static constexpr const char* kLock = "2026-08-01T10:00:00Z,default,a";
  kube::FakeApiServer api_;
  std::unique_ptr<kube::Client> client_ = *kube::Client::Make(api_.config());
};

TEST_F(ClusterTest, GivenPodsOfTwoNodesWhenWatchedThenOnlyOursAreKnown) {
  KubeCluster cluster(*client_, kNode, [] {});
  const auto listed = cluster.ListPods(Soon());
  ASSERT_TRUE(listed);
  ASSERT_EQ(listed->size(), 1u);
  EXPECT_EQ(listed->front()->name, "a");
  cluster.Start();
  cluster.SeeLock(kLock);
  for (const net::Deadline end = Soon(); !cluster.Synced() && net::Clock::now() < end;) {
    cluster.AwaitChange(cluster.Changes(), net::After(std::chrono::milliseconds(5)));
  }
  EXPECT_EQ(cluster.Pods().size(), 1u);
}

TEST_F(ClusterTest, GivenChange_WhenAwaited_ThenWhoeverHasNotSeenItHearsAtOnce) {
  KubeCluster cluster(*client_, kNode, [] {});
  const std::uint64_t before = cluster.Changes();
  EXPECT_FALSE(cluster.AwaitChange(before, net::After(std::chrono::milliseconds(1))));
  std::thread change([&] { cluster.SeeLock(kLock); });
  EXPECT_TRUE(cluster.AwaitChange(before, Soon()));
  change.join();
  EXPECT_TRUE(cluster.AwaitChange(before, Soon())) << "also when it came first";
  EXPECT_FALSE(cluster.AwaitChange(cluster.Changes(), net::After(std::chrono::milliseconds(1))));
}

TEST_F(ClusterTest, GivenPodOfSameName_WhenOtherUidPatched_ThenRefusedAsConflict) {
  KubeCluster cluster(*client_, kNode, [] {});
  EXPECT_TRUE(cluster.PatchPod({"default", "a", "u1"}, {{"k", "v"}}, Soon()));
  const auto refused = cluster.PatchPod({"default", "a", "u0"}, {{"k", "w"}}, Soon());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().reason, kube::Reason::kConflict);
}

TEST_F(ClusterTest, GivenALockWhenItIsSomebodyElsesByNowThenItStays) {
  KubeCluster cluster(*client_, kNode, [] {});
  EXPECT_TRUE(cluster.ReleaseLock("2026-08-01T09:00:00Z,default,a", Soon()));
  EXPECT_TRUE(
      api_.Get(kube::kNodes, "", kNode)->at("metadata").at("annotations").as_object().contains(device::kNodeLock));
  EXPECT_TRUE(cluster.ReleaseLock(kLock, Soon()));
  EXPECT_FALSE(
      api_.Get(kube::kNodes, "", kNode)->at("metadata").at("annotations").as_object().contains(device::kNodeLock));
  EXPECT_TRUE(cluster.ReleaseLock(kLock, Soon())) << "none is as good";
}

// Somebody wrote the node at the same moment: it is tried again at once, and success is said when it is one.
TEST_F(ClusterTest, ConflictsOnTheLock_AreTriedAgain) {
  const auto locked = [this] {
    return api_.Get(kube::kNodes, "", kNode)->at("metadata").at("annotations").as_object().contains(device::kNodeLock);
  };
  kube::FakeFault conflict;
  conflict.method = "PATCH";
  conflict.status = 409;
  conflict.times = 2;
  api_.Add(conflict);
  KubeCluster cluster(*client_, kNode, [] {});
  EXPECT_TRUE(cluster.ReleaseLock(kLock, Soon()));
  EXPECT_FALSE(locked());
  api_.Put(kube::kNodes, {{"metadata", {{"name", kNode}, {"annotations", {{device::kNodeLock, kLock}}}}}});
  conflict.times = 100;
  api_.Add(conflict);
  EXPECT_FALSE(cluster.ReleaseLock(kLock, Soon()));
  EXPECT_TRUE(locked());
}

// The order in which the watch told of pods is the kubelet's, too; and what it showed the end of is known as gone.
TEST_F(ClusterTest, PodsOfTheWatch_HaveTheirOrderAndTheirEnd) {
  KubeCluster cluster(*client_, kNode, [] {});
  const auto until = [&](const auto& holds) {
    for (const net::Deadline end = Soon(); !holds() && net::Clock::now() < end;) {
      cluster.AwaitChange(cluster.Changes(), net::After(std::chrono::milliseconds(5)));
    }
    return holds();
  };
  const auto arrival = [&](const std::string& uid) -> std::uint64_t {
    for (const PodPtr& pod : cluster.Pods()) {
      if (pod->uid == uid) return pod->arrival;
    }
    return 0;
  };
  cluster.Start();
  cluster.SeeLock(kLock);
  ASSERT_TRUE(until([&] { return cluster.Synced(); }));
  EXPECT_EQ(arrival("u1"), 0u) << "the first list has no order";
  for (const char* name : {"z", "y"}) {
    api_.Put(kube::kPods, {{"metadata", {{"name", name}, {"namespace", "default"}, {"uid", name}}},
                           {"spec", {{"nodeName", kNode}}}});
  }
  ASSERT_TRUE(until([&] { return arrival("z") != 0 && arrival("y") != 0; }));
  EXPECT_LT(arrival("z"), arrival("y"));
  EXPECT_FALSE(cluster.IsGone("z"));
  api_.Remove(kube::kPods, "default", "z");
  EXPECT_TRUE(until([&] { return cluster.IsGone("z"); }));
  // And another of the same name.
  api_.Remove(kube::kPods, "default", "y");
  api_.Put(kube::kPods,
           {{"metadata", {{"name", "y"}, {"namespace", "default"}, {"uid", "y2"}}}, {"spec", {{"nodeName", kNode}}}});
  EXPECT_TRUE(until([&] { return cluster.IsGone("y") && arrival("y2") > 0; }));
}

TEST_F(ClusterTest, GivenTheNodesLockWhenItIsSeenThenChangesAreToldOnce) {
  int told = 0;
  KubeCluster cluster(*client_, kNode, [&] { ++told; });
  EXPECT_FALSE(cluster.Synced());
  cluster.SeeLock(std::nullopt);
  EXPECT_EQ(told, 1) << "now it is known that there is none";
  cluster.SeeLock(kLock);
  cluster.SeeLock(kLock);
  EXPECT_EQ(told, 2);
  EXPECT_EQ(cluster.Lock(), kLock);
  EXPECT_FALSE(cluster.Synced()) << "the pods are not known yet";
}

TEST_F(ClusterTest, GivenANodeThatIsGoneWhenItsLockIsReleasedThenThatIsDone) {
  api_.Remove(kube::kNodes, "", kNode);
  KubeCluster cluster(*client_, kNode, [] {});
  EXPECT_TRUE(cluster.ReleaseLock(kLock, Soon()));
}

// A3
TEST_F(ClusterTest, GivenHangingApiServer_WhenAsked_ThenCallEndsByItsDeadline) {
  kube::FakeFault slow;
  slow.kind = kube::FakeFault::Kind::kDelay;
  slow.delay = std::chrono::seconds(1);
  slow.times = 1;
  api_.Add(slow);
  KubeCluster cluster(*client_, kNode, [] {});
  const auto refused =
      cluster.PatchPod({"default", "a", "u1"}, {{"k", "v"}}, net::After(std::chrono::milliseconds(50)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().reason, kube::Reason::kTimeout);
}

}  // namespace
}  // namespace hami::plugin
