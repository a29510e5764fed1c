// SPDX-License-Identifier: Apache-2.0
//
// Who may read the page: the API server is asked whose a bearer token is (TokenReview), and whether that user may get
// the path (SubjectAccessReview of a non-resource URL), as for any other component's. Answers are kept for a while,
// under a digest of the token; no token is kept or logged. Thread-safe. Refuses when the API server cannot be asked.

#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "kube/client.h"
#include "net/time.h"

namespace hami::page {

enum class Access { kAllowed, kNoToken, kUnknownToken, kForbidden, kUnreachable };

// One question to the API server.
using Review = std::function<Access(const std::string& token)>;
// CLIENT must outlive it. PATH: what the user wants to get.
Review ReviewBy(kube::Client& client, std::string path);

class Gate {
 public:
  static constexpr std::size_t kMostKept = 1024;
  static constexpr std::size_t kMostTokenBytes = 16U << 10U;

  explicit Gate(Review review) : review_(std::move(review)) {}
  // AUTHORIZATION: the header's value, or null.
  Access Check(const std::string* authorization, net::Deadline now = net::Clock::now());

 private:
  struct Known {
    Access access = Access::kForbidden;
    net::Deadline until;
  };

  const Review review_;
  std::mutex mutex_;
  std::map<std::string, Known> known_;  // by digest
};

}  // namespace hami::page
