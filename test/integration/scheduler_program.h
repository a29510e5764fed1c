// SPDX-License-Identifier: Apache-2.0
//
// What tests of the real hami-scheduler stand on: a folder with its files, an API server behind it, HTTPS in front, and
// the program as a child that ends with the test.

#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "kube/testing/fake_apiserver.h"
#include "net/client.h"
#include "net/testing/certificates.h"
#include "test/integration/child.h"
#include "test/integration/objects.h"

namespace hami::testcluster {

inline constexpr auto kPatience = std::chrono::seconds(60);

class SchedulerProgram : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/hami-scheduler-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    Write("device-config.yaml", DeviceConfig());
    Write("kubeconfig", Kubeconfig("http://127.0.0.1:" + std::to_string(api_.port())));
    WriteCertificate(authority_);
    if (const char* options = std::getenv("ASAN_OPTIONS")) environment_["ASAN_OPTIONS"] = options;
  }
  void TearDown() override {
    if (HasFailure() && child_) std::cerr << child_->Log();
    child_.reset();
    std::filesystem::remove_all(folder_);
  }

  // Replaces it as a whole, as the kubelet does.
  void Write(const std::string& name, const std::string& text) {
    const std::string next = folder_ + "/next";
    ASSERT_TRUE(base::WriteNewFile(next, text, 0600));
    std::filesystem::rename(next, folder_ + "/" + name);
  }
  void WriteCertificate(net::TestAuthority& authority) {
    const net::TestCertificate pair = authority.Issue("hami-scheduler", "DNS:localhost,IP:127.0.0.1");
    Write("tls.key", pair.key_pem);
    Write("tls.crt", pair.certificate_pem);
  }
  void Run(const std::vector<std::string>& more) {
    std::vector<std::string> words{HAMI_SCHEDULER_PROGRAM, "--kubeconfig=" + folder_ + "/kubeconfig"};
    words.insert(words.end(), more.begin(), more.end());
    child_ = std::make_unique<Child>(words, environment_, folder_ + "/log");
  }
  // With everything it needs, on ports that the system chooses. MORE comes last and wins.
  void Serve(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"--http_bind=127.0.0.1:0",
                                   "--metrics-bind-address=127.0.0.1:0",
                                   "--scheduler-name=hami-scheduler",
                                   "-v=4",
                                   "--device-config-file=" + folder_ + "/device-config.yaml",
                                   "--cert_file=" + folder_ + "/tls.crt",
                                   "--key_file=" + folder_ + "/tls.key"};
    words.insert(words.end(), more.begin(), more.end());
    Run(words);
    main_port_ = child_->Said("serves https on 127.0.0.1:", ",");
    metrics_port_ = child_->Said("metrics on 127.0.0.1:", "\n");
    ASSERT_FALSE(main_port_.empty() || metrics_port_.empty());
  }

  net::Result<net::Response> Send(const net::Call& call, const net::TestAuthority& authority) const {
    net::ClientOptions options;
    options.tls.ca.data = authority.certificate_pem();
    const auto url = net::ParseUrl("https://127.0.0.1:" + main_port_);
    auto client = net::Client::Make(*url, options);
    if (!client) return tl::unexpected(client.error());
    return (*client)->Send(call);
  }
  static net::Call Get(std::string path) {
    net::Call call;
    call.target = std::move(path);
    return call;
  }
  json::value Post(const std::string& path, const std::string& body) {
    net::Call call = Get(path);
    call.method = "POST";
    call.headers = {{"Content-Type", "application/json"}};
    call.body = body;
    const auto response = Send(call, authority_);
    EXPECT_TRUE(response) << response.error().message;
    if (!response) return {};
    EXPECT_EQ(response->status, 200) << response->body;
    return json::parse(response->body);
  }
  std::string Scrape() const {
    const auto client = net::Client::Make(*net::ParseUrl("http://127.0.0.1:" + metrics_port_), {});
    const auto response = (*client)->Send(Get("/metrics"));
    return response ? response->body : response.error().message;
  }
  static bool Eventually(const std::function<bool()>& condition) {
    const auto end = net::After(kPatience);
    while (!condition()) {
      if (net::Clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
  // SIGTERM; its exit status.
  int End() {
    child_->Signal(SIGTERM);
    return child_->Wait(kPatience).value_or(-1);
  }

  kube::FakeApiServer api_;
  net::TestAuthority authority_;
  std::string folder_;
  Child::Variables environment_{{"PATH", "/usr/bin:/bin"}};
  std::unique_ptr<Child> child_;
  std::string main_port_, metrics_port_;
};

}  // namespace hami::testcluster
