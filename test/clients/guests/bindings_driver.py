# SPDX-License-Identifier: Apache-2.0
"""cuda-bindings, module `driver`, with NVRTC: compile, load, launch, time, fill, give back."""
import ctypes

from common import MIB, fill, report
from cuda.bindings import driver, nvrtc

GRANULE = 2 * MIB

SOURCE = b"""
extern "C" __device__ int counter = 7;
extern "C" __global__ void saxpy(float a, const float *x, float *y, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
"""


class DriverError(RuntimeError):
    pass


def check(result):
    status, *values = result
    if status.value != 0:
        raise DriverError(status.name)
    return values[0] if len(values) == 1 else tuple(values)


def compile_image(arch, kind):
    program = check(nvrtc.nvrtcCreateProgram(SOURCE, b"saxpy.cu", 0, [], []))
    target = b"sm_" if kind == "cubin" else b"compute_"
    check(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=" + target + str(arch).encode()]))
    size = check(nvrtc.nvrtcGetCUBINSize(program) if kind == "cubin" else nvrtc.nvrtcGetPTXSize(program))
    image = b" " * size
    check(nvrtc.nvrtcGetCUBIN(program, image) if kind == "cubin" else nvrtc.nvrtcGetPTX(program, image))
    return image


def launch(image):
    library = check(driver.cuLibraryLoadData(image, [], [], 0, [], [], 0))
    kernel = check(driver.cuLibraryGetKernel(library, b"saxpy"))
    function = check(driver.cuKernelGetFunction(kernel))
    pointer, size = check(driver.cuLibraryGetGlobal(library, b"counter"))
    word = ctypes.c_int(0)
    check(driver.cuMemcpyDtoH(ctypes.addressof(word), pointer, 4))
    x = check(driver.cuMemAlloc(4096))
    begin = check(driver.cuEventCreate(0))
    end = check(driver.cuEventCreate(0))
    stream = check(driver.cuStreamCreate(0))
    check(driver.cuEventRecord(begin, stream))
    args = ((2.0, x, x, 1024), (ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t))
    for _ in range(10):
        check(driver.cuLaunchKernel(function, 4, 1, 1, 256, 1, 1, 0, stream, args, 0))
    check(driver.cuEventRecord(end, stream))
    check(driver.cuStreamSynchronize(stream))
    elapsed = check(driver.cuEventElapsedTime(begin, end))
    threads = check(
        driver.cuFuncGetAttribute(driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function)
    )
    check(driver.cuMemFree(x))
    check(driver.cuEventDestroy(begin))
    check(driver.cuEventDestroy(end))
    check(driver.cuStreamDestroy(stream))
    check(driver.cuLibraryUnload(library))
    return {"elapsed_ms": elapsed, "global": word.value, "global_size": size, "max_threads": threads}


def plain(size):
    return check(driver.cuMemAlloc(size))


def give_plain(pointers):
    for pointer in pointers:
        check(driver.cuMemFree(pointer))


def ordered(size):
    return check(driver.cuMemAllocAsync(size, 0))


def give_ordered(pointers):
    for pointer in pointers:
        check(driver.cuMemFreeAsync(pointer, 0))
    check(driver.cuCtxSynchronize())


def physical(size):
    """Memory without an address, in the driver's own granules, as allocators with expandable segments get it."""
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = 0
    return check(driver.cuMemCreate(size, prop, 0))


def give_physical(handles):
    for handle in handles:
        check(driver.cuMemRelease(handle))


def fill_and_give_back(allocate, give, least):
    free_start, _ = check(driver.cuMemGetInfo())
    handles, allocated, name, text = fill(allocate, DriverError, least)
    free_full, _ = check(driver.cuMemGetInfo())
    give(handles)
    free_end, _ = check(driver.cuMemGetInfo())
    return {
        "free_start": free_start,
        "allocated": allocated,
        "free_full": free_full,
        "free_end": free_end,
        "oom": text,
        "oom_type": name,
    }


def copies_equal():
    data = bytes(range(256)) * 16
    pointer = check(driver.cuMemAlloc(len(data)))
    check(driver.cuMemcpyHtoD(pointer, data, len(data)))
    back = bytearray(len(data))
    check(driver.cuMemcpyDtoH(back, pointer, len(data)))
    check(driver.cuMemFree(pointer))
    return bytes(back) == data


def architecture(device):
    attribute = driver.CUdevice_attribute
    major = check(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
    minor = check(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
    return 10 * major + minor


def main():
    check(driver.cuInit(0))
    device = check(driver.cuDeviceGet(0))
    context = check(driver.cuDevicePrimaryCtxRetain(device))
    check(driver.cuCtxSetCurrent(context))
    arch = architecture(device)
    report(
        launches={kind: launch(compile_image(arch, kind)) for kind in ("cubin", "ptx")},
        copies_equal=copies_equal(),
        total=check(driver.cuMemGetInfo())[1],
        device_total=check(driver.cuDeviceTotalMem(device)),
        fills={
            "cuMemAlloc": fill_and_give_back(plain, give_plain, 64 << 10),
            "cuMemAllocAsync": fill_and_give_back(ordered, give_ordered, 64 << 10),
            "cuMemCreate": fill_and_give_back(physical, give_physical, GRANULE),
        },
    )


main()
