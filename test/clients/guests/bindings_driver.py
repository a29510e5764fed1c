# SPDX-License-Identifier: Apache-2.0
"""cuda-bindings, module `driver`, with NVRTC: compile, load, launch, time, fill, give back."""
import ctypes

from common import fill, report
from cuda.bindings import driver, nvrtc

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


def main():
    check(driver.cuInit(0))
    device = check(driver.cuDeviceGet(0))
    attribute = driver.CUdevice_attribute
    arch = 10 * check(
        driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
    ) + check(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
    context = check(driver.cuDevicePrimaryCtxRetain(device))
    check(driver.cuCtxSetCurrent(context))
    launches = {kind: launch(compile_image(arch, kind)) for kind in ("cubin", "ptx")}

    data = bytes(range(256)) * 16
    pointer = check(driver.cuMemAlloc(len(data)))
    check(driver.cuMemcpyHtoD(pointer, data, len(data)))
    back = bytearray(len(data))
    check(driver.cuMemcpyDtoH(back, pointer, len(data)))
    check(driver.cuMemFree(pointer))

    free_start, total = check(driver.cuMemGetInfo())
    handles, allocated, name, text = fill(lambda size: check(driver.cuMemAlloc(size)), DriverError)
    free_full, _ = check(driver.cuMemGetInfo())
    for handle in handles:
        check(driver.cuMemFree(handle))
    free_end, _ = check(driver.cuMemGetInfo())
    report(
        total=total,
        device_total=check(driver.cuDeviceTotalMem(device)),
        free_start=free_start,
        allocated=allocated,
        free_full=free_full,
        free_end=free_end,
        oom=text,
        oom_type=name,
        copies_equal=bytes(back) == data,
        launches=launches,
    )


main()
