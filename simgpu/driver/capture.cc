// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/capture.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "simgpu/driver/engine_state.h"
#include "simgpu/driver/graph.h"

namespace simgpu {
namespace {

// Captures under way. The count can be read without the lock: nothing is checked while nobody captures.
struct Captures {
  std::vector<Capture*> all;
  std::atomic<int> count{0};
  std::uint64_t next_id = 1;
};

Captures& Table() {
  static Captures* const table = new Captures();
  return *table;
}

std::uint64_t ThisThread() { return static_cast<std::uint64_t>(gettid()); }

Capture* CaptureOf(const Stream& s) { return s.capture.load(std::memory_order_acquire); }

void Invalidate(Capture& capture) { capture.invalid = true; }

// Takes a capture out of the table and frees its streams; its graph stays.
void Close(Capture* capture) {
  for (const CapturedStream& entry : capture->streams) {
    entry.stream->capture.store(nullptr, std::memory_order_release);
  }
  std::erase(Table().all, capture);
  Table().count.fetch_sub(1);
  if (capture->graph != nullptr) {
    capture->graph->capturing = false;
  }
}

void Discard(Capture* capture) {
  Close(capture);
  if (capture->own_graph) {
    DeleteGraph(capture->graph);
  }
  delete capture;
}

// True when the origin's next node would come after everything that the other streams captured.
bool Joined(const Capture& capture) {
  const CapturedStream& origin = PlaceOf(const_cast<Capture&>(capture), *capture.origin);
  std::vector<GraphNode*> stack = origin.dependencies;
  std::vector<GraphNode*> seen = stack;
  while (!stack.empty()) {
    const GraphNode* node = stack.back();
    stack.pop_back();
    for (const Edge& edge : node->in) {
      if (std::find(seen.begin(), seen.end(), edge.node) == seen.end()) {
        seen.push_back(edge.node);
        stack.push_back(edge.node);
      }
    }
  }
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](const CapturedStream& entry) {
    return std::all_of(entry.dependencies.begin(), entry.dependencies.end(),
                       [&](GraphNode* node) { return std::find(seen.begin(), seen.end(), node) != seen.end(); });
  });
}

