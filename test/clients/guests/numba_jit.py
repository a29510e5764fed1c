# SPDX-License-Identifier: Apache-2.0
"""Numba: a kernel compiled just in time to a real cubin, copies, then arrays until refused."""
import numpy
from common import fill, report
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError


@cuda.jit
def add(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += x[i]


def main():
    context = cuda.current_context()
    a = numpy.arange(1 << 16, dtype=numpy.float32)
    x, y = cuda.to_device(a), cuda.to_device(a)
    add[256, 256](x, y)
    cuda.synchronize()
    copies_equal = bool((x.copy_to_host() == a).all())
    del x, y
    context.memory_manager.deallocations.clear()

    before = context.get_memory_info()
    arrays, allocated, name, text = fill(lambda size: cuda.device_array(size, dtype=numpy.uint8), CudaAPIError)
    full = context.get_memory_info()
    arrays.clear()
    context.memory_manager.deallocations.clear()
    after = context.get_memory_info()
    report(
        total=before.total,
        free_start=before.free,
        allocated=allocated,
        free_full=full.free,
        free_end=after.free,
        oom=text,
        oom_type=name,
        copies_equal=copies_equal,
    )


main()
