// SPDX-License-Identifier: Apache-2.0
//
// cuGraphExecUpdate: new parameters for a whole executable graph, from a graph of the same shape.
#include <unordered_map>
#include <utility>
#include <vector>

#include "simgpu/driver/core.h"
#include "simgpu/driver/graph.h"

namespace simgpu {
namespace {

struct Difference {
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  GraphNode* node = nullptr;  // of the new graph
  GraphNode* from = nullptr;  // the other end, when an edge differs
};

// What corresponds, of the executable graph and of the new one.
struct Pairs {
  std::vector<std::pair<GraphNode*, GraphNode*>> nodes;
  std::vector<std::pair<Graph*, Graph*>> graphs;
};

Difference Different(CUgraphExecUpdateResult result, GraphNode* node, GraphNode* from = nullptr) {
  return {result, node, from};
}

// Nodes correspond by the order of their creation, edges by the order in which they were added.
Difference Compare(Graph& old_graph, Graph& new_graph, Pairs* pairs) {
  if (old_graph.nodes.size() != new_graph.nodes.size()) {
    return Different(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr);
  }
  pairs->graphs.emplace_back(&old_graph, &new_graph);
  std::unordered_map<const GraphNode*, std::size_t> index;
  for (std::size_t i = 0; i < old_graph.nodes.size(); ++i) {
    index[old_graph.nodes[i]] = i;
    index[new_graph.nodes[i]] = i;
  }
  for (std::size_t i = 0; i < old_graph.nodes.size(); ++i) {
    GraphNode* was = old_graph.nodes[i];
    GraphNode* is = new_graph.nodes[i];
    if (was->params.type() != is->params.type()) {
      return Different(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, is);
    }
    if (was->in.size() != is->in.size()) {
      return Different(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, is);
    }
    for (std::size_t k = 0; k < was->in.size(); ++k) {
      if (index[was->in[k].node] != index[is->in[k].node]) {
        return Different(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, is, is->in[k].node);
      }
    }
    if (ChildNode* child = was->params.As<ChildNode>()) {
      const Difference inner = Compare(*child->graph, *is->params.As<ChildNode>()->graph, pairs);
      if (inner.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        return inner;
      }
      continue;
    }
    if (ConditionalNode* condition = was->params.As<ConditionalNode>()) {
      const ConditionalNode& other = *is->params.As<ConditionalNode>();
      if (condition->type != other.type || condition->bodies.size() != other.bodies.size()) {
        return Different(CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, is);
      }
      for (std::size_t k = 0; k < other.bodies.size(); ++k) {
        const Difference inner = Compare(*condition->bodies[k], *other.bodies[k], pairs);
        if (inner.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
          return inner;
        }
      }
    }
    pairs->nodes.emplace_back(was, is);
  }
  return {};
}

// What the driver does not let an update change.
Difference CheckParams(const Pairs& pairs) {
  for (const auto& [was, is] : pairs.nodes) {
    const KernelNode* kernel = was->params.As<KernelNode>();
    if (kernel != nullptr && kernel->ctx != is->params.As<KernelNode>()->ctx) {
      return Different(CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE, is);
    }
    const CopyNode* copy = was->params.As<CopyNode>();
    if (copy != nullptr && copy->op.route != is->params.As<CopyNode>()->op.route) {
      return Different(CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, is);
    }
    const AllocNode* alloc = was->params.As<AllocNode>();
    if (alloc != nullptr && alloc->params.dptr != is->params.As<AllocNode>()->params.dptr) {
      return Different(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, is);
    }
    const FreeNode* free = was->params.As<FreeNode>();
    if (free != nullptr && free->address != is->params.As<FreeNode>()->address) {
      return Different(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, is);
    }
  }
  return {};
}

// The references of the new graphs take the place of the old ones, which launches under way may still need.
void ExchangeUserObjects(const GraphExec& exec, const Pairs& pairs) {
  HeldObjects held;
  for (const auto& [was, is] : pairs.graphs) {
    held.insert(held.end(), was->user_objects.begin(), was->user_objects.end());
    was->user_objects = is->user_objects;
    for (const auto& [object, count] : was->user_objects) {
      object->references += count;
    }
  }
  ReleaseAfterLaunches(exec, std::move(held));
}

CUresult Update(CUgraphExec exec_handle, CUgraph graph_handle, Difference* out) {
  const GraphLock lock;
  GraphExec* exec = FindExec(exec_handle);
  Graph* graph = FindGraph(graph_handle);
  if (exec == nullptr || graph == nullptr || graph->capturing) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Pairs pairs;
  *out = Compare(*exec->graph, *graph, &pairs);
  if (out->result == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
    *out = CheckParams(pairs);
  }
  if (out->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  for (const auto& [was, is] : pairs.nodes) {
    if (ConditionalNode* condition = was->params.As<ConditionalNode>()) {
      condition->value = is->params.As<ConditionalNode>()->value;  // its bodies have pairs of their own
    } else {
      was->params = is->params;
    }
    was->origin = is->origin;
    was->enabled = true;
  }
  ExchangeUserObjects(*exec, pairs);
  BuildProgram(*exec);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node, CUgraphExecUpdateResult* result) {
  SIMGPU_ENTER(cuGraphExecUpdate);
  simgpu::Difference difference;
  difference.result = CU_GRAPH_EXEC_UPDATE_ERROR;
  const CUresult status = simgpu::Update(exec, graph, &difference);
  if (error_node != nullptr) {
    *error_node = simgpu::HandleOf(difference.node);
  }
  if (result != nullptr) {
    *result = difference.result;
  }
  return status;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  SIMGPU_ENTER(cuGraphExecUpdate_v2);
  simgpu::Difference difference;
  difference.result = CU_GRAPH_EXEC_UPDATE_ERROR;
  const CUresult status = simgpu::Update(exec, graph, &difference);
  if (info != nullptr) {
    info->result = difference.result;
    info->errorNode = simgpu::HandleOf(difference.node);
    info->errorFromNode = simgpu::HandleOf(difference.from);
  }
  return status;
}
