// SPDX-License-Identifier: Apache-2.0
//
// What happened to a pod, for whoever runs `kubectl describe` on it. A function, so that tests can listen; in the
// program it is kube::EventRecorder::Record, which never waits.

#pragma once

#include <functional>
#include <string_view>

#include "sched/decision.h"

namespace hami::scheduler {

struct PodName {
  std::string_view ns;
  std::string_view name;
  std::string_view uid;
};

using RecordEvent = std::function<void(const PodName& pod, const sched::Event& event)>;

}  // namespace hami::scheduler
