// SPDX-License-Identifier: Apache-2.0
//
// The scheduler's housekeeping, on one thread: looks at nodes that changed or whose time has come (registration.h) and
// writes what that asks for, lets charges expire that no bind call came for, shows kube-scheduler that room was made,
// settles Bindings nobody heard back from.
// Only a leader writes; a follower keeps its books as current as the leader's.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "net/cancel.h"
#include "scheduler/api.h"
#include "scheduler/binder.h"
#include "scheduler/books.h"
#include "scheduler/registration.h"

namespace hami::scheduler {

class Keeper {
 public:
  // LEADS: do we write?
  Keeper(Books& books, Api& api, Time& time, Binder& binder, Registration& registration, std::function<bool()> leads)
      : books_(books), api_(api), time_(time), binder_(binder), registration_(registration), leads_(std::move(leads)) {}

  // One round: everything that is due now.
  void RunOnce();
  // Rounds, until STOP is thrown.
  void Run(const net::Canceller& stop);

  struct Counters {
    std::uint64_t expired = 0;
    std::uint64_t node_writes = 0;
    std::uint64_t node_write_errors = 0;
  };
  Counters counters() const { return {expired_.load(), node_writes_.load(), node_write_errors_.load()}; }

 private:
  void LookForWaiting();
  void ShowRoom(const std::string& node);

  Books& books_;
  Api& api_;
  Time& time_;
  Binder& binder_;
  Registration& registration_;
  const std::function<bool()> leads_;
  bool led_ = false;
  bool looked_for_waiting_ = false;  // since we lead
  Millis show_from_ = 0;             // by the steady clock: room is not shown before
  std::atomic<std::uint64_t> expired_ = 0, node_writes_ = 0, node_write_errors_ = 0;
};

}  // namespace hami::scheduler
