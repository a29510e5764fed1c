// SPDX-License-Identifier: Apache-2.0

#include "page/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "net/server.h"

namespace hami::page {
namespace {

namespace json = base::json;
using std::chrono::seconds;

TEST(Gate, AnswersAreKeptForAWhileAndNeverAFailure) {
  int asked = 0;
  Access answer = Access::kUnreachable;
  Gate gate([&](const std::string& token) {
    EXPECT_EQ(token, "t");
    ++asked;
    return answer;
  });
  const std::string header = "Bearer  t ";
  const net::Deadline now{};
  EXPECT_EQ(gate.Check(&header, now), Access::kUnreachable);
  answer = Access::kAllowed;
  EXPECT_EQ(gate.Check(&header, now), Access::kAllowed);
  answer = Access::kForbidden;
  EXPECT_EQ(gate.Check(&header, now + seconds(59)), Access::kAllowed);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(gate.Check(&header, now + seconds(61)), Access::kForbidden);
  answer = Access::kAllowed;
  EXPECT_EQ(gate.Check(&header, now + seconds(67)), Access::kAllowed);
}

TEST(Gate, WithoutABearerTokenNobodyIsAsked) {
  Gate gate([](const std::string&) {
    ADD_FAILURE();
    return Access::kAllowed;
  });
  EXPECT_EQ(gate.Check(nullptr), Access::kNoToken);
  for (const std::string bad : {"", "Bearer", "Bearer ", "Basic dTpw", "bearer\tx"}) {
    EXPECT_EQ(gate.Check(&bad), Access::kNoToken) << bad;
  }
  const std::string huge = "Bearer " + std::string(Gate::kMostTokenBytes + 1, 'x');
  EXPECT_EQ(gate.Check(&huge), Access::kUnknownToken);
}

// An API server that knows one token, and whose user may get one path.
class ReviewTest : public testing::Test {
 protected:
  ReviewTest() {
    auto server = net::Server::Start({}, [this](const net::Request& request) { return Answer(request); });
    server_ = std::move(*server);
    kube::Config config;
    config.server.host = "127.0.0.1";
    config.server.port = server_->port();
    client_ = std::move(*kube::Client::Make(config));
  }
  net::Response Answer(const net::Request& request) {
    const json::value body = *base::ParseJson(request.body);
    json::object answer = body.as_object();
    if (request.target == "/apis/authentication.k8s.io/v1/tokenreviews") {
      if (body.at("spec").at("token") != "good") {
        answer["status"] = {{"authenticated", false}};
      } else {
        answer["status"] = {{"authenticated", true}, {"user", {{"username", "anna"}, {"groups", json::array{"g"}}}}};
      }
    } else if (request.target == "/apis/authorization.k8s.io/v1/subjectaccessreviews") {
      EXPECT_EQ(body.at("spec").at("user"), "anna");
      EXPECT_EQ(body.at("spec").at("groups"), json::array{"g"});
      EXPECT_EQ(body.at("spec").at("nonResourceAttributes").at("verb"), "get");
      answer["status"] = {{"allowed", body.at("spec").at("nonResourceAttributes").at("path") == "/v1/state"}};
    } else {
      return {404, {}, "{}", {}};
    }
    return {201, {{"Content-Type", "application/json"}}, json::serialize(answer), {}};
  }
  std::unique_ptr<net::Server> server_;
  std::unique_ptr<kube::Client> client_;
};

TEST_F(ReviewTest, TheApiServerSaysWhoAndWhether) {
  EXPECT_EQ(ReviewBy(*client_, "/v1/state")("good"), Access::kAllowed);
  EXPECT_EQ(ReviewBy(*client_, "/other")("good"), Access::kForbidden);
  EXPECT_EQ(ReviewBy(*client_, "/v1/state")("bad"), Access::kUnknownToken);
  server_->Stop(std::chrono::milliseconds(1));
  EXPECT_EQ(ReviewBy(*client_, "/v1/state")("good"), Access::kUnreachable);
}

}  // namespace
}  // namespace hami::page
