// SPDX-License-Identifier: Apache-2.0

#include "kube/views.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <ctime>
#include <random>

#include "kube/rate.h"
#include "kube/resource.h"
#include "kube/timestamp.h"

namespace hami::kube {
namespace {

using namespace std::chrono_literals;
namespace json = base::json;

TEST(ReadPod, GivenAPodWhenReadThenEverythingDecisionsNeedIsThere) {
  const auto pod = ReadPod(json::parse(R"({
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"app": "x"},
      "annotations": {"hami.io/a": "1", "other": "2"}, "deletionTimestamp": "2024-01-01T00:00:00Z"},
    "spec": {"nodeName": "node", "schedulerName": "hami-scheduler",
      "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {"cpu": "100m"}}}],
      "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]},
    "status": {"phase": "Running", "initContainerStatuses": [
      {"name": "i", "state": {"terminated": {"exitCode": 0}}}, {"name": "s", "state": {"running": {}}}]}})"),
                           [](std::string_view key) { return key.starts_with("hami.io/"); });
  ASSERT_TRUE(pod);
  EXPECT_EQ(pod->metadata.uid, "u");
  EXPECT_EQ(pod->metadata.annotations, (StringMap{{"hami.io/a", "1"}}));
  EXPECT_TRUE(pod->metadata.deleting);
  EXPECT_EQ(pod->node_name, "node");
  EXPECT_FALSE(pod->terminated());
  ASSERT_EQ(pod->containers.size(), 1U);
  EXPECT_EQ(pod->containers[0].limits, (StringMap{{"nvidia.com/gpu", "1"}}));
  ASSERT_EQ(pod->init_containers.size(), 2U);
  EXPECT_TRUE(pod->init_containers[1].restart_always);
  ASSERT_EQ(pod->init_statuses.size(), 2U);
  EXPECT_TRUE(pod->init_statuses[0].finished_well);
  EXPECT_FALSE(pod->init_statuses[1].finished_well);
}

TEST(ReadPod, GivenFieldsOfTheWrongShapeWhenReadThenTheyAreAbsent) {
  const auto pod = ReadPod(json::parse(
      R"({"metadata": {"name": "p", "labels": [], "annotations": 5}, "spec": {"nodeName": 1, "containers": {}},
          "status": []})"));
  ASSERT_TRUE(pod);
  EXPECT_TRUE(pod->metadata.labels.empty());
  EXPECT_TRUE(pod->node_name.empty());
  EXPECT_TRUE(pod->containers.empty());
  for (const char* text : {"null", "[]", "{}", R"({"metadata": {}})", R"({"metadata": {"name": 5}})"}) {
    EXPECT_FALSE(ReadPod(json::parse(text))) << text;
  }
}

TEST(ReadNode, GivenANodeWhenReadThenResourcesAndStateAreThere) {
  const auto node = ReadNode(json::parse(R"({"metadata": {"name": "n"}, "spec": {"unschedulable": true},
    "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "4"}, "capacity": {"nvidia.com/gpu": "10"},
               "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}]}})"),
                             {}, [](std::string_view key) { return key != "cpu"; });
  ASSERT_TRUE(node);
  EXPECT_TRUE(node->unschedulable);
  EXPECT_TRUE(node->ready);
  EXPECT_EQ(node->allocatable, (StringMap{{"nvidia.com/gpu", "8"}}));
  EXPECT_EQ(node->capacity, (StringMap{{"nvidia.com/gpu", "10"}}));
}

TEST(ReadQuota, GivenAQuotaWhenReadThenHardAndUsedAreThere) {
  const auto quota = ReadQuota(json::parse(
      R"({"metadata": {"name": "q"}, "spec": {"hard": {"limits.nvidia.com/gpu": 4}}, "status": {"used": {"a": "1"}}})"));
  ASSERT_TRUE(quota);
  EXPECT_EQ(quota->hard, (StringMap{{"limits.nvidia.com/gpu", "4"}}));
  EXPECT_EQ(quota->used, (StringMap{{"a", "1"}}));
}

TEST(ReadQuota, ScopesAndExpressionsAreOneList) {
  const auto quota = ReadQuota(json::parse(R"({"metadata": {"name": "q"}, "spec": {"scopes": ["Terminating"],
      "scopeSelector": {"matchExpressions": [
          {"scopeName": "PriorityClass", "operator": "In", "values": ["high", "higher"]}]}}})"));
  ASSERT_TRUE(quota);
  ASSERT_EQ(quota->scopes.size(), 2U);
  EXPECT_EQ(quota->scopes[0].name, "Terminating");
  EXPECT_EQ(quota->scopes[0].what, "Exists");
  EXPECT_EQ(quota->scopes[1].name, "PriorityClass");
  EXPECT_EQ(quota->scopes[1].what, "In");
  EXPECT_EQ(quota->scopes[1].values, (std::vector<std::string>{"high", "higher"}));
}

