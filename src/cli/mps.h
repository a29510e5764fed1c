// SPDX-License-Identifier: Apache-2.0
//
// Shares in mode mps on one machine. A process of its own, `hami mps-keeper UUID`, supervises the GPU's control daemon
// for as long as a share in that mode is on it, whatever becomes of the `hami run` that asked for it; then it ends the
// daemon and itself. One a GPU: it holds a lock.

#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/environment.h"
#include "cli/plan.h"
#include "cli/state.h"
#include "cli/view.h"

namespace hami::cli {

// GPUs on which a living share is in the other mode: nothing is granted there, and each says by whom.
void RefuseOtherMode(std::vector<Device>& devices, const std::vector<ShareView>& shares, bool mps);

// What makes the share's programs clients of the daemon, whose percentage takes the place of libvgpu's pacing.
void AddMps(std::vector<Setting>* settings, const State& state, const Grant& grant);

// Until the GPU's daemon serves, which a keeper sees to. PROGRAM: --mps-control.
base::Status ServeMps(const State& state, const std::string& uuid, const std::string& program);

// The keeper itself: ARGUMENTS behind its name.
int KeepMps(const std::vector<std::string>& arguments);

}  // namespace hami::cli
