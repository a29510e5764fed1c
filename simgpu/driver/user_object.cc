// SPDX-License-Identifier: Apache-2.0
//
// User objects: things with a reference count that graphs keep alive.
#include <algorithm>

#include "simgpu/driver/core.h"
#include "simgpu/driver/graph.h"

namespace simgpu {
namespace {

CUresult Create(CUuserObject* out, void* pointer, CUhostFn destroy, unsigned references, unsigned flags) {
  if (out == nullptr || destroy == nullptr || references == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const GraphLock lock;
  UserObject* object = NewUserObject();
  if (object == nullptr) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  object->pointer = pointer;
  object->destroy = destroy;
  object->references = references;
  *out = HandleOf(object);
  return CUDA_SUCCESS;
}

CUresult Retain(CUuserObject handle, unsigned count) {
  const GraphLock lock;
  UserObject* object = FindUserObject(handle);
  if (object == nullptr || count == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  object->references += count;
  return CUDA_SUCCESS;
}

CUresult Release(CUuserObject handle, unsigned count) {
  const GraphLock lock;
  UserObject* object = FindUserObject(handle);
  if (object == nullptr || count == 0 || count > object->references) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ReleaseUserObject(object, count);
  return CUDA_SUCCESS;
}

auto HeldBy(Graph& graph, const UserObject* object) {
  return std::find_if(graph.user_objects.begin(), graph.user_objects.end(),
                      [object](const auto& held) { return held.first == object; });
}

CUresult GraphRetain(CUgraph graph_handle, CUuserObject handle, unsigned count, unsigned flags) {
  const GraphLock lock;
  Graph* graph = FindGraph(graph_handle);
  UserObject* object = FindUserObject(handle);
  if (graph == nullptr || object == nullptr || count == 0 ||
      (flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) {
    object->references += count;  // else the caller's references become the graph's
  }
  const auto held = HeldBy(*graph, object);
  if (held != graph->user_objects.end()) {
    held->second += count;
  } else {
    graph->user_objects.emplace_back(object, count);
  }
  return CUDA_SUCCESS;
}

CUresult GraphRelease(CUgraph graph_handle, CUuserObject handle, unsigned count) {
  const GraphLock lock;
  Graph* graph = FindGraph(graph_handle);
  UserObject* object = FindUserObject(handle);
  if (graph == nullptr || object == nullptr || count == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto held = HeldBy(*graph, object);
  if (held == graph->user_objects.end() || held->second < count) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  held->second -= count;
  if (held->second == 0) {
    graph->user_objects.erase(held);
  }
  ReleaseUserObject(object, count);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace simgpu

CUresult cuUserObjectCreate(CUuserObject* object, void* pointer, CUhostFn destroy, unsigned int references,
                            unsigned int flags) {
  SIMGPU_ENTER(cuUserObjectCreate);
  return simgpu::Create(object, pointer, destroy, references, flags);
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
  SIMGPU_ENTER(cuUserObjectRetain);
  return simgpu::Retain(object, count);
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
  SIMGPU_ENTER(cuUserObjectRelease);
  return simgpu::Release(object, count);
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags) {
  SIMGPU_ENTER(cuGraphRetainUserObject);
  return simgpu::GraphRetain(graph, object, count, flags);
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  SIMGPU_ENTER(cuGraphReleaseUserObject);
  return simgpu::GraphRelease(graph, object, count);
}
