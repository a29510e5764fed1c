// SPDX-License-Identifier: Apache-2.0
//
// The real hami-scheduler as its neighbours meet it: HTTPS in front, an API server behind, signals from the kubelet.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <optional>
#include <set>

#include "net/socket.h"
#include "test/integration/scheduler_program.h"

namespace hami::testcluster {
namespace {

using testing::HasSubstr;

constexpr const char* kOneRequest = "hami_scheduler_filter_requests_total{zone=\"vGPU\"} 1";

// What `go tool pprof FLAGS /debug/pprof/profile` writes; nothing where there is no Go.
std::optional<std::string> GoToolPprof(const std::string& flags, const std::string& port, const std::string& folder) {
  const std::string go = "PATH=$PATH:/usr/local/go/bin; command -v go >/dev/null || exit 77; ";
  const std::string command = go + "PPROF_TMPDIR=" + folder + " go tool pprof " + flags +
                              " https+insecure://127.0.0.1:" + port + "/debug/pprof/profile?seconds=3 2>&1";
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::string text;
  std::array<char, 4096> piece{};
  while (const std::size_t got = std::fread(piece.data(), 1, piece.size(), pipe)) text.append(piece.data(), got);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return std::nullopt;
  EXPECT_EQ(status, 0) << text;
  return text;
}

TEST_F(SchedulerProgram, TakesAPodFromAdmissionToItsNodeAndEndsInGoodOrder) {
  api_.Put(kube::kNodes, GpuNode("node-1", 2));
  api_.Put(kube::kNodes, GpuNode("node-2", 2));
  Serve();

  json::value submitted = PendingPod("p", 3000, 30);
  submitted.at("spec").as_object().erase("schedulerName");
  const json::value review = Post("/webhook", ReviewBody(submitted));
  EXPECT_EQ(review.at("response").at("uid"), "review-1");
  EXPECT_EQ(review.at("response").at("patchType"), "JSONPatch");

  // Filter waits by itself until the books are complete.
  const json::value pod = api_.Put(kube::kPods, PendingPod("p", 3000, 30));
  ASSERT_TRUE(Eventually([&] { return Scrape().find("hami_scheduler_synced{zone=\"vGPU\"} 1") != std::string::npos; }));
  const json::value filtered = Post("/filter", FilterBody(pod, {"node-2", "node-1", "cpu-1"}));
  ASSERT_EQ(filtered.at("NodeNames"), json::parse(R"(["node-1"])")) << json::serialize(filtered);
  const json::value bound = Post("/bind", BindBody(pod, "node-1"));
  EXPECT_EQ(bound.at("Error"), "");

  const json::value now = *api_.Get(kube::kPods, "default", "p");
  EXPECT_EQ(now.at("spec").at("nodeName"), "node-1");
  EXPECT_THAT(std::string(now.at("metadata").at("annotations").at("hami.io/vgpu-devices-allocated").as_string()),
              HasSubstr("NVIDIA,3000,30:;"));
  const std::string text = Scrape();
  EXPECT_THAT(text, HasSubstr(R"(hami_scheduler_binds_total{zone="vGPU",outcome="bound"} 1)"));
  EXPECT_THAT(text, HasSubstr("hami_vgpu_memory_allocated_bytes{zone=\"vGPU\",namespace=\"default\",node=\"node-1\""));
  EXPECT_TRUE(Eventually([&] { return api_.Count(kube::kEvents) >= 2; }));
  EXPECT_EQ(Send(Get("/debug/pprof/"), authority_)->status, 404) << "not without --profiling";

  EXPECT_EQ(End(), 0);
  EXPECT_THAT(child_->Log(), HasSubstr("SIGTERM: finishing what has begun"));
  EXPECT_THAT(child_->Log(), HasSubstr("stopped"));
}

TEST_F(SchedulerProgram, ANewCertificateIsServedWithoutARestart) {
  Serve();
  const net::Call call = Get("/healthz");
  ASSERT_TRUE(Send(call, authority_));
  net::TestAuthority next;
  EXPECT_FALSE(Send(call, next));
  WriteCertificate(next);
  EXPECT_TRUE(Eventually([&] { return Send(call, next).has_value(); }));
  EXPECT_FALSE(Send(call, authority_));
  EXPECT_EQ(End(), 0);
}

TEST_F(SchedulerProgram, AFollowerAnswersTheWebhookAndFilterWaitsForTheLease) {
  api_.Put(kube::kNodes, GpuNode("node-1", 1));
  Serve({"--leader-elect", "--leader-elect-resource-name=sched", "--leader-elect-resource-namespace=system"});
  const json::value pod = api_.Put(kube::kPods, PendingPod("p", 1000, 10));
  EXPECT_EQ(Post("/webhook", ReviewBody(pod)).at("response").at("allowed"), true);
  auto filtered = std::async(std::launch::async, [&] { return Post("/filter", FilterBody(pod, {"node-1"})); });
  ASSERT_TRUE(Eventually([&] { return Scrape().find("hami_scheduler_synced{zone=\"vGPU\"} 1") != std::string::npos; }));
  ASSERT_TRUE(Eventually([&] { return Scrape().find(kOneRequest) != std::string::npos; }));
  EXPECT_EQ(filtered.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof(host) - 1), 0);
  api_.Put(kube::kLeases, {{"metadata", {{"name", "sched"}, {"namespace", "system"}}},
                           {"spec",
                            {{"holderIdentity", std::string(host) + "_1234"},
                             {"leaseDurationSeconds", 3600},
                             {"renewTime", "2026-01-01T00:00:00.000000Z"}}}});
  EXPECT_EQ(filtered.get().at("NodeNames"), json::parse(R"(["node-1"])"));
  EXPECT_EQ(End(), 0);
}

TEST_F(SchedulerProgram, ASimulationWithNodesOfManyMebibytesIsAnswered) {
  Serve();
  const json::value pod = api_.Put(kube::kPods, PendingPod("p", 3000, 30));
  json::array items;
  for (int i = 0; i < 40; ++i) {
    json::value node = GpuNode("new-" + std::to_string(100 + i), 1);
    node.as_object()["status"].as_object()["images"] = std::string(100'000, 'x');
    items.push_back(std::move(node));
  }
  const std::string body = json::serialize(
      json::value{{"Pod", pod}, {"Nodes", {{"metadata", json::object{}}, {"items", items}}}, {"NodeNames", nullptr}});
  ASSERT_GT(body.size(), 4'000'000U);
  const json::value answer = Post("/filter", body);
  ASSERT_EQ(answer.at("Nodes").at("items").as_array().size(), 1U) << answer.at("Error");
  EXPECT_EQ(answer.at("Nodes").at("items").at(0).at("metadata").at("name"), "new-100");
  EXPECT_EQ(api_.Count(kube::kEvents), 0U);
}

TEST_F(SchedulerProgram, ABodyThatIsTooLargeForItsRouteIsRefusedAndTold) {
  Serve();
  for (const auto& [route, bytes] : {std::pair("/webhook", 16U << 20U), std::pair("/bind", 64U << 10U)}) {
    net::Call call;
    call.method = "POST";
    call.target = route;
    call.body = std::string(bytes, ' ');
    const auto largest = Send(call, authority_);
    ASSERT_TRUE(largest) << largest.error().message;
    EXPECT_NE(largest->status, 413) << route;
    call.body += ' ';
    const auto refused = Send(call, authority_);
    ASSERT_TRUE(refused) << refused.error().message;
    EXPECT_EQ(refused->status, 413) << route;
    EXPECT_THAT(refused->body, HasSubstr(std::string(route) + " takes bodies of at most "));
  }
  EXPECT_EQ(End(), 0);
  EXPECT_THAT(child_->Log(), HasSubstr("/webhook takes bodies of at most 16777216 bytes: no pod that"));
}

// The table of docs/operate/scheduler.md. HAMi's roles allow all of it but "patch events".
TEST_F(SchedulerProgram, TheMetricsPortTakesNeitherItsDescriptorsNorItsMemory) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{std::min<rlim_t>(512, before.rlim_max), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  Serve();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit raised{};
  ASSERT_EQ(::prlimit(child_->pid(), RLIMIT_NOFILE, nullptr, &raised), 0);
  EXPECT_EQ(raised.rlim_cur, before.rlim_max);

  std::vector<base::Fd> idle;
  for (int i = 0; i < 200; ++i) {
    auto fd = net::Connect("127.0.0.1", static_cast<std::uint16_t>(std::stoi(metrics_port_)), net::After(kPatience));
    ASSERT_TRUE(fd);
    idle.push_back(*std::move(fd));
  }
  EXPECT_NE(Scrape().find("hami_scheduler_leader"), std::string::npos);
  const auto descriptors = std::filesystem::directory_iterator("/proc/" + std::to_string(child_->pid()) + "/fd");
  EXPECT_LT(std::distance(begin(descriptors), end(descriptors)), 100);

  net::Call call = Get("/metrics");
  call.method = "POST";
  call.body = std::string(64U << 10U, 'x');
  const auto client = net::Client::Make(*net::ParseUrl("http://127.0.0.1:" + metrics_port_), {});
  const auto refused = (*client)->Send(call);
  ASSERT_TRUE(refused) << refused.error().message;
  EXPECT_EQ(refused->status, 413);
}

TEST_F(SchedulerProgram, WhatCanNotBeWrittenIsAFailure) {
  for (const char* word : {"--help", "--version", "version"}) {
    const std::string command = std::string(HAMI_SCHEDULER_PROGRAM) + " " + word;
    EXPECT_EQ(std::system((command + " >/dev/null").c_str()), 0) << word;
    const int status = std::system((command + " >/dev/full").c_str());
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << word;
  }
}

TEST_F(SchedulerProgram, AsksTheApiServerForNothingThatItsRolesDoNotAllow) {
  const std::set<std::string> documented{
      "get pods",     "list pods",   "watch pods",   "patch pods",          "create pods/binding",  "get nodes",
      "list nodes",   "watch nodes", "patch nodes",  "list resourcequotas", "watch resourcequotas", "create events",
      "patch events", "list leases", "watch leases", "get leases",          "create leases",        "patch leases"};
  api_.Put(kube::kNodes, GpuNode("node-1", 1));
  for (const char* name : {"hami-0", "hami-1"}) {
    api_.Put(
        kube::kPods,
        {{"metadata",
          {{"name", name}, {"namespace", "system"}, {"labels", {{"app.kubernetes.io/component", "hami-scheduler"}}}}}});
  }
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof(host) - 1), 0);
  api_.Put(kube::kLeases, {{"metadata", {{"name", "sched"}, {"namespace", "system"}}},
                           {"spec",
                            {{"holderIdentity", std::string(host) + "_1"},
                             {"leaseDurationSeconds", 3600},
                             {"renewTime", "2026-01-01T00:00:00.000000Z"}}}});
  environment_["POD_NAME"] = "hami-0";
  environment_["POD_NAMESPACE"] = "system";
  Serve({"--leader-elect", "--leader-elect-resource-name=sched", "--leader-elect-resource-namespace=system"});
  const auto asked = [&](const char* what) { return api_.Permissions().count(what) > 0; };
  const json::value pod = api_.Put(kube::kPods, PendingPod("p", 3000, 30));
  const json::value large = api_.Put(kube::kPods, PendingPod("large", 30000, 30));
  // The same refusal again, until it is written as one that happened before.
  EXPECT_TRUE(Eventually([&] {
    EXPECT_TRUE(Post("/filter", FilterBody(large, {"node-1"})).at("NodeNames").is_null());
    return asked("patch events");
  }));
  ASSERT_EQ(Post("/filter", FilterBody(pod, {"node-1"})).at("NodeNames"), json::parse(R"(["node-1"])"));
  api_.Add({.kind = kube::FakeFault::Kind::kDropBefore, .path_part = "/binding"});  // what became of it is asked
  EXPECT_NE(Post("/bind", BindBody(pod, "node-1")).at("Error"), "");
  ASSERT_EQ(Post("/filter", FilterBody(*api_.Get(kube::kPods, "default", "p"), {"node-1"})).at("NodeNames"),
            json::parse(R"(["node-1"])"));
  EXPECT_EQ(Post("/bind", BindBody(pod, "node-1")).at("Error"), "");
  EXPECT_TRUE(Eventually([&] { return asked("patch pods") && asked("patch nodes") && asked("watch leases"); }));
  EXPECT_EQ(End(), 0);
  for (const std::string& one : api_.Permissions()) EXPECT_TRUE(documented.count(one) > 0) << one;
}

