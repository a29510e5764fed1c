// SPDX-License-Identifier: Apache-2.0
//
// The GPUs, asked in the background. The driver may take its time, and for a GPU that fell off the bus it may take for
// ever; so one thread asks, and everybody else takes the last answer, which says how old it is. A driver that is not
// there, or stops working, is looked for again with growing pauses.

#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"
#include "monitor/picture.h"

namespace hami::monitor {

// XIDs heard of each GPU and MIG device, by UUID.
using XidCounts = std::map<std::string, XidsByCode>;

// Where answers come from; called by one thread only. A look may block.
class GpuSource {
 public:
  virtual ~GpuSource() = default;
  // An error: nothing can be said of any GPU; the source is made anew for the next look.
  virtual base::Result<std::vector<GpuPicture>> Look() = 0;
};
// HEARD outlives the source, of which there may be many in a life: what it hears it adds there.
using MakeGpuSource = std::function<base::Result<std::unique_ptr<GpuSource>>(XidCounts& heard)>;

// libnvidia-ml.so.1, one session for as long as it works and the machine's GPUs are those it began with. PROC_GPUS: see
// nvml::KernelGpus.
base::Result<std::unique_ptr<GpuSource>> MakeNvmlSource(const nvml::LoadOptions& load, const std::string& proc_gpus,
                                                        XidCounts& heard);

class GpuSampler {
 public:
  struct Pace {
    std::chrono::milliseconds interval{2000};
    std::chrono::milliseconds first_retry{2000};
    std::chrono::milliseconds most_retry{60'000};
  };
  GpuSampler(MakeGpuSource make, Pace pace);
  ~GpuSampler();
  GpuSampler(const GpuSampler&) = delete;
  GpuSampler& operator=(const GpuSampler&) = delete;

  // The last answer, whose figures a failure leaves as they were; before the first one it is empty and not answering.
  // Never null, never blocks.
  std::shared_ptr<const GpusPicture> Last() const;

  // False when the thread did not come back from the driver within PATIENCE: it is left behind, with all that it uses.
  bool Stop(std::chrono::milliseconds patience);

 private:
  struct Shared;
  static void Run(const std::shared_ptr<Shared>& shared);
  const std::shared_ptr<Shared> shared_;
  bool stopped_ = false;
};

}  // namespace hami::monitor
