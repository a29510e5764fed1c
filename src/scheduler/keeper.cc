// SPDX-License-Identifier: Apache-2.0

#include "scheduler/keeper.h"

#include "base/log.h"
#include "base/strings.h"

namespace hami::scheduler {
namespace {

// Writes of one round, so that a first start on a large cluster does not keep the rest of the housekeeping waiting.
constexpr std::size_t kMostWrites = 100;
constexpr auto kRound = std::chrono::milliseconds(500);
constexpr Millis kShowAgain = 5000;

}  // namespace

void Keeper::RunOnce() {
  const device::LocalClock clock{time_.Now() / 1000, time_.UtcOffset()};
  const bool leads = leads_();
  std::optional<std::string> room;
  const auto writes = books_.Locked([&](State& state) {
    if (leads && !led_) registration_.OweAll(state);
    expired_.fetch_add(state.Expire(clock.now).size(), std::memory_order_relaxed);
    if (leads && time_.Steady() >= show_from_) room = state.TakeRoom();
    return registration_.Due(state, clock, kMostWrites);
  });
  if (!leads) looked_for_waiting_ = false;
  led_ = leads;
  if (leads && !looked_for_waiting_) LookForWaiting();
  if (room) ShowRoom(*room);
  for (const NodeWrite& write : writes) {
    if (!leads) break;
    kube::Result<NodeView> written = api_.PatchNode(write.node, {}, write.changes);
    if (written) {
      node_writes_.fetch_add(1, std::memory_order_relaxed);
      continue;  // the watch tells
    }
    node_write_errors_.fetch_add(1, std::memory_order_relaxed);
    base::LogWarning(base::Concat({"node ", write.node, ": handshake not written: ", written.error().message}));
    if (written.error().reason != kube::Reason::kNotFound) break;  // the next round may have more luck
  }
  binder_.Settle();
}

// The leader before may have refused pods, and ended between the room that was made for them and the write that shows
// it. kube-scheduler asks for all that wait when a node changes.
void Keeper::LookForWaiting() {
  if (books_.Read([](const State& state) { return state.nodes().empty(); })) return;
  const auto waiting = api_.Unbound();
  if (!waiting) return;  // the next round asks
  looked_for_waiting_ = true;
  if (!waiting->empty()) books_.Locked([](State& state) { state.RoomNotShown({}); });
}

void Keeper::ShowRoom(const std::string& node) {
  const auto written = api_.PatchNode(node, {}, {{kRoomMade, std::to_string(time_.Now())}});
  if (written) {
    node_writes_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  // Nobody else would wake those who were refused, for minutes. A server that says no is not asked every round.
  books_.Locked([&](State& state) { state.RoomNotShown(node); });
  show_from_ = time_.Steady() + kShowAgain;
  node_write_errors_.fetch_add(1, std::memory_order_relaxed);
  base::LogWarning(base::Concat({"node ", node, ": room on it could not be shown yet: ", written.error().message}));
}

void Keeper::Run(const net::Canceller& stop) {
  do {
    RunOnce();
  } while (!stop.SleepUntil(net::After(kRound)));
}

}  // namespace hami::scheduler
