// SPDX-License-Identifier: Apache-2.0

#include "kube/error.h"

#include "base/strings.h"

namespace hami::kube {
namespace {

constexpr std::size_t kMostQuoted = 300;

Reason FromCode(int code) {
  switch (code) {
    case 400:
      return Reason::kBadRequest;
    case 401:
      return Reason::kUnauthorized;
    case 403:
      return Reason::kForbidden;
    case 404:
      return Reason::kNotFound;
    case 408:
    case 504:
      return Reason::kTimeout;
    case 409:
      return Reason::kConflict;
    case 410:
      return Reason::kExpired;
    case 422:
      return Reason::kInvalid;
    case 429:
      return Reason::kTooManyRequests;
    default:
      return Reason::kServerError;
  }
}

// Where one code has two meanings, the Status' reason tells them apart.
Reason Refine(Reason reason, std::string_view name) {
  if (name == "AlreadyExists") return Reason::kAlreadyExists;
  if (name == "Expired" || name == "Gone") return Reason::kExpired;
  if (name == "Conflict") return Reason::kConflict;
  if (name == "NotFound") return Reason::kNotFound;
  return reason;
}

}  // namespace

std::string_view ReasonName(Reason reason) {
  switch (reason) {
    case Reason::kTransport:
      return "no connection";
    case Reason::kTimeout:
      return "timeout";
    case Reason::kCancelled:
      return "cancelled";
    case Reason::kNotSent:
      return "not sent";
    case Reason::kBadAnswer:
      return "unreadable answer";
    case Reason::kBadRequest:
      return "bad request";
    case Reason::kUnauthorized:
      return "unauthorized";
    case Reason::kForbidden:
      return "forbidden";
    case Reason::kNotFound:
      return "not found";
    case Reason::kConflict:
      return "conflict";
    case Reason::kAlreadyExists:
      return "already exists";
    case Reason::kExpired:
      return "expired";
    case Reason::kInvalid:
      return "invalid";
    case Reason::kTooManyRequests:
      return "too many requests";
    case Reason::kServerError:
      break;
  }
  return "server error";
}

Error FromTransport(const net::Error& error) {
  Reason reason = Reason::kTransport;
  if (error.cause == net::Cause::kTimeout) reason = Reason::kTimeout;
  if (error.cause == net::Cause::kCancelled) reason = Reason::kCancelled;
  if (error.cause == net::Cause::kProtocol || error.cause == net::Cause::kTooLarge) reason = Reason::kBadAnswer;
  return Error{error, reason, 0, {}};
}

Error FromStatus(const base::json::value& status, int code) {
  Error error;
  error.code = code;
  const base::json::object* object = status.if_object();
  if (object != nullptr) {
    if (const auto own = base::GetUint(*object, "code"); own && *own >= 100 && *own <= 599) {
      error.code = static_cast<int>(*own);
    }
    error.message = base::GetString(*object, "message").value_or("");
  }
  error.reason = FromCode(error.code);
  if (object != nullptr) {
    error.reason = Refine(error.reason, base::GetString(*object, "reason").value_or(""));
    const base::json::value* details = object->if_contains("details");
    if (details != nullptr && details->is_object()) {
      constexpr std::uint64_t kMostSeconds = 24 * 3600;
      const auto seconds = base::GetUint(details->get_object(), "retryAfterSeconds");
      if (seconds && *seconds > 0 && *seconds <= kMostSeconds) error.retry_after = std::chrono::seconds(*seconds);
    }
  }
  if (error.message.empty()) {
    error.message = std::string(ReasonName(error.reason)) + " (HTTP " + std::to_string(error.code) + ")";
  }
  return error;
}

Error FromAnswer(int code, std::string_view body, const std::string* retry_after) {
  const auto parsed = base::ParseJson(body);
  const bool is_status = parsed && parsed->is_object() && base::GetString(parsed->get_object(), "kind") == "Status";
  Error error = FromStatus(is_status ? *parsed : base::json::value(), code);
  // A proxy's word, or an old server's plain text.
  if (!is_status && !body.empty()) error.message += ": " + base::Printable(base::Trim(body.substr(0, kMostQuoted)));
  if (retry_after != nullptr) {
    if (const auto seconds = base::ParseNumber(*retry_after); seconds && *seconds <= 24 * 3600) {
      error.retry_after = std::chrono::seconds(*seconds);
    }
  }
  return error;
}

}  // namespace hami::kube
