// SPDX-License-Identifier: Apache-2.0
//
// The counters of the program's parts as metrics. Owns their names and help texts; the parts own the counting.

#pragma once

#include <cstddef>
#include <vector>

#include "kube/client.h"
#include "kube/recorder.h"
#include "scheduler/binder.h"
#include "scheduler/cache.h"
#include "scheduler/extender.h"
#include "scheduler/keeper.h"
#include "scheduler/metrics.h"

namespace hami::scheduler {

struct BooksCounters {
  sched::LedgerCounters ledger;
  sched::FilterCounters filter;
  std::size_t nodes = 0;
  std::size_t pods = 0;
  std::size_t pending = 0;
};

struct AllCounters {
  Extender::Counters extender;
  Binder::Counters binder;
  Keeper::Counters keeper;
  Cache::Counters cache;
  kube::Client::Counters client;
  kube::EventRecorder::Counters recorder;
  BooksCounters books;
  bool leads = false;
  bool synced = false;
  BindMode bind_mode = BindMode::kNobody;
};

std::vector<Reading> AllReadings(const AllCounters& all);

}  // namespace hami::scheduler
