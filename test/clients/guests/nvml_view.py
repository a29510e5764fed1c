# SPDX-License-Identifier: Apache-2.0
"""nvidia-ml-py: everything a monitoring tool asks, while this process holds a known amount of memory."""
import ctypes
import os

import pynvml as nv
from common import MIB, report

HELD = 256 * MIB


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


def ask(call, *args):
    """The answer as plain data, or the error's own words: a tool shows either."""
    try:
        value = call(*args)
    except nv.NVMLError as error:
        return f"error: {error}"
    if isinstance(value, ctypes.Structure):
        return {name: repr(getattr(value, name)) for name, *_ in value._fields_}
    return repr(value)


def main():
    free, total = hold()
    nv.nvmlInit()
    handle = nv.nvmlDeviceGetHandleByIndex(0)
    memory = nv.nvmlDeviceGetMemoryInfo(handle)
    memory2 = nv.nvmlDeviceGetMemoryInfo(handle, version=nv.nvmlMemory_v2)
    processes = nv.nvmlDeviceGetComputeRunningProcesses(handle)
    answers = {
        name: ask(getattr(nv, name), handle)
        for name in (
            "nvmlDeviceGetName nvmlDeviceGetUUID nvmlDeviceGetIndex nvmlDeviceGetMinorNumber nvmlDeviceGetPciInfo "
            "nvmlDeviceGetUtilizationRates nvmlDeviceGetPowerUsage nvmlDeviceGetEnforcedPowerLimit "
            "nvmlDeviceGetPersistenceMode nvmlDeviceGetPerformanceState nvmlDeviceGetComputeMode "
            "nvmlDeviceGetEncoderUtilization nvmlDeviceGetDecoderUtilization nvmlDeviceGetFanSpeed "
            "nvmlDeviceGetCudaComputeCapability nvmlDeviceGetBAR1MemoryInfo nvmlDeviceGetMigMode "
            "nvmlDeviceGetGraphicsRunningProcesses nvmlDeviceGetMaxPcieLinkGeneration "
            "nvmlDeviceGetCurrPcieLinkWidth nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetSerial"
        ).split()
    }
    report(
        count=nv.nvmlDeviceGetCount(),
        driver=nv.nvmlSystemGetDriverVersion(),
        total=memory.total,
        used=memory.used,
        free=memory.free,
        v2=[memory2.total, memory2.used, memory2.free],
        cuda_total=total,
        cuda_free=free,
        held=HELD,
        pid=os.getpid(),
        processes=[[p.pid, p.usedGpuMemory] for p in processes],
        answers=answers,
    )
    nv.nvmlShutdown()


main()
