// SPDX-License-Identifier: Apache-2.0

#include "scheduler/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/base64.h"
#include "kube/testing/json_patch.h"
#include "sched/testing/samples.h"

namespace hami::scheduler {
namespace {

namespace json = base::json;
using testing::HasSubstr;

class AdmissionReview : public testing::Test {
 protected:
  AdmissionAnswer Answer(const json::value& review) { return AnswerText(json::serialize(review)); }
  AdmissionAnswer AnswerText(const std::string& body) {
    return AnswerReview(body, [this](const json::value& pod, const PodReview& review) {
      ++asked_;
      namespace_ = review.ns;
      user_ = review.user;
      changes_ = review.before != nullptr;
      return sched::Admit(pod, {"hami-scheduler", true}, vendors_,
                          [&](const auto& traits) { return quotas_.Rooms(review.ns, traits); });
    });
  }
  static json::object Request(const json::value& pod) {
    return {{"uid", "review-1"},
            {"kind", {{"group", ""}, {"version", "v1"}, {"kind", "Pod"}}},
            {"namespace", "team"},
            {"operation", "CREATE"},
            {"object", pod}};
  }
  static json::value Review(const json::object& request, const char* version = "admission.k8s.io/v1") {
    return {{"kind", "AdmissionReview"}, {"apiVersion", version}, {"request", request}};
  }
  static json::value GpuPod() {
    return json::parse(R"({"kind":"Pod","metadata":{"generateName":"job-"},"spec":{"containers":[
        {"name":"main","resources":{"limits":{"nvidia.com/gpumem":"3000"}}}]}})");
  }

  static std::vector<std::string> Warnings(const AdmissionAnswer& answer) {
    std::vector<std::string> warnings;
    const json::value document = json::parse(answer.body);
    for (const json::value& warning : document.at("response").at("warnings").as_array()) {
      warnings.emplace_back(warning.as_string().c_str());
    }
    return warnings;
  }

  device::Vendors vendors_ = [] {
    device::NvidiaConfig config = sched::testing::DefaultNvidia();
    config.default_count = 1;
    return sched::testing::NvidiaOnly(config);
  }();
  sched::QuotaBooks quotas_{vendors_};
  int asked_ = 0;
  std::string namespace_;
  std::string user_;
  bool changes_ = false;
};

TEST_F(AdmissionReview, AGpuPodIsPatchedAndTheUidComesBack) {
  for (const char* version : {"admission.k8s.io/v1", "admission.k8s.io/v1beta1"}) {
    const AdmissionAnswer answer = Answer(Review(Request(GpuPod()), version));
    EXPECT_EQ(answer.http_status, 200);
    EXPECT_TRUE(answer.allowed);
    EXPECT_TRUE(answer.patched);
    EXPECT_EQ(namespace_, "team");
    const json::value document = json::parse(answer.body);
    EXPECT_EQ(document.at("kind"), "AdmissionReview");
    EXPECT_EQ(document.at("apiVersion"), version);
    const json::object& response = document.at("response").as_object();
    EXPECT_EQ(response.at("uid"), "review-1");
    EXPECT_EQ(response.at("allowed"), true);
    EXPECT_EQ(response.at("patchType"), "JSONPatch");
    EXPECT_EQ(response.if_contains("status"), nullptr);
    const auto patch = kube::Base64Decode(std::string(response.at("patch").as_string()));
    ASSERT_TRUE(patch);
    json::value changed = GpuPod();
    ASSERT_TRUE(kube::ApplyJsonPatch(changed, json::parse(*patch)));
    EXPECT_EQ(changed.at("spec").at("schedulerName"), "hami-scheduler");
    EXPECT_EQ(changed.at("spec").at("containers").at(0).at("resources").at("limits").at("nvidia.com/gpu"), "1");
  }
}

TEST_F(AdmissionReview, APodWithoutDevicesIsAllowedWithoutAPatch) {
  const AdmissionAnswer answer = Answer(Review(Request(json::parse(R"({"spec":{"containers":[{"name":"c"}]}})"))));
  EXPECT_EQ(answer.body, R"({"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",)"
                         R"("response":{"uid":"review-1","allowed":true}})");
  EXPECT_FALSE(answer.patched);
}

TEST_F(AdmissionReview, ADenialCarriesItsCodeAndSentence) {
  json::value pod = GpuPod();
  pod.at("spec").as_object()["nodeName"] = "node-1";
  const AdmissionAnswer answer = Answer(Review(Request(pod)));
  EXPECT_EQ(answer.http_status, 200);
  EXPECT_FALSE(answer.allowed);
  const json::value status = json::parse(answer.body).at("response").at("status");
  EXPECT_EQ(status, json::parse(R"({"code":403,"message":"pod has node assigned","status":"Failure",
                                    "reason":"Forbidden"})"));
}

TEST_F(AdmissionReview, SomebodyElsesPodIsAllowedWithAnExplanation) {
  json::value pod = GpuPod();
  pod.at("spec").as_object()["schedulerName"] = "volcano";
  const json::value response = json::parse(Answer(Review(Request(pod))).body).at("response");
  EXPECT_EQ(response, json::parse(R"({"uid":"review-1","allowed":true,"status":{"code":200,
                                      "message":"pod already has different scheduler assigned"}})"));
}

