// SPDX-License-Identifier: Apache-2.0

#include "scheduler/extender.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>

#include "base/log.h"
#include "base/strings.h"
#include "scheduler/extender_body.h"
#include "scheduler/testing/sim_cluster.h"

namespace hami::scheduler {
namespace {

namespace json = base::json;
using testing::SimApi;
using testing::SimCluster;
using testing::SimWatch;

constexpr const char* kPod =
    R"({"metadata":{"name":"p","namespace":"default","uid":"u1","resourceVersion":"1"},)"
    R"("spec":{"containers":[{"name":"c","resources":{"limits":{"nvidia.com/gpu":"1","nvidia.com/gpumem":"4000"}}}]}})";

class ExtenderTest : public ::testing::Test {
 protected:
  ExtenderTest()
      : books_(sched::testing::NvidiaOnly(), {}),
        api_(cluster_),
        record_([this](const PodName& pod, const sched::Event& event) {
          EXPECT_EQ(base::Concat({pod.ns, "/", pod.name, " ", pod.uid}), "default/p u1");
          events_.push_back(event.message);
        }),
        lease_(api_, cluster_, {}, {.enabled = false}),
        binder_(books_, api_, cluster_, lease_, record_, {}),
        extender_(books_, binder_, cluster_, record_, [this] { return ready_; }) {
    base::StartLog("test", base::LogLevel::kOff);
    cluster_.AddNode("n1", sched::testing::Cards("n1", 1), false);
    cluster_.AddNode("n2", sched::testing::Cards("n2", 1), false);
    watch_ = std::make_unique<SimWatch>(cluster_, books_, registration_);
  }
  json::object Filter(const std::string& body) {
    const Reply reply = extender_.Filter(body, [] { return false; });
    EXPECT_EQ(reply.status, 200);
    return base::ParseJson(reply.body)->as_object();
  }
  json::object FilterNames(const std::string& names) {
    return Filter(base::Concat({R"({"Pod":)", kPod, R"(,"Nodes":null,"NodeNames":)", names, "}"}));
  }
  std::string Bind(const std::string& node) {
    const Reply reply = extender_.Bind(
        base::Concat({R"({"PodName":"p","PodNamespace":"default","PodUID":"u1","Node":")", node, R"("})"}),
        [] { return false; });
    return *base::GetString(base::ParseJson(reply.body)->as_object(), "Error");
  }

