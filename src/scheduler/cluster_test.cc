// SPDX-License-Identifier: Apache-2.0
//
// Everything together over real HTTP on loopback: filter, bind, watch, restart.

#include <gtest/gtest.h>

#include <atomic>

#include "base/log.h"
#include "device/annotations.h"
#include "device/register_codec.h"
#include "kube/testing/fake_apiserver.h"
#include "sched/testing/samples.h"
#include "scheduler/cache.h"
#include "scheduler/extender.h"
#include "scheduler/extender_body.h"
#include "scheduler/keeper.h"
#include "scheduler/kube_api.h"

namespace hami::scheduler {
namespace {

namespace json = base::json;

// For what another thread brings about; long, because it is for a broken build only, and every wait has it, so that one
// ends as a failure that says where and not as a test that never ends.
constexpr auto kPatience = std::chrono::seconds(40);

template <typename F>
bool Eventually(F holds) {
  const net::Deadline end = net::After(kPatience);
  while (!holds()) {
    if (net::Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

Abandoned Impatient() {
  return [end = net::After(kPatience)] { return net::Clock::now() > end; };
}

json::value NodeObject(const std::string& name, bool concurrent) {
  json::object annotations{
      {"hami.io/node-nvidia-register", device::EncodeRegisterJson(sched::testing::Cards(name, 2).devices)},
      {"somebody.else/s", "business"}};
  if (concurrent) {
    annotations[kConcurrentAllocate] = "1";
    const std::string registered(annotations["hami.io/node-nvidia-register"].as_string());
    annotations[device::kPluginAlive] = device::FormatAlive(std::time(nullptr), registered);
  }
  return {{"metadata", {{"name", name}, {"annotations", annotations}}},
          {"status", {{"allocatable", {{"nvidia.com/gpu", "20"}, {"cpu", "8"}}}}}};
}

json::value PodObject(const std::string& name) {
  return {{"metadata", {{"name", name}, {"namespace", "default"}, {"annotations", {{"theirs", "stays"}}}}},
          {"spec",
           {{"containers",
             json::array{{{"name", "c"},
                          {"resources", {{"limits", {{"nvidia.com/gpu", "1"}, {"nvidia.com/gpumem", "3000"}}}}}}}}}},
          {"status", {{"phase", "Pending"}}}};
}

// A scheduler as the program puts it together.
struct Scheduler {
  // LEASED: agrees with others by the lease, when told to look; else it writes tickets, always.
  explicit Scheduler(kube::FakeApiServer& server, bool leased = false)
      : client(*kube::Client::Make(server.config())),
        books(sched::testing::NvidiaOnly(), {}),
        api(*client, books.vendors(), {}, std::chrono::seconds(10), {"kube-system", "binders"}),
        time(stop),
        options(Options()),
        lease(api, time, Needs(), {.writer = options.writer, .enabled = leased}),
        binder(
            books, api, time, lease, [](const PodName&, const sched::Event&) {}, options),
        keeper(books, api, time, binder, registration, [] { return true; }),
        cache(*client, books, registration, time, {}),
        extender(
            books, binder, time, [](const PodName&, const sched::Event&) {}, [this] { return cache.Synced(); }) {
    cache.Start();
  }
  ~Scheduler() { stop.Cancel(); }
  static BinderOptions Options() {
    BinderOptions options;
    options.writer = NewWriterName();
    return options;
  }
  BindLease::Needs Needs() {
    return {[this] { return wants; }, [this] { return binder.Unsettled(); }, [this] { return cache.Reached(); },
            [this](const Owner& pod) { return binder.RevokeBefore(pod); }};
  }

  json::object Filter(const json::value& pod, const json::array& names = {"n1", "n2"}) {
    const Reply reply = extender.Filter(
        json::serialize(json::object{{"Pod", pod}, {"Nodes", nullptr}, {"NodeNames", names}}), Impatient());
    return base::ParseJson(reply.body)->as_object();
  }
  std::string Bind(const json::value& pod, const std::string& node) {
    const json::object body{{"PodName", pod.at("metadata").at("name")},
                            {"PodNamespace", "default"},
                            {"PodUID", pod.at("metadata").at("uid")},
                            {"Node", node}};
    const Reply reply = extender.Bind(json::serialize(body), Impatient());
    return *base::GetString(base::ParseJson(reply.body)->as_object(), "Error");
  }
  device::MiB MemoryInUse() {
    return books.Read([](const State& state) {
      device::MiB sum = 0;
      state.ledger.ForEachNode([&](const sched::Node& node) {
        for (const device::CardState& card : node.used()) sum += card.memory;
      });
      return sum;
    });
  }

  std::unique_ptr<kube::Client> client;
  net::Canceller stop;
  Books books;
  KubeApi api;
  WallTime time;
  Registration registration;
  const BinderOptions options;
  bool wants = true;
  BindLease lease;
  Binder binder;
  Keeper keeper;
  Cache cache;
  Extender extender;
};

class ClusterTest : public ::testing::Test {
 protected:
  ClusterTest() {
    base::StartLog("test", base::LogLevel::kOff);
    server_.Put(kube::kNodes, NodeObject("n1", false));
    server_.Put(kube::kNodes, NodeObject("n2", true));
  }
  json::value Pod(const std::string& name) { return *server_.Get(kube::kPods, "default", name); }
  std::string NodeAnnotation(const std::string& node, const char* key) {
    const json::value object = *server_.Get(kube::kNodes, "", node);
    return base::GetString(object.at("metadata").at("annotations").as_object(), key).value_or("");
  }

  kube::FakeApiServer server_;
};

TEST_F(ClusterTest, GivenHourPassed_WhenWatchesEnd_ThenEverythingIsListedAnew) {
  const auto client = *kube::Client::Make(server_.config());
  Books books(sched::testing::NvidiaOnly(), {});
  Registration registration;
  net::Canceller stop;
  WallTime time(stop);
  std::atomic<bool> later{false};
  CacheOptions options;
  options.reflector.watch_timeout = std::chrono::seconds(1);
  options.reflector.now = [&] { return net::Clock::now() + std::chrono::hours(later ? 1 : 0); };
  Cache cache(*client, books, registration, time, options);
  const auto listed = [&](std::uint64_t times) {
    const auto counters = cache.counters();
    return counters.pods.lists == times && counters.nodes.lists == times && counters.quotas.lists == times;
  };
  cache.Start();
  ASSERT_TRUE(Eventually([&] { return cache.Synced(); }));
  ASSERT_TRUE(Eventually([&] { return cache.counters().pods.watches > 1; }));
  EXPECT_TRUE(listed(1));
  later = true;
  EXPECT_TRUE(Eventually([&] { return listed(2); }));
}

TEST_F(ClusterTest, GivenFilteredPod_WhenBound_ThenAnnotatedAtOnceAndNodeLocked) {
  Scheduler scheduler(server_);
  const json::value pod = server_.Put(kube::kPods, PodObject("p"));
  ASSERT_EQ(scheduler.Filter(pod).at("NodeNames"), (json::array{"n1"}));
  EXPECT_EQ(server_.Asked("PATCH"), 0U);
  ASSERT_EQ(scheduler.Bind(pod, "n1"), "");
  const json::value bound = Pod("p");
  EXPECT_EQ(bound.at("spec").at("nodeName"), "n1");
  const json::object& annotations = bound.at("metadata").at("annotations").as_object();
  EXPECT_EQ(annotations.at("theirs"), "stays");
  EXPECT_EQ(annotations.at("hami.io/bind-phase"), "allocating");
  EXPECT_EQ(annotations.at("hami.io/vgpu-node"), "n1");
  EXPECT_EQ(annotations.at("hami.io/vgpu-devices-allocated"), annotations.at("hami.io/vgpu-devices-to-allocate"));
  EXPECT_EQ(bound.at("metadata").at("labels").at("hami.io/vgpu-node"), "n1");
  EXPECT_TRUE(NodeAnnotation("n1", device::kNodeLock).ends_with(",default,p"));
  EXPECT_EQ(NodeAnnotation("n1", "somebody.else/s"), "business");
  EXPECT_EQ(server_.Asked("PATCH"), 1U);
  EXPECT_EQ(server_.Asked("BIND"), 1U);
  EXPECT_EQ(server_.Asked("GET"), 1U) << "once in a run: does this server carry labels?";
}

// A Binding is not checked, but every later write of the pod is: with a label that is none it could never run.
TEST_F(ClusterTest, GivenNodeNameTooLongForLabel_ThenPodHasAnnotationAndNoLabel) {
  const std::string longest_label(63, 'n');
  for (const std::string& node : {longest_label, longest_label + ".example"}) {
    server_.Put(kube::kNodes, NodeObject(node, true));
    Scheduler scheduler(server_);
    const json::value pod = server_.Put(kube::kPods, PodObject("p-" + std::to_string(node.size())));
    ASSERT_EQ(scheduler.Filter(pod, {json::string_view(node)}).at("Error"), "");
    ASSERT_EQ(scheduler.Bind(pod, node), "");
    const json::value bound = Pod("p-" + std::to_string(node.size()));
    EXPECT_EQ(bound.at("metadata").at("annotations").at("hami.io/vgpu-node"), json::value(node));
    const json::value* labels = bound.at("metadata").as_object().if_contains("labels");
    const bool labelled = labels != nullptr && labels->as_object().contains("hami.io/vgpu-node");
    EXPECT_EQ(labelled, node == longest_label);
  }
}

TEST_F(ClusterTest, GivenOneScheduler_WhenNodeNeedsNoLock_ThenBindingIsOnlyWrite) {
  server_.Remove(kube::kNodes, "", "n1");
  Scheduler scheduler(server_, true);
  ASSERT_TRUE(Eventually([&] { return scheduler.cache.Synced(); }));
  scheduler.lease.Tick();
  json::value lease = *server_.Get(kube::kLeases, "kube-system", "binders");
  EXPECT_EQ(lease.at("spec").at("holderIdentity"), json::value(scheduler.options.writer));
  EXPECT_EQ(lease.at("metadata").at("annotations").at(kMembers), json::value(scheduler.options.writer + "=1"));
  EXPECT_FALSE(lease.at("metadata").at("annotations").as_object().contains(kUnclean));
  const std::uint64_t patches = server_.Asked("PATCH");
  for (const char* name : {"p", "q"}) {
    const json::value pod = server_.Put(kube::kPods, PodObject(name));
    ASSERT_EQ(scheduler.Filter(pod).at("NodeNames"), (json::array{"n2"}));
    ASSERT_EQ(scheduler.Bind(pod, "n2"), "");
  }
  EXPECT_EQ(server_.Asked("PATCH"), patches);
  scheduler.wants = false;
  scheduler.lease.Tick();
  lease = *server_.Get(kube::kLeases, "kube-system", "binders");
  EXPECT_FALSE(lease.at("spec").as_object().contains("holderIdentity")) << "given up, for the next to have at once";
  EXPECT_EQ(lease.at("metadata").at("annotations").at(kMembers), "");
  EXPECT_EQ(lease.at("spec").at("leaseTransitions"), 2);
}

// Over the real paths: what is listed, marked and written when a scheduler dies alone.
TEST_F(ClusterTest, GivenDeadOnesLease_WhenTakenOver_ThenOurPodsAreMarkedFirst) {
  server_.Put(
      kube::kLeases,
      {{"metadata",
        {{"name", "binders"}, {"namespace", "kube-system"}, {"annotations", {{kMembers, "dead=1"}, {kUnclean, "1"}}}}},
       {"spec", {{"leaseTransitions", 7}}}});
  server_.Put(kube::kPods, PodObject("waits"));
  json::value other = PodObject("other");
  other.at("spec").at("containers").at(0).at("resources").as_object() = {};
  server_.Put(kube::kPods, other);
  json::value bound = PodObject("bound");
  bound.at("spec").as_object()["nodeName"] = "n1";
  server_.Put(kube::kPods, bound);
  Scheduler scheduler(server_, true);
  ASSERT_TRUE(Eventually([&] { return scheduler.cache.Synced(); }));
  scheduler.lease.Tick();
  EXPECT_EQ(scheduler.lease.term().mode, BindMode::kTickets) << "the other one may live";
  EXPECT_TRUE(Pod("waits").at("metadata").at("annotations").as_object().contains(kBindRevoked));
  for (const char* name : {"other", "bound"}) {
    EXPECT_FALSE(Pod(name).at("metadata").at("annotations").as_object().contains(kBindRevoked)) << name;
  }
  const json::value lease = *server_.Get(kube::kLeases, "kube-system", "binders");
  EXPECT_FALSE(lease.at("metadata").at("annotations").as_object().contains(kUnclean));
}

TEST(OlderServerTest, GivenServerThatDropsLabels_WhenBound_ThenPodGetsItsLabel) {
  kube::FakeOptions options;
  options.bindings_carry_labels = false;
  kube::FakeApiServer server(options);
  server.Put(kube::kNodes, NodeObject("n1", true));
  Scheduler scheduler(server);
  for (const char* name : {"p", "q"}) {
    const json::value pod = server.Put(kube::kPods, PodObject(name));
    ASSERT_EQ(scheduler.Filter(pod).at("NodeNames"), (json::array{"n1"}));
    ASSERT_EQ(scheduler.Bind(pod, "n1"), "");
    EXPECT_EQ(server.Get(kube::kPods, "default", name)->at("metadata").at("labels").at("hami.io/vgpu-node"), "n1");
  }
  EXPECT_EQ(server.Asked("GET"), 1U);
}

TEST_F(ClusterTest, GivenBoundPod_WhenRestarted_ThenAnnotationsBringChargeBack) {
  const json::value pod = server_.Put(kube::kPods, PodObject("p"));
  const json::value waiting = server_.Put(kube::kPods, PodObject("waiting"));
  {
    Scheduler scheduler(server_);
    ASSERT_EQ(scheduler.Filter(pod).at("NodeNames"), (json::array{"n1"}));
    ASSERT_EQ(scheduler.Bind(pod, "n1"), "");
    ASSERT_EQ(scheduler.Filter(waiting).at("Error"), "");
  }
  Scheduler scheduler(server_);
  ASSERT_TRUE(Eventually([&] { return scheduler.cache.Synced(); }));
  EXPECT_EQ(scheduler.MemoryInUse(), 3000);
  EXPECT_NE(scheduler.Bind(waiting, "n1"), "") << "placed before the restart";
}

TEST_F(ClusterTest, GivenALostWatch_WhenPodsEndMeanwhile_ThenTheirChargeGoes) {
  Scheduler scheduler(server_);
  const json::value pod = server_.Put(kube::kPods, PodObject("p"));
  ASSERT_EQ(scheduler.Filter(pod).at("NodeNames"), (json::array{"n1"}));
  ASSERT_EQ(scheduler.Bind(pod, "n1"), "");
  ASSERT_TRUE(Eventually([&] { return server_.watching() == 3; }));
  server_.Remove(kube::kPods, "default", "p");
  server_.Compact();
  server_.DropWatches();
  EXPECT_TRUE(Eventually([&] { return scheduler.MemoryInUse() == 0; }));
}

TEST_F(ClusterTest, GivenABoundPod_WhenItSucceeds_ThenItsChargeGoes) {
  Scheduler scheduler(server_);
  const json::value pod = server_.Put(kube::kPods, PodObject("p"));
  ASSERT_EQ(scheduler.Filter(pod).at("NodeNames"), (json::array{"n1"}));
  ASSERT_EQ(scheduler.Bind(pod, "n1"), "");
  json::value ended = Pod("p");
  ended.as_object()["status"] = json::object{{"phase", "Succeeded"}};
  server_.Put(kube::kPods, ended);
  EXPECT_TRUE(Eventually([&] { return scheduler.MemoryInUse() == 0; }));
}

TEST_F(ClusterTest, GivenALostAnswer_WhenTheServerDidBind_ThenTheBindSucceeds) {
  Scheduler scheduler(server_);
  const json::value pod = server_.Put(kube::kPods, PodObject("p"));
  ASSERT_EQ(scheduler.Filter(pod).at("NodeNames"), (json::array{"n1"}));
  server_.Add({.kind = kube::FakeFault::Kind::kDropAfter, .path_part = "/binding"});
  EXPECT_EQ(scheduler.Bind(pod, "n1"), "");
  EXPECT_EQ(Pod("p").at("spec").at("nodeName"), "n1");
}

TEST_F(ClusterTest, GivenReplacedPod_WhenBound_ThenNewOneIsLeftAloneAndNodeFree) {
  Scheduler scheduler(server_);
  const json::value pod = server_.Put(kube::kPods, PodObject("p"));
  ASSERT_EQ(scheduler.Filter(pod).at("NodeNames"), (json::array{"n1"}));
  server_.Remove(kube::kPods, "default", "p");
  server_.Put(kube::kPods, PodObject("p"));
  EXPECT_NE(scheduler.Bind(pod, "n1"), "");
  EXPECT_FALSE(Pod("p").at("spec").as_object().contains("nodeName"));
  EXPECT_EQ(NodeAnnotation("n1", device::kNodeLock), "");
  EXPECT_EQ(scheduler.MemoryInUse(), 0);
}

TEST_F(ClusterTest, GivenNewNodes_WhenKeeperRuns_ThenHandshakeIsWrittenOnce) {
  Scheduler scheduler(server_);
  ASSERT_TRUE(Eventually([&] { return scheduler.cache.Synced(); }));
  scheduler.keeper.RunOnce();
  EXPECT_TRUE(NodeAnnotation("n1", "hami.io/node-handshake").starts_with("Requesting_"));
  EXPECT_EQ(server_.Asked("PATCH"), 2U);
  scheduler.keeper.RunOnce();
  EXPECT_EQ(server_.Asked("PATCH"), 2U);
}

TEST_F(ClusterTest, GivenRefusedPod_WhenRoomIsMade_ThenNodeChangesOnceForRetry) {
  Scheduler scheduler(server_);
  const json::value pod = server_.Put(kube::kPods, PodObject("p"));
  ASSERT_EQ(scheduler.Filter(pod).at("NodeNames"), (json::array{"n1"}));
  ASSERT_EQ(scheduler.Bind(pod, "n1"), "");
  ASSERT_TRUE(
      Eventually([&] { return scheduler.books.Read([](const State& s) { return s.ledger.pod_count() == 1; }); }));
  scheduler.keeper.RunOnce();
  EXPECT_EQ(NodeAnnotation("n1", kRoomMade), "") << "nobody was refused";

  json::value large = PodObject("large");
  large.at("spec").at("containers").at(0).at("resources").at("limits").as_object()["nvidia.com/gpu"] = "9";
  ASSERT_TRUE(scheduler.Filter(server_.Put(kube::kPods, large)).at("NodeNames").is_null());
  scheduler.keeper.RunOnce();
  EXPECT_EQ(NodeAnnotation("n1", kRoomMade), "") << "no room was made";

  server_.Remove(kube::kPods, "default", "p");
  ASSERT_TRUE(Eventually([&] { return scheduler.MemoryInUse() == 0; }));
  scheduler.keeper.RunOnce();
  EXPECT_NE(NodeAnnotation("n1", kRoomMade), "");
  const std::size_t patches = server_.Asked("PATCH");
  scheduler.keeper.RunOnce();
  EXPECT_EQ(server_.Asked("PATCH"), patches) << "shown once";
}

TEST_F(ClusterTest, GivenPodRefusedByQuota_WhenQuotaIsRaised_ThenNodeChanges) {
  json::value quota = {{"metadata", {{"name", "q"}, {"namespace", "default"}}},
                       {"spec", {{"hard", {{"limits.nvidia.com/gpumem", "100"}}}}}};
  quota = server_.Put(kube::kResourceQuotas, quota);
  Scheduler scheduler(server_);
  ASSERT_TRUE(Eventually([&] { return scheduler.cache.Synced(); }));
  scheduler.keeper.RunOnce();  // which looks for pods that wait since before
  ASSERT_TRUE(scheduler.Filter(server_.Put(kube::kPods, PodObject("p"))).at("NodeNames").is_null());
  scheduler.keeper.RunOnce();
  quota.at("spec").at("hard").as_object()["limits.nvidia.com/gpumem"] = "5000";
  server_.Put(kube::kResourceQuotas, quota);
  EXPECT_TRUE(Eventually([&] {
    scheduler.keeper.RunOnce();
    return !NodeAnnotation("n1", kRoomMade).empty() || !NodeAnnotation("n2", kRoomMade).empty();
  }));
}

TEST_F(ClusterTest, GivenRefusedPod_WhenQuotasUseIsWritten_ThenNoNodeChanges) {
  json::value quota = {{"metadata", {{"name", "q"}, {"namespace", "other"}}},
                       {"spec", {{"hard", {{"cpu", "1"}, {"limits.nvidia.com/gpumem", "100"}}}}}};
  quota = server_.Put(kube::kResourceQuotas, quota);
  Scheduler scheduler(server_);
  ASSERT_TRUE(Eventually([&] { return scheduler.cache.Synced(); }));
  scheduler.keeper.RunOnce();  // which looks for pods that wait since before
  json::value large = PodObject("large");
  large.at("spec").at("containers").at(0).at("resources").at("limits").as_object()["nvidia.com/gpu"] = "9";
  ASSERT_TRUE(scheduler.Filter(server_.Put(kube::kPods, large)).at("NodeNames").is_null());
  quota.as_object()["status"] = {{"used", {{"cpu", "1"}}}};
  server_.Put(kube::kResourceQuotas, quota);
  server_.Put(kube::kResourceQuotas, {{"metadata", {{"name", "q"}, {"namespace", "next"}}},
                                      {"spec", {{"hard", {{"limits.nvidia.com/gpumem", "100"}}}}}});
  ASSERT_TRUE(Eventually([&] {
    return scheduler.books.Read([](const State& state) { return state.ledger.quotas().Room("next", {}, 0).limited(); });
  }));
  scheduler.keeper.RunOnce();
  EXPECT_EQ(NodeAnnotation("n1", kRoomMade) + NodeAnnotation("n2", kRoomMade), "");
}

TEST_F(ClusterTest, GivenAQuota_WhenItIsUsedUp_ThenTheNextPodIsRefusedForIt) {
  server_.Put(kube::kResourceQuotas, {{"metadata", {{"name", "q"}, {"namespace", "default"}}},
                                      {"spec", {{"hard", {{"limits.nvidia.com/gpumem", "5000"}}}}}});
  Scheduler scheduler(server_);
  ASSERT_EQ(scheduler.Filter(server_.Put(kube::kPods, PodObject("p"))).at("NodeNames"), (json::array{"n1"}));
  const json::object refused = scheduler.Filter(server_.Put(kube::kPods, PodObject("q")));
  EXPECT_NE(json::serialize(refused).find("ResourceQuotaNotFit"), std::string::npos);
}

}  // namespace
}  // namespace hami::scheduler
