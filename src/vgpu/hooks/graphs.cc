// SPDX-License-Identifier: Apache-2.0
//
// Graphs, as far as they allocate.

#include "vgpu/policy/graphs.h"

#include "vgpu/loader/driver.h"
#include "vgpu/policy/charge.h"
#include "vgpu/policy/device_map.h"
#include "vgpu/policy/pacer.h"

using namespace hami::vgpu;  // NOLINT: this file only exports

namespace {

CUresult Instantiated(CUresult result, const CUgraphExec* exec, CUgraph graph) {
  if (result == CUDA_SUCCESS && exec != nullptr && Active()) GraphInstantiated(graph, *exec);
  return result;
}

}  // namespace

HAMI_EXPORT CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                                        size_t log_bytes) {
  return Instantiated(real::cuGraphInstantiate(exec, graph, error_node, log, log_bytes), exec, graph);
}

HAMI_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                                           size_t log_bytes) {
  return Instantiated(real::cuGraphInstantiate_v2(exec, graph, error_node, log, log_bytes), exec, graph);
}

HAMI_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return Instantiated(real::cuGraphInstantiateWithFlags(exec, graph, flags), exec, graph);
}

HAMI_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return Instantiated(real::cuGraphInstantiateWithParams(exec, graph, params), exec, graph);
}

HAMI_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* exec, CUgraph graph,
                                                       CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return Instantiated(real::cuGraphInstantiateWithParams_ptsz(exec, graph, params), exec, graph);
}

HAMI_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
  if (!Active()) return real::cuGraphExecDestroy(exec);
  const Passage passage(Way::kShared);
  const CUresult result = real::cuGraphExecDestroy(exec);
  if (result == CUDA_SUCCESS) {
    GraphExecDestroyed(exec);
    ForgetGraph(exec);
  }
  return result;
}

HAMI_EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return PacedLaunch([&] { return GraphId(exec); }, stream, false,
                     [&] { return LaunchGraph(exec, [&] { return real::cuGraphLaunch(exec, stream); }); });
}

HAMI_EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
  return PacedLaunch([&] { return GraphId(exec); }, stream, true,
                     [&] { return LaunchGraph(exec, [&] { return real::cuGraphLaunch_ptsz(exec, stream); }); });
}

HAMI_EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return LaunchGraph(exec, [&] { return real::cuGraphUpload(exec, stream); });
}

HAMI_EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
  return LaunchGraph(exec, [&] { return real::cuGraphUpload_ptsz(exec, stream); });
}

HAMI_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice ordinal) {
  if (!Active()) return real::cuDeviceGraphMemTrim(ordinal);
  const Passage passage(Way::kShared);
  const CUresult result = real::cuDeviceGraphMemTrim(ordinal);
  if (result == CUDA_SUCCESS) SettleGraphs(DeviceOfOrdinal(ordinal), ordinal);
  return result;
}
