// SPDX-License-Identifier: Apache-2.0
//
// The mode that is in force on this node, through restarts. Owns the file that remembers it: a mode is written down
// before the first GPU is touched for it, and another one after the last trace of it is gone, so that the file names
// whatever may be left on the GPUs. Not thread-safe.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plugin/mode.h"

namespace hami::plugin {

// What a mode does to the GPUs. Both are idempotent, and are repeated after a death.
struct ModeSteps {
  std::function<base::Status(OperatingMode mode)> enter;  // again with every look, but not while it is being left
  std::function<base::Status(OperatingMode mode)> leave;
};

class ModeKeeper {
 public:
  ModeKeeper(std::string path, ModeSteps steps) : path_(std::move(path)), steps_(std::move(steps)) {}

  // No file: hami-core. A file that says nothing is an error and stays as it is.
  base::Status Start();

  OperatingMode in_force() const { return in_force_; }

  struct Outcome {
    bool changed = false;
    std::string refusal;  // why the mode is not the one that is wanted
    std::string trouble;  // what of the mode in force could not be done
  };
  // HOLDERS is asked only where the mode is to change.
  Outcome Look(OperatingMode wanted, const std::function<std::vector<std::string>()>& holders);

 private:
  base::Status Change(OperatingMode to);
  base::Status Save(OperatingMode mode);

  const std::string path_;
  const ModeSteps steps_;
  OperatingMode in_force_ = OperatingMode::kHamiCore;
};

}  // namespace hami::plugin
