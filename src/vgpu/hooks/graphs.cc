// SPDX-License-Identifier: Apache-2.0
//
// Graphs: what they allocate, and the GPU time of their launches.

#include "vgpu/memory/graphs.h"

#include "vgpu/loader/driver.h"
#include "vgpu/memory/charge.h"
#include "vgpu/pacer/pacer.h"
#include "vgpu/runtime/device_map.h"

using namespace hami::vgpu;  // NOLINT: this file only exports

namespace {

CUresult Instantiated(CUresult result, const CUgraphExec* exec, CUgraph graph) {
  if (result == CUDA_SUCCESS && exec != nullptr && Active()) GraphInstantiated(graph, *exec);
  return result;
}

CUresult Changed(CUresult result, CUgraphExec exec) {
  if (result == CUDA_SUCCESS && Active()) GraphChanged(exec);
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
  const MeasureLock measure_lock(LockMode::kShared);
  const CUresult result = real::cuGraphExecDestroy(exec);
  if (result == CUDA_SUCCESS) {
    GraphExecDestroyed(exec);
    ForgetGraph(exec);
  }
  return result;
}

// What changes how long the kernels of an executable graph take.
HAMI_EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node,
                                       CUgraphExecUpdateResult* result) {
  return Changed(real::cuGraphExecUpdate(exec, graph, error_node, result), exec);
}

HAMI_EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  return Changed(real::cuGraphExecUpdate_v2(exec, graph, info), exec);
}

HAMI_EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    const CUDA_KERNEL_NODE_PARAMS_v1* params) {
  return Changed(real::cuGraphExecKernelNodeSetParams(exec, node, params), exec);
}

HAMI_EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                       const CUDA_KERNEL_NODE_PARAMS* params) {
  return Changed(real::cuGraphExecKernelNodeSetParams_v2(exec, node, params), exec);
}

HAMI_EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* params) {
  return Changed(real::cuGraphExecNodeSetParams(exec, node, params), exec);
}

HAMI_EXPORT CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  return Changed(real::cuGraphExecChildGraphNodeSetParams(exec, node, child), exec);
}

HAMI_EXPORT CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) {
  return Changed(real::cuGraphNodeSetEnabled(exec, node, enabled), exec);
}

HAMI_EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return PacedLaunch(ExecutableGraph{exec}, stream, false,
                     [&] { return LaunchGraph(exec, [&] { return real::cuGraphLaunch(exec, stream); }); });
}

HAMI_EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
  return PacedLaunch(ExecutableGraph{exec}, stream, true,
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
  const MeasureLock measure_lock(LockMode::kShared);
  const CUresult result = real::cuDeviceGraphMemTrim(ordinal);
  if (result == CUDA_SUCCESS) SettleGraphs(DeviceOfOrdinal(ordinal), ordinal);
  return result;
}
