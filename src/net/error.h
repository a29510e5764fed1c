// SPDX-License-Identifier: Apache-2.0
//
// What can go wrong between two ends of a connection. An Error is base::Error plus the one thing callers decide by: its
// cause. Everything in net/ returns Result<T>; no exception leaves the folder.

#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace hami::net {

enum class Cause {
  kSystem,     // the operating system refused (no descriptors, no permission, a bad address)
  kConnect,    // nobody answers there
  kTimeout,    // the deadline passed
  kCancelled,  // our own side asked to stop
  kClosed,     // the peer ended the connection before it had said everything
  kTls,        // handshake or certificate
  kProtocol,   // the peer does not speak HTTP/1.x as it should
  kTooLarge,   // more header or body than we allow
  kNoRoom,     // more at once than we have room for
};

struct Error : base::Error {
  Cause cause = Cause::kSystem;
};

template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};
using Status = Result<void>;

inline tl::unexpected<Error> Fail(Cause cause, std::string message) {
  return tl::unexpected<Error>(Error{{std::move(message), {}}, cause});
}

}  // namespace hami::net

// Returns EXPRESSION's error, of whatever type it is, from a function whose errors are of that type.
#define HAMI_NET_TRY(expression)                                   \
  do {                                                             \
    if (auto hami_try_result = (expression); !hami_try_result)     \
      return ::tl::unexpected(std::move(hami_try_result).error()); \
  } while (false)
