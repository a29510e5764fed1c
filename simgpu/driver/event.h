// SPDX-License-Identifier: Apache-2.0
//
// Events: where a stream was, and when it got there. An event remembers its last record only; a record that was
// overtaken by a newer one leaves no trace. What an interprocess event remembers lies in shared memory instead
// (event_ipc.h). Guarded by the engine's lock except for `live`, `ctx`, `flags` and `shared`.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "abi/cuda_abi.h"
#include "simgpu/driver/event_ipc.h"
#include "simgpu/machine/machine.h"

namespace simgpu {

struct Capture;
struct Context;
struct GraphNode;
struct Scheduler;
struct Stream;

struct EventObject {
  std::atomic<bool> live{false};
  EventObject* next_free = nullptr;
  Context* ctx = nullptr;
  unsigned flags = 0;
  SharedEvent* shared = nullptr;  // interprocess: the four below mean nothing
  bool imported = false;          // `shared` is another process'

  Stream* stream = nullptr;   // of the last record; null: never recorded
  std::uint64_t seq = 0;      // what the stream has come to when the record is done
  std::uint64_t serial = 0;   // of the last record
  std::uint64_t reached = 0;  // the last record that is done
  Nanos time = 0;             // of `reached`
  std::uint32_t pending = 0;  // records in queues
  bool destroyed = false;

  // Recorded in a capture: stands for a node there, and can not be asked or waited for by the host.
  Capture* capture = nullptr;
  std::uint64_t capture_id = 0;
  std::vector<GraphNode*> captured_nodes;  // guarded by the graph lock

  bool Recorded() const { return shared != nullptr ? shared->Recorded() : stream != nullptr; }
};

// The event behind a handle; null when there is none.
EventObject* FindEvent(CUevent handle);
inline CUevent HandleOf(EventObject& event) { return reinterpret_cast<CUevent>(&event); }

// Records on a stream that is not capturing, with the engine's lock held.
void EnqueueRecord(Scheduler& sched, Stream& s, EventObject& event, Nanos now);
// The stream waits for the event's last record, with the engine's lock held.
void EnqueueEventWait(Scheduler& sched, Stream& s, EventObject& event, Nanos now);

// Behind cuCtxRecordEvent and cuCtxWaitEvent: the event follows all that the context's streams hold now, or all of them
// wait for it. Streams that are created later do not wait. Refused while a stream of the context is capturing.
CUresult RecordContext(Context& ctx, CUevent handle);
CUresult WaitInContext(Context& ctx, CUevent handle);

// Called by the engine when a stream has come to a record.
void RecordReached(Scheduler& sched, EventObject& event, std::uint64_t serial, Nanos t);

// The events of a context that dies, with the engine's lock held.
void DestroyEventsOf(Scheduler& sched, Context& ctx);

}  // namespace simgpu
