// SPDX-License-Identifier: Apache-2.0

#include "sched/trust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "kube/testing/json_patch.h"
#include "sched/testing/samples.h"

namespace hami::sched {
namespace {

namespace json = base::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kForged = R"({"hami.io/vgpu-node":"n","hami.io/bind-phase":"allocating",
    "hami.io/vgpu-devices-to-allocate":"GPU-1,NVIDIA,40960,100:;","nvidia.com/use-gpuuuid":"GPU-1",
    "hami.io/gpu-scheduler-policy":"spread","note":"mine"})";

class TrustTest : public ::testing::Test {
 protected:
  static json::value Pod(const char* annotations, const char* spec = "", const char* resource = "nvidia.com/gpu") {
    return json::parse(std::string(R"({"metadata":{"name":"p","labels":{"hami.io/vgpu-node":"n","app":"a"},)") +
                       R"("annotations":)" + annotations + R"(},"spec":{)" + spec +
                       R"("containers":[{"name":"c","resources":{"limits":{")" + resource + R"(":"1"}}}]}})");
  }
  Admission Create(const json::value& pod, std::string_view user = "eve") {
    return AdmitCreation(pod, user, writers_, {"hami-scheduler", true}, vendors_,
                         [&](const auto& traits) { return quotas_.Rooms("team", traits); });
  }
  static json::value After(json::value pod, const Admission& admission) {
    EXPECT_TRUE(admission.allowed) << admission.message;
    EXPECT_TRUE(kube::ApplyJsonPatch(pod, admission.patch));
    return pod;
  }

  const Writers writers_{{"system:serviceaccount:kube-system:hami-*", "admin"}};
  const device::Vendors vendors_ = testing::NvidiaOnly();
  const QuotaBooks quotas_{vendors_};
};

TEST_F(TrustTest, WritersAreNamedWholeOrByTheirBeginning) {
  EXPECT_TRUE(writers_.Has("system:serviceaccount:kube-system:hami-device-plugin"));
  EXPECT_TRUE(writers_.Has("admin"));
  for (const char* user : {"", "administrator", "system:serviceaccount:team:hami-device-plugin", "eve"}) {
    EXPECT_FALSE(writers_.Has(user)) << user;
  }
  EXPECT_FALSE(Writers().Has(""));
  EXPECT_FALSE(Writers({""}).Has(""));
}

TEST_F(TrustTest, WhatIsOursIsTakenOffANewPodWithAWarning) {
  for (const char* resource : {"nvidia.com/gpu", "cpu"}) {
    const json::value pod = Pod(kForged, "", resource);
    const Admission admission = Create(pod);
    const json::value metadata = After(pod, admission).at("metadata");
    EXPECT_EQ(metadata.at("annotations"), json::parse(R"({"nvidia.com/use-gpuuuid":"GPU-1",
        "hami.io/gpu-scheduler-policy":"spread","note":"mine"})"));
    EXPECT_EQ(metadata.at("labels"), json::parse(R"({"app":"a"})"));
    EXPECT_THAT(admission.warnings,
                ElementsAre("annotation hami.io/vgpu-node was taken off: only HAMi's own programs write it",
                            HasSubstr("bind-phase"), HasSubstr("to-allocate"), HasSubstr("label hami.io/vgpu-node")));
  }
}

TEST_F(TrustTest, WhatElseAdmissionDoesItStillDoes) {
  const json::value pod = Pod(kForged);
  const json::value after = After(pod, Create(pod));
  EXPECT_EQ(after.at("spec").at("schedulerName"), "hami-scheduler");
  EXPECT_EQ(after.at("spec").at("containers").at(0).at("resources").at("limits").at("nvidia.com/gpucores"), "100");
}

TEST_F(TrustTest, OurOwnProgramsWriteWhatTheyLike) {
  const json::value pod = Pod(kForged);
  const Admission admission = Create(pod, "admin");
  EXPECT_EQ(After(pod, admission).at("metadata"), pod.at("metadata"));
  EXPECT_THAT(admission.warnings, IsEmpty());
}

TEST_F(TrustTest, APodThatWouldBeServedPastUsIsRefused) {
  for (const char* spec : {R"("schedulerName":"other",)", R"("nodeName":"n",)"}) {
    const Admission admission = Create(Pod(kForged, spec));
    EXPECT_FALSE(admission.allowed);
    EXPECT_EQ(admission.code, 403);
    EXPECT_THAT(admission.message, HasSubstr("hami.io/vgpu-node"));
    EXPECT_THAT(admission.message, HasSubstr("remove it"));
    EXPECT_TRUE(Create(Pod(kForged, spec, "cpu")).allowed) << "it asks for nothing of ours";
  }
  EXPECT_TRUE(Create(Pod(kForged, R"("schedulerName":"default-scheduler",)")).allowed);
}

TEST_F(TrustTest, PodsWithoutAnyOfItAreLeftAlone) {
  json::value pod = Pod(R"({"note":"mine"})", "", "cpu");
  pod.at("metadata").as_object().erase("labels");
  EXPECT_THAT(Create(pod).patch, IsEmpty());
  pod.at("metadata").as_object().erase("annotations");
  EXPECT_THAT(Create(pod).patch, IsEmpty());
  EXPECT_THAT(Create(pod).warnings, IsEmpty());
  for (const char* text : {"{}", "[]", R"({"metadata":[]})", R"({"metadata":{"annotations":7}})"}) {
    EXPECT_THAT(Create(json::parse(text)).warnings, IsEmpty()) << text;
  }
}

TEST_F(TrustTest, AChangeByAnybodyElseIsRefusedWithTheRemedy) {
  const json::value before = Pod(kForged);
  const auto change = [&](const std::function<void(json::object&)>& edit, const char* user = "eve") {
    json::value after = before;
    edit(after.at("metadata").at("annotations").as_object());
    return AdmitUpdate(before, after, user, writers_);
  };
  const auto removed = [](json::object& notes) { notes.erase("hami.io/vgpu-node"); };
  const auto emptied = [](json::object& notes) { notes["hami.io/bind-phase"] = ""; };
  const auto added = [](json::object& notes) { notes["hami-cpp/grant-seal"] = "v1:00"; };
  const auto users = [](json::object& notes) {
    notes["note"] = "yours";
    notes["hami-cpp/resize"] = "c:mem=1000";
    notes.erase("nvidia.com/use-gpuuuid");
  };
  EXPECT_THAT(change(removed).message,
              HasSubstr("annotation hami.io/vgpu-node is changed by HAMi's own programs alone, "
                        "and the writer is eve"));
  EXPECT_THAT(change(removed).message, HasSubstr("--trusted-writers"));
  EXPECT_THAT(change(emptied).message, HasSubstr("hami.io/bind-phase"));
  EXPECT_THAT(change(added).message, HasSubstr("hami-cpp/grant-seal"));
  EXPECT_EQ(change(added).code, 403);
  EXPECT_FALSE(change(added).allowed);
  EXPECT_TRUE(change(users).allowed);
  for (const auto& edit : {std::function<void(json::object&)>(removed), {emptied}, {added}}) {
    EXPECT_TRUE(change(edit, "admin").allowed);
  }
  json::value bare = before;
  bare.at("metadata").as_object().erase("labels");
  EXPECT_THAT(AdmitUpdate(before, bare, "eve", writers_).message, HasSubstr("label hami.io/vgpu-node"));
  EXPECT_TRUE(AdmitUpdate(before, before, "eve", writers_).allowed);
}

}  // namespace
}  // namespace hami::sched
