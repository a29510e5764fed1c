// SPDX-License-Identifier: Apache-2.0
//
// Any body has an answer that reads as a review; a patch in it applies to the pod that was sent.

#include <cstdint>
#include <cstdlib>

#include "kube/base64.h"
#include "kube/scanner.h"
#include "kube/testing/json_patch.h"
#include "sched/testing/samples.h"
#include "scheduler/admission.h"

namespace {

namespace json = hami::base::json;

void Check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const hami::device::Vendors vendors = hami::sched::testing::NvidiaOnly();
  static const hami::sched::QuotaBooks quotas{vendors};
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  json::value seen;
  const auto answer =
      hami::scheduler::AnswerReview(body, [&](const json::value& pod, std::string_view ns) -> hami::sched::Admission {
        seen = pod;
        return hami::sched::Admit(pod, {"hami-scheduler", true}, vendors, quotas.Rooms(ns));
      });
  const json::value document = json::parse(answer.body);
  Check(document.at("kind") == "AdmissionReview");
  const json::object& response = document.at("response").as_object();
  Check(response.at("allowed").as_bool() == answer.allowed);
  Check((answer.http_status == 400) == response.at("uid").as_string().empty());
  if (!answer.patched) return 0;
  const auto patch = hami::kube::Base64Decode(std::string(response.at("patch").as_string()));
  Check(patch.has_value());
  // The patch may hold what the pod held: as deep, as odd.
  const auto operations = hami::kube::ParseDocument(*patch);
  Check(operations.has_value());
  Check(hami::kube::ApplyJsonPatch(seen, *operations).has_value());
  return 0;
}
