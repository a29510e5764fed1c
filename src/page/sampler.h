// SPDX-License-Identifier: Apache-2.0
//
// Asks every node's monitor what its shares use, round after round, and keeps the answers in a history. A round asks a
// few monitors at a time, each within a few seconds, so that nodes that do not answer hold up no others for long. What
// goes wrong with a node is said in the history; the log has the list's troubles alone, each once.

#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "net/cancel.h"
#include "net/time.h"
#include "page/monitors.h"
#include "page/use_history.h"

namespace hami::page {

struct SamplerSources {
  std::function<base::Result<std::vector<MonitorAddress>>()> find;  // by node
  std::function<base::Result<device::UseReport>(const MonitorAddress& monitor)> ask;
  std::function<device::UnixSeconds()> now;
};

class Sampler {
 public:
  static constexpr unsigned kAtOnce = 8;

  // STOP ends a round, and must outlive this.
  Sampler(UseHistory& history, SamplerSources sources, net::Duration interval, const net::Canceller& stop);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  void Start();
  void Stop();  // after STOP was thrown
  void RunOnce();

 private:
  void Ask(const MonitorAddress& monitor);

  UseHistory& history_;
  const SamplerSources sources_;
  const net::Duration interval_;
  const net::Canceller& stop_;
  std::string told_;  // of the list
  std::thread thread_;
};

}  // namespace hami::page
