// SPDX-License-Identifier: Apache-2.0

#include "sched/quota_scopes.h"

#include <algorithm>

namespace hami::sched {
namespace {

bool FitsClass(const QuotaScope& scope, const std::string& priority_class) {
  const bool listed = std::find(scope.values.begin(), scope.values.end(), priority_class) != scope.values.end();
  if (scope.what == "Exists") return !priority_class.empty();
  if (scope.what == "DoesNotExist") return priority_class.empty();
  if (scope.what == "In") return !priority_class.empty() && listed;
  // As with labels: a pod without a class is not in the list.
  return scope.what == "NotIn" && (priority_class.empty() || !listed);
}

bool Fits(const QuotaScope& scope, const device::PodTraits& pod) {
  if (scope.name == "Terminating") return pod.terminating;
  if (scope.name == "NotTerminating") return !pod.terminating;
  if (scope.name == "BestEffort") return pod.best_effort;
  if (scope.name == "NotBestEffort") return !pod.best_effort;
  if (scope.name == "CrossNamespacePodAffinity") return pod.cross_namespace;
  return scope.name == "PriorityClass" && FitsClass(scope, pod.priority_class);
}

}  // namespace

bool Tracks(const QuotaScopes& scopes, const device::PodTraits& pod) {
  return std::all_of(scopes.begin(), scopes.end(), [&](const QuotaScope& scope) { return Fits(scope, pod); });
}

}  // namespace hami::sched