TEST_F(SchedulerProgram, SigtermAnswersWhoWaitsAndDoesNotWaitForTheApiServer) {
  Write("kubeconfig", Kubeconfig("http://127.0.0.1:1"));
  Serve();
  const json::value pod = api_.Put(kube::kPods, PendingPod("p", 1000, 10));
  auto filtered = std::async(std::launch::async, [&] { return Post("/filter", FilterBody(pod, {"node-1"})); });
  const auto ready = Send(Get("/readyz"), authority_);
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->body, "leading, books incomplete: /filter waits\n");
  ASSERT_TRUE(Eventually([&] { return Scrape().find(kOneRequest) != std::string::npos; }));
  EXPECT_EQ(End(), 0);
  EXPECT_NE(filtered.get().at("Error"), "");
}

// It is silent for longer than the 15 s that a stop waits for what has begun.
TEST_F(SchedulerProgram, SigtermDoesNotWaitForABindingThatTheApiServerDoesNotAnswer) {
  api_.Put(kube::kNodes, GpuNode("node-1", 1));
  Serve({"--kube-timeout=300"});
  const json::value pod = api_.Put(kube::kPods, PendingPod("p", 1000, 10));
  ASSERT_EQ(Post("/filter", FilterBody(pod, {"node-1"})).at("NodeNames"), json::parse(R"(["node-1"])"));
  api_.Add({.kind = kube::FakeFault::Kind::kDelay, .path_part = "/binding", .delay = std::chrono::seconds(20)});
  auto bound = std::async(std::launch::async, [&] { return Post("/bind", BindBody(pod, "node-1")); });
  ASSERT_TRUE(Eventually([&] { return api_.Asked("BIND") > 0; }));
  EXPECT_EQ(End(), 0);
  EXPECT_NE(bound.get().at("Error"), "") << "it was waited for";
}

