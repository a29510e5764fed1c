// SPDX-License-Identifier: Apache-2.0
// cuDeviceGraphMem*: the pool behind the allocation nodes of graphs.
#include "simgpu/driver/mem_pool.h"

namespace simgpu {
namespace {

// The pool's attribute that a graph attribute stands for.
bool Translate(CUgraphMem_attribute attribute, CUmemPool_attribute* out) {
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      *out = CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
      return true;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      *out = CU_MEMPOOL_ATTR_USED_MEM_HIGH;
      return true;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      *out = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
      return true;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      *out = CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
      return true;
  }
  return false;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

CUresult cuDeviceGraphMemTrim(CUdevice dev) {
  SIMGPU_ENTER(cuDeviceGraphMemTrim);
  if (FindDevice(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  TrimPool(*GraphPool(dev), 0);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void* value) {
  SIMGPU_ENTER(cuDeviceGetGraphMemAttribute);
  if (FindDevice(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  CUmemPool_attribute translated{};
  if (value == nullptr || !Translate(attribute, &translated)) return CUDA_ERROR_INVALID_VALUE;
  return GetPoolAttribute(*GraphPool(dev), translated, value);
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void* value) {
  SIMGPU_ENTER(cuDeviceSetGraphMemAttribute);
  if (FindDevice(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  CUmemPool_attribute translated{};
  if (value == nullptr || !Translate(attribute, &translated)) return CUDA_ERROR_INVALID_VALUE;
  return SetPoolAttribute(*GraphPool(dev), translated, value);
}
