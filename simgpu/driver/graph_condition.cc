// SPDX-License-Identifier: Apache-2.0
//
// Conditional nodes. On a GPU kernels set the value of a handle; here they compute nothing, so that a handle keeps the
// value that it was created with (0 without CU_GRAPH_COND_ASSIGN_DEFAULT), and what a conditional node does is known
// when its graph becomes executable: IF and SWITCH choose by that value. A WHILE whose value is not 0 runs its body
// once, as if a kernel of the body had ended the loop then: on a GPU nothing else ever ends it.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "simgpu/driver/core.h"
#include "simgpu/driver/graph.h"

namespace simgpu {
namespace {

struct Condition {
  const Graph* graph = nullptr;
  Context* ctx = nullptr;
  unsigned value = 0;
  bool used = false;
};

// Guarded by the graph lock.
struct Conditions {
  std::unordered_map<CUgraphConditionalHandle, Condition> all;
  CUgraphConditionalHandle next = 1;
};

Conditions& TheConditions() {
  static Conditions& conditions = *new Conditions;
  return conditions;
}

// The graph, or one that has it inside.
bool IsAround(const Graph* outer, const Graph* graph) {
  while (graph != outer && graph->owner != nullptr) {
    graph = graph->owner->graph;
  }
  return graph == outer;
}

CUresult CreateHandle(CUgraphConditionalHandle* out, CUgraph graph_handle, CUcontext ctx_handle, unsigned value,
                      unsigned flags) {
  if (out == nullptr || (flags & ~static_cast<unsigned>(CU_GRAPH_COND_ASSIGN_DEFAULT)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context* ctx = nullptr;
  SIMGPU_TRY(ctx_handle == nullptr ? NeedContext(&ctx) : ContextOf(ctx_handle, &ctx));
  const GraphLock lock;
  const Graph* graph = FindGraph(graph_handle);
  if (graph == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Conditions& conditions = TheConditions();
  const bool assigned = (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0;
  conditions.all[conditions.next] = {graph, ctx, assigned ? value : 0, false};
  *out = conditions.next++;
  return CUDA_SUCCESS;
}

bool SizeFits(CUgraphConditionalNodeType type, unsigned size) {
  switch (type) {
    case CU_GRAPH_COND_TYPE_IF:
      return size == 1 || size == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
      return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
      return size > 0;
    default:
      return false;
  }
}

// What a body may hold.
bool AllowedInBody(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return true;
    default:
      return false;
  }
}

CUresult CheckNodes(const Graph& graph, bool in_body, CUgraphInstantiateResult* why) {
  for (GraphNode* node : graph.nodes) {
    const ConditionalNode* conditional = node->params.As<ConditionalNode>();
    // The application's view of the bodies is held by the node, and by the one executable graph that there may be.
    const bool twice = conditional != nullptr && conditional->public_bodies.use_count() > 1;
    if (twice || (in_body && !AllowedInBody(node->params.type()))) {
      *why = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = CUDA_SUCCESS;
    ForEachInner(node->params, [&](const Graph* inner) {
      if (result == CUDA_SUCCESS) {
        result =
            inner->capturing ? CUDA_ERROR_INVALID_VALUE : CheckNodes(*inner, in_body || conditional != nullptr, why);
      }
    });
    SIMGPU_TRY(result);
  }
  return CUDA_SUCCESS;
}

}  // namespace

Graph* ConditionalNode::Chosen() const {
  if (type == CU_GRAPH_COND_TYPE_SWITCH) {
    return value < bodies.size() ? bodies[value] : nullptr;
  }
  if (value != 0) {
    return bodies[0];
  }
  return bodies.size() > 1 ? bodies[1] : nullptr;
}

CUresult MakeConditionalNode(Graph& graph, CUDA_CONDITIONAL_NODE_PARAMS* params, NodeParams* out) {
  auto& all = TheConditions().all;
  const auto found = all.find(params->handle);
  if (found == all.end() || !IsAround(found->second.graph, &graph) || !SizeFits(params->type, params->size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (params->ctx != nullptr && params->ctx != HandleOf(*found->second.ctx)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ConditionalNode node;
  node.handle = params->handle;
  node.type = params->type;
  node.value = found->second.value;
  node.ctx = HandleOf(*found->second.ctx);
  node.public_bodies = std::make_shared<std::vector<CUgraph>>();
  for (unsigned i = 0; i < params->size; ++i) {
    Graph* body = NewGraph();
    if (body == nullptr) {
      for (Graph* made : node.bodies) {
        DeleteGraph(made);
      }
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node.bodies.push_back(body);
    node.public_bodies->push_back(HandleOf(body));
  }
  found->second.used = true;
  params->phGraph_out = node.public_bodies->data();
  out->work = std::move(node);
  return CUDA_SUCCESS;
}

void DropConditionsOf(const Graph& graph) {
  if (!graph.hidden) {
    std::erase_if(TheConditions().all, [&graph](const auto& one) { return one.second.graph == &graph; });
  }
}

bool HasConditions(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](GraphNode* node) {
    bool has = node->params.As<ConditionalNode>() != nullptr;
    ForEachInner(node->params, [&has](const Graph* inner) { has = has || HasConditions(*inner); });
    return has;
  });
}

CUresult CheckConditions(const Graph& graph, CUgraphInstantiateResult* why) {
  const auto& all = TheConditions().all;
  const bool unused = std::any_of(all.begin(), all.end(), [&graph](const auto& one) {
    return !one.second.used && IsAround(&graph, one.second.graph);
  });
  if (unused) {
    *why = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CheckNodes(graph, false, why);
}

}  // namespace simgpu

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* handle, CUgraph graph, CUcontext ctx,
                                        unsigned int value, unsigned int flags) {
  SIMGPU_ENTER(cuGraphConditionalHandleCreate);
  return simgpu::CreateHandle(handle, graph, ctx, value, flags);
}