TEST_F(SchedulerProgram, SighupOpensTheLogFileAnewAndEndsNothing) {
  const std::string log = folder_ + "/scheduler.log";
  Serve({"--logtostderr=false", "--log_file=" + log, "--alsologtostderr"});
  const auto says = [&](const std::string& path, const char* what) {
    return base::ReadFile(path, 1 << 20).value_or("").find(what) != std::string::npos;
  };
  EXPECT_TRUE(says(log, "serves https"));
  std::filesystem::rename(log, log + ".1");
  for (const int signal : {SIGUSR1, SIGUSR2}) child_->Signal(signal);
  EXPECT_TRUE(Eventually([&] { return says(log + ".1", "signal ignored: User defined signal 2"); }));
  child_->Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] { return says(log, "SIGHUP"); })) << "a new file, after the old one was renamed";
  EXPECT_FALSE(says(log, "serves https"));
  EXPECT_NE(Scrape().find("hami_scheduler_leader"), std::string::npos) << "it lives";
  EXPECT_EQ(End(), 0);
  EXPECT_TRUE(says(log, "stopped"));
}

TEST_F(SchedulerProgram, ALogFileThatCannotBeWrittenEndsTheStart) {
  Run({"--device-config-file=" + folder_ + "/device-config.yaml", "--logtostderr=false", "--log_file=/none/x.log"});
  EXPECT_EQ(child_->Wait(kPatience), 1);
  EXPECT_THAT(child_->Log(), HasSubstr("/none/x.log: No such file"));
}

