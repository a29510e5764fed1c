// SPDX-License-Identifier: Apache-2.0

#include "kube/exec_credential.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/fd.h"
#include "base/json.h"
#include "kube/client.h"
#include "kube/testing/fake_apiserver.h"
#include "net/testing/certificates.h"

namespace hami::kube {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
namespace json = base::json;

constexpr const char* kV1 = "client.authentication.k8s.io/v1";

std::string Answer(const std::string& status, const std::string& version = kV1) {
  return R"({"apiVersion":")" + version + R"(","kind":"ExecCredential","status":)" + status + "}";
}

TEST(ReadExecCredentialTest, ATokenACertificateAndTheirEndAreRead) {
  const auto token = ReadExecCredential(Answer(R"({"token":"t","expirationTimestamp":"2026-11-26T14:00:00+01:00"})",
                                               "client.authentication.k8s.io/v1beta1"),
                                        "client.authentication.k8s.io/v1beta1");
  ASSERT_TRUE(token) << token.error().message;
  EXPECT_EQ(token->token, "t");
  EXPECT_EQ(FormatTime(*token->expires), "2026-11-26T13:00:00Z");
  const auto pair = ReadExecCredential(Answer(R"({"clientCertificateData":"c","clientKeyData":"k"})"), kV1);
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->certificate + pair->key, "ck");
  EXPECT_FALSE(pair->expires);
  const auto far = ReadExecCredential(Answer(R"({"token":"t","expirationTimestamp":"9999-12-31T00:00:00Z"})"), kV1);
  EXPECT_GT(*far->expires, std::chrono::system_clock::now() + 24h * 365 * 100);
}

TEST(ReadExecCredentialTest, WhatIsNoCredentialIsRefusedWithTheReason) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "no JSON object"},
      {"[]", "no JSON object"},
      {"error: please log in", "no JSON object"},
      {Answer("{}", "client.authentication.k8s.io/v1alpha1"),
       "not an ExecCredential of client.authentication.k8s.io/v1"},
      {R"({"apiVersion":"client.authentication.k8s.io/v1","kind":"Status"})", "but Status of"},
      {R"({"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential"})", "no status"},
      {Answer("{}"), "neither a token nor"},
      {Answer(R"({"clientCertificateData":"c"})"), "without clientKeyData"},
      {Answer(R"({"token":"a\r\nX: y"})"), "line breaks"},
      {Answer(R"({"token":"a","expirationTimestamp":"soon"})"), "no time: soon"}};
  for (const auto& [text, why] : cases) {
    const auto read = ReadExecCredential(text, kV1);
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(read.error().message, HasSubstr(why)) << text;
  }
}

