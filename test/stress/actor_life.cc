// SPDX-License-Identifier: Apache-2.0
// Graphs, contexts, modules, forks, and the end of everything that was made.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "simgpu/simgpu.h"
#include "test/stress/actor.h"

namespace stress {
namespace {

uint64_t Truth() { return simgpu_process_bytes(0, 0); }

CUgraphExec AsExec(uint64_t handle) { return reinterpret_cast<CUgraphExec>(handle); }

}  // namespace

void Actor::MakeGraph() {
  const uint64_t bytes = random_.Size(options_.largest / 2);
  if (!Afford(Up(bytes, kGranule))) return;
  CUgraph graph = nullptr;
  CUgraphNode alloc = nullptr;
  CUgraphNode free = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params.bytesize = bytes;
  Done("cuGraphCreate", cuGraphCreate(&graph, 0), 0, 0);
  Done("cuGraphAddMemAllocNode", cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &params), 0, bytes);
  const bool frees = random_.OneIn(2);
  if (frees) Done("cuGraphAddMemFreeNode", cuGraphAddMemFreeNode(&free, graph, &alloc, 1, params.dptr), 0, 0);
  CUgraphExec exec = nullptr;
  Done("cuGraphInstantiate", cuGraphInstantiateWithFlags(&exec, graph, 0), 0, 0);
  Object object{What::kGraph, reinterpret_cast<uintptr_t>(exec), Up(bytes, kGranule),
                reinterpret_cast<uintptr_t>(graph)};
  object.range = frees ? 0 : params.dptr;
  Add(object);
}

void Actor::Launch() {
  Object* const graph = Pick(What::kGraph);
  if (graph == nullptr) return;
  const CUstream stream = AnyStream();
  if (graph->flag) {
    Done("cuMemFreeAsync", cuMemFreeAsync(graph->range, stream), graph->range, 0);
    Done("cuStreamSynchronize", cuStreamSynchronize(stream), 0, 0);
    graph->flag = false;
    return;
  }
  want_ = graph->bytes;
  const bool upload = random_.OneIn(6);
  const CUresult result =
      upload ? cuGraphUpload(AsExec(graph->handle), stream) : cuGraphLaunch(AsExec(graph->handle), stream);
  if (Done(upload ? "cuGraphUpload" : "cuGraphLaunch", result, graph->handle, graph->bytes) && !upload) {
    graph->flag = graph->range != 0;
  }
  Done("cuStreamSynchronize", cuStreamSynchronize(stream), 0, 0);
}

void Actor::MakeContext() {
  const uint64_t bytes = random_.Size(8 * kMiB);
  const uint64_t cost = options_.context_bytes + Up(bytes, 512);
  const auto others =
      std::count_if(objects_.begin(), objects_.end(), [](const Object& o) { return o.what == What::kContext; });
  if (others >= 3 || !Afford(cost)) return;
  CUcontext context = nullptr;
  CUcontext popped = nullptr;
  if (!Done("cuCtxCreate", cuCtxCreate_v2(&context, 0, 0), 0, 0)) return;
  CUdeviceptr inside = 0;
  const CUresult result = cuMemAlloc_v2(&inside, bytes);
  cuCtxPopCurrent_v2(&popped);
  Object object{What::kContext, reinterpret_cast<uintptr_t>(context), options_.exact ? Unexplained() : cost, inside};
  Add(object);
  want_ = Up(bytes, 512);
  Done("cuMemAlloc(inside)", result, inside, bytes);
}

void Actor::FreeContext(const Object& object) {
  auto* const context = reinterpret_cast<CUcontext>(object.handle);
  if (object.extra != 0 && random_.OneIn(2)) {
    CUcontext popped = nullptr;
    Done("cuCtxPushCurrent", cuCtxPushCurrent_v2(context), object.handle, 0);
    Done("cuMemFree", cuMemFree_v2(object.extra), object.extra, 0);
    cuCtxPopCurrent_v2(&popped);
  }
  Done("cuCtxDestroy", cuCtxDestroy_v2(context), object.handle, 0);
}

void Actor::MakeModule() {
  const uint64_t kib = random_.Below(2048) + 1;
  if (!Afford(4 * kMiB)) return;
  const std::string image =
      "simgpu-image 1\ncode 64K\nkernel spin\n  cost total 1us\nglobal room " + std::to_string(kib) + "K\n";
  CUmodule module = nullptr;
  if (!Done("cuModuleLoadData", cuModuleLoadData(&module, image.c_str()), 0, kib)) return;
  Add({What::kModule, reinterpret_cast<uintptr_t>(module), options_.exact ? Unexplained() : 4 * kMiB});
}

void Actor::SetLimit() {
  const uint64_t bytes = (random_.Below(24) + 8) * kMiB;
  want_ = options_.limit;  // what it really takes only the driver knows
  const CUresult result = cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, bytes);
  log_.push_back({"cuCtxSetLimit(heap)", bytes, 0, static_cast<int>(result)});
  if (options_.exact) measured_ += Unexplained();
}

