// SPDX-License-Identifier: Apache-2.0
//
// Who may launch kernels. Looks at what all regions of the node say at one moment and decides what is to be written
// into them: a task stops (recent_kernel −1) while a more important one runs on one of its GPUs, and a task that has
// its GPUs to itself runs without its limit (utilization_switch 0). A task is more important the smaller its priority.
//
// Pure: the time is an argument, nothing is read or written here. Remembers only for how many ticks each task has been
// quiet: a stop comes at once, its end after kQuietTicks quiet ticks in a row, so that a task which launches now and
// then does not make others stutter. Orders are given only where a word has to change.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace hami::monitor {

inline constexpr int kQuietTicks = 2;

// One region, as read.
struct Task {
  std::string key;                   // stays the same over ticks
  std::vector<std::string> devices;  // UUIDs; empty ones are no device
  std::int32_t recent_kernel = 0;
  std::int32_t utilization_switch = 1;
  std::int32_t priority = 1;
  std::uint64_t last_kernel_time = 0;  // unix seconds; 0: never, or not told
  bool seen_busy = false;              // the driver saw its processes on a GPU
};

struct Orders {
  std::optional<std::int32_t> recent_kernel;
  std::optional<std::int32_t> utilization_switch;
  bool blocked = false;  // what holds from now on, whether or not it was written now
};

class Feedback {
 public:
  explicit Feedback(std::chrono::milliseconds tick) : tick_(tick) {}

  // One answer per task, in their order. UNIX_SECONDS: now.
  std::vector<Orders> Step(const std::vector<Task>& tasks, std::int64_t unix_seconds);

  // What leaves TASK as if there were no monitor: running, and limited.
  static Orders Release(const Task& task);

 private:
  bool Active(const Task& task, std::int64_t unix_seconds) const;

  const std::chrono::milliseconds tick_;
  std::unordered_map<std::string, int> quiet_;  // ticks, at most kQuietTicks
};

}  // namespace hami::monitor
