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

// What the calling thread allows others' captures to forbid it.
CUstreamCaptureMode& ThreadMode() {
  static __thread CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

std::uint64_t ThisThread() { return static_cast<std::uint64_t>(gettid()); }

Capture* CaptureOf(const Stream& s) { return s.capture.load(std::memory_order_acquire); }

CapturedStream& Place(Capture& capture, const Stream& s) {
  return *std::find_if(capture.streams.begin(), capture.streams.end(),
                       [&s](const CapturedStream& entry) { return entry.stream == &s; });
}

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

CUresult Begin(CUstream handle, bool per_thread, CUstreamCaptureMode mode, CUgraph graph_handle,
               const CUgraphNode* dependencies, std::size_t count) {
  if (mode > CU_STREAM_CAPTURE_MODE_RELAXED || (count > 0 && dependencies == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SIMGPU_STREAM(s, handle, per_thread);
  if (s->kind == StreamKind::kLegacy) {
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  const GraphLock lock;
  if (CaptureOf(*s) != nullptr) {
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  Graph* graph = graph_handle != nullptr ? FindGraph(graph_handle) : NewGraph();
  if (graph == nullptr || graph->capturing) {
    return graph_handle != nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
  }
  CapturedStream first{s, {}};
  for (std::size_t i = 0; i < count; ++i) {
    GraphNode* node = FindNode(dependencies[i]);
    if (node == nullptr || node->graph != graph) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    first.dependencies.push_back(node);
  }
  auto* capture = new Capture();
  capture->id = Table().next_id++;
  capture->graph = graph;
  capture->own_graph = graph_handle == nullptr;
  capture->origin = s;
  capture->ctx = s->ctx;
  capture->mode = mode;
  capture->thread = ThisThread();
  capture->streams.push_back(std::move(first));
  graph->capturing = true;
  Table().all.push_back(capture);
  Table().count.fetch_add(1);
  s->capture.store(capture, std::memory_order_release);
  return CUDA_SUCCESS;
}

// True when the origin's next node would come after everything that the other streams captured.
bool Joined(const Capture& capture) {
  const CapturedStream& origin = Place(const_cast<Capture&>(capture), *capture.origin);
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
    return std::all_of(entry.dependencies.begin(), entry.dependencies.end(), [&](GraphNode* node) {
      return std::find(seen.begin(), seen.end(), node) != seen.end();
    });
  });
}

CUresult End(CUstream handle, bool per_thread, CUgraph* out) {
  SIMGPU_STREAM(s, handle, per_thread);
  if (out == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = nullptr;
  const GraphLock lock;
  Capture* capture = CaptureOf(*s);
  if (capture == nullptr) {
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  if (capture->origin != s) {
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
  *out = HandleOf(capture->graph);
  delete capture;
  return CUDA_SUCCESS;
}

CUstreamCaptureStatus StatusOf(const Capture* capture) {
  if (capture == nullptr) {
    return CU_STREAM_CAPTURE_STATUS_NONE;
  }
  return capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult IsCapturingApi(CUstream handle, CUstreamCaptureStatus* status, bool per_thread) {
  SIMGPU_STREAM(s, handle, per_thread);
  if (status == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SIMGPU_TRY(s->kind == StreamKind::kLegacy ? CheckLegacyUse(*s->ctx) : CUDA_SUCCESS);
  const GraphLock lock;
  *status = StatusOf(CaptureOf(*s));
  return CUDA_SUCCESS;
}

// The dependency list that a query hands out stays valid until the thread's next one.
const CUgraphNode* ExposeNodes(const std::vector<GraphNode*>& nodes) {
  static __thread std::vector<CUgraphNode>* exposed = nullptr;
  if (exposed == nullptr) {
    exposed = new std::vector<CUgraphNode>();
  }
  exposed->clear();
  for (GraphNode* node : nodes) {
    exposed->push_back(HandleOf(node));
  }
  return exposed->data();
}

const CUgraphEdgeData* ExposeEdges(std::size_t count) {
  static __thread std::vector<CUgraphEdgeData>* exposed = nullptr;
  if (exposed == nullptr) {
    exposed = new std::vector<CUgraphEdgeData>();
  }
  exposed->assign(count, CUgraphEdgeData{});
  return exposed->data();
}

struct InfoOut {
  CUstreamCaptureStatus* status;
  cuuint64_t* id;
  CUgraph* graph;
  const CUgraphNode** dependencies;
  const CUgraphEdgeData** edges;
  size_t* count;
};

CUresult GetInfo(CUstream handle, const InfoOut& out, bool per_thread) {
  SIMGPU_STREAM(s, handle, per_thread);
  if (out.status == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  SIMGPU_TRY(s->kind == StreamKind::kLegacy ? CheckLegacyUse(*s->ctx) : CUDA_SUCCESS);
  const GraphLock lock;
  Capture* capture = CaptureOf(*s);
  *out.status = StatusOf(capture);
  if (*out.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    return CUDA_SUCCESS;
  }
  const std::vector<GraphNode*>& nodes = Place(*capture, *s).dependencies;
  if (out.id != nullptr) {
    *out.id = capture->id;
  }
  if (out.graph != nullptr) {
    *out.graph = HandleOf(capture->graph);
  }
  if (out.dependencies != nullptr) {
    *out.dependencies = ExposeNodes(nodes);
  }
  if (out.edges != nullptr) {
    *out.edges = ExposeEdges(nodes.size());
  }
  if (out.count != nullptr) {
    *out.count = nodes.size();
  }
  return CUDA_SUCCESS;
}

CUresult UpdateDependencies(CUstream handle, const CUgraphNode* nodes, std::size_t count, unsigned flags,
                            bool per_thread) {
  SIMGPU_STREAM(s, handle, per_thread);
  if ((count > 0 && nodes == nullptr) || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const GraphLock lock;
  Capture* capture = CaptureOf(*s);
  if (capture == nullptr || capture->invalid) {
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  std::vector<GraphNode*> dependencies;
  if (flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES) {
    dependencies = Place(*capture, *s).dependencies;
  }
  for (std::size_t i = 0; i < count; ++i) {
    GraphNode* node = FindNode(nodes[i]);
    if (node == nullptr || node->graph != capture->graph) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (std::find(dependencies.begin(), dependencies.end(), node) == dependencies.end()) {
      dependencies.push_back(node);
    }
  }
  Place(*capture, *s).dependencies = std::move(dependencies);
  return CUDA_SUCCESS;
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
  const CUstreamCaptureMode thread_mode = ThreadMode();
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_SUCCESS;
  }
  const GraphLock lock;
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture : Table().all) {
    const bool own = capture->thread == ThisThread();
    // A relaxed capture forbids nothing, a thread-local one only its own thread; a global one forbids every thread that
    // has not asked to be concerned with its own captures only.
    const bool forbids = capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
                         (own || (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                  thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (forbids) {
      Invalidate(*capture);
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  return result;
}

CUresult CaptureNode(Stream& s, NodeParams&& params, GraphNode** out) {
  const GraphLock lock;
  Capture* capture = CaptureOf(s);
  if (capture == nullptr || capture->invalid) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  return Add(*capture, Place(*capture, s), std::move(params), out);
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
  event.captured_nodes = Place(*capture, s).dependencies;
  return CUDA_SUCCESS;
}

CUresult CaptureWait(Stream& s, EventObject& event) {
  const GraphLock lock;
  Captures& table = Table();
  Capture* theirs = event.capture;
  const bool alive = std::find(table.all.begin(), table.all.end(), theirs) != table.all.end() &&
                     theirs->id == event.capture_id;
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
  std::vector<GraphNode*>& dependencies = Place(*theirs, s).dependencies;
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

// --- the API ------------------------------------------------------------------------------------------------------------

#define SIMGPU_CAPTURE_API(NAME, PER_THREAD, PARAMS, CALL) \
  CUresult NAME PARAMS {                                   \
    SIMGPU_ENTER(NAME);                                    \
    constexpr bool per_thread = PER_THREAD;                \
    return simgpu::CALL;                                   \
  }
#define SIMGPU_CAPTURE_TWINS(NAME, PARAMS, CALL)    \
  SIMGPU_CAPTURE_API(NAME, false, PARAMS, CALL)     \
  SIMGPU_CAPTURE_API(NAME##_ptsz, true, PARAMS, CALL)

SIMGPU_CAPTURE_TWINS(cuStreamBeginCapture, (CUstream stream),
                     Begin(stream, per_thread, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, nullptr, 0))
SIMGPU_CAPTURE_TWINS(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode),
                     Begin(stream, per_thread, mode, nullptr, nullptr, 0))
SIMGPU_CAPTURE_TWINS(cuStreamEndCapture, (CUstream stream, CUgraph* graph), End(stream, per_thread, graph))
SIMGPU_CAPTURE_TWINS(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus* status),
                     IsCapturingApi(stream, status, per_thread))
SIMGPU_CAPTURE_TWINS(cuStreamGetCaptureInfo, (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id),
                     GetInfo(stream, {status, id, nullptr, nullptr, nullptr, nullptr}, per_thread))
SIMGPU_CAPTURE_TWINS(cuStreamGetCaptureInfo_v2,
                     (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                      const CUgraphNode** dependencies, size_t* count),
                     GetInfo(stream, {status, id, graph, dependencies, nullptr, count}, per_thread))
SIMGPU_CAPTURE_TWINS(cuStreamGetCaptureInfo_v3,
                     (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                      const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count),
                     GetInfo(stream, {status, id, graph, dependencies, edges, count}, per_thread))
SIMGPU_CAPTURE_TWINS(cuStreamUpdateCaptureDependencies,
                     (CUstream stream, CUgraphNode* nodes, size_t count, unsigned int flags),
                     UpdateDependencies(stream, nodes, count, flags, per_thread))
SIMGPU_CAPTURE_TWINS(cuStreamUpdateCaptureDependencies_v2,
                     (CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData* /*edges*/, size_t count,
                      unsigned int flags),
                     UpdateDependencies(stream, nodes, count, flags, per_thread))

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData*, size_t count, CUstreamCaptureMode mode) {
  SIMGPU_ENTER(cuStreamBeginCaptureToGraph);
  return graph == nullptr ? CUDA_ERROR_INVALID_VALUE
                          : simgpu::Begin(stream, false, mode, graph, dependencies, count);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                          const CUgraphEdgeData*, size_t count, CUstreamCaptureMode mode) {
  SIMGPU_ENTER(cuStreamBeginCaptureToGraph_ptsz);
  return graph == nullptr ? CUDA_ERROR_INVALID_VALUE
                          : simgpu::Begin(stream, true, mode, graph, dependencies, count);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  SIMGPU_ENTER(cuThreadExchangeStreamCaptureMode);
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::swap(*mode, simgpu::ThreadMode());
  return CUDA_SUCCESS;
}
