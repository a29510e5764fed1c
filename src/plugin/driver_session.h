// SPDX-License-Identifier: Apache-2.0
//
// One session with the driver, made when it is needed and made anew when it died or when the machine's GPUs are not
// those it began with: NVML lists what was there when it started. Read is for one thread; XIDs may be waited for by
// another.
//
// A watch for XIDs that fails is kept, for it may have heard something that it could not say yet, until the next one
// works. What nobody may have heard is marked in the reading that follows, and the next watch is made before that
// reading looks at the GPUs: what happens to one is heard or read.

#pragma once

#include <map>
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
  // The next XID, or nothing within MILLISECONDS, and at once while there is no watch. It may be told twice. An error
  // means that the watch failed: the next reading makes another.
  base::Result<std::optional<nvml::XidEvent>> NextXid(unsigned milliseconds);

 private:
  void End();
  void WatchXidsOf(const std::vector<nvml::Device>& devices);
  std::set<std::string> TakeUnheard(const std::vector<nvml::Device>& devices);

  const nvml::LoadOptions load_;
  const std::string proc_gpus_;
  std::optional<nvml::Library> library_;
  std::optional<std::set<std::string>> kernel_gpus_;  // when the session began
  std::map<std::string, bool> watched_;               // by UUID: whether its XIDs are heard, or never will be
  std::map<std::string, std::string> deaf_;           // by UUID: why not yet, as it was said

  mutable std::mutex mutex_;
  std::shared_ptr<nvml::XidWatch> xids_;
  std::shared_ptr<nvml::XidWatch> failed_;  // the first that failed since one worked
  bool gap_ = false;                        // XIDs may have been missed since the last reading
};

}  // namespace hami::plugin
