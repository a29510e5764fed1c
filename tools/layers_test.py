#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The include rule holds where it should and, above all, fails where it should."""

import pathlib
import tempfile
import unittest

import layers


class Layers(unittest.TestCase):
    def check(self, files):
        """Errors of a tree of {path: text}."""
        with tempfile.TemporaryDirectory() as tmp:
            root = pathlib.Path(tmp).resolve()
            for name, text in files.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return layers.check_tree(root)[1]

    HEADERS = {
        "src/abi/cuda_abi.h": "",
        "src/base/log.h": "",
        "src/region/region.h": "",
        "src/kube/client.h": "",
        "src/sched/fit.h": "",
        "simgpu/simgpu.h": "",
        "simgpu/machine/machine.h": "",
        "simgpu/driver/core.h": "",
        "test/helper.h": "",
    }

    def including(self, path, line):
        return self.check({**self.HEADERS, path: line + "\n"})

    def test_given_a_folder_below_when_included_then_nothing_is_said(self):
        for path, line in {
            "src/vgpu/a.cc": '#include "abi/cuda_abi.h"',
            "src/cli/a.cc": '#include "base/log.h"',
            "src/scheduler/a.cc": '#include "base/log.h"',  # through kube and net
            "simgpu/driver/a.cc": '#include "simgpu/machine/machine.h"',
            "simgpu/machine/a.cc": '#include "simgpu/simgpu.h"',
            "src/base/a.cc": '#include "base/log.h"',
            "src/base/b.cc": "#include <vector>",
        }.items():
            self.assertEqual(self.including(path, line), [], path)

    def test_given_a_folder_above_or_aside_when_included_then_it_is_an_error(self):
        for path, line in {
            "src/base/a.h": '#include "kube/client.h"',
            "src/abi/a.h": '#include "region/region.h"',
            "src/vgpu/a.cc": '#include "base/log.h"',
            "src/region/a.cc": '#include "base/log.h"',
            "src/sched/a.cc": '#include "kube/client.h"',
            "src/cli/a.cc": '#include "simgpu/machine/machine.h"',
            "simgpu/machine/a.cc": '#include "simgpu/driver/core.h"',
            "simgpu/nvml/a.cc": '#include "simgpu/driver/core.h"',
            "simgpu/driver/a.cc": '#include "base/log.h"',
            "src/base/b.cc": '#  include <kube/client.h>',
            "src/base/c.cc": '#include "src/kube/client.h"',
            "src/base/d.cc": '#include "base/../kube/client.h"',
            "src/base/e.inc": '#include "kube/client.h"',
            "src/base/f.cc": '#include "test/helper.h"',
        }.items():
            self.assertEqual(len(self.including(path, line)), 1, path)

    def test_given_an_include_written_another_way_when_read_then_it_is_an_error(self):
        self.assertEqual(len(self.including("src/base/a.cc", '#include "log.h"')), 1)
        self.assertEqual(len(self.including("src/base/a.cc", '#include "base/none.h"')), 1)

    def test_given_a_comment_when_it_names_a_forbidden_include_then_nothing_is_said(self):
        self.assertEqual(self.including("src/base/a.cc", '// #include "kube/client.h"'), [])

    def test_given_a_test_fuzzer_or_benchmark_when_it_includes_anything_then_nothing_is_said(self):
        for suffix in ("test", "fuzz", "bench"):
            self.assertEqual(self.including(f"src/base/a_{suffix}.cc", '#include "kube/client.h"'), [])

    def test_given_a_folder_that_nobody_named_when_found_then_it_is_an_error(self):
        self.assertEqual(len(self.including("src/fresh/a.cc", "")), 1)

    def test_given_the_rule_when_followed_then_it_has_no_cycle(self):
        self.assertEqual(layers.cycles(), [])

    def test_given_a_rule_with_a_cycle_when_checked_then_it_is_an_error(self):
        layers.ALLOWED["base"].append("kube")
        try:
            self.assertNotEqual(layers.cycles(), [])
        finally:
            layers.ALLOWED["base"].remove("kube")


if __name__ == "__main__":
    unittest.main()
