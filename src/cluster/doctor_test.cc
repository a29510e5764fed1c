// SPDX-License-Identifier: Apache-2.0

#include "cluster/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/document.h"
#include "test/integration/objects.h"

namespace hami::cluster {
namespace {

namespace json = base::json;
using testing::HasSubstr;

json::value Program(const std::string& component, bool ready, const std::string& image = "docker.io/hami:1") {
  return {{"metadata", {{"namespace", "kube-system"}, {"labels", {{std::string(kComponentLabel), component}}}}},
          {"spec", {{"serviceAccountName", component}, {"containers", json::array{{{"image", image}}}}}},
          {"status", {{"conditions", json::array{{{"type", "Ready"}, {"status", ready ? "True" : "False"}}}}}}};
}

json::value Webhook(const std::string& bundle) {
  return {{"webhooks", json::array{{{"name", "vgpu.hami.io"}, {"clientConfig", {{"caBundle", bundle}}}}}}};
}

Facts Healthy() {
  Facts facts;
  facts.nodes = std::vector<json::value>{testcluster::GpuNode("node-1", 2)};
  facts.pods = std::vector<json::value>{Program("hami-scheduler", true), Program("hami-device-plugin", true),
                                        Program("hami-monitor", true)};
  facts.webhooks = std::vector<json::value>{Webhook("Q0E=")};
  facts.permissions = {{"kube-system/hami-scheduler", "list", "pods", true}};
  facts.now = 1'790'000'000;
  return facts;
}

std::string Say(const Facts& facts, int status) {
  const auto findings = Examine(facts, *VendorsOf({}));
  EXPECT_EQ(FindingsStatus(findings), status) << FindingsText(findings);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.remedy.empty(), finding.level == Finding::Level::kGood) << finding.message;
  }
  return FindingsText(findings);
}

TEST(Doctor, AHealthyClusterHasNoComplaint) {
  const std::string text = Say(Healthy(), 0);
  EXPECT_THAT(text, HasSubstr("1 register 2 cards"));
  EXPECT_THAT(text, Not(HasSubstr("warning")));
  EXPECT_EQ(FindingsJson(Examine(Healthy(), *VendorsOf({}))).at("healthy"), true);
}

TEST(Doctor, ANodeThatRegistersNothingIsNamed) {
  Facts facts = Healthy();
  facts.nodes->front().at("metadata").as_object().erase("annotations");
  const std::string text = Say(facts, 1);
  EXPECT_THAT(text, HasSubstr("node node-1: has the label gpu=on and registers no card"));
  EXPECT_THAT(text, HasSubstr("none has registered a card"));
}

TEST(Doctor, AnAnnotationThatCannotBeReadIsNamed) {
  Facts facts = Healthy();
  facts.nodes->front().at("metadata").at("annotations").as_object()["hami.io/node-nvidia-register"] = "[{";
  EXPECT_THAT(Say(facts, 1), HasSubstr("hami.io/node-nvidia-register cannot be read"));
}

TEST(Doctor, AnOldLockIsAWarningAndAYoungOneNone) {
  Facts facts = Healthy();
  auto& annotations = facts.nodes->front().at("metadata").at("annotations").as_object();
  annotations["hami.io/mutex.lock"] = "2026-09-21T10:00:00Z,team,p";
  EXPECT_THAT(Say(facts, 0), HasSubstr("is locked since 2026-09-21T10:00:00Z by team/p"));
  annotations["hami.io/mutex.lock"] = "2026-09-21T14:13:00Z,team,p";
  EXPECT_THAT(Say(facts, 0), Not(HasSubstr("locked")));
}

TEST(Doctor, ProgramsThatAreMissingOrNotReadyAreErrors) {
  Facts facts = Healthy();
  facts.pods =
      std::vector<json::value>{Program("hami-scheduler", false), Program("hami-device-plugin", true, "hami:2")};
  const std::string text = Say(facts, 1);
  EXPECT_THAT(text, HasSubstr("hami-scheduler: 0 of 1 pods are ready"));
  EXPECT_THAT(text, HasSubstr("no pod with the label app.kubernetes.io/component=hami-monitor"));
  EXPECT_THAT(text, HasSubstr("different images"));
}

TEST(Doctor, AWebhookWithoutAnAuthorityOrWithoutItselfIsAnError) {
  Facts facts = Healthy();
  facts.webhooks = std::vector<json::value>{Webhook("")};
  EXPECT_THAT(Say(facts, 1), HasSubstr("no caBundle"));
  facts.webhooks->clear();
  EXPECT_THAT(Say(facts, 1), HasSubstr("is not registered"));
}

TEST(Doctor, ARightThatIsMissingIsNamedAndOneNotAskedIsNotGood) {
  Facts facts = Healthy();
  facts.permissions.push_back({"kube-system/hami-scheduler", "patch", "nodes", false});
  EXPECT_THAT(Say(facts, 1), HasSubstr("kube-system/hami-scheduler may not patch nodes"));
  facts.permissions.back().allowed.reset();
  EXPECT_THAT(Say(facts, 0), HasSubstr("rights cannot be asked"));
  facts.nodes = base::Fail("forbidden");
  facts.pods = base::Fail("forbidden");
  facts.webhooks = base::Fail("forbidden");
  EXPECT_THAT(Say(facts, 1), HasSubstr("cannot be listed: forbidden"));
}

}  // namespace
}  // namespace hami::cluster
