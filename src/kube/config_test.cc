// SPDX-License-Identifier: Apache-2.0

#include "kube/config.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "kube/base64.h"
#include "kube/token.h"

namespace hami::kube {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr char kFull[] = R"(
apiVersion: v1
kind: Config
current-context: second
contexts:
- name: first
  context: {cluster: one, user: a}
- name: second
  context: {cluster: two, user: b, namespace: team}
clusters:
- name: one
  cluster: {server: "http://one:8080"}
- name: two
  cluster:
    server: https://two.example:6443
    certificate-authority: pki/ca.crt
    tls-server-name: kubernetes
users:
- name: a
  user: {token: secret}
- name: b
  user:
    client-certificate-data: Y2VydA==
    client-key: /etc/key.pem
)";

// One cluster, one user with what USER says.
std::string WithUser(const std::string& user) {
  return "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
         "clusters: [{name: k, cluster: {server: 'https://k'}}]\nusers: [{name: u, user: {" +
         user + "}}]\n";
}

base::Result<Config> ReadText(const std::string& text, const std::string& context = {}) {
  return ReadKubeconfig({{text, "/home/me/.kube/config"}}, context);
}

TEST(Kubeconfig, GivenCurrentContext_ThenItsClusterUserAndNamespaceAreUsed) {
  const auto config = ReadText(kFull);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->server.Authority(), "two.example:6443");
  EXPECT_TRUE(config->server.tls);
  EXPECT_EQ(config->tls.ca.file, "/home/me/.kube/pki/ca.crt");
  EXPECT_EQ(config->tls.server_name, "kubernetes");
  EXPECT_EQ(config->tls.certificate.data, "cert");
  EXPECT_EQ(config->tls.key.file, "/etc/key.pem");
  EXPECT_EQ(config->ns, "team");
  EXPECT_TRUE(config->token.empty());
}

TEST(Kubeconfig, GivenAnotherContextWhenAskedForThenItIsUsed) {
  const auto config = ReadText(kFull, "first");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->token, "secret");
  EXPECT_FALSE(config->server.tls);
  EXPECT_FALSE(ReadText(kFull, "third"));
}

TEST(Kubeconfig, GivenSeveralFilesWhenReadThenTheFirstThatNamesAThingWins) {
  const auto config = ReadKubeconfig({{"users: [{name: b, user: {token: mine}}]", ""}, {kFull, ""}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->token, "mine");
  EXPECT_EQ(config->ns, "team");
}

TEST(Kubeconfig, GivenAUserThatNeedsAProgramWhenReadThenTheRefusalSaysSo) {
  for (const char* user :
       {"exec: {command: aws}", "exec: {apiVersion: client.authentication.k8s.io/v1alpha1, command: a}",
        "exec: {apiVersion: client.authentication.k8s.io/v1}", "exec: aws",
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: a, env: [{value: x}]}",
        "auth-provider: {name: gcp}"}) {
    const auto config = ReadText(WithUser(user));
    ASSERT_FALSE(config) << user;
    EXPECT_EQ(config.error().message.rfind("/home/me/.kube/config:4: ", 0), 0U) << config.error().message;
  }
  EXPECT_NE(ReadText(WithUser("auth-provider: {name: gcp}")).error().hint.find("exec"), std::string::npos);
  EXPECT_NE(ReadText(WithUser("exec: {command: aws}")).error().hint.find("update-kubeconfig"), std::string::npos);
}

// What is wrong with another context's user is nobody's business.
TEST(Kubeconfig, GivenAnotherUserThatCannotBeUsedWhenReadThenItIsNotLookedAt) {
  const std::string other = "- name: other\n  user: {exec: {command: aws}, auth-provider: {name: gcp}}\n";
  EXPECT_TRUE(ReadText(std::string(kFull) + other));
}

TEST(Kubeconfig, GivenImpersonationWhenReadThenEveryRequestSaysAsWhom) {
  const auto config = ReadText(WithUser(
      "token: t, as: jane, as-uid: '7', as-groups: [dev, ops], as-user-extra: {Scopes/a: [view, edit], b: c}"));
  ASSERT_TRUE(config) << config.error().message;
  const net::Headers expected{{"Impersonate-User", "jane"},
                              {"Impersonate-Uid", "7"},
                              {"Impersonate-Group", "dev"},
                              {"Impersonate-Group", "ops"},
                              {"Impersonate-Extra-scopes%2Fa", "view"},
                              {"Impersonate-Extra-scopes%2Fa", "edit"},
                              {"Impersonate-Extra-b", "c"}};
  EXPECT_EQ(config->impersonation, expected);
  const auto nobody = ReadText(WithUser("token: t, as-groups: [dev]"));
  ASSERT_FALSE(nobody);
  EXPECT_NE(nobody.error().message.find("need 'as'"), std::string::npos);
}