  SimCluster cluster_;
  Books books_;
  SimApi api_;
  Registration registration_;
  std::vector<std::string> events_;
  RecordEvent record_;
  BindLease lease_;
  Binder binder_;
  bool ready_ = true;
  Extender extender_;
  std::unique_ptr<SimWatch> watch_;
};

TEST_F(ExtenderTest, GivenAPodThatFits_WhenFiltered_ThenOneNodeIsNamed) {
  const json::object result = FilterNames(R"(["n2","n1","elsewhere"])");
  EXPECT_EQ(result.at("NodeNames"), (json::array{"n1"}));
  EXPECT_TRUE(result.at("FailedNodes").is_null());
  EXPECT_EQ(result.at("Error"), "");
  EXPECT_EQ(events_, std::vector<std::string>{"find fit node(n1), 1 nodes not fit, 2 nodes fit(n2:0.00,n1:0.00)"});
  EXPECT_EQ(books_.Read([](const State& state) { return state.ledger.pod_count(); }), 1U);
}

TEST_F(ExtenderTest, GivenHamisWay_WhenScoresAreAsked_ThenNoneIsGiven) {
  (void)FilterNames(R"(["n1","n2"])");
  EXPECT_EQ(extender_.Prioritize(base::Concat({R"({"Pod":)", kPod, R"(,"NodeNames":["n1"]})"})).body,
            R"([{"Host":"n1","Score":0}])");
}

TEST_F(ExtenderTest, GivenOverHundredCandidates_WhenFiltered_ThenEventCountsThem) {
  std::string names = R"(["n2","n1")";
  for (int i = 0; i < 99; ++i) names += ",\"other-" + std::to_string(i) + "\"";
  EXPECT_EQ(FilterNames(names + "]").at("NodeNames"), (json::array{"n1"}));
  EXPECT_EQ(events_, std::vector<std::string>{"find fit node(n1) among 101 nodes"});
}

TEST_F(ExtenderTest, GivenPod_WhenFilteredTwice_ThenItIsChargedOnce) {
  (void)FilterNames(R"(["n1"])");
  (void)FilterNames(R"(["n2"])");
  books_.Read([](const State& state) {
    EXPECT_EQ(state.ledger.pod_count(), 1U);
    EXPECT_EQ(state.ledger.node(state.ledger.Find("n1")).used()[0], device::CardState{});
  });
}

TEST_F(ExtenderTest, GivenPodThatFillsItsCard_WhenFilteredAgain_ThenItStillFits) {
  cluster_.AddNode("small", sched::testing::Cards("small", 1, 5000), false);
  watch_ = std::make_unique<SimWatch>(cluster_, books_, registration_);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(FilterNames(R"(["small"])").at("NodeNames"), (json::array{"small"})) << i;
}

TEST_F(ExtenderTest, GivenNoNodeThatFits_WhenFiltered_ThenEveryNodeSaysWhy) {
  const json::object result = FilterNames(R"(["elsewhere"])");
  EXPECT_TRUE(result.at("NodeNames").is_null());
  EXPECT_EQ(result.at("FailedNodes"), (json::object{{"elsewhere", "node unregistered"}}));
  EXPECT_EQ(events_.back(), "no available node, 1 nodes do not meet");
}

TEST_F(ExtenderTest, GivenPodThatAsksForNothing_WhenFiltered_ThenNamesComeBack) {
  const json::object result =
      Filter(R"({"pod":{"metadata":{"uid":"u"},"spec":{"containers":[]}},"nodenames":["a","b"]})");
  EXPECT_EQ(result.at("NodeNames"), (json::array{"a", "b"}));
  EXPECT_TRUE(events_.empty());
}

TEST_F(ExtenderTest, GivenUnanswerableBody_WhenFiltered_ThenErrorFieldSaysSo) {
  EXPECT_EQ(extender_.Filter("", [] { return false; }).status, 400);
  EXPECT_EQ(Filter("{}").at("Error"), "extender args missing pod");
  EXPECT_EQ(Filter(base::Concat({R"({"Pod":)", kPod, "}"})).at("Error"), "extender args missing nodes");
  for (const char* nodes : {"[]", "1", "\"n1\""}) {
    EXPECT_EQ(Filter(base::Concat({R"({"Pod":)", kPod, R"(,"Nodes":)", nodes, "}"})).at("Error"),
              "Nodes is not a list object");
  }
  for (const char* body : {"x", "[]", "{", R"({"Pod":{)", R"({"Pod":{]},"NodeNames":[]})",
                           R"({"Pod":1,"NodeNames":[1]})", R"({"Pod":{},"NodeNames":["a" "b"]})",
                           R"({"Pod":{},"NodeNames":["a",]})", "{} x", R"({"Pod":{},"NodeNames":"n"})"}) {
    EXPECT_NE(Filter(body).at("Error"), "") << body;
  }
}

TEST_F(ExtenderTest, GivenJsonThatIsNoObject_WhenAsked_ThenTheErrorSaysWhatItIs) {
  for (const auto& [body, kind] :
       {std::pair(" null", "null"), std::pair("-1.5", "a number"), std::pair("\"x\" ", "a string"),
        std::pair("[]", "a list"), std::pair("[{}]", "a list"), std::pair("true", "true")}) {
    const std::string error = std::string("request: a JSON object is wanted, this is ") + kind;
    EXPECT_EQ(Filter(body).at("Error"), json::value(error));
    const Reply bind = extender_.Bind(body, [] { return false; });
    EXPECT_EQ(json::parse(bind.body).at("Error"), json::value(error));
  }
  for (const char* body : {"x", "nul", "[", "1 2", "\"x", " "}) {
    EXPECT_EQ(Filter(body).at("Error").as_string().find("request: not JSON at byte "), 0U) << body;
    const Reply bind = extender_.Bind(body, [] { return false; });
    EXPECT_NE(bind.body.find("request: not JSON at byte "), std::string::npos) << body;
  }
}

TEST_F(ExtenderTest, GivenTooManyNamesForAnyCluster_WhenFiltered_ThenItIsRefused) {
  for (const std::string name : {R"("n1",)", R"("\u006e1",)"}) {
    std::string names = "[";
    for (std::size_t i = 0; i < kMostNames; ++i) names += name;
    names.back() = ']';
    EXPECT_EQ(FilterNames(names).at("NodeNames"), (json::array{"n1"}));
    names.back() = ',';
    names += R"("n1"])";
    EXPECT_EQ(FilterNames(names).at("Error"), "NodeNames holds more than 1000000 names");
  }
}

TEST_F(ExtenderTest, GivenNamesWithEscapes_WhenFiltered_ThenTheyMeanWhatTheySay) {
  EXPECT_EQ(FilterNames(R"(["\u006e1"])").at("NodeNames"), (json::array{"n1"}));
  const json::object result = FilterNames("[\"a\\\"b\",\"\xc3\xa4\"]");
  EXPECT_EQ(result.at("FailedNodes").as_object().size(), 2U);
}

TEST_F(ExtenderTest, GivenIncompleteBooks_WhenFiltered_ThenItWaitsUntilClientGoes) {
  ready_ = false;
  int asked = 0;
  const Reply reply =
      extender_.Filter(base::Concat({R"({"Pod":)", kPod, R"(,"NodeNames":["n1"]})"}), [&] { return ++asked == 10; });
  EXPECT_NE(reply.body.find("context cancelled"), std::string::npos);
  cluster_.yield = [&] { ready_ = true; };
  EXPECT_EQ(FilterNames(R"(["n1"])").at("NodeNames"), (json::array{"n1"}));
}

TEST_F(ExtenderTest, GivenWholeNodes_ThenBestComesBackAsItCameAndNothingIsCharged) {
  std::string nodes = R"({"metadata":{},"items":[{"metadata":{"name":"bare"}})";
  for (const char* name : {"x1", "x2"}) {
    json::object annotations{
        {"hami.io/node-nvidia-register", device::EncodeRegisterJson(sched::testing::Cards(name, 1).devices)}};
    nodes += "," + json::serialize(json::object{{"metadata", {{"name", name}, {"annotations", annotations}}},
                                                {"status", std::string(100'000, 'x')}});
  }
  nodes += "]}";
  const json::object result = Filter(base::Concat({R"({"Pod":)", kPod, R"(,"NodeNames":null,"Nodes":)", nodes, "}"}));
  const json::array& items = result.at("Nodes").at("items").as_array();
  ASSERT_EQ(items.size(), 1U);
  EXPECT_EQ(items[0].at("metadata").at("name"), "x1");
  EXPECT_EQ(items[0].at("status").as_string().size(), 100'000U);
  EXPECT_EQ(result.at("FailedNodes"), (json::object{{"bare", "node unregistered"}}));
  EXPECT_EQ(books_.Read([](const State& state) { return state.ledger.pod_count(); }), 0U);
  EXPECT_TRUE(events_.empty());
}

// Has one card on every node, and tells when a node is read.
class TellingVendor final : public device::Vendor {
 public:
  explicit TellingVendor(const std::function<void()>& on_read) : on_read_(on_read) {}
  std::string_view key() const override { return "NVIDIA"; }
  std::string_view to_allocate_annotation() const override { return "to-allocate"; }
  std::string_view allocated_annotation() const override { return "allocated"; }
  std::string_view register_annotation() const override { return "register"; }
  std::string_view count_resource() const override { return "nvidia.com/gpu"; }
  base::Result<std::optional<device::Request>> ParseRequest(const device::Container&) const override {
    return std::optional<device::Request>(device::Request{});
  }
  std::optional<device::Request> MostOf(const device::Container&) const override { return device::Request{}; }
  std::vector<std::string_view> resources() const override { return {}; }
  device::CardRules ParseRules(const device::StringMap&) const override { return {}; }
  base::Result<device::NodeCards> ReadNode(const device::NodeFacts& node) const override {
    on_read_();
    return sched::testing::Cards(std::string(node.name), 1);
  }
  device::FitResult Fit(const device::FitInput&) const override { return {.fits = true, .picks = {}, .reasons = {}}; }
  base::Result<bool> Mutate(json::object&, device::PodDraft&, device::Warnings&) const override { return false; }

 private:
  const std::function<void()>& on_read_;
};

TEST(ExtenderSimulation, GivenSimulationUnderWay_WhenBooksAreNeeded_ThenTheyAreFree) {
  base::StartLog("test", base::LogLevel::kOff);
  std::function<void()> on_read = [] {};
  device::Vendors vendors;
  vendors.push_back(std::make_unique<TellingVendor>(on_read));
  Books books(std::move(vendors), {});
  SimCluster cluster;
  SimApi api(cluster);
  BindLease lease(api, cluster, {}, {.enabled = false});
  const RecordEvent record = [](const PodName&, const sched::Event&) {};
  Binder binder(books, api, cluster, lease, record, {});
  Extender extender(books, binder, cluster, record, [] { return true; });

  std::future<std::size_t> other;  // outlives the simulation: where the books are taken, it has them afterwards
  bool free = false;
  on_read = [&] {
    other = std::async(std::launch::async,
                       [&] { return books.Read([](const State& state) { return state.ledger.pod_count(); }); });
    free = other.wait_for(std::chrono::seconds(5)) == std::future_status::ready;
  };
  const std::string body =
      base::Concat({R"({"Pod":)", kPod, R"(,"Nodes":{"metadata":{},"items":[{"metadata":{"name":"x"}}]}})"});
  const Reply reply = extender.Filter(body, [] { return false; });
  EXPECT_EQ(base::ParseJson(reply.body)->at("Nodes").at("items").as_array().size(), 1U) << reply.body;
  EXPECT_TRUE(other.valid());
  EXPECT_TRUE(free);
}

TEST_F(ExtenderTest, GivenAFilteredPod_WhenBound_ThenItIsBoundToItsNodeOnly) {
  cluster_.AddPod(sched::testing::PodOf("u1", {}));
  cluster_.FindPod("default", "pod-u1")->pod.name = "p";
  cluster_.pods["default/p"] = cluster_.pods["default/pod-u1"];
  cluster_.pods.erase("default/pod-u1");
  ASSERT_EQ(FilterNames(R"(["n1"])").at("NodeNames"), (json::array{"n1"}));
  EXPECT_NE(Bind("n2"), "");
  ASSERT_EQ(FilterNames(R"(["n1"])").at("NodeNames"), (json::array{"n1"}));
  EXPECT_EQ(Bind("n1"), "");
  EXPECT_EQ(cluster_.FindPod("default", "p")->pod.node_name, "n1");
  EXPECT_NE(FilterNames(R"(["n2"])").at("Error"), "") << "it is bound already";
}

// Else every pod is found a place, and none is bound, without a word about why.
TEST_F(ExtenderTest, GivenKubeSchedulerSendsNodes_WhenBound_ThenErrorNamesSetting) {
  Filter(base::Concat({R"({"Pod":)", kPod, R"(,"Nodes":{"items":[{"metadata":{"name":"n1"}}]}})"}));
  EXPECT_NE(Bind("n1").find("set nodeCacheCapable: true"), std::string::npos);
  FilterNames(R"(["elsewhere"])");
  EXPECT_EQ(Bind("n1").find("set nodeCacheCapable: true"), std::string::npos);
}

TEST(ExtenderEvents, GivenMoreFailedNodesThanEventNames_ThenTheRestIsCounted) {
  sched::Decision decision;
  decision.outcome = sched::Outcome::kNoFit;
  for (char node = 'a'; node < 'e'; ++node) decision.failures.push_back({std::string(1, node), "1/1 CardNotHealth"});
  EXPECT_EQ(sched::EventsOf(decision, 2).front().message, "4 nodes CardNotHealth(a,b,…)");
}

TEST_F(ExtenderTest, GivenUnanswerableBindBody_WhenBound_ThenErrorFieldSaysSo) {
  EXPECT_EQ(extender_.Bind("", [] { return false; }).status, 400);
  const Reply reply = extender_.Bind(R"({"PodName":"p","PodNamespace":"d","PodUID":"u"})", [] { return false; });
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, R"({"Error":"extender binding args missing Node"})");
}

TEST_F(ExtenderTest, GivenBindBodiesInAnyWords_WhenBound_ThenWhatTheySayIsRead) {
  const auto read = [](std::string_view text) {
    const auto request = ReadBindBody(text);
    return request ? base::Join({request->name, request->ns, request->uid, request->node}, "|")
                   : request.error().message;
  };
  EXPECT_EQ(read(R"({"PodName":"p","PodNamespace":"d","PodUID":"u","Node":"n"})"), "p|d|u|n");
  EXPECT_EQ(read(R"( { "podNAME" : "p", "x":[{"Node":"m"}], "podnamespace":"d","PODUID":"u","node":"n","y":1.5e3 } )"),
            "p|d|u|n");
  EXPECT_EQ(read(R"({"Pod\u004eame":"\u0070","PodNamespace":"d","PodUID":"\"u","Node":"n"})"), "p|d|\"u|n");
  EXPECT_EQ(read(R"({"PodName":"p","PodNamespace":"d","PodUID":5,"Node":"n"})"),
            "extender binding args missing PodUID");
  EXPECT_EQ(read(R"({"PodName":null})"), "extender binding args missing PodName");
  EXPECT_EQ(read(R"([])"), "request: a JSON object is wanted, this is a list");
  for (const char* text : {"", "{", R"({"PodName":"p"} x)", R"({"PodName":"p)", R"({"PodName" "p"})", "{]"}) {
    EXPECT_EQ(read(text).substr(0, 8), "request:") << text;
  }
}

TEST(CandidateTest, GivenPodGroups_WhenRead_ThenTheirMembersAreKnown) {
  EXPECT_TRUE(ReadFilterBody(R"({"Pod":{"metadata":{"labels":{"scheduling.x-k8s.io/pod-group":"g"}}}})")->pod->group);
  EXPECT_TRUE(ReadFilterBody(R"({"pod":{"spec":{"schedulingGroup":{"podGroupName":"g"}}}})")->pod->group);
  EXPECT_TRUE(ReadFilterBody(R"({"pod":{"spec":{"workloadRef":{"name":"w","podGroup":"g"}}}})")->pod->group);
  EXPECT_FALSE(ReadFilterBody(R"({"Pod":{"metadata":{"labels":{"a":"b"}}}})")->pod->group);
}

TEST_F(ExtenderTest, GivenOversizedPod_WhenFiltered_ThenItIsRefusedAndNotKept) {
  const auto filtered = [&](const json::object& metadata) {
    json::value pod = *base::ParseJson(kPod);
    for (const auto& [key, value] : metadata) pod.at("metadata").as_object()[key] = value;
    return Filter(base::Concat({R"({"Pod":)", json::serialize(pod), R"(,"NodeNames":["n1"]})"}));
  };
  for (const char* key : {"name", "namespace", "uid"}) {
    EXPECT_EQ(base::GetString(filtered({{key, std::string(254, 'x')}}), "Error"),
              base::Concat({"the pod's ", key, " has 254 bytes, more than the 253 of any name"}));
  }
  constexpr std::size_t kMost = 256U << 10U;
  EXPECT_EQ(filtered({{"annotations", {{"a", std::string(kMost, 'x')}}}}).at("Error"),
            "the pod's annotations have 262145 bytes, more than the API server's 262144");
  EXPECT_EQ(books_.Read([](const State& state) { return state.pendings().size(); }), 0U);
  EXPECT_EQ(extender_.counters().errors, 4U);
  EXPECT_EQ(filtered({{"annotations", {{"a", std::string(kMost - 1, 'x')}}}}).at("NodeNames"), (json::array{"n1"}));
}

}  // namespace
}  // namespace hami::scheduler
