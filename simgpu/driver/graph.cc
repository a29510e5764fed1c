// SPDX-License-Identifier: Apache-2.0
//
// Graphs as a data structure: nodes, edges, clones, life and death.
#include "simgpu/driver/graph.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "simgpu/driver/context.h"
#include "simgpu/driver/engine_state.h"
#include "simgpu/driver/handle_arena.h"

namespace simgpu {
namespace {

struct Store {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  HandleArena<Graph, 65536> graphs;
  HandleArena<GraphNode, std::size_t{1} << 21> nodes;
  HandleArena<GraphExec, 65536> execs;
  HandleArena<UserObject, 65536> user_objects;
  unsigned next_graph_id = 1;
  unsigned next_exec_id = 1;
  std::uint64_t next_node_id = 1;
};

Store& Data() {
  static Store* const store = new Store();
  return *store;
}

// True when `to` can be reached from `from`.
bool Reaches(const GraphNode* from, const GraphNode* to) {
  std::vector<const GraphNode*> stack{from};
  std::unordered_set<const GraphNode*> seen;
  while (!stack.empty()) {
    const GraphNode* node = stack.back();
    stack.pop_back();
    if (node == to) {
      return true;
    }
    for (const Edge& edge : node->out) {
      if (seen.insert(edge.node).second) {
        stack.push_back(edge.node);
      }
    }
  }
  return false;
}

bool SamePorts(const CUgraphEdgeData& a, const CUgraphEdgeData& b) {
  return a.from_port == b.from_port && a.to_port == b.to_port && a.type == b.type;
}

std::vector<Edge>::iterator FindEdge(std::vector<Edge>& edges, const GraphNode* node, const CUgraphEdgeData& data) {
  return std::find_if(edges.begin(), edges.end(),
                      [&](const Edge& edge) { return edge.node == node && SamePorts(edge.data, data); });
}

}  // namespace

GraphLock::GraphLock() { pthread_mutex_lock(&Data().lock); }
GraphLock::~GraphLock() { pthread_mutex_unlock(&Data().lock); }

Graph* FindGraph(CUgraph handle) {
  Graph* graph = Data().graphs.Find(handle);
  return graph == nullptr || graph->hidden ? nullptr : graph;
}
GraphNode* FindNode(CUgraphNode handle) {
  GraphNode* node = Data().nodes.Find(handle);
  return node == nullptr || node->graph->hidden ? nullptr : node;
}
GraphExec* FindExec(CUgraphExec handle) { return Data().execs.Find(handle); }
UserObject* FindUserObject(CUuserObject handle) { return Data().user_objects.Find(handle); }

CUgraphNodeType NodeParams::type() const {
  struct TypeOf {
    CUgraphNodeType operator()(const EmptyNode&) const { return CU_GRAPH_NODE_TYPE_EMPTY; }
    CUgraphNodeType operator()(const KernelNode&) const { return CU_GRAPH_NODE_TYPE_KERNEL; }
    CUgraphNodeType operator()(const CopyNode&) const { return CU_GRAPH_NODE_TYPE_MEMCPY; }
    CUgraphNodeType operator()(const FillNode&) const { return CU_GRAPH_NODE_TYPE_MEMSET; }
    CUgraphNodeType operator()(const HostNode&) const { return CU_GRAPH_NODE_TYPE_HOST; }
    CUgraphNodeType operator()(const ChildNode&) const { return CU_GRAPH_NODE_TYPE_GRAPH; }
    CUgraphNodeType operator()(const EventNode& node) const {
      return node.record ? CU_GRAPH_NODE_TYPE_EVENT_RECORD : CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    }
    CUgraphNodeType operator()(const AllocNode&) const { return CU_GRAPH_NODE_TYPE_MEM_ALLOC; }
    CUgraphNodeType operator()(const FreeNode&) const { return CU_GRAPH_NODE_TYPE_MEM_FREE; }
    CUgraphNodeType operator()(const MemOpNode&) const { return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP; }
    CUgraphNodeType operator()(const ConditionalNode&) const { return CU_GRAPH_NODE_TYPE_CONDITIONAL; }
  };
  return std::visit(TypeOf(), work);
}

Graph* NewGraph() {
  Graph* graph = Data().graphs.Take();
  if (graph != nullptr) {
    graph->id = Data().next_graph_id++;
    graph->owner = nullptr;
    graph->capturing = false;
    graph->hidden = false;
  }
  return graph;
}

GraphNode* NewNode(Graph& graph, NodeParams&& params) {
  GraphNode* node = Data().nodes.Take();
  if (node == nullptr) {
    return nullptr;
  }
  node->graph = &graph;
  node->id = node->origin = Data().next_node_id++;
  node->parent = 0;
  node->params = std::move(params);
  node->enabled = true;
  ForEachInner(node->params, [node](Graph* inner) { inner->owner = node; });
  graph.nodes.push_back(node);
  return node;
}

CUresult AddEdge(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data) {
  if (from.graph != to.graph || &from == &to || FindEdge(from.out, &to, data) != from.out.end() ||
      Reaches(&to, &from)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  from.out.push_back({&to, data});
  to.in.push_back({&from, data});
  return CUDA_SUCCESS;
}

CUresult RemoveEdge(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data) {
  const auto out = FindEdge(from.out, &to, data);
  const auto in = FindEdge(to.in, &from, data);
  if (out == from.out.end() || in == to.in.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  from.out.erase(out);
  to.in.erase(in);
  return CUDA_SUCCESS;
}

CUresult AddNode(Graph& graph, const CUgraphNode* dependencies, const CUgraphEdgeData* edges, std::size_t count,
                 NodeParams&& params, GraphNode** out) {
  if (count > 0 && dependencies == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<Edge> in;
  for (std::size_t i = 0; i < count; ++i) {
    GraphNode* node = FindNode(dependencies[i]);
    const CUgraphEdgeData data = edges != nullptr ? edges[i] : CUgraphEdgeData{};
    if (node == nullptr || node->graph != &graph || FindEdge(in, node, data) != in.end()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    in.push_back({node, data});
  }
  GraphNode* node = NewNode(graph, std::move(params));
  if (node == nullptr) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (const Edge& edge : in) {
    edge.node->out.push_back({node, edge.data});
  }
  node->in = std::move(in);
  *out = node;
  return CUDA_SUCCESS;
}

namespace {

void GiveNode(GraphNode* node) {
  ForEachInner(node->params, [](Graph* inner) { DeleteGraph(inner); });
  node->params = NodeParams();
  node->in.clear();
  node->out.clear();
  Data().nodes.Give(node);
}

}  // namespace

void DeleteNode(GraphNode* node) {
  const auto is_node = [node](const Edge& edge) { return edge.node == node; };
  for (const Edge& edge : node->in) {
    std::erase_if(edge.node->out, is_node);
  }
  for (const Edge& edge : node->out) {
    std::erase_if(edge.node->in, is_node);
  }
  std::erase(node->graph->nodes, node);
  GiveNode(node);
}

void DeleteGraph(Graph* graph) {
  for (GraphNode* node : graph->nodes) {
    GiveNode(node);
  }
  graph->nodes.clear();
  for (const auto& [object, count] : graph->user_objects) {
    ReleaseUserObject(object, count);
  }
  graph->user_objects.clear();
  DropConditionsOf(*graph);
  Data().graphs.Give(graph);
}

namespace {

// What a clone of the node does, with graphs of its own inside. False, and none of them, when there are too many.
bool CloneParams(const NodeParams& params, bool hidden, NodeParams* out) {
  *out = params;
  std::vector<Graph*> made;
  bool enough = true;
  ForEachInner(*out, [&](Graph*& inner) {
    inner = enough ? CloneGraph(*inner, hidden) : nullptr;
    enough = inner != nullptr;
    if (enough) {
      made.push_back(inner);
    }
  });
  if (!enough) {
    for (Graph* inner : made) {
      DeleteGraph(inner);
    }
  }
  return enough;
}

}  // namespace

Graph* CloneGraph(const Graph& graph, bool hidden) {
  Graph* clone = NewGraph();
  if (clone == nullptr) {
    return nullptr;
  }
  clone->hidden = hidden;
  std::unordered_map<const GraphNode*, GraphNode*> twin;
  for (GraphNode* node : graph.nodes) {
    NodeParams params;
    if (!CloneParams(node->params, hidden, &params)) {
      DeleteGraph(clone);
      return nullptr;
    }
    GraphNode* copy = NewNode(*clone, std::move(params));
    if (copy == nullptr) {
      DeleteGraph(clone);
      return nullptr;
    }
    copy->origin = node->origin;
    copy->parent = node->id;
    copy->enabled = node->enabled;
    twin[node] = copy;
  }
  for (const GraphNode* node : graph.nodes) {
    for (const Edge& edge : node->in) {
      twin[node]->in.push_back({twin[edge.node], edge.data});
    }
    for (const Edge& edge : node->out) {
      twin[node]->out.push_back({twin[edge.node], edge.data});
    }
  }
  clone->user_objects = graph.user_objects;
  for (const auto& [object, count] : clone->user_objects) {
    object->references += count;
  }
  return clone;
}

CUresult ReplaceParams(GraphNode& node, NodeParams&& params) {
  if (node.params.type() != params.type()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (ChildNode* old = node.params.As<ChildNode>()) {
    DeleteGraph(old->graph);
    params.As<ChildNode>()->graph->owner = &node;
  }
  if (KernelNode* old = node.params.As<KernelNode>()) {
    params.As<KernelNode>()->attributes = std::move(old->attributes);
  }
  node.params = std::move(params);
  return CUDA_SUCCESS;
}

namespace {

void GiveLanes(Scheduler& sched, GraphExec& exec) {
  for (Stream* lane : exec.lanes) {
    if (lane != nullptr) {
      GiveStream(sched, *lane);
    }
  }
  exec.lanes.clear();
}

}  // namespace

GraphExec* NewExec() {
  GraphExec* exec = Data().execs.Take();
  if (exec != nullptr) {
    exec->id = Data().next_exec_id++;
    exec->graph = nullptr;
    exec->program.clear();
    exec->lane_contexts.clear();
    exec->last_stream = nullptr;
    exec->last_seq = 0;
  }
  return exec;
}

void DeleteExec(GraphExec* exec) {
  {
    EngineLock sched;
    GiveLanes(*sched, *exec);
  }
  exec->program.clear();
  if (exec->graph != nullptr) {
    if (exec->ctx != nullptr) GraphNodesEnd(*exec->ctx, exec->graph->nodes.size());
    HeldObjects held;
    TakeUserObjects(*exec->graph, &held);
    ReleaseAfterLaunches(*exec, std::move(held));
    DeleteGraph(exec->graph);
    exec->graph = nullptr;
  }
  Data().execs.Give(exec);
}

void DropLanesOf(const Context& ctx) {
  const GraphLock lock;
  Data().execs.ForEach([&ctx](GraphExec& exec) {
    const bool concerned = exec.ctx == &ctx || std::find(exec.lane_contexts.begin(), exec.lane_contexts.end(), &ctx) !=
                                                   exec.lane_contexts.end();
    if (concerned) {
      EngineLock sched;
      GiveLanes(*sched, exec);
      exec.ctx = nullptr;
    }
  });
}

UserObject* NewUserObject() { return Data().user_objects.Take(); }

void ReleaseUserObject(UserObject* object, std::uint64_t count) {
  object->references -= std::min(object->references, count);
  if (object->references > 0) {
    return;
  }
  const CUhostFn destroy = object->destroy;
  void* pointer = object->pointer;
  Data().user_objects.Give(object);
  EngineLock sched;
  sched->CallOnThread(destroy, pointer);
}

void TakeUserObjects(Graph& graph, HeldObjects* held) {
  held->insert(held->end(), graph.user_objects.begin(), graph.user_objects.end());
  graph.user_objects.clear();
  for (GraphNode* node : graph.nodes) {
    ForEachInner(node->params, [held](Graph* inner) { TakeUserObjects(*inner, held); });
  }
}

namespace {

void ReleaseAll(const HeldObjects& held) {
  for (const auto& [object, count] : held) {
    ReleaseUserObject(object, count);
  }
}

// On the engine's thread, where no lock is held.
void ReleaseLate(void* arg) {
  const std::unique_ptr<HeldObjects> held(static_cast<HeldObjects*>(arg));
  const GraphLock lock;
  ReleaseAll(*held);
}

// Calls ReleaseLate(held) when the stream has come to `seq`, also if its context dies first. False: it has, or there is
// no stream left to wait with.
bool CallAfter(Scheduler& sched, Stream& after, std::uint64_t seq, HeldObjects* held) {
  const Nanos now = Machine::Get().Now();
  sched.Commit(now);
  Stream* lane = after.completed < seq ? TakeLane(sched, *after.engine) : nullptr;
  if (lane == nullptr) {
    return false;
  }
  EnqueueWait(sched, *lane, after, seq, now);
  Op op;
  op.kind = OpKind::kCall;
  op.call = {[](void* arg) { Scheduler::Get().CallOnThread(ReleaseLate, arg); }, held};
  Enqueue(sched, *lane, op, now);
  LeaveQueue(sched, *lane, now);
  GiveStream(sched, *lane);
  return true;
}

}  // namespace

void ReleaseAfterLaunches(const GraphExec& exec, HeldObjects&& held) {
  if (held.empty()) {
    return;
  }
  auto late = std::make_unique<HeldObjects>(std::move(held));
  if (exec.last_stream != nullptr) {
    EngineLock sched;
    if (CallAfter(*sched, *exec.last_stream, exec.last_seq, late.get())) {
      static_cast<void>(late.release());
      return;
    }
  }
  ReleaseAll(*late);
}

}  // namespace simgpu
