// SPDX-License-Identifier: Apache-2.0

#include "cert/keeper.h"

#include "base/log.h"
#include "kube/base64.h"

namespace hami::cert {
namespace {

using base::Result;
namespace json = base::json;

constexpr kube::Resource kSecrets{"v1", "secrets", "Secret"};
constexpr kube::Resource kWebhooks{"admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations",
                                   "MutatingWebhookConfiguration", false};
constexpr auto kPause = std::chrono::seconds(1);

WallTime Now() { return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()); }

const json::object* Member(const json::object& object, std::string_view key) {
  const json::value* found = object.if_contains(key);
  return found == nullptr ? nullptr : found->if_object();
}

// Bytes of a Secret; empty where there are none.
std::string Bytes(const json::object& data, std::string_view key) {
  return kube::Base64Decode(base::GetString(data, key).value_or("")).value_or("");
}

Found FoundIn(const json::value& secret) {
  const json::object* data = secret.is_object() ? Member(secret.get_object(), "data") : nullptr;
  if (data == nullptr) return {};
  return {{Bytes(*data, "tls.crt"), Bytes(*data, "tls.key")}, Bytes(*data, "ca.crt")};
}

std::string VersionOf(const json::value& object) {
  const json::object* metadata = object.is_object() ? Member(object.get_object(), "metadata") : nullptr;
  return metadata == nullptr ? std::string() : base::GetString(*metadata, "resourceVersion").value_or("");
}

// What may be otherwise in a moment.
bool IsPassing(kube::Reason reason) {
  switch (reason) {
    case kube::Reason::kTransport:
    case kube::Reason::kTimeout:
    case kube::Reason::kNotSent:
    case kube::Reason::kNotFound:
    case kube::Reason::kConflict:
    case kube::Reason::kTooManyRequests:
    case kube::Reason::kServerError:
    case kube::Reason::kInvalid:    // a `test` of a JSON patch that failed: changed meanwhile
    case kube::Reason::kForbidden:  // a role that was written a moment ago
      return true;
    default:
      return false;
  }
}

}  // namespace

kube::Result<json::value> Keeper::ReadSecret() { return client_.Get(kSecrets, place_.ns, place_.secret, {&stop_}); }

kube::Result<Keeper::Webhook> Keeper::ReadWebhook() {
  auto object = client_.Get(kWebhooks, "", place_.webhook, {&stop_});
  if (!object) return tl::unexpected(object.error());
  const json::array* hooks = object->is_object() ? base::GetArray(object->get_object(), "webhooks") : nullptr;
  if (hooks == nullptr || hooks->empty())
    return kube::Fail(kube::Reason::kNotFound, place_.webhook + " has no webhooks");
  const json::object* where =
      hooks->front().is_object() ? Member(hooks->front().get_object(), "clientConfig") : nullptr;
  return Webhook{*object, where == nullptr ? std::string() : Bytes(*where, "caBundle")};
}

kube::Status Keeper::WriteSecret(const json::value& secret, const Issued& issued) {
  const json::value patch{{"metadata", {{"resourceVersion", VersionOf(secret)}}},
                          {"data",
                           {{"ca.crt", kube::Base64Encode(issued.authority)},
                            {"tls.crt", kube::Base64Encode(issued.certificate)},
                            {"tls.key", kube::Base64Encode(issued.key)}}}};
  const auto written = client_.Patch(kSecrets, place_.ns, place_.secret, kube::PatchType::kMerge, patch, {&stop_});
  if (!written) return tl::unexpected(written.error());
  return {};
}

