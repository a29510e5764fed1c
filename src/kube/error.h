// SPDX-License-Identifier: Apache-2.0
//
// What the API server said no to, or why it could not be asked. An Error is base::Error plus the reason callers decide
// by; the message is the server's own where there is one.

#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/result.h"
#include "net/error.h"

namespace hami::kube {

enum class Reason {
  kTransport,  // no answer: connection refused, cut, TLS, not HTTP. Whether a write took effect is unknown.
  kTimeout,    // no answer in time. The same uncertainty.
  kCancelled,  // our side asked to stop
  kNotSent,    // our side let no time for it: nothing took effect
  kBadAnswer,  // an answer that is not the JSON it should be
  kBadRequest,
  kUnauthorized,
  kForbidden,
  kNotFound,
  kConflict,       // somebody else changed the object first
  kAlreadyExists,  // create of a name in use
  kExpired,        // 410: the resourceVersion or continue token is too old
  kInvalid,        // 422
  kTooManyRequests,
  kServerError,  // 5xx and whatever else
};

std::string_view ReasonName(Reason reason);

struct Error : base::Error {
  Reason reason = Reason::kTransport;
  int code = 0;                                     // HTTP status, 0 without an answer
  std::optional<std::chrono::seconds> retry_after;  // the server's advice
};

template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};
using Status = Result<void>;

inline tl::unexpected<Error> Fail(Reason reason, std::string message) {
  return tl::unexpected<Error>(Error{{std::move(message), {}}, reason, 0, {}});
}

Error FromTransport(const net::Error& error);
// From a metav1.Status (as an answer's body or in a watch's ERROR event). CODE counts where the Status has none.
Error FromStatus(const base::json::value& status, int code);
// From a whole answer, whose body need not be a Status.
Error FromAnswer(int code, std::string_view body, const std::string* retry_after);

}  // namespace hami::kube
