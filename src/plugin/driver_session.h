// SPDX-License-Identifier: Apache-2.0
//
// One session with the driver, made when it is needed and made anew when it died or when the machine's GPUs are not
// those it began with: NVML lists what was there when it started. Read is for one thread; the XID watch may be held by
// another.

#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "base/result.h"
#include "nvml/nvml.h"
#include "plugin/node_state.h"

namespace hami::plugin {

class DriverSession {
 public:
  // PROC_GPUS is the folder where the kernel's driver keeps one entry per GPU, named by bus id.
  explicit DriverSession(nvml::LoadOptions load, std::string proc_gpus = nvml::kProcGpus);

  // One look at all GPUs. An error is about the driver as a whole; the next call begins a new session.
  base::Result<DriverReading> Read(bool with_topology);

  // The watch over every GPU of the last reading; null while there is none.
  std::shared_ptr<nvml::XidWatch> xids() const;
  // XIDS failed: the next reading makes another.
  void DropXids(const std::shared_ptr<nvml::XidWatch>& xids);

 private:
  void End();
  void WatchXidsOf(const std::vector<nvml::Device>& devices);

  const nvml::LoadOptions load_;
  const std::string proc_gpus_;
  std::optional<nvml::Library> library_;
  std::optional<std::set<std::string>> kernel_gpus_;  // when the session began
  std::set<std::string> watched_;                     // UUIDs whose XIDs are heard, or never will be

  mutable std::mutex mutex_;
  std::shared_ptr<nvml::XidWatch> xids_;
};

}  // namespace hami::plugin
