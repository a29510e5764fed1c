// SPDX-License-Identifier: Apache-2.0
//
// What is wrong with an installation, and what to do about it. Examine is pure: the raw objects go in, findings come
// out, each with its remedy where something is wrong. What could not be looked at is a finding, too, and never passes
// for good.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "device/vendor.h"
#include "kube/client.h"

namespace hami::cluster {

struct Finding {
  enum class Level { kGood, kWarning, kError };
  Level level = Level::kGood;
  std::string about;  // "driver", "node node-1", "webhook"
  std::string message;
  std::string remedy;  // empty when it is good
};

// A right that a program's account needs.
struct Permission {
  std::string account;  // NAMESPACE/NAME
  std::string verb;
  std::string resource;
  std::optional<bool> allowed;  // nothing: it could not be asked
};

struct Facts {
  using Objects = base::Result<std::vector<base::json::value>>;
  Objects nodes;
  Objects pods;      // of our programs: labels app.kubernetes.io/component=hami-*
  Objects webhooks;  // MutatingWebhookConfigurations
  std::vector<Permission> permissions;
  std::int64_t now = 0;
};

// What the chart calls the pods of our programs.
inline constexpr std::string_view kComponentLabel = "app.kubernetes.io/component";

Facts Gather(kube::Client& client);
std::vector<Finding> Examine(const Facts& facts, const device::Vendors& vendors);

// One line each, and its remedy below.
std::string FindingsText(const std::vector<Finding>& findings);
base::json::value FindingsJson(const std::vector<Finding>& findings);
// 0: nothing is wrong; 1: something is, warnings not counted.
int FindingsStatus(const std::vector<Finding>& findings);

}  // namespace hami::cluster