void Actor::Fork() {
  const Object* const plain = Pick(What::kPlain);
  const uint64_t pointer = plain != nullptr && options_.exact ? plain->handle : 0;
  log_.push_back({"fork", pointer, 0, 0});
  const pid_t child = fork();
  if (child == 0) _exit(pointer != 0 && cuMemFree_v2(pointer) == CUDA_SUCCESS ? 3 : 0);
  int status = -1;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
    Fail("a forked child freed its parent's memory, or died; status", static_cast<uint64_t>(status), 0);
  }
}

// Everything that lives in the primary context goes with it; what would outlive it is freed first.
void Actor::ResetPrimary() {
  for (size_t i = objects_.size(); i-- > 0;) {
    if (i >= objects_.size()) continue;  // freeing a pool freed its blocks
    const What what = objects_[i].what;
    const bool dies = what == What::kPlain || what == What::kManaged || what == What::kArray || what == What::kMipmap ||
                      (what == What::kPooled && objects_[i].extra == 0);
    if (!dies) Free(i);
  }
  std::erase_if(objects_, [](const Object& o) {
    return o.what == What::kPlain || o.what == What::kManaged || o.what == What::kArray || o.what == What::kMipmap ||
           (o.what == What::kPooled && o.extra == 0);
  });
  while (!objects_.empty()) Free(objects_.size() - 1);
  Done("cuDevicePrimaryCtxReset", cuDevicePrimaryCtxReset_v2(0), 0, 0);
  CUcontext context = nullptr;
  Done("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, 0), 0, 0);
  Done("cuCtxSetCurrent", cuCtxSetCurrent(context), 0, 0);
  measured_ = 0;
  context_ = Truth();
  for (CUstream& stream : streams_) Done("cuStreamCreate", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0, 0);
}

// --- frees
// -------------------------------------------------------------------------------------------------------------

void Actor::FreePool(const Object& object) {
  for (size_t i = objects_.size(); i-- > 0;) {
    if (objects_[i].what == What::kPooled && objects_[i].extra == object.handle) Free(i);
  }
  if (options_.quota != 0) Settle();
  Done("cuMemPoolDestroy", cuMemPoolDestroy(reinterpret_cast<CUmemoryPool>(object.handle)), object.handle, 0);
}

void Actor::FreeGraph(Object object) {
  if (object.flag) {
    Done("cuMemFreeAsync", cuMemFreeAsync(object.range, nullptr), object.range, 0);
    Settle();
  }
  debt_ += object.bytes;
  Done("cuGraphExecDestroy", cuGraphExecDestroy(AsExec(object.handle)), object.handle, 0);
  Done("cuGraphDestroy", cuGraphDestroy(reinterpret_cast<CUgraph>(object.extra)), object.extra, 0);
}

void Actor::Free(size_t index) {
  const Object object = objects_[index];
  if (object.what == What::kPublished && !FreePublished(object)) return;
  objects_.erase(objects_.begin() + static_cast<std::ptrdiff_t>(index));
  if (object.group != 0 && object.bytes != 0) {
    // The physical memory lives on in the next of its group, which pays from now on.
    const auto next = std::find_if(objects_.begin(), objects_.end(),
                                   [&](const Object& other) { return other.group == object.group; });
    if (next != objects_.end()) next->bytes = object.bytes;
  }
  const uint64_t h = object.handle;
  switch (object.what) {
    case What::kPlain:
    case What::kManaged:
      Done("cuMemFree", cuMemFree_v2(h), h, object.bytes);
      break;
    case What::kPublished:
      break;
    case What::kPooled: {
      debt_ += object.bytes;
      const uint64_t how = random_.Below(6);
      const CUresult result = how == 0   ? cuMemFree_v2(h)
                              : how == 1 ? cuMemFreeAsync_ptsz(h, nullptr)
                                         : cuMemFreeAsync(h, AnyStream());
      Done(how == 0 ? "cuMemFree(pooled)" : "cuMemFreeAsync", result, h, object.bytes);
      break;
    }
    case What::kPool:
      FreePool(object);
      break;
    case What::kPhysical:
      Done("cuMemRelease", cuMemRelease(h), h, object.range);
      break;
    case What::kMapping:
      Done("cuMemUnmap", cuMemUnmap(h, object.range), h, object.range);
      Done("cuMemAddressFree", cuMemAddressFree(h, object.range), h, object.range);
      break;
    case What::kArray:
      Done("cuArrayDestroy", cuArrayDestroy(reinterpret_cast<CUarray>(h)), h, 0);
      break;
    case What::kMipmap:
      Done("cuMipmappedArrayDestroy", cuMipmappedArrayDestroy(reinterpret_cast<CUmipmappedArray>(h)), h, 0);
      break;
    case What::kGraph:
      FreeGraph(object);
      break;
    case What::kHost:
      Done("cuMemFreeHost", cuMemFreeHost(reinterpret_cast<void*>(h)), h, 0);
      break;
    case What::kContext:
      FreeContext(object);
      break;
    case What::kModule:
      Done("cuModuleUnload", cuModuleUnload(reinterpret_cast<CUmodule>(h)), h, 0);
      break;
    case What::kExternal:
      Done("cuDestroyExternalMemory", cuDestroyExternalMemory(reinterpret_cast<CUexternalMemory>(h)), h, 0);
      break;
  }
}

}  // namespace stress
