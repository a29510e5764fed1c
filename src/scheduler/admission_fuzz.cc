// SPDX-License-Identifier: Apache-2.0
//
// Any body has an answer that reads as a review; a patch in it applies to the pod that was sent, and leaves nothing on
// it that only HAMi's programs write.

#include <cstdint>
#include <cstdlib>

#include "device/annotation_table.h"
#include "kube/base64.h"
#include "kube/scanner.h"
#include "kube/testing/json_patch.h"
#include "sched/testing/samples.h"
#include "sched/trust.h"
#include "scheduler/admission.h"

namespace {

namespace json = hami::base::json;

void Check(bool holds) {
  if (!holds) std::abort();
}

bool CarriesGuarded(const json::value& pod) {
  for (const char* place : {"annotations", "labels"}) {
    const json::value* at = &pod;
    for (const char* key : {"metadata", place}) {
      at = at == nullptr || !at->is_object() ? nullptr : at->get_object().if_contains(key);
    }
    if (at == nullptr || !at->is_object()) continue;
    for (const auto& pair : at->get_object()) {
      const std::string_view key(pair.key().data(), pair.key().size());
      if (hami::device::IsGuarded(key, hami::device::Carrier::kPod)) return true;
    }
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const hami::device::Vendors vendors = hami::sched::testing::NvidiaOnly();
  static const hami::sched::QuotaBooks quotas{vendors};
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  json::value seen;
  bool created = false;
  bool trusted = false;
  const auto answer = hami::scheduler::AnswerReview(
      body, [&](const json::value& pod, const hami::scheduler::PodReview& review) -> hami::sched::Admission {
        seen = pod;
        const hami::sched::Writers writers({"system:serviceaccount:kube-system:hami-*"});
        if (review.before != nullptr) return hami::sched::AdmitUpdate(*review.before, pod, review.user, writers);
        trusted = writers.Has(review.user);
        created = true;
        return hami::sched::AdmitCreation(pod, review.user, writers, {"hami-scheduler", true}, vendors,
                                          [&](const auto& traits) { return quotas.Rooms(review.ns, traits); });
      });
  const json::value document = json::parse(answer.body);
  Check(document.at("kind") == "AdmissionReview");
  const json::object& response = document.at("response").as_object();
  Check(response.at("allowed").as_bool() == answer.allowed);
  Check((answer.http_status == 400) == response.at("uid").as_string().empty());
  if (!answer.patched) {
    Check(!created || trusted || !answer.allowed || !CarriesGuarded(seen));
    return 0;
  }
  const auto patch = hami::kube::Base64Decode(std::string(response.at("patch").as_string()));
  Check(patch.has_value());
  // The patch may hold what the pod held: as deep, as odd.
  const auto operations = hami::kube::ParseDocument(*patch);
  Check(operations.has_value());
  Check(hami::kube::ApplyJsonPatch(seen, *operations).has_value());
  Check(trusted || !CarriesGuarded(seen));
  return 0;
}
