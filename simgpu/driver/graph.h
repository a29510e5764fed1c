// SPDX-License-Identifier: Apache-2.0
//
// Graphs: what is to be done (Graph, GraphNode) and what was made ready to be launched (GraphExec). A GraphExec holds a
// clone of its graph and a program: the nodes in an order that respects every edge, spread over lanes, which are
// streams of its own. Launching submits the program; the engine's streams do the rest.
//
// Invariants: a graph has no cycle; nodes are kept in the order of their creation; a handle is looked up, never
// dereferenced; a child graph belongs to its node. Everything is guarded by one lock of the process (GraphLock), which
// is taken before the locks of mem.h and of the engine, and is not held while a host function runs or a thread waits.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "abi/cuda_abi.h"
#include "simgpu/driver/event.h"
#include "simgpu/driver/launch.h"
#include "simgpu/driver/mem.h"

namespace simgpu {

struct Graph;
struct GraphNode;
struct Stream;

// --- what a node does
// ---------------------------------------------------------------------------------------------------

struct KernelNode {
  Context* ctx = nullptr;
  CUfunction function = nullptr;
  LaunchShape shape;
  std::vector<std::byte> packed;  // parameters as the kernel lays them out
  PreparedLaunch prepared;
  std::vector<std::pair<CUkernelNodeAttrID, CUkernelNodeAttrValue>> attributes;
  // Views of `packed`, made when somebody asks for the parameters.
  std::vector<void*> pointers;
};

struct CopyNode {
  Context* ctx = nullptr;
  CUDA_MEMCPY3D params{};
  CopyOp op;
};

struct FillNode {
  Context* ctx = nullptr;
  CUDA_MEMSET_NODE_PARAMS params{};
  FillOp op;
};

struct HostNode {
  CUhostFn fn = nullptr;
  void* user_data = nullptr;
};

struct ChildNode {
  Graph* graph = nullptr;  // owned
};

// What runs is decided when a program is made, because no kernel here can set the handle's value: it is always its
// default. See graph_condition.cc.
struct ConditionalNode {
  CUgraphConditionalHandle handle = 0;
  CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
  unsigned value = 0;
  CUcontext ctx = nullptr;
  std::vector<Graph*> bodies;                           // owned
  std::shared_ptr<std::vector<CUgraph>> public_bodies;  // the application's view; also held by an executable graph

  // Null: nothing runs.
  Graph* Chosen() const;
};

struct EmptyNode {};

struct EventNode {
  bool record = false;  // else: wait
  CUevent event = nullptr;
};

// The address of an allocation node, which lives as long as any clone of the node and as launches hold the memory.
struct Reservation {
  CUdeviceptr address = 0;
  explicit Reservation(CUdeviceptr where) : address(where) {}
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() { GraphUnreserve(address); }
};

struct AllocNode {
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  std::vector<CUmemAccessDesc> access;
  std::shared_ptr<Reservation> reservation;
  bool freed_inside = false;  // in a program: by a free node of the same one
};

struct FreeNode {
  CUdeviceptr address = 0;
  bool of_program = false;  // in a program: the same one allocates it
};

struct MemOpNode {
  CUcontext ctx = nullptr;
  unsigned flags = 0;
  std::vector<CUstreamBatchMemOpParams> ops;
};

struct NodeParams {
  std::variant<EmptyNode, KernelNode, CopyNode, FillNode, HostNode, ChildNode, EventNode, AllocNode, FreeNode,
               MemOpNode, ConditionalNode>
      work;

