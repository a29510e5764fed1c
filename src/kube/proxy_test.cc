// SPDX-License-Identifier: Apache-2.0

#include "kube/proxy.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace hami::kube {
namespace {

net::Url Server(const std::string& text) { return *net::ParseUrl(text); }

TEST(GoesDirectly, GivenAListThenAsGosProgramsReadIt) {
  struct Case {
    const char* server;
    const char* list;
    bool direct;
  };
  const Case cases[] = {
      {"https://k.example", "", false},
      {"https://k.example", "*", true},
      {"https://k.example", "example", true},
      {"https://k.example", " .EXAMPLE ,x", true},
      {"https://k.example", "*.example", true},
      {"https://example", ".example", false},
      {"https://example", "example", true},
      {"https://kexample", "example", false},
      {"https://k.example:6443", "k.example:6443", true},
      {"https://k.example:6443", "k.example:443", false},
      {"https://10.96.0.1", "10.96.0.0/12", true},
      {"https://10.112.0.1", "10.96.0.0/12", false},
      {"https://10.96.0.1", "10.96.0.1", true},
      {"https://10.96.0.1:443", "10.96.0.1:443", true},
      {"https://10.96.0.1", "96.0.1", false},
      {"https://[fd00::1]:6443", "fd00::/8", true},
      {"https://[fd00::1]:6443", "fd00:0::1", true},
      {"https://[fd00::1]:6443", "[fd00::1]:6443", true},
      {"https://[fd00::1]:6443", "[fd00::1]:443", false},
      {"https://10.0.0.1", "10.0.0.0/33,10.0.0.0/-1,10.0.0.0/,/,/8,[,:,[]", false},
      {"https://10.0.0.1", "0.0.0.0/0", true},
      {"https://localhost:6443", "", true},
      {"https://127.3.0.1:6443", "", true},
      {"https://[::1]:6443", "", true},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(GoesDirectly(Server(one.server), one.list), one.direct) << one.server << " | " << one.list;
  }
}

TEST(ProxyOfEnvironment, GivenVariablesThenTheRightOneIsTaken) {
  std::map<std::string, std::string> variables;
  const auto of = [&](const std::string& server) {
    return ProxyOfEnvironment(Server(server), [&](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
    });
  };
  EXPECT_FALSE(of("https://k")->has_value());
  variables = {{"HTTPS_PROXY", "http://me@p:1"}, {"https_proxy", "http://q:2"}, {"HTTP_PROXY", "r"}};
  EXPECT_EQ((*of("https://k"))->url.port, 1);
  EXPECT_FALSE((*of("https://k"))->authorization.empty());
  EXPECT_EQ((*of("http://k"))->url.host, "r") << "without a scheme";
  variables["HTTPS_PROXY"] = "";
  EXPECT_EQ((*of("https://k"))->url.port, 2);
  variables["no_proxy"] = "k";
  EXPECT_FALSE(of("https://k")->has_value());
  variables["HTTPS_PROXY"] = "socks5://p:1";
  EXPECT_FALSE(of("https://k")->has_value()) << "what is not used is not judged";
  const auto refused = of("https://other");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message.rfind("HTTPS_PROXY: ", 0), 0U) << refused.error().message;
}

}  // namespace
}  // namespace hami::kube