kube::Result<bool> Keeper::WriteBundle(const Webhook& webhook, const std::string& authority) {
  json::array patch{{{"op", "test"}, {"path", "/metadata/resourceVersion"}, {"value", VersionOf(webhook.object)}}};
  const json::array& hooks = *base::GetArray(webhook.object.get_object(), "webhooks");
  const auto next = NextBundle(webhook.bundle, authority, Now());
  for (std::size_t i = 0; i < hooks.size(); ++i) {
    const json::object* where = hooks[i].is_object() ? Member(hooks[i].get_object(), "clientConfig") : nullptr;
    const std::string bundle = next.value_or(webhook.bundle);
    if (where == nullptr || Bytes(*where, "caBundle") == bundle) continue;
    patch.push_back({{"op", "add"},
                     {"path", "/webhooks/" + std::to_string(i) + "/clientConfig/caBundle"},
                     {"value", kube::Base64Encode(bundle)}});
  }
  if (patch.size() == 1) return false;
  const auto written = client_.Patch(kWebhooks, "", place_.webhook, kube::PatchType::kJson, patch, {&stop_});
  if (!written) return tl::unexpected(written.error());
  return true;
}

kube::Status Keeper::Renew(const Wanted& wanted, const json::value& secret, const Webhook* webhook, Outcome& outcome) {
  const auto issued = Issue(wanted.names, Now(), wanted.life);
  if (!issued) return kube::Fail(kube::Reason::kBadRequest, issued.error().message);
  if (webhook != nullptr) {
    const auto bundled = WriteBundle(*webhook, issued->authority);
    if (!bundled) return tl::unexpected(bundled.error());
    outcome.bundled = outcome.bundled || *bundled;
    // At the first time nothing is served yet, so that no API server has to hear of it first.
    const bool serves = !FoundIn(secret).serving.certificate.empty();
    if (serves && stop_.SleepUntil(net::Clock::now() + times_.settle))
      return kube::Fail(kube::Reason::kCancelled, "interrupted");
  }
  if (auto written = WriteSecret(secret, *issued); !written) return written;
  outcome.issued = true;
  outcome.end = Now() + wanted.life;
  return {};
}

kube::Status Keeper::Try(const Wanted& wanted, Outcome& outcome) {
  const auto secret = ReadSecret();
  if (!secret) return tl::unexpected(secret.error());
  const auto webhook = ReadWebhook();
  if (!webhook && webhook.error().reason != kube::Reason::kNotFound) return tl::unexpected(webhook.error());
  const Found found = FoundIn(*secret);
  if (const auto end = Keep(found, wanted, Now()); !end) {
    outcome.reason = end.error().message;
    if (auto done = Renew(wanted, *secret, webhook ? &*webhook : nullptr, outcome); !done) return done;
  } else {
    outcome.end = *end;
    if (webhook) {
      const auto bundled = WriteBundle(*webhook, found.authority);
      if (!bundled) return tl::unexpected(bundled.error());
      outcome.bundled = outcome.bundled || *bundled;
    }
  }
  if (!webhook) return tl::unexpected(webhook.error());
  return {};
}

Result<Outcome> Keeper::Ensure(const Wanted& wanted) {
  const net::Deadline end = net::Clock::now() + times_.wait;
  std::string said;
  Outcome outcome;
  while (true) {
    const kube::Status done = Try(wanted, outcome);
    if (done) return outcome;
    const kube::Error& error = done.error();
    if (!IsPassing(error.reason) || net::Clock::now() + kPause > end) {
      const std::string hint = "the Secret " + place_.ns + "/" + place_.secret + " and the webhook " + place_.webhook +
                               " must exist, and this identity may get and patch them";
      return base::Fail(error.message, error.hint.empty() ? hint : error.hint);
    }
    if (error.message != said) base::LogInfo("waiting: " + error.message);
    said = error.message;
    if (stop_.SleepUntil(net::Clock::now() + kPause)) return base::Fail("interrupted");
  }
}

Result<WallTime> Keeper::Check(const Wanted& wanted) {
  const auto secret = ReadSecret();
  if (!secret) return base::Fail(secret.error().message, secret.error().hint);
  const auto webhook = ReadWebhook();
  if (!webhook) return base::Fail(webhook.error().message, webhook.error().hint);
  auto end = Judge(FoundIn(*secret).serving, webhook->bundle, wanted.names, Now());
  if (!end) {
    return base::Fail("the certificate in Secret " + place_.ns + "/" + place_.secret + ": " + end.error().message,
                      "hami cert without --check renews it");
  }
  return end;
}

}  // namespace hami::cert