// Adds a node to a capture that is known to be active.
CUresult Add(Capture& capture, CapturedStream& place, NodeParams&& params, GraphNode** out) {
  GraphNode* node = NewNode(*capture.graph, std::move(params));
  if (node == nullptr) {
    Invalidate(capture);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (GraphNode* before : place.dependencies) {
    before->out.push_back({node, {}});
    node->in.push_back({before, {}});
  }
  place.dependencies.assign(1, node);
  if (out != nullptr) {
    *out = node;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUstreamCaptureMode& ThreadCaptureMode() {
  static __thread CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

CapturedStream& PlaceOf(Capture& capture, const Stream& s) {
  return *std::find_if(capture.streams.begin(), capture.streams.end(),
                       [&s](const CapturedStream& entry) { return entry.stream == &s; });
}

CUresult BeginCapture(Stream& s, CUstreamCaptureMode mode, Graph* given, std::vector<GraphNode*>&& dependencies) {
  Graph* graph = given != nullptr ? given : NewGraph();
  if (graph == nullptr) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto* capture = new Capture();
  capture->id = Table().next_id++;
  capture->graph = graph;
  capture->own_graph = given == nullptr;
  capture->origin = &s;
  capture->ctx = s.ctx;
  capture->mode = mode;
  capture->thread = ThisThread();
  capture->streams.push_back({&s, std::move(dependencies)});
  graph->capturing = true;
  Table().all.push_back(capture);
  Table().count.fetch_add(1);
  s.capture.store(capture, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult EndCapture(Stream& s, Graph** out) {
  Capture* capture = CaptureOf(s);
  if (capture == nullptr) {
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  if (capture->origin != &s) {
    Invalidate(*capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != ThisThread()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  const bool invalid = capture->invalid;
  if (invalid || !Joined(*capture)) {
    Discard(capture);
    return invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  Close(capture);
  *out = capture->graph;
  delete capture;
  return CUDA_SUCCESS;
}

CUresult RefuseOnCapture(const Stream& s) {
  const GraphLock lock;
  if (Capture* capture = CaptureOf(s)) {
    Invalidate(*capture);
  }
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult CheckLegacyUse(Context& ctx) {
  if (Table().count.load(std::memory_order_acquire) == 0) {
    return CUDA_SUCCESS;
  }
  const GraphLock lock;
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture : Table().all) {
    for (const CapturedStream& entry : capture->streams) {
      if (entry.stream->ctx == &ctx && entry.stream->blocking()) {
        Invalidate(*capture);
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      }
    }
  }
  return result;
}

CUresult CheckContextWait(Context& ctx) {
  if (Table().count.load(std::memory_order_acquire) == 0) {
    return CUDA_SUCCESS;
  }
  const GraphLock lock;
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture : Table().all) {
    if (capture->ctx == &ctx) {
      Invalidate(*capture);
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  return result;
}

CUresult CheckUnsafeCall() {
  if (Table().count.load(std::memory_order_acquire) == 0) {
    return CUDA_SUCCESS;
  }
  const CUstreamCaptureMode thread_mode = ThreadCaptureMode();
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_SUCCESS;
  }
  const GraphLock lock;
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture : Table().all) {
    const bool own = capture->thread == ThisThread();
    // A relaxed capture forbids nothing, a thread-local one only its own thread; a global one forbids every thread that
    // has not asked to be concerned with its own captures only.
    const bool forbids =
        capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        (own || (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (forbids) {
      Invalidate(*capture);
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  return result;
}

CUresult CheckCaptureRule(CaptureRule rule) {
  if (Table().count.load(std::memory_order_acquire) == 0) {
    return CUDA_SUCCESS;
  }
  if (rule == CaptureRule::kUnknown && Machine::Get().options().strict_capture == 0) {
    return CUDA_SUCCESS;
  }
  return CheckUnsafeCall();
}

CUresult CaptureNode(Stream& s, NodeParams&& params, GraphNode** out) {
  const GraphLock lock;
  Capture* capture = CaptureOf(s);
  if (capture == nullptr || capture->invalid) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  return Add(*capture, PlaceOf(*capture, s), std::move(params), out);
}

CUresult CaptureCopy(Stream& s, const CopyOp& copy) { return CaptureNode(s, CopyNodeParams(*s.ctx, copy)); }

CUresult CaptureFill(Stream& s, const FillOp& fill) { return CaptureNode(s, FillNodeParams(*s.ctx, fill)); }

CUresult CaptureAlloc(Stream& s, std::size_t size, CUdeviceptr* out) {
  CUDA_MEM_ALLOC_NODE_PARAMS params = {};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params.poolProps.location.id = s.ctx->ordinal();
  params.bytesize = size;
  NodeParams node;
  SIMGPU_TRY(MakeAllocNode(&params, &node));
  SIMGPU_TRY(CaptureNode(s, std::move(node)));
  *out = params.dptr;
  return CUDA_SUCCESS;
}

CUresult CaptureFree(Stream& s, CUdeviceptr address) {
  NodeParams node;
  SIMGPU_TRY(MakeFreeNode(address, &node));
  return CaptureNode(s, std::move(node));
}

CUresult CaptureRecord(Stream& s, EventObject& event) {
  const GraphLock lock;
  Capture* capture = CaptureOf(s);
  if (capture == nullptr || capture->invalid) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  event.capture = capture;
  event.capture_id = capture->id;
  event.captured_nodes = PlaceOf(*capture, s).dependencies;
  return CUDA_SUCCESS;
}

CUresult CaptureWait(Stream& s, EventObject& event) {
  const GraphLock lock;
  Captures& table = Table();
  Capture* theirs = event.capture;
  const bool alive =
      std::find(table.all.begin(), table.all.end(), theirs) != table.all.end() && theirs->id == event.capture_id;
  if (!alive) {
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  Capture* own = CaptureOf(s);
  if (theirs->invalid || (own != nullptr && own->invalid)) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  if (own != nullptr && own != theirs) {
    Invalidate(*own);
    Invalidate(*theirs);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (own == nullptr) {
    if (s.kind == StreamKind::kLegacy) {
      Invalidate(*theirs);
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    theirs->streams.push_back({&s, {}});
    s.capture.store(theirs, std::memory_order_release);
  }
  std::vector<GraphNode*>& dependencies = PlaceOf(*theirs, s).dependencies;
  for (GraphNode* node : event.captured_nodes) {
    if (std::find(dependencies.begin(), dependencies.end(), node) == dependencies.end()) {
      dependencies.push_back(node);
    }
  }
  return CUDA_SUCCESS;
}

void EndCapturesOf(Context& ctx) {
  const GraphLock lock;
  for (std::size_t i = 0; i < Table().all.size();) {
    Capture* capture = Table().all[i];
    const bool concerned = std::any_of(capture->streams.begin(), capture->streams.end(),
                                       [&ctx](const CapturedStream& entry) { return entry.stream->ctx == &ctx; });
    if (concerned) {
      Discard(capture);
    } else {
      ++i;
    }
  }
}

void EndCaptureOf(Stream& s) {
  const GraphLock lock;
  Capture* capture = CaptureOf(s);
  if (capture == nullptr) {
    return;
  }
  if (capture->origin == &s) {
    Discard(capture);
    return;
  }
  Invalidate(*capture);
  std::erase_if(capture->streams, [&s](const CapturedStream& entry) { return entry.stream == &s; });
  s.capture.store(nullptr, std::memory_order_release);
}

}  // namespace simgpu
