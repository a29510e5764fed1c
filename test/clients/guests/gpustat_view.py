# SPDX-License-Identifier: Apache-2.0
"""gpustat's own JSON and text, taken while this process holds a known amount of memory."""
import ctypes
import json
import os
import subprocess
import sys

from common import MIB, report

HELD = 512 * MIB


def main():
    cuda = ctypes.CDLL("libcuda.so.1")
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(HELD)) == 0
    tool = [sys.executable, "-m", "gpustat"]
    facts = json.loads(subprocess.run(tool + ["--json"], check=True, capture_output=True, text=True).stdout)
    text = subprocess.run(tool + ["--no-color", "--no-header"], check=True, capture_output=True, text=True).stdout
    report(gpus=facts["gpus"], text=text, pid=os.getpid(), held=HELD)


main()