TEST_F(SchedulerProgram, MetricsAreCompressedForAClientThatAcceptsIt) {
  Serve();
  const auto client = net::Client::Make(*net::ParseUrl("http://127.0.0.1:" + metrics_port_), {});
  net::Call call = Get("/metrics");
  call.headers = {{"Accept-Encoding", "gzip"}};
  const auto response = (*client)->Send(call);
  ASSERT_TRUE(response) << response.error().message;
  ASSERT_NE(response->headers.Find("Content-Encoding"), nullptr);
  EXPECT_EQ(*response->headers.Find("Content-Encoding"), "gzip");
  EXPECT_LT(response->body.size(), Scrape().size() / 3);
}

// Nothing but the running program is there to name the functions: as for a program in a container somewhere else.
TEST_F(SchedulerProgram, GoToolPprofShowsWhereItsTimeGoes) {
  std::vector<std::string> names;
  for (int i = 0; i < 300; ++i) {
    names.push_back("node-" + std::to_string(i));
    api_.Put(kube::kNodes, GpuNode(names.back(), 8));
  }
  Serve({"--profiling"});
  ASSERT_TRUE(Eventually([&] { return Scrape().find("hami_scheduler_synced{zone=\"vGPU\"} 1") != std::string::npos; }));
  std::atomic<bool> enough = false;
  std::atomic<int> answered = 0;
  std::thread busy([&] {
    for (int i = 0; !enough; ++i) {
      json::value pod = PendingPod("p" + std::to_string(i), 100, 1);
      pod.at("metadata").as_object()["uid"] = "uid-" + std::to_string(i);
      // Every signal meets some thread, and none of them may fail for it.
      EXPECT_EQ(Post("/filter", FilterBody(pod, names)).at("Error"), "");
      ++answered;
    }
  });
  // A profile has a sample for each 10 ms that the program computes: on a busy machine three seconds may have too few.
  std::optional<std::string> text;
  const auto shows = [&](const char* name) { return text->find(name) != std::string::npos; };
  EXPECT_TRUE(Eventually([&] {
    text = GoToolPprof("-symbolize=remote -top -cum -nodecount=500", main_port_, folder_);
    return !text || (shows("hami::scheduler::Extender::Filter") && shows("hami::net::ServerConnection::ServeOne"));
  })) << *text;
  enough = true;
  busy.join();
  EXPECT_GT(answered, 0);
  EXPECT_EQ(End(), 0);
  if (!text) GTEST_SKIP() << "no Go here, so nobody reads the profile";
  EXPECT_THAT(*text, HasSubstr("Type: cpu"));
}

