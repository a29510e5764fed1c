#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""abi_check.py finds what it is there to find. NVIDIA's headers are not needed: ours, unchanged, stand in for them, and a copy
with one mistake in it is compared with them."""

import argparse
import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

import abi_check
import abi_parse as parse

ABI = pathlib.Path(__file__).resolve().parents[1] / "src/abi"
CXX = ["g++"]

# (what, file, pattern, replacement): each must be found, by what a message about it must contain.
CUDA_MISTAKES = [
    ("value of an enumerator", "cuda_enums.h", r"CU_LIMIT_MALLOC_HEAP_SIZE", "CU_LIMIT_MALLOC_HEAP_SIZE = 9", "MALLOC_HEAP"),
    ("an enumerator left out", "cuda_codes.h", r"CUDA_ERROR_NOT_INITIALIZED,", "", "CUDA_ERROR_DEINITIALIZED"),
    ("a name nobody knows", "cuda_enums.h", r"CU_EVENT_INTERPROCESS", "CU_EVENT_INTERPROCES", "CU_EVENT_INTERPROCES"),
    ("value of a macro", "cuda_types.h", r"(CU_MEMHOSTALLOC_DEVICEMAP) 2", r"\1 3", "CU_MEMHOSTALLOC_DEVICEMAP"),
    ("a handle that is no object", "cuda_types.h", r"\(\(CUstream\)2\)", "((CUstream)3)", "CU_STREAM_PER_THREAD"),
    ("width of a scalar", "cuda_types.h", r"CUtexObject = unsigned long long", "CUtexObject = unsigned", "CUtexObject"),
    ("order of two fields", "cuda_structs.h", r"width, height, depth; \}", "height, width, depth; }", "offset"),
    ("width of a field", "cuda_structs.h", r"(struct CUmulticastObjectProp \{) unsigned", r"\1 size_t", "numDevices"),
    ("sign of a field", "cuda_structs.h", r"(struct CUcliqueInfo \{ CUcliqueType type;) unsigned", r"\1 int", "CUcliqueInfo.id"),
    ("size of a struct", "cuda_structs.h", r"reserved\[53\]", "reserved[61]", "size of CUmemPoolProps"),
    ("name of a field", "cuda_structs.h", r"\bmaxSize\b", "maximumSize", "maximumSize"),
    ("a callback's parameters", "cuda_graph_structs.h", r"\(\*\)\(int block_size\)", "(*)(long block_size)", "CUoccupancyB2DSize"),
    ("number of parameters", "cuda_functions_core.h", r"(HAMI_CU\(cuInit, unsigned flags)", r"\1, int more", "cuInit"),
    ("type of a parameter", "cuda_functions_memory.h", r"(cuMemAlloc_v2, CUdeviceptr\* ptr,) size_t", r"\1 unsigned", "cuMemAlloc_v2"),
    ("a pointer's const", "cuda_functions_memory.h", r"(cuMemcpyHtoD_v2, CUdeviceptr dst,) const", r"\1", "cuMemcpyHtoD_v2"),
    ("since", "cuda_api.inc", r"\(cuMemFree_v2, cuMemFree, 3020", "(cuMemFree_v2, cuMemFree, 4000", "cuMemFree"),
    ("asked_as", "cuda_api.inc", r"cuStreamQuery_ptsz, cuStreamQuery,", "cuStreamQuery_ptsz, cuEventQuery,", "cuStreamQuery"),
    ("a symbol left out", "cuda_api.inc", r"HAMI_CUDA_\w+\(cuMemPoolTrimTo,[^\n]*\n", "", "cuMemPoolTrimTo"),
    ("a number in the layout list", "cuda_layout.inc", r"(HAMI_SIZE\(CUDA_MEMCPY2D_v2), 128", r"\1, 120", "CUDA_MEMCPY2D_v2"),
]
NVML_MISTAKES = [
    ("value of an enumerator", "nvml_types.h", r"NVML_TOPOLOGY_NODE = 40", "NVML_TOPOLOGY_NODE = 41", "NVML_TOPOLOGY_NODE"),
    ("value of a field number", "nvml_fields.h", r"(NVML_FI_DEV_ENERGY) 191", r"\1 190", "NVML_FI_DEV_ENERGY"),
    ("order of two fields", "nvml_structs.h", r"total, reserved, free, used", "total, free, reserved, used", "nvmlMemory_v2_t"),
    ("version word", "nvml_structs.h", r"STRUCT_VERSION\(Memory, 2\)", "STRUCT_VERSION(GpuFabricInfo, 2)", "nvmlMemory_v2"),
    ("type of a parameter", "nvml_functions.h", r"(GetUtilizationRates, nvml)Utilization_t", r"\1Memory_t", "GetUtilizationRates"),
    ("a symbol left out", "nvml_api.inc", r"HAMI_NVML_\w+\(nvmlInit_v2\)\n", "", "nvmlInit_v2"),
]


def copy_tree(where, age):
    """A copy of src/abi under `where`; `age` keeps a compiler from taking equal files of two copies for one (#pragma once)."""
    abi = where / "abi"
    shutil.copytree(ABI, abi)
    for path in abi.iterdir():
        os.utime(path, (age, age))
    return abi


def stand_in(where):
    """A folder with a cuda.h, a cudaTypedefs.h and an nvml.h that say what our headers say, in NVIDIA's way of saying it."""
    abi = copy_tree(where / "pristine", 1_000_000)
    flat = lambda files: "\n".join(re.sub(r"^#pragma once|^#include \"abi/.*$", "", (abi / f).read_text(), flags=re.M) for f in files)
    (where / "cuda.h").write_text("#pragma once\n" + flat([*parse.CUDA_TYPES, "cuda_declare.h", *parse.CUDA_FUNCTIONS]).replace(
        "#include <cuda.h>", ""))
    version = '#define NVML_STRUCT_VERSION(name, v) ((unsigned int)(sizeof(nvml##name##_v##v##_t) | ((v) << 24U)))'
    (where / "nvml.h").write_text("#pragma once\n" + flat([*parse.NVML_TYPES, "nvml_declare.h", *parse.NVML_FUNCTIONS]).replace(
        "#include <nvml.h>", "") + version + "\n")
    suffix = {"PLAIN": "", "PTDS": "_ptds", "PTSZ": "_ptsz"}
    text = (where / "cuda.h").read_text()
    typedefs = []
    for kind, (symbol, asked, since, flavour) in parse.api_rows(abi / "cuda_api.inc"):
        if kind == "ALIAS":
            continue
        base = re.sub(r"_pt[ds][sz]$", "", symbol)
        node = "CUgraphNode*, CUgraph, const CUgraphNode*, size_t, " if f"HAMI_CU_ADD({symbol}," in text else ""
        parameters = re.search(rf"HAMI_CU\w*\({base}, (.*?)\);", text, re.S)[1]
        typedefs.append(f"typedef CUresult (CUDAAPI *PFN_{asked}_v{since}{suffix[flavour]})({node}{parameters});")
    (where / "cudaTypedefs.h").write_text("\n".join(typedefs) + "\n")
    return where


class AbiCheck(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmp = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.tmp.name)
        cls.headers = stand_in(cls.root)
        cls.copies = 0

    @classmethod
    def tearDownClass(cls):
        cls.tmp.cleanup()

    def errors_with(self, check, file=None, pattern=None, replacement=None):
        AbiCheck.copies += 1
        abi = copy_tree(self.root / f"copy{self.copies}" / "src", 2_000_000 + self.copies)
        if file:
            before = (abi / file).read_text()
            after = re.sub(pattern, replacement, before, count=1)
            self.assertTrue(before != after, f"the mistake was not made: {pattern}")
            (abi / file).write_text(after)
        return check(abi, CXX, self.headers, self.parts_for(file)) + abi_check.check_names(abi)

    @staticmethod
    def parts_for(file):
        """The part of the comparison that has to find a mistake in `file`: the others would only cost time."""
        if file is None:
            return abi_check.PARTS
        if file.endswith("_api.inc"):
            return ("since",)
        return ("functions",) if "functions" in file or "layout" in file else ("types",)

    def test_given_equal_headers_when_compared_then_nothing_is_found(self):
        self.assertEqual(self.errors_with(abi_check.check_cuda), [])
        self.assertEqual(self.errors_with(abi_check.check_nvml), [])

    def test_given_one_mistake_in_cuda_when_compared_then_it_is_found(self):
        for what, file, pattern, replacement, says in CUDA_MISTAKES:
            with self.subTest(what):
                found = self.errors_with(abi_check.check_cuda, file, pattern, replacement)
                self.assertTrue(any(says in error for error in found), f"{what}: {found}")

    def test_given_one_mistake_in_nvml_when_compared_then_it_is_found(self):
        for what, file, pattern, replacement, says in NVML_MISTAKES:
            with self.subTest(what):
                found = self.errors_with(abi_check.check_nvml, file, pattern, replacement)
                self.assertTrue(any(says in error for error in found), f"{what}: {found}")

    def test_given_a_prototype_that_no_row_names_when_names_are_checked_then_it_is_found(self):
        found = self.errors_with(lambda *_: [], "cuda_functions_core.h", "cuInit,", "cuInitt,")
        self.assertTrue(any("cuInitt" in error for error in found), found)


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--cxx", default="g++")
    known, rest = options.parse_known_args()
    CXX = known.cxx.split()
    unittest.main(argv=[sys.argv[0], *rest])