// A program that counts how often it is asked.
struct Counted {
  base::Result<Credential> answer = Credential{"one", "", "", std::nullopt};
  WallTime wall = std::chrono::system_clock::from_time_t(1'800'000'000);
  std::atomic<int> asked = 0;
  ExecSource source{[this] {
                      ++asked;
                      return answer;
                    },
                    [this] { return wall; }};
  net::Deadline now = net::Clock::now();
};

TEST(ExecSourceTest, ACredentialIsKeptUntilShortlyBeforeItsEnd) {
  Counted program;
  program.answer->expires = program.wall + 600s;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(program.source.Get(program.now)->token, "one");
  EXPECT_EQ(program.asked, 1);
  program.wall += 590s;
  program.answer = Credential{"two", "", "", program.wall + 600s};
  EXPECT_EQ(program.source.Get(program.now + 590s)->token, "two") << "before the old one ends on its way";
  EXPECT_EQ(program.asked, 2);
}

TEST(ExecSourceTest, WithoutAnEndItIsKeptUntilItIsRefused) {
  Counted program;
  const auto first = program.source.Get(program.now);
  EXPECT_EQ(program.source.Get(program.now + 24h * 365)->token, "one");
  EXPECT_EQ(program.asked, 1);
  program.answer->token = "two";
  EXPECT_TRUE(program.source.Refused(*first, program.now + 1h));
  EXPECT_EQ(program.source.Get(program.now + 1h)->token, "two");
  EXPECT_EQ(program.asked, 2);
  EXPECT_TRUE(program.source.Refused(*first, program.now + 1h)) << "another call has had it replaced already";
  EXPECT_EQ(program.asked, 2);
}

TEST(ExecSourceTest, AServerThatRefusesEverythingStartsNoStorm) {
  Counted program;
  const auto first = program.source.Get(program.now);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(program.source.Refused(*first, program.now + 1h));
  EXPECT_EQ(program.asked, 2);
}

TEST(ExecSourceTest, AFailureIsToldAndNotRepeatedAtOnce) {
  Counted program;
  program.answer = base::Fail("log in first");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(program.source.Get(program.now).error().message, "log in first");
  EXPECT_EQ(program.asked, 1);
  program.answer = Credential{"one", "", "", std::nullopt};
  EXPECT_EQ(program.source.Get(net::Clock::now() + 6s)->token, "one");
}

TEST(ExecSourceTest, AFailureBeforeTheEndLeavesTheOldOne) {
  Counted program;
  program.answer->expires = program.wall + 600s;
  (void)program.source.Get(program.now);
  program.wall += 590s;
  program.answer = base::Fail("not now");
  EXPECT_EQ(program.source.Get(program.now + 590s)->token, "one");
  program.wall += 10s;
  EXPECT_EQ(program.source.Get(program.now + 600s).error().message, "not now");
}

// A kubeconfig whose user is a script in a folder of its own.
class ExecPluginTest : public testing::Test {
 protected:
  ExecPluginTest() {
    std::string pattern = testing::TempDir() + "/exec-XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  ~ExecPluginTest() override { std::filesystem::remove_all(folder_); }
  void Script(const std::string& body) const {
    const std::string path = folder_ + "/plugin";
    std::ofstream(path) << "#!/bin/sh\n" << body;
    ::chmod(path.c_str(), 0700);
  }
  std::string Text(const std::string& name) const {
    return base::ReadFile(folder_ + "/" + name, 1 << 20).value_or("(none)");
  }
  base::Result<Config> Read(const std::string& more) const {
    return ReadKubeconfig(
        {{"current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nclusters:\n- name: k\n  "
          "cluster:\n"
          "    server: https://k:6443\n    certificate-authority-data: Y2E=\n    extensions:\n"
          "    - {name: client.authentication.k8s.io/exec, extension: {audience: a, port: 7, on: true, text: '8'}}\n"
          "users:\n- name: u\n  user:\n    exec:\n      apiVersion: client.authentication.k8s.io/v1\n"
          "      command: ./plugin\n      args: [get, --a b]\n      env: [{name: FOLDER, value: " +
              folder_ + "}]\n" + more,
          folder_ + "/config"}});
  }
  // As the user whom the script names, to SERVER.
  std::unique_ptr<Client> Connect(const FakeApiServer& server) const {
    auto config = Read("      interactiveMode: Never\n");
    EXPECT_TRUE(config) << config.error().message;
    config->server = server.config().server;
    return *Client::Make(*config, {});
  }

  std::string folder_;
};

TEST_F(ExecPluginTest, IsAskedAsTheKubeconfigSays) {
  Script("printf '%s|' \"$@\" > $FOLDER/words; echo \"$KUBERNETES_EXEC_INFO\" > $FOLDER/info; echo '" +
         Answer(R"({"token":"t"})") + "'");
  const auto config = Read("      provideClusterInfo: true\n      interactiveMode: IfAvailable\n");
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_TRUE(config->exec);
  const auto credential = AskPlugin(*config->exec);
  ASSERT_TRUE(credential) << credential.error().message;
  EXPECT_EQ(credential->token, "t");
  EXPECT_EQ(Text("words"), "get|--a b|");
  const json::value info = json::parse(Text("info"));
  EXPECT_EQ(info, json::parse(R"({"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{
    "interactive":false,"cluster":{"server":"https://k:6443","certificate-authority-data":"Y2E=",
    "config":{"audience":"a","port":7,"on":true,"text":"8"}}}})"));
}

TEST_F(ExecPluginTest, WhatItWritesToStandardErrorIsInTheError) {
  Script("echo 'token has expired: run aws sso login' >&2; exit 255");
  const auto config = Read("      installHint: see https://example.org/\n");
  ASSERT_TRUE(config) << config.error().message;
  const auto credential = AskPlugin(*config->exec);
  ASSERT_FALSE(credential);
  EXPECT_THAT(credential.error().message, StartsWith(folder_ + "/config:"));
  EXPECT_THAT(credential.error().message, HasSubstr("exit status 255: token has expired: run aws sso login"));
  EXPECT_EQ(credential.error().hint, "see https://example.org/");
  std::filesystem::remove(folder_ + "/plugin");
  EXPECT_THAT(AskPlugin(*config->exec).error().message, HasSubstr("plugin: No such file"));
}

TEST_F(ExecPluginTest, ACallUsesItsTokenAndARefusedOneIsAskedForAnew) {
  FakeOptions options;
  options.token = "new";
  const FakeApiServer server(options);
  Script(
      "echo asked >> $FOLDER/asked; if [ -e $FOLDER/fresh ]; then t=new; else t=old; touch $FOLDER/fresh; fi\n"
      "sleep 0.1; echo '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\","
      "\"status\":{\"token\":\"'$t'\"}}'");
  const auto client = Connect(server);
  const auto refused = client->Get(kNodes, "", "n");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().reason, Reason::kUnauthorized) << "the program rests for some seconds between two runs";
  std::this_thread::sleep_for(5100ms);
  const auto answer = client->Get(kNodes, "", "n");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().reason, Reason::kNotFound) << answer.error().message;
  EXPECT_EQ(Text("asked"), "asked\nasked\n");
}

