// SPDX-License-Identifier: Apache-2.0
//
// All that memory keeps in this process, in one place; runtime/runtime.h is the same for the runtime. Invariant: zero
// bytes are a right beginning of every part, so that it is there before any constructor runs and takes no room in the
// library's file. In the child of a fork listener.cc makes the parts anew.
//
// Not in it: the words that every synchronisation and launch reads (flags.h), and how often a thread holds the measure
// lock, which is the thread's.
#pragma once

#include "vgpu/memory/account.h"
#include "vgpu/memory/context_memory.h"
#include "vgpu/memory/free_events.h"
#include "vgpu/memory/graphs.h"
#include "vgpu/memory/measure_lock.h"
#include "vgpu/memory/modules.h"
#include "vgpu/memory/pool_granularity.h"
#include "vgpu/memory/pools.h"
#include "vgpu/memory/table.h"
#include "vgpu/memory/vmm_handles.h"

namespace hami::vgpu {

struct Memory {
  PoolBook pools;
  GraphBook graphs;
  VmmBook vmm;
  ModuleBook modules;
  FreeEvents free_events;
  ContextMaking making;
  PrivateAccount account;
  OwnGranularity granularity[region::kMaxDevices];
  MeasureWord measure_word;
  Table table;  // what is charged in this process
};
extern Memory g_memory;

}  // namespace hami::vgpu
