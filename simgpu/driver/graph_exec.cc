// SPDX-License-Identifier: Apache-2.0
//
// From a graph to a program, and from a program to work in streams.
#include <algorithm>
#include <unordered_map>

#include "simgpu/driver/capture.h"
#include "simgpu/driver/engine_state.h"
#include "simgpu/driver/graph.h"
#include "simgpu/driver/graph_exec.h"
#include "simgpu/driver/stream_memop.h"

namespace simgpu {
namespace {

constexpr std::size_t kMaxLanes = 64;  // more side by side than that share lanes

using Steps = std::vector<std::size_t>;

void Merge(Steps& into, const Steps& from) {
  for (const std::size_t step : from) {
    if (std::find(into.begin(), into.end(), step) == into.end()) {
      into.push_back(step);
    }
  }
}

// The nodes in an order that respects the edges; among the free ones the oldest first.
std::vector<GraphNode*> InOrder(const Graph& graph) {
  std::unordered_map<const GraphNode*, std::size_t> missing;
  std::vector<GraphNode*> order;
  order.reserve(graph.nodes.size());
  for (GraphNode* node : graph.nodes) {
    missing[node] = node->in.size();
    if (node->in.empty()) {
      order.push_back(node);
    }
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const Edge& edge : order[i]->out) {
      if (--missing[edge.node] == 0) {
        order.push_back(edge.node);
      }
    }
  }
  return order;
}

// Appends the nodes of a graph to a program, child graphs in place; returns the steps after which all of it is done.
Steps Emit(GraphExec& exec, const Graph& graph, const Steps& entry) {
  std::unordered_map<const GraphNode*, Steps> done;
  Steps exit;
  for (GraphNode* node : InOrder(graph)) {
    Steps before;
    for (const Edge& edge : node->in) {
      Merge(before, done[edge.node]);
    }
    if (node->in.empty()) {
      before = entry;
    }
    if (const ChildNode* child = node->params.As<ChildNode>()) {
      done[node] = Emit(exec, *child->graph, before);
    } else if (const ConditionalNode* conditional = node->params.As<ConditionalNode>()) {
      const Graph* body = conditional->Chosen();
      done[node] = body != nullptr ? Emit(exec, *body, before) : before;
    } else {
      node->step = exec.program.size();
      Step& step = exec.program.emplace_back();
      step.node = node;
      step.dependencies = std::move(before);
      done[node] = {node->step};
    }
    if (node->out.empty()) {
      Merge(exit, done[node]);
    }
  }
  return graph.nodes.empty() ? entry : exit;
}

Context* ContextOf(GraphNode& node, Context* fallback) {
  if (const KernelNode* kernel = node.params.As<KernelNode>()) {
    return kernel->ctx;
  }
  if (const CopyNode* copy = node.params.As<CopyNode>()) {
    return copy->ctx;
  }
  if (const FillNode* fill = node.params.As<FillNode>()) {
    return fill->ctx;
  }
  return fallback;
}

// Chains of nodes that follow each other get one lane.
void AssignLanes(GraphExec& exec) {
  constexpr std::size_t kFree = SIZE_MAX;
  std::vector<std::size_t> tail{kFree};  // the last step of each lane
  exec.lane_contexts.assign(1, exec.ctx);
  for (std::size_t i = 0; i < exec.program.size(); ++i) {
    Step& step = exec.program[i];
    Context* ctx = ContextOf(*step.node, exec.ctx);
    std::size_t lane = kFree;
    for (const std::size_t before : step.dependencies) {
      const std::size_t candidate = exec.program[before].lane;
      if (tail[candidate] == before && exec.lane_contexts[candidate] == ctx) {
        lane = candidate;
        break;
      }
    }
    if (lane == kFree && tail[0] == kFree && ctx == exec.ctx) {
      lane = 0;
    }
    if (lane == kFree && tail.size() >= kMaxLanes) {
      for (std::size_t k = 0; k < tail.size() && lane == kFree; ++k) {
        const std::size_t candidate = (i + k) % tail.size();
        lane = exec.lane_contexts[candidate] == ctx ? candidate : kFree;
      }
    }
    if (lane == kFree) {
      lane = tail.size();
      tail.push_back(kFree);
      exec.lane_contexts.push_back(ctx);
    }
    step.lane = lane;
    tail[lane] = i;
    std::erase_if(step.dependencies, [&](std::size_t before) { return exec.program[before].lane == lane; });
  }
}

// Allocation and free nodes of the same program learn of each other.
void PairAllocations(GraphExec& exec) {
  std::unordered_map<CUdeviceptr, AllocNode*> made;
  exec.of_memory = false;
  for (const Step& step : exec.program) {
    exec.of_memory |= step.node->params.As<AllocNode>() != nullptr || step.node->params.As<FreeNode>() != nullptr;
    if (AllocNode* alloc = step.node->params.As<AllocNode>()) {
      alloc->freed_inside = false;
      made[alloc->params.dptr] = alloc;
    } else if (FreeNode* free = step.node->params.As<FreeNode>()) {
      const auto found = made.find(free->address);
      free->of_program = found != made.end();
      if (free->of_program) {
        found->second->freed_inside = true;
      }
    }
  }
}

std::vector<const AllocNode*> AllocationsOf(const GraphExec& exec) {
  std::vector<const AllocNode*> all;
  for (const Step& step : exec.program) {
    if (const AllocNode* alloc = step.node->params.As<AllocNode>()) {
      all.push_back(alloc);
    }
  }
  return all;
}

// Memory of all allocation nodes, or of none. What an earlier launch left behind must have been freed, unless the graph
// was told to free it at its next launch: it then simply keeps it.
CUresult BackAllocations(const GraphExec& exec) {
  if (!exec.of_memory) return CUDA_SUCCESS;
  std::vector<const AllocNode*> nodes = AllocationsOf(exec);
  const auto owed = [](const AllocNode* alloc) { return GraphIsOwed(alloc->params.dptr); };
  if ((exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0) {
    std::erase_if(nodes, owed);
  } else if (std::any_of(nodes.begin(), nodes.end(), owed)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const CUresult result = GraphBack(nodes[i]->params.dptr);
    if (result != CUDA_SUCCESS) {
      while (i-- > 0) {
        GraphUnback(nodes[i]->params.dptr);
      }
      return result;
    }
  }
  for (const AllocNode* alloc : nodes) {
    if (!alloc->freed_inside) {
      GraphOwe(alloc->params.dptr);
    }
  }
  for (const Step& step : exec.program) {
    const FreeNode* free = step.node->params.As<FreeNode>();
    if (free != nullptr && !free->of_program) {
      GraphSettle(free->address);
    }
  }
  return CUDA_SUCCESS;
}

void RunFree(void* arg) { GraphUnback(reinterpret_cast<CUdeviceptr>(arg)); }

void EnqueueCall(Scheduler& sched, Stream& s, void (*fn)(void*), void* arg, OpKind kind, Nanos now) {
  Op op;
  op.kind = kind;
  op.call = {fn, arg};
  Enqueue(sched, s, op, now);
}

// Submits what one node does.
struct Submitter {
  Scheduler& sched;
  Stream& s;
  Nanos now;

  void Run(std::uint64_t kernels, std::uint64_t sm_nanos, std::uint32_t width) const {
    EnqueueKernel(sched, s, sm_nanos, width, kernels * s.engine->share->profile.graph_gap_ns, now);
  }
  void operator()(EmptyNode&) const {}
  void operator()(ChildNode&) const {}
  void operator()(ConditionalNode&) const {}  // its body is part of the program, or it is not
  void operator()(AllocNode&) const {}        // backed before the launch
  void operator()(KernelNode& node) const {
    Run(1, node.prepared.sm_nanos, node.prepared.width);
    if (void* action = NewKernelAction(*node.ctx, node.prepared.kernel, node.packed)) {
      EnqueueCall(sched, s, RunKernelAction, action, OpKind::kCall, now);
    }
  }
  void operator()(CopyNode& node) const { EnqueueCopy(sched, s, node.op, now); }
  void operator()(FillNode& node) const { EnqueueFill(sched, s, node.op, now); }
  void operator()(HostNode& node) const { EnqueueCall(sched, s, node.fn, node.user_data, OpKind::kHost, now); }
  void operator()(FreeNode& node) const {
    EnqueueCall(sched, s, RunFree, reinterpret_cast<void*>(node.address), OpKind::kCall, now);
  }
  void operator()(EventNode& node) const {
    EventObject* event = FindEvent(node.event);
    if (event != nullptr) {
      node.record ? EnqueueRecord(sched, s, *event, now) : EnqueueEventWait(sched, s, *event, now);
    }
  }
  void operator()(MemOpNode& node) const {
    for (const CUstreamBatchMemOpParams& params : node.ops) {
      Op op;
      bool skip = false;
      if (MakeMemOp(params, &op, &skip) == CUDA_SUCCESS && !skip) {
        Enqueue(sched, s, op, now);
      }
    }
  }
};

// A step that is a kernel and nothing more.
const PreparedLaunch* PlainKernel(const Step& step) {
  const KernelNode* const node = step.node->enabled ? step.node->params.As<KernelNode>() : nullptr;
  return node != nullptr && !node->prepared.acts ? &node->prepared : nullptr;
}

// Kernels as wide as each other, of which each waits for the one before alone, go as one entry: a driver does not go
// through a graph kernel by kernel. The step behind them; `first` where there are none.
std::size_t SubmitRun(const Submitter& to, std::vector<Step>& program, std::size_t first) {
  std::uint64_t sm_nanos = 0;
  std::uint32_t width = 0;
  std::size_t end = first;
  for (; end < program.size(); ++end) {
    const PreparedLaunch* const kernel = PlainKernel(program[end]);
    if (kernel == nullptr || (end > first && kernel->width != width)) break;
    width = kernel->width;
    sm_nanos = std::min(kMostSmNanos, sm_nanos + std::min(kMostSmNanos, kernel->sm_nanos));
  }
  if (end > first) to.Run(end - first, sm_nanos, width);
  for (std::size_t i = first; i < end; ++i) {
    program[i].stream = &to.s;
    program[i].seq = to.s.submitted;
  }
  return end;
}

// The streams of the lanes; the launching one is the first if it is of the right context.
bool TakeLanes(Scheduler& sched, GraphExec& exec, Stream& s) {
  exec.lanes.resize(exec.lane_contexts.size());
  for (std::size_t i = s.ctx == exec.ctx ? 1 : 0; i < exec.lanes.size(); ++i) {
    if (exec.lanes[i] == nullptr) {
      Context* ctx = exec.lane_contexts[i];
      exec.lanes[i] = ctx->engine != nullptr ? TakeLane(sched, *ctx->engine) : nullptr;
      if (exec.lanes[i] == nullptr) {
        return false;
      }
    }
  }
  return true;
}

void SubmitProgram(Scheduler& sched, GraphExec& exec, Stream& s, Nanos now) {
  if (exec.last_stream != nullptr) {
    EnqueueWait(sched, s, *exec.last_stream, exec.last_seq, now);
  }
  const std::uint64_t start = s.submitted;
  const std::size_t first = s.ctx == exec.ctx ? 1 : 0;
  for (std::size_t i = first; i < exec.lanes.size(); ++i) {
    EnqueueWait(sched, *exec.lanes[i], s, start, now);
  }
  // Where each kernel takes a length of its own by chance they go one by one.
  const bool in_runs = exec.lanes.size() == 1 && s.engine->share->profile.kernel_jitter_permille == 0;
  for (std::size_t i = 0; i < exec.program.size(); ++i) {
    if (in_runs) i = SubmitRun({sched, first == 1 ? s : *exec.lanes[0], now}, exec.program, i);
    if (i == exec.program.size()) break;
    Step& step = exec.program[i];
    Stream& lane = step.lane < first ? s : *exec.lanes[step.lane];
    for (const std::size_t before : step.dependencies) {
      const Step& other = exec.program[before];
      EnqueueWait(sched, lane, *other.stream, other.seq, now);
    }
    if (step.node->enabled) {
      std::visit(Submitter{sched, lane, now}, step.node->params.work);
    }
    step.stream = &lane;
    step.seq = lane.submitted;
  }
  for (std::size_t i = first; i < exec.lanes.size(); ++i) {
    EnqueueWait(sched, s, *exec.lanes[i], exec.lanes[i]->submitted, now);
    LeaveQueue(sched, *exec.lanes[i], now);
  }
  exec.last_stream = &s;
  exec.last_seq = s.submitted;
  LeaveQueue(sched, s, now);
}

}  // namespace

void BuildProgram(GraphExec& exec) {
  exec.program.clear();
  Emit(exec, *exec.graph, {});
  AssignLanes(exec);
  PairAllocations(exec);
}

namespace {

// Nodes of graphs inside can be named by the handles that cuGraphChildGraphNodeGetGraph leads to.
GraphNode* FindOrigin(const Graph& graph, std::uint64_t origin) {
  GraphNode* found = nullptr;
  for (GraphNode* node : graph.nodes) {
    if (node->origin == origin) {
      return node;
    }
    ForEachInner(node->params, [&](const Graph* inner) {
      if (found == nullptr) {
        found = FindOrigin(*inner, origin);
      }
    });
  }
  return found;
}

}  // namespace

GraphNode* NodeIn(GraphExec& exec, const GraphNode& node) { return FindOrigin(*exec.graph, node.origin); }

CUresult LaunchGraph(GraphExec& exec, Stream& s) {
  if (exec.ctx == nullptr) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  {
    EngineLock sched;
    if (!TakeLanes(*sched, exec, s)) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  SIMGPU_TRY(BackAllocations(exec));
  EngineLock sched;
  OrderQueue(*sched, s);  // room was waited for: to wait here would be to wait with the graph lock
  SubmitProgram(*sched, exec, s, Machine::Get().Now());
  return CUDA_SUCCESS;
}

void WaitForRoomFor(Stream& s) {
  EngineLock sched;
  if (s.submitted - s.completed >= kQueueDepth) {
    sched->WaitForRoom(s);
  }
}

}  // namespace simgpu
