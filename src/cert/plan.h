// SPDX-License-Identifier: Apache-2.0
//
// What has to change so that the API server trusts the webhook, now and through the next renewal. Pure: time is an
// argument, nothing is asked or written. Keeps that an authority stays in the webhook's bundle as long as a replica may
// still serve a certificate of it.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cert/certificate.h"

namespace hami::cert {

struct Wanted {
  std::vector<std::string> names;  // that the certificate is for
  std::chrono::hours life{};
  std::chrono::hours renew_before{};  // a certificate with less life left is replaced
};

struct Found {
  Serving serving;        // in the Secret
  std::string authority;  // in the Secret, PEM
};

// The certificate that is there until WANTED says otherwise, or why there has to be another one.
base::Result<WallTime> Keep(const Found& found, const Wanted& wanted, WallTime now);

// The webhook's bundle, PEM, with AUTHORITY in front and the youngest of those that were there; nothing: it is right as
// it is.
std::optional<std::string> NextBundle(const std::string& bundle, const std::string& authority, WallTime now);

}  // namespace hami::cert
