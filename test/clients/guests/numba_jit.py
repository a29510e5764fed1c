# SPDX-License-Identifier: Apache-2.0
"""Numba: a kernel compiled just in time to a real cubin, streams, events, copies, then arrays until refused."""
import numpy
from common import fill, report
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError


@cuda.jit
def add(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += x[i]


def work():
    """Launches between two events on a stream of its own, fed from pinned memory; (copies equal, milliseconds)."""
    a = cuda.pinned_array(1 << 16, dtype=numpy.float32)
    a[:] = numpy.arange(a.size)
    stream, begin, end = cuda.stream(), cuda.event(), cuda.event()
    x, y = cuda.to_device(a, stream=stream), cuda.to_device(a, stream=stream)
    begin.record(stream)
    for _ in range(10):
        add[256, 256, stream](x, y)
    end.record(stream)
    back = x.copy_to_host(stream=stream)
    stream.synchronize()
    managed = cuda.managed_array(1 << 16, dtype=numpy.float32)
    managed[:] = a
    add[256, 256](managed, y)
    cuda.synchronize()
    equal = bool((back == a).all() and (managed == a).all())
    return equal, cuda.event_elapsed_time(begin, end)


def main():
    context = cuda.current_context()
    copies_equal, elapsed_ms = work()
    context.memory_manager.deallocations.clear()

    before = context.get_memory_info()
    arrays, allocated, name, text = fill(lambda size: cuda.device_array(size, dtype=numpy.uint8), CudaAPIError)
    full = context.get_memory_info()
    arrays.clear()
    context.memory_manager.deallocations.clear()
    after = context.get_memory_info()
    report(
        total=before.total,
        fills={
            "device_array": {
                "free_start": before.free,
                "allocated": allocated,
                "free_full": full.free,
                "free_end": after.free,
                "oom": text,
                "oom_type": name,
            }
        },
        copies_equal=copies_equal,
        launches={"cubin": {"elapsed_ms": elapsed_ms}},
    )


main()