Lease LeaseOf(const std::string& holder, const std::string& renewed) {
  return *ReadLease({{"metadata", {{"name", "l"}}},
                     {"spec", {{"holderIdentity", holder}, {"leaseDurationSeconds", 15}, {"renewTime", renewed}}}});
}

TEST(LeaderView, GivenRenewalsWhenTheyStopThenLeadershipEndsAfterTheDuration) {
  const LeaderView::Time start{};
  LeaderView view;
  EXPECT_FALSE(view.LeadsFrom("host-1", start));
  view.Observe(LeaseOf("host-1_abc", "t1"), start);
  EXPECT_TRUE(view.LeadsFrom("host-1", start + 14s));
  // The same renewal seen again is no sign of life.
  view.Observe(LeaseOf("host-1_abc", "t1"), start + 10s);
  EXPECT_FALSE(view.LeadsFrom("host-1", start + 15s));
  view.Observe(LeaseOf("host-1_abc", "t2"), start + 20s);
  EXPECT_TRUE(view.LeadsFrom("host-1", start + 34s));
  view.Forget();
  EXPECT_FALSE(view.LeadsFrom("host-1", start + 21s));
}

TEST(LeaderView, GivenNameBeginningLikeAnother_WhenCompared_ThenNotConfused) {
  LeaderView view;
  view.Observe(LeaseOf("host-10_abc", "t"), {});
  EXPECT_FALSE(view.LeadsFrom("host-1", {}));
  EXPECT_TRUE(view.LeadsFrom("host-10", {}));
  EXPECT_FALSE(view.LeadsFrom("", {}));
  view.Observe(LeaseOf("host-1", "t"), {});
  EXPECT_TRUE(view.LeadsFrom("host-1", {}));
}

TEST(PathTo, GivenNamesFromOutsideWhenWrittenThenTheyStayInTheirPlace) {
  EXPECT_EQ(PathTo(kPods, "", "", ""), "/api/v1/pods");
  EXPECT_EQ(PathTo(kPods, "a", "b", "binding"), "/api/v1/namespaces/a/pods/b/binding");
  EXPECT_EQ(PathTo(kNodes, "ignored", "n"), "/api/v1/nodes/n");
  EXPECT_EQ(PathTo(kLeases, "a"), "/apis/coordination.k8s.io/v1/namespaces/a/leases");
  EXPECT_EQ(PathTo(kNodes, "", "../pods?x"), "/api/v1/nodes/..%2Fpods%3Fx");
}

TEST(TokenBucket, GivenALimitWhenTakenFasterThenEachWaitsItsTurn) {
  TokenBucket bucket(10, 2);
  const net::Deadline start = net::Deadline{} + 1h;
  EXPECT_EQ(bucket.Take(start), 0s);
  EXPECT_EQ(bucket.Take(start), 0s);
  EXPECT_EQ(bucket.Take(start), 100ms);
  EXPECT_EQ(bucket.Take(start), 200ms);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(bucket.Take(start, 299ms), std::nullopt);
  EXPECT_EQ(bucket.Take(start, 300ms), 300ms);
  bucket.Return();
  EXPECT_EQ(bucket.Take(start + 1s), 0s);
  TokenBucket none(0, 0);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(none.Take(start), 0s);
}

TEST(Backoff, GivenFailuresWhenTheyGoOnThenPausesDoubleUpToTheMost) {
  Backoff backoff(100ms, 1s);
  EXPECT_EQ(backoff.Next(0), 100ms);
  EXPECT_EQ(backoff.Next(0.5), 300ms);
  EXPECT_EQ(backoff.Next(0), 400ms);
  for (int i = 0; i < 5; ++i) EXPECT_LE(backoff.Next(0.99), 1s);
  backoff.Reset();
  EXPECT_EQ(backoff.Next(0), 100ms);
}

TEST(Timestamp, GivenAPointInTimeWhenWrittenThenItIsRfc3339InUtc) {
  const WallTime time{std::chrono::seconds(1'700'000'000) + std::chrono::microseconds(1'234)};
  EXPECT_EQ(FormatTime(time), "2023-11-14T22:13:20Z");
  EXPECT_EQ(FormatMicroTime(time), "2023-11-14T22:13:20.001234Z");
}

TEST(Timestamp, GivenAnyPointInTimeWhenWrittenThenItIsAsTheCLibraryWritesIt) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20'000; ++round) {
    const auto seconds = static_cast<std::time_t>(random() % 4'000'000'000) - 2'000'000'000;
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    std::array<char, 32> text{};
    std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
    const WallTime time{std::chrono::seconds(seconds) + std::chrono::nanoseconds(random() % 1'000'000'000)};
    ASSERT_EQ(FormatTime(time), text.data()) << seconds;
  }
}

}  // namespace
}  // namespace hami::kube
