// SPDX-License-Identifier: Apache-2.0
//
// The GPUs' compute mode while MPS serves them. EXCLUSIVE_PROCESS, where it is wanted, lets nothing but the MPS server
// use a GPU, so that a program without MPS is refused rather than unlimited. Owns the list of the GPUs that it changed,
// on disk before the driver is told: only those are changed back, whichever life of the plugin does it. A GPU that
// was not in mode DEFAULT is somebody else's and stays as it is.

#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "nvml/nvml.h"
#include "plugin/inventory.h"

namespace hami::plugin {

struct ComputeModeDriver {
  std::function<base::Result<std::vector<nvml::Device>>()> gpus;
  std::function<base::Status(const std::string& uuid, nvml::ComputeMode mode)> set;
};

class ComputeModes {
 public:
  ComputeModes(ComputeModeDriver driver, std::string path) : driver_(std::move(driver)), path_(std::move(path)) {}

  // EXCLUSIVE_PROCESS for every GPU but those that are EXCLUDED or divided. May be repeated; goes on after an error
  // and returns the first.
  base::Status Exclude(const Exclusion& excluded);
  // DEFAULT again for those that were changed. One that is not there is forgotten: a reset has done it.
  base::Status Restore();

 private:
  base::Result<std::set<std::string>> Changed() const;
  base::Status Save(const std::set<std::string>& uuids) const;

  const ComputeModeDriver driver_;
  const std::string path_;
};

}  // namespace hami::plugin
