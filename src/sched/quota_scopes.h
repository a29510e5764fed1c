// SPDX-License-Identifier: Apache-2.0
//
// Which pods a ResourceQuota is about: those that all of its scopes and expressions fit, as the API server's own quota
// controller judges it. A scope that is not about pods, or that nobody knows, fits none.

#pragma once

#include <string>
#include <vector>

#include "device/pod.h"

namespace hami::sched {

struct QuotaScope {
  std::string name;                 // Terminating, PriorityClass, …
  std::string what = "Exists";      // In, NotIn, Exists, DoesNotExist
  std::vector<std::string> values;  // of In and NotIn
  bool operator==(const QuotaScope&) const = default;
};
using QuotaScopes = std::vector<QuotaScope>;

bool Tracks(const QuotaScopes& scopes, const device::PodTraits& pod);

}  // namespace hami::sched
