// SPDX-License-Identifier: Apache-2.0
//
// Carries out what plan.h says at an API server: the Secret that the scheduler serves from, and the bundle of the
// webhook's configuration. Every write holds only for the version that was read, so that two at once end with one
// certificate. The bundle is written before the Secret: no moment is without trust.

#pragma once

#include <string>

#include "base/json.h"
#include "cert/plan.h"
#include "kube/client.h"
#include "net/cancel.h"

namespace hami::cert {

struct Place {
  std::string ns;
  std::string secret;
  std::string webhook;  // MutatingWebhookConfiguration
};

struct Times {
  std::chrono::seconds wait{300};   // for Secret and webhook to exist, in all
  std::chrono::seconds settle{10};  // between bundle and Secret: every API server has heard of the bundle by then
};

struct Outcome {
  bool issued = false;
  bool bundled = false;  // the bundle was written
  std::string reason;    // why
  WallTime end;
};

class Keeper {
 public:
  Keeper(kube::Client& client, Place place, Times times, const net::Canceller& stop)
      : client_(client), place_(std::move(place)), times_(times), stop_(stop) {}

  // Until Secret and webhook are as WANTED.
  base::Result<Outcome> Ensure(const Wanted& wanted);
  // Writes nothing: when the certificate ends, or why the API server would not trust it.
  base::Result<WallTime> Check(const Wanted& wanted);

 private:
  struct Webhook {
    base::json::value object;
    std::string bundle;  // of the first of its webhooks
  };
  kube::Result<base::json::value> ReadSecret();
  kube::Result<Webhook> ReadWebhook();
  kube::Status Try(const Wanted& wanted, Outcome& outcome);
  kube::Status Renew(const Wanted& wanted, const base::json::value& secret, const Webhook* webhook, Outcome& outcome);
  kube::Status WriteSecret(const base::json::value& secret, const Issued& issued);
  kube::Result<bool> WriteBundle(const Webhook& webhook, const std::string& authority);

  kube::Client& client_;
  const Place place_;
  const Times times_;
  const net::Canceller& stop_;
};

}  // namespace hami::cert
