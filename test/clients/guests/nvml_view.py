# SPDX-License-Identifier: Apache-2.0
"""nvidia-ml-py: every question about the system and one GPU, while this process holds a known amount of memory."""
import ctypes
import inspect
import os

import pynvml as nv
from common import MIB, report

HELD = 256 * MIB

# Questions with arguments of their own; those that take only the GPU are found by their signature.
DETAILS = {
    "nvmlDeviceGetTemperature": (nv.NVML_TEMPERATURE_GPU,),
    "nvmlDeviceGetTemperatureThreshold": (nv.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,),
    "nvmlDeviceGetClockInfo": (nv.NVML_CLOCK_SM,),
    "nvmlDeviceGetMaxClockInfo": (nv.NVML_CLOCK_SM,),
    "nvmlDeviceGetTotalEccErrors": (nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nv.NVML_VOLATILE_ECC),
    "nvmlDeviceGetNvLinkState": (0,),
    "nvmlDeviceGetNvLinkVersion": (0,),
    "nvmlDeviceGetCpuAffinity": (1,),
    "nvmlDeviceGetPcieThroughput": (nv.NVML_PCIE_UTIL_TX_BYTES,),
    "nvmlDeviceGetProcessUtilization": (0,),
    "nvmlDeviceGetFieldValues": ([nv.NVML_FI_DEV_ECC_CURRENT],),
}


def hold():
    cuda = ctypes.CDLL("libcuda.so.1")
    context, pointer, total = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t()
    free = ctypes.c_size_t()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(HELD)) == 0
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value, total.value


MOMENT = ("timestamp", "latencyUsec")  # when it was read, not what


def plain(value):
    if isinstance(value, (ctypes.Structure, ctypes.Union)):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_ if name not in MOMENT}
    if isinstance(value, nv.nvmlFriendlyObject):
        return {name: plain(field) for name, field in vars(value).items()}
    if isinstance(value, (ctypes.Array, list, tuple)):
        return [plain(item) for item in value]
    return "own pid" if value == os.getpid() else repr(value)


def ask(call, *args):
    """The answer as plain data, or the error's own words: a tool shows either."""
    try:
        return plain(call(*args))
    except nv.NVMLError as error:
        return f"error: {error}"


def questions(handle):
    for name in sorted(dir(nv)):
        if not name.startswith(("nvmlDeviceGet", "nvmlDeviceIs", "nvmlSystemGet")):
            continue
        call = getattr(nv, name)
        needed = [p for p in inspect.signature(call).parameters.values() if p.default is p.empty]
        if name in DETAILS:
            yield name, call, (handle, *DETAILS[name])
        elif not needed:
            yield name, call, ()
        elif len(needed) == 1 and needed[0].name in ("handle", "device"):
            yield name, call, (handle,)


def main():
    free, total = hold()
    nv.nvmlInit()
    handle = nv.nvmlDeviceGetHandleByIndex(0)
    memory = nv.nvmlDeviceGetMemoryInfo(handle)
    memory2 = nv.nvmlDeviceGetMemoryInfo(handle, version=nv.nvmlMemory_v2)
    processes = nv.nvmlDeviceGetComputeRunningProcesses(handle)
    report(
        count=nv.nvmlDeviceGetCount(),
        total=memory.total,
        used=memory.used,
        free=memory.free,
        v2=[memory2.total, memory2.used, memory2.free],
        cuda_total=total,
        cuda_free=free,
        held=HELD,
        pid=os.getpid(),
        processes=[[p.pid, p.usedGpuMemory] for p in processes],
        answers={name: ask(call, *args) for name, call, args in questions(handle)},
    )
    nv.nvmlShutdown()


main()