TEST(Kubeconfig, GivenAProxyWhenReadThenItIsHttpOrRefused) {
  const auto with = [](const std::string& proxy) {
    return ReadText(
        "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\n"
        "clusters: [{name: k, cluster: {server: 'https://k', proxy-url: '" +
        proxy + "'}}]\n");
  };
  const auto config = with("http://me:p%40ss@proxy.example:3128");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->proxy->url.host, "proxy.example");
  EXPECT_EQ(config->proxy->url.port, 3128);
  EXPECT_EQ(config->proxy->authorization, "Basic " + Base64Encode("me:p@ss"));
  EXPECT_EQ(with("http://proxy")->proxy->authorization, "");
  for (const char* wrong :
       {"socks5://proxy:1080", "https://proxy:443", "proxy:3128", "http://", "http://a:%zz@proxy"}) {
    const auto refused = with(wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().message.rfind("/home/me/.kube/config:3: proxy-url: ", 0), 0U) << refused.error().message;
  }
}

TEST(Kubeconfig, GivenMembersThatSayNothingWhenReadThenTheyAreNotThere) {
  const auto config = ReadText(WithUser("exec: null, auth-provider: ~, as: null, token: t"));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->token, "t");
  const auto nobody = ReadText(
      "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
      "clusters: [{name: k, cluster: {server: 'https://x'}}]\nusers:\n- name: u\n  user:\n");
  ASSERT_TRUE(nobody) << nobody.error().message;
  EXPECT_EQ(nobody->token, "");
}

TEST(Kubeconfig, GivenAnyFormOfABooleanWhenReadThenItIsThatOrAnError) {
  const auto insecure = [](const std::string& value) {
    return ReadText(
        "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters:\n- name: k\n  cluster:\n" +
        ("    server: https://x\n    insecure-skip-tls-verify: " + value) + "\n");
  };
  for (const char* value : {"true", "True", "yes"}) EXPECT_TRUE(insecure(value)->tls.insecure) << value;
  for (const char* value : {"false", "False", "no", "null"}) EXPECT_FALSE(insecure(value)->tls.insecure) << value;
  ASSERT_FALSE(insecure("maybe"));
  EXPECT_EQ(insecure("maybe").error().message,
            "/home/me/.kube/config:7: insecure-skip-tls-verify: must be true or false");
}

TEST(Kubeconfig, GivenHalfOrDamagedCredentialsWhenReadThenTheyAreRefused) {
  EXPECT_FALSE(ReadText(WithUser("client-certificate: /a")));
  EXPECT_FALSE(ReadText(WithUser("client-certificate-data: '!', client-key-data: '!'")));
  EXPECT_TRUE(ReadText(WithUser("tokenFile: t")));
  EXPECT_EQ(ReadText(WithUser("tokenFile: t"))->token_file, "/home/me/.kube/t");
}

TEST(Kubeconfig, GivenAMistakeWhenReadThenTheErrorNamesFileAndLine) {
  const auto error = [](const std::string& text) { return ReadText(text).error().message; };
  EXPECT_EQ(error("a: b\n- c\n").rfind("/home/me/.kube/config:2: ", 0), 0U);
  EXPECT_EQ(error("- a\n"), "/home/me/.kube/config:1: a kubeconfig must be a mapping");
  EXPECT_EQ(error("a: b\n"), "/home/me/.kube/config: no current-context");
  EXPECT_EQ(error("current-context: c\n"), "/home/me/.kube/config: no context named 'c'");
  EXPECT_EQ(error("current-context: c\ncontexts:\n- name: c\n  context: {cluster: k}\nclusters:\n- name: k\n"
                  "  cluster:\n    server: ftp://x\n")
                .rfind("/home/me/.kube/config:8: server: ", 0),
            0U);
  EXPECT_EQ(error(WithUser("exec: {command: aws}")).rfind("/home/me/.kube/config:4: exec: apiVersion", 0), 0U);
  EXPECT_EQ(error(WithUser("client-certificate-data: '!', client-key: k")),
            "/home/me/.kube/config:4: client-certificate-data is not valid base64");
  const auto second = ReadKubeconfig({{"a: b\n", "/one"}, {"a: [", "/two"}});
  EXPECT_EQ(second.error().message.rfind("/two:1: ", 0), 0U) << second.error().message;
  const auto neither = ReadKubeconfig({{"a: b\n", "/one"}, {"a: b", "/two"}});
  EXPECT_EQ(neither.error().message, "/one, /two: no current-context");
}

TEST(Kubeconfig, GivenDataInTheFileWhenReadThenItSaysWhereItIsFrom) {
  EXPECT_EQ(ReadText(kFull)->tls.certificate.file, "client-certificate-data of /home/me/.kube/config");
}

TEST(Kubeconfig, GivenNonsenseWhenReadThenItIsAnError) {
  for (const char* text : {"", "[", "a: [", "- a", "current-context: c", "contexts: 5\ncurrent-context: c",
                           "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]",
                           "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\n"
                           "clusters: [{name: k, cluster: {server: 'ftp://x'}}]"}) {
    EXPECT_FALSE(ReadText(text)) << text;
  }
}

