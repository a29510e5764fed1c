// SPDX-License-Identifier: Apache-2.0
//
// A program looks at errno after a call that it made; whatever the library did or waited for on the way is to leave it
// alone. A signal that is handled ends a wait with EINTR, for one.
#pragma once

#include <errno.h>

namespace hami::region {

class KeepErrno {
 public:
  KeepErrno() : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  const int saved_;
};

}  // namespace hami::region
