// SPDX-License-Identifier: Apache-2.0
//
// The whole plugin: GPUs and registration on one side, kubelet and containers on the other, the API server behind both.
// Owns every part and their order: what containers mount is on disk before the kubelet hears of us; everything that was
// started is stopped and joined, in reverse.

#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "plugin/options.h"

namespace hami::plugin {

class Agent {
 public:
  explicit Agent(Options options);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // ON_GIVE_UP is called once, on a thread of the agent, when it can not serve any more. INTERRUPTED is asked whether
  // to go on, while something may take for ever.
  base::Status Start(const std::function<void()>& on_give_up, const std::function<bool()>& interrupted);
  void Stop();
  // Serves and registers anew; GPUs, health and records stay as they are.
  void Restart();

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace hami::plugin
