// SPDX-License-Identifier: Apache-2.0
//
// hami-monitor put together: the watch of the node's pods, the sampler of the GPUs, the loop, the HTTP server, and
// their orderly end. Start fails, with the reason, when the metrics address can not be had or the API server's address
// is not known; an API server or a driver that does not answer is waited for instead.

#pragma once

#include <atomic>
#include <memory>

#include "base/result.h"
#include "monitor/gpus.h"
#include "monitor/options.h"

namespace hami::monitor {

class Service {
 public:
  static base::Result<std::unique_ptr<Service>> Start(const Options& options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Where /metrics is served.
  std::uint16_t port() const;

  // Lets every container run, within its limits, and ends all threads; false when one is stuck in the driver and was
  // left behind: the process should then end without tidying up.
  bool Stop();

 private:
  class Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hami::monitor
