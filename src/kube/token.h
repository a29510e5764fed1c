// SPDX-License-Identifier: Apache-2.0
//
// The bearer token of a call. A token file is read again when the copy is older than a while (the kubelet renews
// projected tokens), and at once after the server refused it.

#pragma once

#include <mutex>
#include <string>

#include "base/result.h"
#include "net/time.h"

namespace hami::kube {

class TokenSource {
 public:
  // FILE wins over FIXED, which is used while the file has never been read; both empty: no token.
  TokenSource(std::string fixed, std::string file) : fixed_(std::move(fixed)), file_(std::move(file)) {}

  // Keeps an older copy when the file can not be read just now. Thread-safe.
  base::Result<std::string> Get(net::Deadline now = net::Clock::now());
  // TOKEN was refused. True: the file holds another one by now, so that a second try is worth it.
  bool Refused(const std::string& token, net::Deadline now = net::Clock::now());

 private:
  base::Status Read(net::Deadline now);  // under mutex_

  const std::string fixed_;
  const std::string file_;
  std::mutex mutex_;
  std::string cached_;
  net::Deadline fresh_until_{};
};

}  // namespace hami::kube
