// SPDX-License-Identifier: Apache-2.0
//
// Result<T>: a value or the reason there is none. Owns the one error type of the hosted programs: a sentence for the
// person who reads it and, apart from it, a hint that says what to do next. An ignored Result does not compile; library
// exceptions are turned into an Error where they arise and never travel further.

#pragma once

#include <cerrno>
#include <cstring>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace hami::base {

struct Error {
  std::string message;
  std::string hint;  // empty, or one or more lines of advice
};

// A class of its own, rather than an alias, for its [[nodiscard]].
template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using Base = tl::expected<T, Error>;
  using Base::Base;
  // What map() and its kin return comes back implicitly.
  Result(Base base) : Base(std::move(base)) {}  // NOLINT(google-explicit-constructor)
};
using Status = Result<void>;

inline tl::unexpected<Error> Fail(std::string message, std::string hint = {}) {
  return tl::unexpected<Error>(Error{std::move(message), std::move(hint)});
}

// "WHAT: text of errno". Reads errno first, so that WHAT may allocate.
inline tl::unexpected<Error> FailErrno(const std::string& what, int error_number = errno) {
  return Fail(what + ": " + std::strerror(error_number));
}

}  // namespace hami::base

// Returns the error of EXPRESSION from the calling function, or goes on. C++20 has no `?` operator.
#define HAMI_TRY(expression)                                                            \
  do {                                                                                  \
    if (auto hami_try_result = (expression); !hami_try_result)                          \
      return ::tl::unexpected<::hami::base::Error>(std::move(hami_try_result).error()); \
  } while (false)
