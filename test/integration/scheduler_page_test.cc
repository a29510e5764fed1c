// SPDX-License-Identifier: Apache-2.0
//
// The page of the real hami-scheduler: what it says of pods that come, wait and go, and whom it answers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "device/use_report.h"
#include "net/server.h"
#include "test/integration/scheduler_program.h"

namespace hami::testcluster {
namespace {

using testing::HasSubstr;

class SchedulerPage : public SchedulerProgram {
 protected:
  void ServePage(std::vector<std::string> more = {}) {
    more.insert(more.begin(), "--page-bind-address=127.0.0.1:0");
    Serve(more);
    page_port_ = child_->Said("the page is on http://127.0.0.1:", "/");
    ASSERT_FALSE(page_port_.empty());
  }
  net::Response Ask(const std::string& target, net::Headers headers = {}) {
    const auto client = net::Client::Make(*net::ParseUrl("http://127.0.0.1:" + page_port_), {});
    net::Call call = Get(target);
    call.headers = std::move(headers);
    auto response = (*client)->Send(call);
    EXPECT_TRUE(response) << response.error().message;
    return response ? *std::move(response) : net::Response{};
  }
  json::value State(const std::string& query = "") { return json::parse(Ask("/v1/state" + query).body); }
  static std::string Cursor(const json::value& state) {
    return "?wait=20&since=" + std::string(state.at("epoch").as_string()) + "." +
           std::to_string(state.at("revision").as_int64());
  }
  std::string page_port_;
};

TEST_F(SchedulerPage, APodIsShownFromItsRefusalToItsEnd) {
  api_.Put(kube::kNodes, GpuNode("node-1", 2));
  ServePage();
  ASSERT_TRUE(Eventually([&] { return State().at("status").at("complete").as_bool(); }));
  EXPECT_EQ(Ask("/").status, 200);
  const json::value large = api_.Put(kube::kPods, PendingPod("large", 30000, 30));
  Post("/filter", FilterBody(large, {"node-1", "cpu-1"}));
  ASSERT_TRUE(Eventually([&] { return !State().at("waiting").as_array().empty(); }));
  json::value state = State();
  EXPECT_EQ(state.at("waiting").at(0).at("name"), "large");
  EXPECT_THAT(json::serialize(state.at("waiting").at(0).at("reasons")),
              HasSubstr(R"({"reason":"2/2 CardInsufficientMemory","count":1,"nodes":["node-1"]})"));
  EXPECT_THAT(json::serialize(state.at("waiting").at(0).at("reasons")), HasSubstr(R"("nodes":["cpu-1"])"));

  // A reader that waits is told of the next change, and of nothing else.
  const json::value small = api_.Put(kube::kPods, PendingPod("small", 3000, 30));
  Post("/filter", FilterBody(small, {"node-1"}));
  state = State(Cursor(state));
  EXPECT_EQ(state.at("full"), false);
  EXPECT_EQ(state.as_object().if_contains("waiting"), nullptr);
  ASSERT_EQ(state.at("nodes").as_array().size(), 1U);
  EXPECT_EQ(state.at("nodes").at(0).at("pods").at(0).at("state"), "placed");
  EXPECT_EQ(state.at("nodes").at(0).at("pods").at(0).at("shares").at(0).at("memory_mib"), 3000);
  Post("/bind", BindBody(small, "node-1"));
  ASSERT_TRUE(Eventually([&] { return State().at("nodes").at(0).at("pods").at(0).at("state") == "bound"; }));

  api_.Remove(kube::kPods, "default", "large");
  EXPECT_TRUE(Eventually([&] { return State().at("waiting").as_array().empty(); }));
  // Health is a time-line.
  json::value sick = GpuNode("node-1", 2);
  json::value cards = json::parse(sick.at("metadata").at("annotations").at("hami.io/node-nvidia-register").as_string());
  cards.at(1).as_object()["health"] = false;
  sick.at("metadata").at("annotations").as_object()["hami.io/node-nvidia-register"] = json::serialize(cards);
  api_.Put(kube::kNodes, sick);
  EXPECT_TRUE(Eventually([&] { return !State().at("events").as_array().empty(); }));
  EXPECT_EQ(State().at("events").at(0).at("what"), "unhealthy");
  EXPECT_EQ(State().at("events").at(0).at("card"), "node-1-gpu-1");
  EXPECT_EQ(End(), 0);
}

TEST_F(SchedulerPage, ALockShowsItsHolder) {
  json::value node = GpuNode("node-1", 1);
  node.at("metadata").at("annotations").as_object()["hami.io/mutex.lock"] = "2026-01-01T00:00:00Z,team,train-0";
  api_.Put(kube::kNodes, node);
  ServePage();
  ASSERT_TRUE(Eventually([&] { return !State().at("nodes").as_array().empty(); }));
  EXPECT_THAT(json::serialize(State().at("nodes").at(0).at("lock")),
              HasSubstr(R"("namespace":"team","pod":"train-0")"));
  EXPECT_EQ(End(), 0);
}

TEST_F(SchedulerPage, WhatMonitorsSayOfUseIsShownUntilTheyAreSilent) {
  constexpr kube::Resource kSlices{"discovery.k8s.io/v1", "endpointslices", "EndpointSlice"};
  std::atomic<int> status = 200;
  auto monitor = net::Server::Start({}, [&](const net::Request&) {
    const device::UseReport report{"node-1", {{"team", "train", "main", "GPU-1", 1500, 3000, 30, 27}}};
    return net::Response{status, {}, device::WriteUse(report), {}};
  });
  ASSERT_TRUE(monitor);
  const auto slice = [&](const char* name, const char* service, const char* node, std::uint16_t port) {
    json::value object = {{"metadata", {{"name", name}, {"namespace", "gpu"}}}, {"addressType", "IPv4"}};
    object.at("metadata").as_object()["labels"] = {{"kubernetes.io/service-name", service}};
    object.as_object()["endpoints"] = json::array{{{"addresses", json::array{"127.0.0.1"}}, {"nodeName", node}}};
    object.as_object()["ports"] = json::array{{{"name", "monitorport"}, {"port", port}}};
    api_.Put(kSlices, object);
  };
  slice("a", "hami-monitor", "node-1", (*monitor)->port());
  slice("b", "hami-monitor", "node-2", (*monitor)->port());
  slice("c", "another", "node-3", (*monitor)->port());
  ServePage({"--page-monitors=gpu/hami-monitor", "--page-sample-interval=1s"});
  const auto use = [&](const std::string& node) { return json::parse(Ask("/v1/use?node=" + node).body); };
  ASSERT_TRUE(Eventually([&] { return !use("node-1").at("shares").as_array().empty(); }));
  const json::value share = use("node-1").at("shares").at(0);
  EXPECT_EQ(share.at("pod"), "train");
  json::array sample = share.at("samples").as_array().back().as_array();
  sample.erase(sample.begin());
  EXPECT_EQ(sample, (json::array{1500, 3000, 27, 30}));
  EXPECT_EQ(use("node-1").at("problem"), "");
  ASSERT_TRUE(Eventually([&] { return use("node-2").at("problem") != ""; }));
  EXPECT_THAT(json::serialize(use("node-2")), HasSubstr("says that it is that of node node-1"));
  EXPECT_THAT(json::serialize(use("node-3")), HasSubstr("no hami-monitor is found"));
  status = 404;
  ASSERT_TRUE(Eventually([&] { return json::serialize(use("node-1")).find("it is HAMi's") != std::string::npos; }));
  EXPECT_EQ(use("node-1").at("shares").as_array().size(), 1U) << "the hour stays";
  EXPECT_EQ(End(), 0);
}

TEST_F(SchedulerPage, UseIsNotAskedForWithoutMonitors) {
  ServePage();
  EXPECT_EQ(json::parse(Ask("/v1/use?node=node-1").body).at("asked"), false);
  EXPECT_EQ(End(), 0);
}

TEST_F(SchedulerPage, WithoutATokenNothingIsShownWhereOneIsAsked) {
  ServePage({"--page-auth=token"});
  EXPECT_EQ(Ask("/").status, 200);
  EXPECT_EQ(Ask("/v1/state").status, 401);
  EXPECT_EQ(Ask("/v1/state", {{"Authorization", "Basic dTpw"}}).status, 401);
  EXPECT_EQ(End(), 0);
}

TEST_F(SchedulerPage, ATakenPortEndsTheStartOnlyWhereItWasAskedFor) {
  ServePage();
  const auto taken = std::move(child_);
  Run({"--http_bind=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0",
       "--device-config-file=" + folder_ + "/device-config.yaml", "--page-bind-address=127.0.0.1:" + page_port_});
  EXPECT_EQ(child_->Wait(kPatience).value_or(-1), 1);
  EXPECT_THAT(child_->Log(), HasSubstr("--page-bind-address"));
  Serve({"--page-bind-address="});
  EXPECT_EQ(End(), 0);
  EXPECT_THAT(child_->Log(), Not(HasSubstr("the page is on")));
}

}  // namespace
}  // namespace hami::testcluster
