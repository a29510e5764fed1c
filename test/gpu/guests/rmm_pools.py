# SPDX-License-Identifier: Apache-2.0
"""RMM: the asynchronous resource and a pool over plain memory, up to MemoryError."""
import json

import rmm

MIB = 1 << 20


def fill(resource):
    rmm.mr.set_current_device_resource(resource)
    held, total, name = [], 0, None
    for chunk in (512 * MIB, 64 * MIB, 8 * MIB):
        while True:
            try:
                held.append(rmm.DeviceBuffer(size=chunk))
            except MemoryError as why:
                name = type(why).__name__
                break
            total += chunk
    held.clear()
    return total, name


rmm.DeviceBuffer(size=MIB)
free_start, total = rmm.mr.available_device_memory()
asynchronous, oom = fill(rmm.mr.CudaAsyncMemoryResource())
pooled, oom_pool = fill(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=256 * MIB))
print(json.dumps(dict(total=total, free_start=free_start, allocated=asynchronous, oom=oom, allocated_pool=pooled,
                      oom_pool=oom_pool)))