TEST_F(SchedulerProgram, AProfileDoesNotHoldUpTheEnd) {
  Serve({"--profiling"});
  net::Call call = Get("/debug/pprof/profile?seconds=300");
  call.deadline = net::After(std::chrono::minutes(5));
  auto profile = std::async(std::launch::async, [&] {
    auto answer = Send(call, authority_);
    while (answer && answer->status == 409) answer = Send(call, authority_);  // the question below was there first
    return answer;
  });
  ASSERT_TRUE(Eventually([&] {
    const auto second = Send(Get("/debug/pprof/profile?seconds=1"), authority_);
    return second && second->status == 409;
  }));
  EXPECT_EQ(End(), 0);
  const auto cut = profile.get();
  ASSERT_TRUE(cut) << cut.error().message;
  EXPECT_EQ(cut->status, 200) << cut->body;
}

TEST_F(SchedulerProgram, WhatAnOperatorHasToRepairEndsItWithASentence) {
  Run({"--device-config-file=" + folder_ + "/absent.yaml"});
  EXPECT_EQ(child_->Wait(kPatience), 1);
  EXPECT_THAT(child_->Log(), HasSubstr("/absent.yaml"));
  EXPECT_THAT(child_->Log(), HasSubstr("mount the ConfigMap"));
  Write("device-config.yaml", "nvidia:\n  resourceCountNam: x\n");
  Run({"--device-config-file=" + folder_ + "/device-config.yaml"});
  EXPECT_EQ(child_->Wait(kPatience), 1);
  EXPECT_THAT(child_->Log(), HasSubstr("device-config.yaml:2: nvidia.resourceCountNam"));
  Write("device-config.yaml", DeviceConfig());
  const std::string config = "--device-config-file=" + folder_ + "/device-config.yaml";
  const std::string taken = "127.0.0.1:" + std::to_string(api_.port());
  Run({config, "--http_bind=" + taken});
  EXPECT_EQ(child_->Wait(kPatience), 1);
  EXPECT_THAT(child_->Log(), HasSubstr("--http_bind: can not listen on " + taken));
  EXPECT_THAT(child_->Log(), HasSubstr("name another address"));
  Run({config, "--http_bind=127.0.0.1:0", "--metrics-bind-address=" + taken});
  EXPECT_EQ(child_->Wait(kPatience), 1);
  EXPECT_THAT(child_->Log(), HasSubstr("--metrics-bind-address: can not listen on " + taken));
  Run({config, "--http_bind=127.0.0.1:0", "--cert_file=" + folder_ + "/absent.crt",
       "--key_file=" + folder_ + "/tls.key"});
  EXPECT_EQ(child_->Wait(kPatience), 1);
  EXPECT_THAT(child_->Log(), HasSubstr("--cert_file, --key_file: "));
  EXPECT_THAT(child_->Log(), HasSubstr("/absent.crt"));
  EXPECT_THAT(child_->Log(), HasSubstr("mount the Secret"));
  Run({"--device-config-file="});
  EXPECT_EQ(child_->Wait(kPatience), 2);
  Run({"version"});
  EXPECT_EQ(child_->Wait(kPatience), 0);
  EXPECT_THAT(child_->Log(), HasSubstr("hami-scheduler "));
}

}  // namespace
}  // namespace hami::testcluster