TEST_F(ExecPluginTest, ManyCallsAtOnceAskOnce) {
  FakeOptions options;
  options.token = "t";
  const FakeApiServer server(options);
  Script("echo asked >> $FOLDER/asked; sleep 0.3; echo '" + Answer(R"({"token":"t"})") + "'");
  const auto client = Connect(server);
  std::vector<std::thread> callers;
  std::atomic<int> heard = 0;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      const auto answer = client->Get(kNodes, "", "n");
      if (!answer && answer.error().reason == Reason::kNotFound) ++heard;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(heard, 8);
  EXPECT_EQ(Text("asked"), "asked\n");
}

TEST_F(ExecPluginTest, AClientCertificateIsUsedForTheConnection) {
  net::TestAuthority authority;
  const net::TestCertificate pair = authority.Issue("localhost", "DNS:localhost,IP:127.0.0.1");
  ASSERT_TRUE(base::WriteNewFile(folder_ + "/tls.crt", pair.certificate_pem, 0600));
  ASSERT_TRUE(base::WriteNewFile(folder_ + "/tls.key", pair.key_pem, 0600));
  FakeOptions options;
  options.tls = net::TlsFiles{folder_ + "/tls.crt", folder_ + "/tls.key"};
  const FakeApiServer server(options);
  const auto ask = [&](const std::string& certificate, const std::string& key) {
    const json::object status{{"clientCertificateData", certificate}, {"clientKeyData", key}};
    std::ofstream(folder_ + "/answer") << Answer(json::serialize(status));
    Script("cat $FOLDER/answer");
    auto config = Read("");
    config->server = server.config().server;
    config->tls.ca = {"", authority.certificate_pem()};
    return (*Client::Make(*config, {}))->Get(kNodes, "", "n").error();
  };
  EXPECT_EQ(ask(pair.certificate_pem, pair.key_pem).reason, Reason::kNotFound);
  const Error error = ask("no certificate", pair.key_pem);
  EXPECT_EQ(error.reason, Reason::kUnauthorized);
  EXPECT_THAT(error.message, HasSubstr("clientCertificateData of the exec program"));
}

TEST_F(ExecPluginTest, WhatCannotBeRunHereIsRefusedWithTheRemedy) {
  const auto always = Read("      interactiveMode: Always\n");
  ASSERT_FALSE(always);
  EXPECT_THAT(always.error().message, HasSubstr("must talk to somebody"));
  EXPECT_THAT(always.error().hint, HasSubstr("IfAvailable"));
  const auto token = Read("    token: t\n");
  ASSERT_TRUE(token) << token.error().message;
  EXPECT_FALSE(token->exec) << "a token is taken first, as by client-go";
}

}  // namespace
}  // namespace hami::kube
