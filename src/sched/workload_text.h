// SPDX-License-Identifier: Apache-2.0
//
// A workload that is given and not learnt, as text: CSV, a class of pods a line, as a user would write such a pod. The
// header names the columns, in any order: `weight`; `cpu` and `memory`, which the pod requests; resources of a vendor,
// its limits; annotations, in which `|` stands for the comma of a list. `#` begins a comment.
//
//   weight,nvidia.com/gpu,nvidia.com/gpumem-percentage,nvidia.com/gpucores,cpu,nvidia.com/use-gputype
//   6,1,50,50,4,
//   1,8,100,100,64,A100|H100

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/vendor.h"
#include "sched/workload.h"

namespace hami::sched {

// FILE is the name for messages. Errors: `FILE:LINE: what`; a text without a class is one.
base::Result<std::vector<RequestClass>> ReadWorkload(std::string_view text, const std::string& file,
                                                     const device::Vendors& vendors);

}  // namespace hami::sched
