// SPDX-License-Identifier: Apache-2.0
//
// Has the pods go that the books have chosen for others of higher priority, through the eviction API: disruption
// budgets hold. All that are to go for one pod are tried first, and none goes where one may not.

#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/api.h"
#include "scheduler/books.h"
#include "scheduler/events.h"

namespace hami::scheduler {

class Evictor {
 public:
  Evictor(Books& books, Api& api, RecordEvent record) : books_(books), api_(api), record_(std::move(record)) {}

  // What is due now.
  void RunOnce();

  struct Counters {
    std::uint64_t evicted = 0;
    std::uint64_t refused = 0;
  };
  Counters counters() const { return {evicted_.load(), refused_.load()}; }

 private:
  // Whether it may go, or has gone already.
  bool Evict(const Eviction& eviction, bool only_try);

  Books& books_;
  Api& api_;
  const RecordEvent record_;
  std::atomic<std::uint64_t> evicted_ = 0, refused_ = 0;
};

}  // namespace hami::scheduler