  CUgraphNodeType type() const;
  template <typename T>
  T* As() {
    return std::get_if<T>(&work);
  }
};

// The graphs inside a node: visit(Graph*&).
template <typename Visit>
void ForEachInner(NodeParams& params, Visit visit) {
  if (ChildNode* child = params.As<ChildNode>()) {
    visit(child->graph);
  } else if (ConditionalNode* conditional = params.As<ConditionalNode>()) {
    for (Graph*& body : conditional->bodies) {
      visit(body);
    }
  }
}

NodeParams KernelNodeParams(Context& ctx, CUfunction function, const LaunchShape& shape,
                            const std::vector<std::byte>& packed, PreparedLaunch&& prepared);
NodeParams HostNodeParams(CUhostFn fn, void* user_data);
NodeParams EventNodeParams(CUgraphNodeType type, EventObject& event);
NodeParams MemOpNodeParams(CUcontext ctx, unsigned count, const CUstreamBatchMemOpParams* ops, unsigned flags);
NodeParams CopyNodeParams(Context& ctx, const CopyOp& op);  // as captured
NodeParams FillNodeParams(Context& ctx, const FillOp& op);

// What a kernel node's parameters, of any version, say of the launch.
template <typename Params>
LaunchShape ShapeOf(const Params& params) {
  LaunchShape shape;
  shape.grid = {params.gridDimX, params.gridDimY, params.gridDimZ};
  shape.block = {params.blockDimX, params.blockDimY, params.blockDimZ};
  shape.shared_bytes = params.sharedMemBytes;
  return shape;
}

// From the API's descriptions, checked. The errors are those of the functions that do the same thing in a stream.
CUresult MakeKernelNode(CUfunction f, CUkernel kern, CUcontext ctx, const LaunchShape& shape, void** params,
                        void** extra, NodeParams* out);
CUresult MakeCopyNode(const CUDA_MEMCPY3D* params, CUcontext ctx, NodeParams* out);
CUresult MakeFillNode(const CUDA_MEMSET_NODE_PARAMS* params, CUcontext ctx, NodeParams* out);
CUresult MakeHostNode(CUhostFn fn, void* user_data, NodeParams* out);
CUresult MakeEventNode(CUgraphNodeType type, CUevent event, NodeParams* out);
CUresult MakeAllocNode(CUDA_MEM_ALLOC_NODE_PARAMS* params, NodeParams* out);  // fills in dptr
CUresult MakeFreeNode(CUdeviceptr address, NodeParams* out);
CUresult MakeMemOpNode(const CUDA_BATCH_MEM_OP_NODE_PARAMS* params, NodeParams* out);
CUresult MakeChildNode(CUgraph child, NodeParams* out);  // a clone of `child`
// For a node of `graph`, with empty bodies, which are told to the caller.
CUresult MakeConditionalNode(Graph& graph, CUDA_CONDITIONAL_NODE_PARAMS* params, NodeParams* out);
// Any of the others, as cuGraphAddNode and cuGraphNodeSetParams take it.
CUresult MakeNode(CUgraphNodeParams* params, NodeParams* out);

// --- graphs
// -------------------------------------------------------------------------------------------------------------

struct UserObject {
  std::atomic<bool> live{false};
  UserObject* next_free = nullptr;
  void* pointer = nullptr;
  CUhostFn destroy = nullptr;
  std::uint64_t references = 0;
};

using HeldObjects = std::vector<std::pair<UserObject*, std::uint64_t>>;  // with the number of references

struct Edge {
  GraphNode* node = nullptr;
  CUgraphEdgeData data{};
};

struct GraphNode {
  std::atomic<bool> live{false};
  GraphNode* next_free = nullptr;
  Graph* graph = nullptr;
  std::uint64_t id = 0;      // unique in the process
  std::uint64_t origin = 0;  // id of the node that this one is a clone of, in the first place
  std::uint64_t parent = 0;  // id of the node that it was cloned from
  NodeParams params;
  std::vector<Edge> in, out;
  bool enabled = true;  // in a GraphExec

