// SPDX-License-Identifier: Apache-2.0
//
// cuGraphDebugDotPrint: a graph as a DOT file.
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>

#include "simgpu/driver/core.h"
#include "simgpu/driver/graph.h"

namespace simgpu {
namespace {

struct Closer {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

const char* NameOf(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "KERNEL";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "MEMCPY";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "MEMSET";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "HOST";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "CHILD_GRAPH";
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return "EMPTY";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "EVENT_WAIT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "EVENT_RECORD";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "MEM_ALLOC";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "MEM_FREE";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "BATCH_MEM_OP";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "CONDITIONAL";
    default:
      return "UNKNOWN";
  }
}

// Names come from images: what would end the label or the line is left out.
std::string Plain(const std::string& text) {
  std::string plain;
  for (const char c : text) {
    plain += c == '"' || c == '\\' || c == '\n' ? '_' : c;
  }
  return plain;
}

std::string Details(GraphNode& node, unsigned flags) {
  const bool all = (flags & CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE) != 0;
  std::string text;
  if (const KernelNode* kernel = node.params.As<KernelNode>()) {
    text += "\\n" + Plain(InfoOf(*kernel->prepared.kernel).name);
    if (all || (flags & CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS) != 0) {
      const LaunchShape& shape = kernel->shape;
      char line[160];
      std::snprintf(line, sizeof line, "\\n<<<(%u,%u,%u),(%u,%u,%u),%u>>>", shape.grid[0], shape.grid[1], shape.grid[2],
                    shape.block[0], shape.block[1], shape.block[2], shape.shared_bytes);
      text += line;
    }
  } else if (const CopyNode* copy = node.params.As<CopyNode>()) {
    if (all || (flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS) != 0) {
      text += "\\n" + std::to_string(copy->op.bytes()) + " bytes";
    }
  } else if (const FillNode* fill = node.params.As<FillNode>()) {
    if (all || (flags & CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS) != 0) {
      text += "\\n" + std::to_string(fill->op.bytes()) + " bytes";
    }
  }
  return text;
}

void PrintGraph(std::FILE* file, const Graph& graph, unsigned flags) {
  std::fprintf(file, "subgraph cluster_%u {\nlabel=\"graph_%u\"\n", graph.id, graph.id);
  for (GraphNode* node : graph.nodes) {
    std::fprintf(file, "\"node_%" PRIu64 "\" [label=\"%s%s", node->id, NameOf(node->params.type()),
                 Details(*node, flags).c_str());
    if ((flags & CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES) != 0) {
      std::fprintf(file, "\\n%p", static_cast<void*>(node));
    }
    std::fprintf(file, "\"]\n");
  }
  for (const GraphNode* node : graph.nodes) {
    for (const Edge& edge : node->out) {
      std::fprintf(file, "\"node_%" PRIu64 "\" -> \"node_%" PRIu64 "\"\n", node->id, edge.node->id);
    }
  }
  std::fprintf(file, "}\n");
  for (GraphNode* node : graph.nodes) {
    ForEachInner(node->params, [&](const Graph* inner) { PrintGraph(file, *inner, flags); });
  }
}

}  // namespace
}  // namespace simgpu

CUresult cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned int flags) {
  SIMGPU_ENTER(cuGraphDebugDotPrint);
  if (path == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const simgpu::GraphLock lock;
  const simgpu::Graph* graph = simgpu::FindGraph(handle);
  if (graph == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::unique_ptr<std::FILE, simgpu::Closer> file(std::fopen(path, "we"));
  if (file == nullptr) {
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  std::fprintf(file.get(), "digraph dot {\n");
  simgpu::PrintGraph(file.get(), *graph, flags);
  std::fprintf(file.get(), "}\n");
  return CUDA_SUCCESS;
}
