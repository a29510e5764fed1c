// SPDX-License-Identifier: Apache-2.0

#include "monitor/feedback.h"

#include <algorithm>
#include <map>
#include <set>

namespace hami::monitor {
namespace {

constexpr std::int32_t kStop = -1;
// What a launch writes into recent_kernel. Each tick takes one off, so that 1 is left of a launch one tick ago.
constexpr std::int32_t kLaunched = 2;

// How many busy tasks of each priority a device has.
using Level = std::map<std::int32_t, int>;
using Levels = std::map<std::string, Level, std::less<>>;

std::set<std::string> DevicesOf(const Task& task) {
  std::set<std::string> devices(task.devices.begin(), task.devices.end());
  devices.erase("");
  return devices;
}

struct Situation {
  bool outranked = false;    // somebody more important is busy on one of the devices
  bool accompanied = false;  // somebody else of the same priority is
};

Situation Judge(const Task& task, bool busy, const Levels& levels) {
  Situation situation;
  for (const std::string& device : DevicesOf(task)) {
    const auto found = levels.find(device);
    if (found == levels.end()) continue;
    const Level& level = found->second;
    if (level.begin()->first < task.priority) situation.outranked = true;
    const auto own = level.find(task.priority);
    if (own != level.end() && own->second > (busy ? 1 : 0)) situation.accompanied = true;
  }
  return situation;
}

Orders Decide(const Task& task, const Situation& situation) {
  Orders orders;
  orders.blocked = situation.outranked;
  std::int32_t recent = task.recent_kernel;
  if (situation.outranked) {
    recent = std::min(recent, kStop);
  } else if (recent < 0) {
    recent = 0;
  } else if (recent > 0) {
    recent = std::min(recent, kLaunched) - 1;
  }
  if (recent != task.recent_kernel) orders.recent_kernel = recent;
  const std::int32_t limited = situation.outranked || situation.accompanied ? 1 : 0;
  if (limited != task.utilization_switch) orders.utilization_switch = limited;
  return orders;
}

}  // namespace

// Libraries differ in what they tell: old ones do not write last_kernel_time, some stop counting down recent_kernel
// once their limit is switched off. Any sign will do. A task that was told to stop is none: what it did before does not
// count.
bool Feedback::Active(const Task& task, std::int64_t unix_seconds) const {
  if (task.recent_kernel < 0) return false;
  if (task.recent_kernel >= kLaunched || task.seen_busy) return true;
  if (task.last_kernel_time == 0) return false;
  // The time has whole seconds and is written about twice in one.
  const std::int64_t window = std::max<std::int64_t>(2, (2 * tick_.count() + 999) / 1000);
  const auto now = static_cast<std::uint64_t>(std::max<std::int64_t>(0, unix_seconds));
  const std::uint64_t away = std::max(now, task.last_kernel_time) - std::min(now, task.last_kernel_time);
  return away <= static_cast<std::uint64_t>(window);
}

std::vector<Orders> Feedback::Step(const std::vector<Task>& tasks, std::int64_t unix_seconds) {
  std::unordered_map<std::string, int> quiet;
  Levels levels;
  for (const Task& task : tasks) {
    const auto before = quiet_.find(task.key);
    const int so_far = before == quiet_.end() ? kQuietTicks : before->second;
    const int now = Active(task, unix_seconds) ? 0 : std::min(so_far + 1, kQuietTicks);
    quiet[task.key] = now;
    if (now >= kQuietTicks || task.priority < 0) continue;  // a negative priority is no rank
    for (const std::string& device : DevicesOf(task)) ++levels[device][task.priority];
  }
  quiet_ = std::move(quiet);
  std::vector<Orders> orders;
  orders.reserve(tasks.size());
  for (const Task& task : tasks) {
    const bool busy = quiet_[task.key] < kQuietTicks && task.priority >= 0;
    orders.push_back(Decide(task, Judge(task, busy, levels)));
  }
  return orders;
}

Orders Feedback::Release(const Task& task) {
  Orders orders;
  if (task.recent_kernel < 0) orders.recent_kernel = 0;
  if (task.utilization_switch != 1) orders.utilization_switch = 1;
  return orders;
}

}  // namespace hami::monitor