class Sources : public ::testing::Test {
 protected:
  Sources() {
    std::string path = ::testing::TempDir() + "/hami-config-XXXXXX";
    folder_ = ::mkdtemp(path.data());
    sources_.environment = [this](const std::string& name) {
      const auto found = environment_.find(name);
      return found == environment_.end() ? std::nullopt : std::optional(found->second);
    };
    sources_.service_account = folder_ / "account";
  }
  ~Sources() override { fs::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path;
  }

  fs::path folder_;
  std::map<std::string, std::string> environment_;
  ConfigSources sources_;
};

TEST_F(Sources, GivenNothingWhenLookedForThenTheErrorSaysWhatToDo) {
  const auto config = FindConfig(sources_);
  ASSERT_FALSE(config);
  EXPECT_FALSE(config.error().hint.empty());
  EXPECT_EQ(config.error().message.find("KUBECONFIG"), std::string::npos);
}

TEST_F(Sources, GivenVariableNamingNoFile_WhenLookedFor_ThenErrorNamesIt) {
  environment_["KUBECONFIG"] = (folder_ / "missing").string();
  const auto config = FindConfig(sources_);
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("KUBECONFIG=" + (folder_ / "missing").string()), std::string::npos);
}

TEST_F(Sources, GivenAServiceAccountWhenInAPodThenItIsUsed) {
  Write("account/token", "t");
  Write("account/namespace", "kube-system\n");
  environment_ = {{"KUBERNETES_SERVICE_HOST", "fd00::1"}, {"KUBERNETES_SERVICE_PORT", "443"}};
  const auto config = FindConfig(sources_);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->server.host, "fd00::1");
  EXPECT_TRUE(config->server.tls);
  EXPECT_EQ(config->ns, "kube-system");
  EXPECT_EQ(config->token_file, folder_ / "account/token");
  EXPECT_EQ(config->tls.ca.file, folder_ / "account/ca.crt");
}

TEST_F(Sources, GivenSeveralPlaces_ThenTheirOrderIsAskedEnvironmentHome) {
  environment_["HOME"] = folder_;
  Write(".kube/config", WithUser("token: home"));
  EXPECT_EQ(FindConfig(sources_)->token, "home");
  environment_["KUBECONFIG"] = (folder_ / "missing").string() + ":" + Write("env", WithUser("token: environment"));
  EXPECT_EQ(FindConfig(sources_)->token, "environment");
  sources_.kubeconfig = Write("asked", WithUser("token: asked"));
  EXPECT_EQ(FindConfig(sources_)->token, "asked");
  sources_.kubeconfig = folder_ / "missing";
  EXPECT_FALSE(FindConfig(sources_));
}

TEST_F(Sources, GivenOnlyMissingKubeconfig_WhenLookedFor_ThenErrorNamesIt) {
  environment_["HOME"] = folder_ / "nobody";
  environment_.erase("KUBERNETES_SERVICE_HOST");
  environment_["KUBECONFIG"] = "/etc/typo.conf";
  const auto config = FindConfig(sources_);
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("KUBECONFIG=/etc/typo.conf names no file"), std::string::npos)
      << config.error().message;
}

TEST_F(Sources, GivenTokenFile_WhenChanged_ThenNewTokenAfterAWhileOrRefusal) {
  const std::string file = Write("token", "one\n");
  TokenSource source("", file);
  const net::Deadline start = net::Clock::now();
  EXPECT_EQ(source.Get(start), "one");
  Write("token", "two");
  EXPECT_EQ(source.Get(start + 1s), "one");
  EXPECT_TRUE(source.Refused("one", start + 1s));
  EXPECT_EQ(source.Get(start + 1s), "two");
  EXPECT_FALSE(source.Refused("two", start + 1s));
  Write("token", "three");
  EXPECT_EQ(source.Get(start + 60s), "three");
  fs::remove(file);
  EXPECT_EQ(source.Get(start + 120s), "three");
  EXPECT_FALSE(TokenSource("", file).Get(start));
  EXPECT_EQ(TokenSource("fixed", "").Get(start), "fixed");
  TokenSource both("fixed", file);
  EXPECT_EQ(both.Get(start), "fixed") << "while there is no file";
  Write("token", "four");
  EXPECT_EQ(both.Get(start + 60s), "four");
  Write("token", "five");
  EXPECT_TRUE(both.Refused("four", start + 61s));
  EXPECT_EQ(both.Get(start + 61s), "five");
}

TEST(Base64, GivenAnyBytesWhenEncodedAndDecodedThenTheyAreTheSame) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(Base64Decode(Base64Encode(text)), text);
    text += static_cast<char>(i * 37);
  }
  EXPECT_EQ(Base64Encode("foob"), "Zm9vYg==");
  EXPECT_EQ(Base64Decode("Zm9v\nYmFy"), "foobar");
}

TEST(Base64, GivenTextThatIsNoneWhenDecodedThenNothing) {
  for (const char* text : {"Z", "Zm9", "Zm9v!", "====", "Z===", "Zg==Zg==", "Zm=v"}) {
    EXPECT_FALSE(Base64Decode(text)) << text;
  }
}

}  // namespace
}  // namespace hami::kube