  // While a program is made.
  std::size_t step = 0;
};

struct Graph {
  std::atomic<bool> live{false};
  Graph* next_free = nullptr;
  unsigned id = 0;
  std::vector<GraphNode*> nodes;
  HeldObjects user_objects;
  GraphNode* owner = nullptr;  // the child graph node that it belongs to
  bool capturing = false;      // a capture writes to it
  bool hidden = false;         // inside a GraphExec
};

// One node of a program.
struct Step {
  GraphNode* node = nullptr;
  std::size_t lane = 0;                   // 0: the stream that the graph is launched into
  std::vector<std::size_t> dependencies;  // steps of other lanes
  std::uint64_t seq = 0;                  // of the last launch: what its lane has come to when it is done
  Stream* stream = nullptr;               // of the last launch
};

struct GraphExec {
  std::atomic<bool> live{false};
  GraphExec* next_free = nullptr;
  unsigned id = 0;
  Context* ctx = nullptr;
  unsigned long long flags = 0;
  Graph* graph = nullptr;  // a clone
  std::vector<Step> program;
  bool of_memory = false;  // the program allocates or frees
  std::vector<Context*> lane_contexts;
  std::vector<Stream*> lanes;  // taken at the first launch; the first one only when the launching stream can not do it
  Stream* last_stream = nullptr;
  std::uint64_t last_seq = 0;  // launches of one exec follow each other
};

class GraphLock {
 public:
  GraphLock();
  ~GraphLock();
  GraphLock(const GraphLock&) = delete;
  GraphLock& operator=(const GraphLock&) = delete;
};

// Handles; null when they name nothing. The lock is held by the caller of everything below.
Graph* FindGraph(CUgraph handle);
GraphNode* FindNode(CUgraphNode handle);
GraphExec* FindExec(CUgraphExec handle);
UserObject* FindUserObject(CUuserObject handle);
inline CUgraph HandleOf(Graph* graph) { return reinterpret_cast<CUgraph>(graph); }
inline CUgraphNode HandleOf(GraphNode* node) { return reinterpret_cast<CUgraphNode>(node); }
inline CUgraphExec HandleOf(GraphExec* exec) { return reinterpret_cast<CUgraphExec>(exec); }
inline CUuserObject HandleOf(UserObject* object) { return reinterpret_cast<CUuserObject>(object); }

Graph* NewGraph();               // null: too many
void DeleteGraph(Graph* graph);  // with its nodes and child graphs
Graph* CloneGraph(const Graph& graph, bool hidden);
GraphExec* NewExec();
void DeleteExec(GraphExec* exec);
// A context dies: its executable graphs can not be launched any more. Takes the lock itself.
void DropLanesOf(const Context& ctx);
UserObject* NewUserObject();
// Gives back `count` references; the last one calls the destructor on the engine's thread.
void ReleaseUserObject(UserObject* object, std::uint64_t count);
// Moves what the graph and those inside hold to `held`.
void TakeUserObjects(Graph& graph, HeldObjects* held);
// Gives references back that an executable graph had, once its launches so far are done.
void ReleaseAfterLaunches(const GraphExec& exec, HeldObjects&& held);

// Conditions of a graph that is deleted.
void DropConditionsOf(const Graph& graph);
bool HasConditions(const Graph& graph);  // a conditional node in it, or in a child graph
// CUDA_SUCCESS when the graph may become executable as far as its conditional nodes go; else why not.
CUresult CheckConditions(const Graph& graph, CUgraphInstantiateResult* why);

// Adds a node behind `dependencies`. CUDA_ERROR_INVALID_VALUE when one is not of this graph or is named twice.
CUresult AddNode(Graph& graph, const CUgraphNode* dependencies, const CUgraphEdgeData* edges, std::size_t count,
                 NodeParams&& params, GraphNode** out);
GraphNode* NewNode(Graph& graph, NodeParams&& params);  // without dependencies; null: too many
CUresult AddEdge(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data);
CUresult RemoveEdge(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data);
void DeleteNode(GraphNode* node);

// Puts `params` in place of the node's own; CUDA_ERROR_INVALID_VALUE when it is of another type.
CUresult ReplaceParams(GraphNode& node, NodeParams&& params);
// The node of `exec` that stands for `node` of the graph it was made from; null when there is none.
GraphNode* NodeIn(GraphExec& exec, const GraphNode& node);

// Makes the program of exec.graph for exec.ctx.
void BuildProgram(GraphExec& exec);

}  // namespace simgpu
