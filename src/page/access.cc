// SPDX-License-Identifier: Apache-2.0

#include "page/access.h"

#include <openssl/sha.h>

#include "base/log.h"
#include "base/strings.h"

namespace hami::page {
namespace {

namespace json = base::json;

constexpr kube::Resource kTokenReviews{"authentication.k8s.io/v1", "tokenreviews", "TokenReview", false};
constexpr kube::Resource kAccessReviews{"authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview",
                                        false};
// A right that was taken away is gone after this long.
constexpr auto kAllowedFor = std::chrono::seconds(60);
// Shorter: a token is often tried before the rights are there.
constexpr auto kRefusedFor = std::chrono::seconds(5);

const json::object* StatusOf(const json::value& answer) {
  const json::object* object = answer.if_object();
  const json::value* status = object == nullptr ? nullptr : object->if_contains("status");
  return status == nullptr ? nullptr : status->if_object();
}

Access Unreachable(const kube::Error& error) {
  base::LogWarning("the page's reader cannot be checked: " + error.message +
                   "; this needs create on tokenreviews and subjectaccessreviews (page.enabled in the chart)");
  return Access::kUnreachable;
}

json::object SubjectOf(const json::object& user, const std::string& path) {
  json::object spec;
  if (const auto* name = user.if_contains("username")) spec["user"] = *name;
  for (const char* key : {"groups", "uid", "extra"}) {
    if (const auto* value = user.if_contains(key)) spec[key] = *value;
  }
  spec["nonResourceAttributes"] = {{"path", path}, {"verb", "get"}};
  return spec;
}

std::string Digest(std::string_view token) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  ::SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(),
           reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

// Nothing: it is no bearer token.
std::string_view TokenOf(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (base::ToLower(authorization.substr(0, kScheme.size())) != kScheme) return {};
  return base::Trim(authorization.substr(kScheme.size()));
}

}  // namespace

Review ReviewBy(kube::Client& client, std::string path) {
  return [&client, path = std::move(path)](const std::string& token) {
    const json::object review{
        {"apiVersion", kTokenReviews.group_version}, {"kind", kTokenReviews.kind}, {"spec", {{"token", token}}}};
    const auto reviewed = client.Create(kTokenReviews, {}, review);
    if (!reviewed) return Unreachable(reviewed.error());
    const json::object* status = StatusOf(*reviewed);
    if (status == nullptr || !base::GetBool(*status, "authenticated").value_or(false)) return Access::kUnknownToken;
    const json::value* user = status->if_contains("user");
    if (user == nullptr || !user->is_object()) return Access::kUnknownToken;
    const json::object access{{"apiVersion", kAccessReviews.group_version},
                              {"kind", kAccessReviews.kind},
                              {"spec", SubjectOf(user->get_object(), path)}};
    const auto decided = client.Create(kAccessReviews, {}, access);
    if (!decided) return Unreachable(decided.error());
    const json::object* verdict = StatusOf(*decided);
    const bool allowed = verdict != nullptr && base::GetBool(*verdict, "allowed").value_or(false) &&
                         !base::GetBool(*verdict, "denied").value_or(false);
    return allowed ? Access::kAllowed : Access::kForbidden;
  };
}

Access Gate::Check(const std::string* authorization, net::Deadline now) {
  const std::string_view token = authorization == nullptr ? std::string_view() : TokenOf(*authorization);
  if (token.empty()) return Access::kNoToken;
  if (token.size() > kMostTokenBytes) return Access::kUnknownToken;
  const std::string digest = Digest(token);
  {
    const std::scoped_lock lock(mutex_);
    const auto found = known_.find(digest);
    if (found != known_.end() && now < found->second.until) return found->second.access;
  }
  const Access access = review_(std::string(token));
  if (access == Access::kUnreachable) return access;
  const std::scoped_lock lock(mutex_);
  if (known_.size() >= kMostKept) {
    std::erase_if(known_, [&](const auto& one) { return one.second.until <= now; });
    if (known_.size() >= kMostKept) known_.clear();
  }
  known_[digest] = {access, now + (access == Access::kAllowed ? net::Duration(kAllowedFor) : kRefusedFor)};
  return access;
}

}  // namespace hami::page
