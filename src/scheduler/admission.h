// SPDX-License-Identifier: Apache-2.0
//
// AdmissionReview, v1 and v1beta1, around a decision about a pod: reads the review, echoes its uid and version, carries
// the JSON Patch in base64, and warnings. Total: every body has an answer in the shape of a review, so that whoever
// sent it reads a sentence and no broken connection. What is neither a creation nor a change of a pod is allowed as it
// is.

#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "sched/webhook.h"

namespace hami::scheduler {

// What else a review says of the pod.
struct PodReview {
  std::string_view ns;
  std::string_view user;
  const base::json::value* before = nullptr;  // what the pod was; none: it is being created
};
using AdmitPod = std::function<sched::Admission(const base::json::value& pod, const PodReview& review)>;

struct AdmissionAnswer {
  int http_status = 200;  // 400: the body is no review, so that there is no uid to answer to; 503: not now, a text
  std::string body;
  bool allowed = false;
  bool patched = false;
};

// Of an answer's warnings. Kubernetes asks for 120 characters and cuts what is longer in sum than 4,096 bytes; what is
// beyond the number is one more sentence that says so.
inline constexpr std::size_t kWarningCharacters = 120;
inline constexpr std::size_t kMostWarnings = 10;

AdmissionAnswer AnswerReview(std::string_view body, const AdmitPod& admit);

}  // namespace hami::scheduler
