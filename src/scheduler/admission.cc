// SPDX-License-Identifier: Apache-2.0

#include "scheduler/admission.h"

#include <utility>

#include "base/strings.h"
#include "kube/base64.h"
#include "kube/scanner.h"

namespace hami::scheduler {
namespace {

namespace json = base::json;
using base::Fail;
using base::Result;

constexpr const char* kV1 = "admission.k8s.io/v1";
constexpr const char* kV1Beta1 = "admission.k8s.io/v1beta1";

struct Review {
  std::string api_version = kV1;
  std::string uid;
  std::string ns;
  std::string user;
  bool of_pod = false;
  const json::value* object = nullptr;  // may be absent
  const json::value* before = nullptr;  // of a change
};

const json::object* FindObject(const json::object& object, std::string_view key) {
  const json::value* member = object.if_contains(key);
  return member == nullptr ? nullptr : member->if_object();
}

// As base::KindOfJson says it of a text.
std::string_view KindOf(const json::value& document) {
  if (const bool* flag = document.if_bool()) return *flag ? "true" : "false";
  if (document.is_null()) return "null";
  if (document.is_string()) return "a string";
  return document.is_array() ? "a list" : "a number";
}

// Requests for pods and nothing below them (pods/ephemeralcontainers). What does not say its kind is taken for a pod,
// as webhooks are registered for pods.
bool WritesPod(const json::object& request, std::string_view operation) {
  if (operation != "CREATE" && operation != "UPDATE") return false;
  if (!base::GetString(request, "subResource").value_or("").empty()) return false;
  const json::object* kind = FindObject(request, "kind");
  return kind == nullptr || base::GetString(*kind, "kind").value_or("Pod") == "Pod";
}

// The version is known even where the rest is not understood: VERSION is set as early as possible.
Result<Review> ReadReview(const json::value& document, std::string& version) {
  const json::object* root = document.if_object();
  if (root == nullptr) {
    return Fail(base::Concat({"the body is no AdmissionReview: a JSON object is wanted, this is ", KindOf(document)}));
  }
  const auto api_version = base::GetString(*root, "apiVersion");
  if (base::GetString(*root, "kind").value_or("") != "AdmissionReview" || !api_version) {
    return Fail("the body is no AdmissionReview: kind and apiVersion say otherwise");
  }
  if (*api_version != kV1 && *api_version != kV1Beta1) {
    return Fail("AdmissionReview in version " + *api_version + "; understood are " + kV1 + " and " + kV1Beta1);
  }
  version = *api_version;
  const json::object* request = FindObject(*root, "request");
  if (request == nullptr) return Fail("the AdmissionReview has no request");
  Review review;
  review.uid = base::GetString(*request, "uid").value_or("");
  if (review.uid.empty()) return Fail("the AdmissionReview's request has no uid");
  review.ns = base::GetString(*request, "namespace").value_or("");
  if (const json::object* user = FindObject(*request, "userInfo")) {
    review.user = base::GetString(*user, "username").value_or("");
  }
  const std::string operation = base::GetString(*request, "operation").value_or("CREATE");
  review.object = request->if_contains("object");
  if (operation == "UPDATE") review.before = request->if_contains("oldObject");
  // An API server says of every change what was before.
  review.of_pod = WritesPod(*request, operation) && (operation == "CREATE" || review.before != nullptr);
  return review;
}

std::string_view StatusReason(int code) {
  switch (code) {
    case 400:
      return "BadRequest";
    case 403:
      return "Forbidden";
    default:
      return code >= 500 ? "InternalError" : "";
  }
}

// At most LIMIT characters of UTF-8 text.
std::string Shortened(std::string text, std::size_t limit) {
  constexpr std::string_view kEllipsis = "...";
  std::size_t characters = 0;
  std::size_t cut = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80U) continue;
    if (characters == limit - kEllipsis.size()) cut = i;
    if (++characters > limit) return text.substr(0, cut).append(kEllipsis);
  }
  return text;
}

// A header of the API server's answer carries each: control characters would make it drop the sentence.
json::array Bounded(const std::vector<std::string>& warnings) {
  json::array bounded;
  for (const std::string& warning : warnings) {
    if (bounded.size() == kMostWarnings) {
      bounded.emplace_back(std::to_string(warnings.size() - kMostWarnings) + " more warnings are left out");
      break;
    }
    bounded.emplace_back(Shortened(base::Printable(warning), kWarningCharacters));
  }
  return bounded;
}

AdmissionAnswer Write(const std::string& api_version, const std::string& uid, const sched::Admission& admission) {
  json::object response{{"uid", uid}, {"allowed", admission.allowed}};
  const bool patched = admission.allowed && !admission.patch.empty();
  if (patched) {
    response["patchType"] = "JSONPatch";
    response["patch"] = kube::Base64Encode(json::serialize(admission.patch));
  }
  if (!admission.allowed || !admission.message.empty()) {
    json::object status{{"code", admission.code}, {"message", admission.message}};
    if (!admission.allowed) {
      status["status"] = "Failure";
      status["reason"] = StatusReason(admission.code);
    }
    response["status"] = std::move(status);
  }
  if (!admission.warnings.empty()) response["warnings"] = Bounded(admission.warnings);
  const json::object answer{
      {"kind", "AdmissionReview"}, {"apiVersion", api_version}, {"response", std::move(response)}};
  return {200, json::serialize(answer), admission.allowed, patched};
}

AdmissionAnswer NotUnderstood(const std::string& api_version, std::string message) {
  AdmissionAnswer answer = Write(api_version, "", {false, 400, std::move(message), {}});
  answer.http_status = 400;
  return answer;
}

}  // namespace

AdmissionAnswer AnswerReview(std::string_view body, const AdmitPod& admit) {
  std::string version = kV1;
  if (body.empty()) return NotUnderstood(version, "Please send a request body: an AdmissionReview as JSON");
  const auto document = kube::ParseDocument(body);
  if (!document) return NotUnderstood(version, "the body is not JSON: " + document.error().message);
  const Result<Review> review = ReadReview(*document, version);
  if (!review) return NotUnderstood(version, review.error().message);
  if (!review->of_pod) return Write(version, review->uid, {});
  if (review->object == nullptr) return Write(version, review->uid, {false, 400, "the request has no object", {}});
  return Write(version, review->uid, admit(*review->object, {review->ns, review->user, review->before}));
}

}  // namespace hami::scheduler
