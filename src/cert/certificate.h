// SPDX-License-Identifier: Apache-2.0
//
// X.509 for one purpose: the certificate by which the API server knows the webhook. Owns the making of an authority
// with one certificate, and the judgement of PEM text that others wrote. The authority's key is used once and never
// leaves.

#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hami::cert {

// Whole seconds, as a certificate says them: a clock of nanoseconds ends in 2262, and one without an end says 9999 (RFC
// 5280, 4.1.2.5).
using WallTime = std::chrono::sys_seconds;

struct Issued {
  std::string authority;    // PEM
  std::string certificate;  // PEM
  std::string key;          // PEM
};

// For these DNS names and IP addresses. Valid from an hour before NOW, as clocks differ.
base::Result<Issued> Issue(const std::vector<std::string>& names, WallTime now, std::chrono::hours life);

struct Serving {
  std::string certificate;  // PEM, leaf first
  std::string key;          // PEM
};

// When the certificate ends. An error that says why it is of no use: not PEM, not of this key, not for each of NAMES,
// not vouched for by one of the authorities at NOW.
base::Result<WallTime> Judge(const Serving& serving, std::string_view authorities,
                             const std::vector<std::string>& names, WallTime now);

// The certificates of a PEM text that are not over at NOW, in their order, each one once; what is none is left out.
std::vector<std::string> ReadAuthorities(std::string_view pem, WallTime now);

}  // namespace hami::cert
