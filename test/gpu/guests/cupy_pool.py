# SPDX-License-Identifier: Apache-2.0
"""CuPy's memory pool up to its OutOfMemoryError, and its asynchronous allocator."""
import json

import cupy

MIB = 1 << 20


def fill(refused):
    held, total, name = [], 0, None
    for chunk in (512 * MIB, 64 * MIB, 8 * MIB, MIB):
        while True:
            try:
                held.append(cupy.empty(chunk, dtype=cupy.uint8))
            except refused as why:
                name = type(why).__name__
                break
            total += chunk
    held.clear()
    return total, name


cupy.ones(9).sum()
free_start, total = cupy.cuda.runtime.memGetInfo()
pooled, oom = fill(cupy.cuda.memory.OutOfMemoryError)
cupy.get_default_memory_pool().free_all_blocks()
free_pool, _ = cupy.cuda.runtime.memGetInfo()
asynchronous = None
with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
    asynchronous, _ = fill((cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError))
cupy.cuda.runtime.deviceSynchronize()
print(json.dumps(dict(total=total, free_start=free_start, allocated=pooled, oom=oom, free_end=free_pool,
                      allocated_async=asynchronous)))
