// SPDX-License-Identifier: Apache-2.0
//
// Policies by name, and what a replay prints: one row a policy, as a table or as JSON.

#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "simcluster/simulation.h"

namespace hami::simcluster {

struct NamedPolicy {
  std::string name;
  sched::PolicyDefaults policy;
  sched::FragmentTuning tuning{};
};

// `binpack`, `spread` and `fragmentation` are for nodes and cards both; `NODE/CARD` names each (`binpack/spread` is the
// default of hami-scheduler). Errors: a name that is no policy, with what was probably meant.
base::Result<std::vector<NamedPolicy>> ParsePolicies(const std::vector<std::string>& names);

struct Row {
  std::string policy;
  Report report;
  Advice advice;
};

std::string TableOf(const std::vector<Row>& rows, bool with_advice);
base::json::object JsonOf(const std::vector<Row>& rows, bool with_advice);

}  // namespace hami::simcluster