TEST_F(AdmissionReview, TheQuotaOfTheReviewsNamespaceCounts) {
  quotas_.Set("team", "q", {{"limits.nvidia.com/gpumem", "2000"}});
  EXPECT_THAT(Answer(Review(Request(GpuPod()))).body, HasSubstr("exceeding resource quota"));
}

TEST_F(AdmissionReview, OfAChangeTheUserAndWhatWasBeforeAreAskedAbout) {
  json::object request = Request(GpuPod());
  request["userInfo"] = {{"username", "eve"}, {"groups", {"system:authenticated"}}};
  Answer(Review(request));
  EXPECT_EQ(user_, "eve");
  EXPECT_FALSE(changes_);
  request["operation"] = "UPDATE";
  request["oldObject"] = GpuPod();
  Answer(Review(request));
  EXPECT_TRUE(changes_);
  EXPECT_EQ(asked_, 2);
}

TEST_F(AdmissionReview, WarningsComeBackShortAndFew) {
  sched::Admission admission;
  admission.warnings = {"short", std::string(120, 'x'), std::string(121, 'y'), "a\nline", ""};
  for (int i = 0; i < 121; ++i) admission.warnings.back() += "é";
  for (const char* version : {"admission.k8s.io/v1", "admission.k8s.io/v1beta1"}) {
    for (const bool allowed : {true, false}) {
      admission.allowed = allowed;
      const auto review = json::serialize(Review(Request(GpuPod()), version));
      const AdmissionAnswer answer = AnswerReview(review, [&](const auto&, auto) { return admission; });
      const std::vector<std::string> warnings = Warnings(answer);
      ASSERT_EQ(warnings.size(), 5U);
      EXPECT_EQ(warnings[0], "short");
      EXPECT_EQ(warnings[1], std::string(120, 'x'));
      EXPECT_EQ(warnings[2], std::string(117, 'y') + "...");
      EXPECT_EQ(warnings[3], "a?line");
      EXPECT_EQ(warnings[4].size(), 117U * 2 + 3) << "117 characters of two bytes, and an ellipsis";
    }
  }
  admission.warnings.assign(12, "again");
  const AdmissionAnswer answer =
      AnswerReview(json::serialize(Review(Request(GpuPod()))), [&](const auto&, auto) { return admission; });
  const std::vector<std::string> warnings = Warnings(answer);
  ASSERT_EQ(warnings.size(), kMostWarnings + 1);
  EXPECT_EQ(warnings[kMostWarnings], "2 more warnings are left out");
}

TEST_F(AdmissionReview, WhatIsNoCreationOfAPodIsAllowedAsItIs) {
  json::object update = Request(GpuPod());
  update["operation"] = "UPDATE";
  json::object below = Request(GpuPod());
  below["subResource"] = "ephemeralcontainers";
  json::object other = Request(GpuPod());
  other["kind"] = {{"kind", "Deployment"}};
  for (const json::object& request : {update, below, other}) {
    const AdmissionAnswer answer = Answer(Review(request));
    EXPECT_TRUE(answer.allowed) << answer.body;
    EXPECT_FALSE(answer.patched) << answer.body;
  }
  EXPECT_EQ(asked_, 0);
}

TEST_F(AdmissionReview, ABodyThatIsNoReviewIsA400InTheShapeOfAReview) {
  json::object nameless = Request(GpuPod());
  nameless.erase("uid");
  const std::pair<std::string, const char*> cases[] = {
      {"", "Please send a request body"},
      {"{", "not JSON"},
      {"[]", "a JSON object is wanted, this is a list"},
      {"null", "a JSON object is wanted, this is null"},
      {R"({"kind":"Pod","apiVersion":"v1"})", "kind and apiVersion say otherwise"},
      {R"({"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v2","request":{}})", "admission.k8s.io/v2"},
      {R"({"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"})", "has no request"},
      {json::serialize(Review(nameless)), "has no uid"}};
  for (const auto& [body, words] : cases) {
    const AdmissionAnswer answer = AnswerText(body);
    EXPECT_EQ(answer.http_status, 400) << body;
    const json::value response = json::parse(answer.body).at("response");
    EXPECT_EQ(response.at("allowed"), false) << body;
    EXPECT_EQ(response.at("status").at("code"), 400) << body;
    EXPECT_THAT(std::string(response.at("status").at("message").as_string()), HasSubstr(words));
  }
}

TEST_F(AdmissionReview, AReviewWithoutAPodIsDeniedUnderItsUid) {
  json::object empty = Request(GpuPod());
  empty.erase("object");
  for (const json::value& review : {Review(empty), Review(Request(7))}) {
    const AdmissionAnswer answer = Answer(review);
    EXPECT_EQ(answer.http_status, 200);
    EXPECT_EQ(json::parse(answer.body).at("response").at("uid"), "review-1");
    EXPECT_EQ(json::parse(answer.body).at("response").at("status").at("code"), 400);
  }
}

}  // namespace
}  // namespace hami::scheduler
