// SPDX-License-Identifier: Apache-2.0
//
// Graphs of the API: creation, shape, identity.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "simgpu/driver/engine_state.h"
#include "simgpu/driver/graph.h"

namespace simgpu {
namespace {

bool HasGraphMemory(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](GraphNode* node) {
    if (const ChildNode* child = node->params.As<ChildNode>()) {
      return HasGraphMemory(*child->graph);
    }
    return node->params.As<AllocNode>() != nullptr || node->params.As<FreeNode>() != nullptr;
  });
}

CUresult Destroy(CUgraph handle) {
  const GraphLock lock;
  Graph* graph = FindGraph(handle);
  if (graph == nullptr || graph->owner != nullptr || graph->capturing) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  DeleteGraph(graph);
  return CUDA_SUCCESS;
}

CUresult Clone(CUgraph* out, CUgraph handle) {
  const GraphLock lock;
  const Graph* graph = FindGraph(handle);
  if (out == nullptr || graph == nullptr || graph->capturing) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (HasGraphMemory(*graph) || HasConditions(*graph)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  Graph* clone = CloneGraph(*graph, false);
  *out = HandleOf(clone);
  return clone != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult FindInClone(CUgraphNode* out, CUgraphNode node_handle, CUgraph clone_handle) {
  const GraphLock lock;
  const GraphNode* node = FindNode(node_handle);
  const Graph* clone = FindGraph(clone_handle);
  if (out == nullptr || node == nullptr || clone == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (GraphNode* candidate : clone->nodes) {
    if (candidate->parent == node->id) {
      *out = HandleOf(candidate);
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// The convention of all queries that fill an array: without an array the count is told; with one, what fits is stored,
// the rest of the array is null, and the count tells how many were stored.
CUresult StoreNodes(const std::vector<GraphNode*>& nodes, CUgraphNode* out, std::size_t* count) {
  if (count == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (out == nullptr) {
    *count = nodes.size();
    return CUDA_SUCCESS;
  }
  const std::size_t stored = std::min(nodes.size(), *count);
  for (std::size_t i = 0; i < *count; ++i) {
    out[i] = i < stored ? HandleOf(nodes[i]) : nullptr;
  }
  *count = stored;
  return CUDA_SUCCESS;
}

CUresult GetNodes(CUgraph handle, CUgraphNode* out, std::size_t* count, bool roots) {
  const GraphLock lock;
  const Graph* graph = FindGraph(handle);
  if (graph == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<GraphNode*> nodes = graph->nodes;
  if (roots) {
    std::erase_if(nodes, [](const GraphNode* node) { return !node->in.empty(); });
  }
  return StoreNodes(nodes, out, count);
}

bool IsPlain(const CUgraphEdgeData& data) { return data.from_port == 0 && data.to_port == 0 && data.type == 0; }

// One edge as the queries tell it; `from` or `to` may be null when the caller knows that end.
struct EdgeArrays {
  CUgraphNode* from;
  CUgraphNode* to;
  CUgraphEdgeData* data;
};

// Without room for edge data, edges that have some can not be told: CUDA_ERROR_LOSSY_QUERY.
CUresult StoreEdges(const std::vector<std::pair<GraphNode*, Edge>>& edges, const EdgeArrays& out, std::size_t* count) {
  if (count == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (out.from == nullptr && out.to == nullptr) {
    *count = edges.size();
    return CUDA_SUCCESS;
  }
  const std::size_t stored = std::min(edges.size(), *count);
  if (out.data == nullptr && std::any_of(edges.begin(), edges.begin() + static_cast<std::ptrdiff_t>(stored),
                                         [](const auto& edge) { return !IsPlain(edge.second.data); })) {
    return CUDA_ERROR_LOSSY_QUERY;
  }
  for (std::size_t i = 0; i < *count; ++i) {
    const bool has = i < stored;
    if (out.from != nullptr) {
      out.from[i] = has ? HandleOf(edges[i].first) : nullptr;
    }
    if (out.to != nullptr) {
      out.to[i] = has ? HandleOf(edges[i].second.node) : nullptr;
    }
    if (out.data != nullptr && has) {
      out.data[i] = edges[i].second.data;
    }
  }
  *count = stored;
  return CUDA_SUCCESS;
}

CUresult GetEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, std::size_t* count) {
  const GraphLock lock;
  const Graph* graph = FindGraph(handle);
  if (graph == nullptr || (from == nullptr) != (to == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<std::pair<GraphNode*, Edge>> edges;
  for (GraphNode* node : graph->nodes) {
    for (const Edge& edge : node->out) {
      edges.emplace_back(node, edge);
    }
  }
  return StoreEdges(edges, {from, to, data}, count);
}

CUresult GetNeighbours(CUgraphNode handle, CUgraphNode* out, CUgraphEdgeData* data, std::size_t* count, bool before) {
  const GraphLock lock;
  GraphNode* node = FindNode(handle);
  if (node == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<std::pair<GraphNode*, Edge>> edges;
  for (const Edge& edge : before ? node->in : node->out) {
    edges.emplace_back(node, edge);
  }
  return StoreEdges(edges, {nullptr, out, data}, count);
}

// Adds or removes several edges: all of them or none.
CUresult ChangeEdges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, const CUgraphEdgeData* data,
                     std::size_t count, bool add) {
  const GraphLock lock;
  const Graph* graph = FindGraph(handle);
  if (graph == nullptr || (count > 0 && (from == nullptr || to == nullptr))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto change = [&](std::size_t i, bool adding) {
    GraphNode* a = FindNode(from[i]);
    GraphNode* b = FindNode(to[i]);
    if (a == nullptr || b == nullptr || a->graph != graph || b->graph != graph) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const CUgraphEdgeData edge = data != nullptr ? data[i] : CUgraphEdgeData{};
    return adding ? AddEdge(*a, *b, edge) : RemoveEdge(*a, *b, edge);
  };
  for (std::size_t i = 0; i < count; ++i) {
    const CUresult result = change(i, add);
    if (result != CUDA_SUCCESS) {
      while (i-- > 0) {
        change(i, !add);
      }
      return result;
    }
  }
  return CUDA_SUCCESS;
}

CUresult DestroyNode(CUgraphNode handle) {
  const GraphLock lock;
  GraphNode* node = FindNode(handle);
  if (node == nullptr || node->graph->capturing) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (node->params.As<AllocNode>() != nullptr || node->params.As<FreeNode>() != nullptr ||
      node->graph->owner != nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  DeleteNode(node);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

CUresult cuGraphCreate(CUgraph* out, unsigned int flags) {
  SIMGPU_ENTER(cuGraphCreate);
  if (out == nullptr || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const simgpu::GraphLock lock;
  *out = simgpu::HandleOf(simgpu::NewGraph());
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph graph) {
  SIMGPU_ENTER(cuGraphDestroy);
  return simgpu::Destroy(graph);
}

CUresult cuGraphClone(CUgraph* clone, CUgraph graph) {
  SIMGPU_ENTER(cuGraphClone);
  return simgpu::Clone(clone, graph);
}

CUresult cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode node, CUgraph clone) {
  SIMGPU_ENTER(cuGraphNodeFindInClone);
  return simgpu::FindInClone(out, node, clone);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  SIMGPU_ENTER(cuGraphGetNodes);
  return simgpu::GetNodes(graph, nodes, count, false);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  SIMGPU_ENTER(cuGraphGetRootNodes);
  return simgpu::GetNodes(graph, nodes, count, true);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  SIMGPU_ENTER(cuGraphGetEdges);
  return simgpu::GetEdges(graph, from, to, nullptr, count);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  SIMGPU_ENTER(cuGraphGetEdges_v2);
  return simgpu::GetEdges(graph, from, to, data, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* out, size_t* count) {
  SIMGPU_ENTER(cuGraphNodeGetDependencies);
  return simgpu::GetNeighbours(node, out, nullptr, count, true);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data, size_t* count) {
  SIMGPU_ENTER(cuGraphNodeGetDependencies_v2);
  return simgpu::GetNeighbours(node, out, data, count, true);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* out, size_t* count) {
  SIMGPU_ENTER(cuGraphNodeGetDependentNodes);
  return simgpu::GetNeighbours(node, out, nullptr, count, false);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data, size_t* count) {
  SIMGPU_ENTER(cuGraphNodeGetDependentNodes_v2);
  return simgpu::GetNeighbours(node, out, data, count, false);
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  SIMGPU_ENTER(cuGraphAddDependencies);
  return simgpu::ChangeEdges(graph, from, to, nullptr, count, true);
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* data, size_t count) {
  SIMGPU_ENTER(cuGraphAddDependencies_v2);
  return simgpu::ChangeEdges(graph, from, to, data, count, true);
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  SIMGPU_ENTER(cuGraphRemoveDependencies);
  return simgpu::ChangeEdges(graph, from, to, nullptr, count, false);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* data, size_t count) {
  SIMGPU_ENTER(cuGraphRemoveDependencies_v2);
  return simgpu::ChangeEdges(graph, from, to, data, count, false);
}

CUresult cuGraphDestroyNode(CUgraphNode node) {
  SIMGPU_ENTER(cuGraphDestroyNode);
  return simgpu::DestroyNode(node);
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  SIMGPU_ENTER(cuGraphNodeGetType);
  const simgpu::GraphLock lock;
  const simgpu::GraphNode* node = simgpu::FindNode(handle);
  if (node == nullptr || type == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *type = node->params.type();
  return CUDA_SUCCESS;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* graph) {
  SIMGPU_ENTER(cuGraphChildGraphNodeGetGraph);
  const simgpu::GraphLock lock;
  simgpu::GraphNode* node = simgpu::FindNode(handle);
  const simgpu::ChildNode* child = node != nullptr ? node->params.As<simgpu::ChildNode>() : nullptr;
  if (child == nullptr || graph == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *graph = simgpu::HandleOf(child->graph);
  return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 13000
CUresult cuGraphGetId(CUgraph handle, unsigned int* id) {
  SIMGPU_ENTER(cuGraphGetId);
  const simgpu::GraphLock lock;
  const simgpu::Graph* graph = simgpu::FindGraph(handle);
  if (graph == nullptr || id == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *id = graph->id;
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetContainingGraph(CUgraphNode handle, CUgraph* graph) {
  SIMGPU_ENTER(cuGraphNodeGetContainingGraph);
  const simgpu::GraphLock lock;
  const simgpu::GraphNode* node = simgpu::FindNode(handle);
  if (node == nullptr || graph == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *graph = simgpu::HandleOf(node->graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetLocalId(CUgraphNode handle, unsigned int* id) {
  SIMGPU_ENTER(cuGraphNodeGetLocalId);
  const simgpu::GraphLock lock;
  simgpu::GraphNode* node = simgpu::FindNode(handle);
  if (node == nullptr || id == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto& nodes = node->graph->nodes;
  *id = static_cast<unsigned>(std::find(nodes.begin(), nodes.end(), node) - nodes.begin());
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetToolsId(CUgraphNode handle, unsigned long long* id) {
  SIMGPU_ENTER(cuGraphNodeGetToolsId);
  const simgpu::GraphLock lock;
  const simgpu::GraphNode* node = simgpu::FindNode(handle);
  if (node == nullptr || id == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *id = node->id;
  return CUDA_SUCCESS;
}
#endif
