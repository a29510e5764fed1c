// SPDX-License-Identifier: Apache-2.0
//
// Stream capture: while a stream is captured, what is submitted to it becomes nodes of a graph. A capture begins at one
// stream, its origin, spreads to others by events, and must come back there. Invariants: every stream of a capture
// belongs to one context's process-wide table of captures and to at most one capture; an illegal call makes the capture
// invalid, and everything of it answers CUDA_ERROR_STREAM_CAPTURE_INVALIDATED until cuStreamEndCapture.
// Guarded by the graph lock (graph.h), which comes before the engine's.
#pragma once

#include <cstdint>
#include <vector>

#include "abi/cuda_abi.h"
#include "simgpu/driver/engine.h"

namespace simgpu {

struct EventObject;
struct Graph;
struct GraphNode;
struct NodeParams;

struct CapturedStream {
  Stream* stream;
  std::vector<GraphNode*> dependencies;  // what the next node will depend on
};

struct Capture {
  std::uint64_t id = 0;
  Graph* graph = nullptr;
  bool own_graph = true;  // made by the capture, not given to it
  Stream* origin = nullptr;
  Context* ctx = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::uint64_t thread = 0;
  bool invalid = false;
  std::vector<CapturedStream> streams;
};

// Begins at a stream that captures nothing, into `given` behind `dependencies`, or into a new graph.
CUresult BeginCapture(Stream& s, CUstreamCaptureMode mode, Graph* given, std::vector<GraphNode*>&& dependencies);
// Ends the capture that began at the stream. On failure nothing is left of a capture that was invalid or unjoined.
CUresult EndCapture(Stream& s, Graph** out);
// Where a stream of the capture is in it.
CapturedStream& PlaceOf(Capture& capture, const Stream& s);
// What the calling thread lets others' captures forbid it.
CUstreamCaptureMode& ThreadCaptureMode();

// Makes the stream's capture invalid and says why.
CUresult RefuseOnCapture(const Stream& s);
// Work for the legacy stream is an implicit dependency on every capturing blocking stream of the context:
// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, and those captures become invalid.
CUresult CheckLegacyUse(Context& ctx);
// A wait for a whole context is refused while a stream of it is capturing.
CUresult CheckContextWait(Context& ctx);

CUresult CaptureCopy(Stream& s, const CopyOp& copy);
CUresult CaptureFill(Stream& s, const FillOp& fill);
// Any node: takes its place behind what the stream did before.
CUresult CaptureNode(Stream& s, NodeParams&& params, GraphNode** out = nullptr);
CUresult CaptureRecord(Stream& s, EventObject& event);
// The stream waits for an event that was recorded in a capture, and thereby joins it.
CUresult CaptureWait(Stream& s, EventObject& event);

// The captures of a context that dies, and those of a stream that is destroyed.
void EndCapturesOf(Context& ctx);
void EndCaptureOf(Stream& s);

}  // namespace simgpu
