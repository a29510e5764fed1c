// SPDX-License-Identifier: Apache-2.0
//
// cuStreamBeginCapture, cuStreamEndCapture and the questions about a capture.
#include <utility>

#include "simgpu/driver/capture.h"
#include "simgpu/driver/engine_state.h"
#include "simgpu/driver/graph.h"

namespace simgpu {
namespace {

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
  if (s->capture.load(std::memory_order_acquire) != nullptr) {
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  Graph* given = nullptr;
  if (graph_handle != nullptr) {
    given = FindGraph(graph_handle);
    if (given == nullptr || given->capturing) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  std::vector<GraphNode*> nodes;
  for (std::size_t i = 0; i < count; ++i) {
    GraphNode* node = FindNode(dependencies[i]);
    if (node == nullptr || node->graph != given) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    nodes.push_back(node);
  }
  return BeginCapture(*s, mode, given, std::move(nodes));
}

CUresult End(CUstream handle, bool per_thread, CUgraph* out) {
  SIMGPU_STREAM(s, handle, per_thread);
  if (out == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = nullptr;
  const GraphLock lock;
  Graph* graph = nullptr;
  SIMGPU_TRY(EndCapture(*s, &graph));
  *out = HandleOf(graph);
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
  *status = StatusOf(s->capture.load(std::memory_order_acquire));
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
  Capture* capture = s->capture.load(std::memory_order_acquire);
  *out.status = StatusOf(capture);
  if (*out.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    return CUDA_SUCCESS;
  }
  const std::vector<GraphNode*>& nodes = PlaceOf(*capture, *s).dependencies;
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
  Capture* capture = s->capture.load(std::memory_order_acquire);
  if (capture == nullptr || capture->invalid) {
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  std::vector<GraphNode*> dependencies;
  if (flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES) {
    dependencies = PlaceOf(*capture, *s).dependencies;
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
  PlaceOf(*capture, *s).dependencies = std::move(dependencies);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

// --- the API
// ------------------------------------------------------------------------------------------------------------

#define SIMGPU_CAPTURE_API(NAME, PER_THREAD, PARAMS, CALL) \
  CUresult NAME PARAMS {                                   \
    SIMGPU_ENTER(NAME);                                    \
    constexpr bool per_thread = PER_THREAD;                \
    return simgpu::CALL;                                   \
  }
#define SIMGPU_CAPTURE_TWINS(NAME, PARAMS, CALL) \
  SIMGPU_CAPTURE_API(NAME, false, PARAMS, CALL)  \
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
  return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : simgpu::Begin(stream, false, mode, graph, dependencies, count);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                          const CUgraphEdgeData*, size_t count, CUstreamCaptureMode mode) {
  SIMGPU_ENTER(cuStreamBeginCaptureToGraph_ptsz);
  return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : simgpu::Begin(stream, true, mode, graph, dependencies, count);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  SIMGPU_ENTER(cuThreadExchangeStreamCaptureMode);
  if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::swap(*mode, simgpu::ThreadCaptureMode());
  return CUDA_SUCCESS;
}
