// SPDX-License-Identifier: Apache-2.0
//
// Reads a cluster for plan.h, and carries plans out at its API server. Every write holds only for the version that was
// read; after each, the cluster is read and the plan made anew, so that what changed meanwhile is part of it.

#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "kube/client.h"
#include "upgrade/plan.h"

namespace hami::upgrade {

struct Names {
  std::string hami_ns = "kube-system";
  std::string hami = "hami";  // what the names of a release's objects begin with
  std::string ours_ns = "kube-system";
  std::string ours = "hami-cpp";
};

base::Result<Cluster> Read(kube::Client& client, const Names& names);

using Plan = std::function<base::Result<std::vector<Step>>(const Cluster& cluster)>;
// Each step is told to SAY as it begins.
base::Status Carry(kube::Client& client, const Names& names, const Plan& plan, std::chrono::seconds wait,
                   const std::function<void(const Step& step)>& say);

}  // namespace hami::upgrade
