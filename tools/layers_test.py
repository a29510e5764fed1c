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
        "src/vgpu/loader/driver.h": "",
        "src/vgpu/runtime/process.h": "",
        "src/vgpu/memory/charge.h": "",
        "src/vgpu/pacer/pacer.h": "",
        "src/vgpu/hooks/proc_address.h": "",
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
            "src/vgpu/loader/a.cc": '#include "abi/cuda_abi.h"',
            "src/vgpu/memory/a.cc": '#include "vgpu/runtime/process.h"',
            "src/vgpu/pacer/a.cc": '#include "vgpu/runtime/process.h"',
            "src/vgpu/time/a.cc": '#include "region/region.h"',
            "src/vgpu/hooks/a.cc": '#include "vgpu/memory/charge.h"',
            "src/vgpu/runtime/a.cc": '#include "vgpu/loader/driver.h"',
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
            "src/vgpu/b.cc": '#include "vgpu/runtime/process.h"',
            "src/vgpu/pacer/a.cc": '#include "vgpu/memory/charge.h"',
            "src/vgpu/time/a.cc": '#include "vgpu/runtime/process.h"',
            "src/vgpu/memory/a.cc": '#include "vgpu/pacer/pacer.h"',
            "src/vgpu/runtime/a.cc": '#include "vgpu/memory/charge.h"',
            "src/vgpu/runtime/b.cc": '#include "vgpu/pacer/pacer.h"',
            "src/vgpu/loader/a.cc": '#include "vgpu/runtime/process.h"',
            "src/vgpu/memory/b.cc": '#include "vgpu/hooks/proc_address.h"',
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

    def test_given_a_product_that_includes_what_serves_tests_then_it_is_an_error(self):
        fake = {"src/kube/testing/fake.h": '#include "scheduler/above.h"', "src/scheduler/above.h": ""}
        self.assertEqual(self.check({**self.HEADERS, **fake}), [], "what serves tests may include anything")
        for path in ("src/kube/a.cc", "src/scheduler/a.h"):
            errors = self.check({**self.HEADERS, **fake, path: '#include "kube/testing/fake.h"'})
            self.assertEqual(len(errors), 1, path)
            self.assertIn("which is a test", errors[0])
        self.assertEqual(self.check({**self.HEADERS, **fake, "src/kube/a_test.cc": '#include "kube/testing/fake.h"'}), [])

    def test_given_what_serves_tests_among_a_products_sources_then_it_is_an_error(self):
        for name in ("fake_apiserver.cc", "fake_store.h", "test_certificates.h", "world_test.h", "pod_testing.h", "nvml_fixture.h"):
            errors = self.including(f"src/kube/{name}", "")
            self.assertEqual(len(errors), 1, name)
            self.assertIn("testing/", errors[0])
            self.assertEqual(self.including(f"src/kube/testing/{name}", ""), [], name)

    def test_given_a_product_made_of_or_linked_with_what_serves_tests_then_it_is_an_error(self):
        good = """
            add_library(hami_kube STATIC client.cc)
            add_library(hami_fake STATIC testing/fake.cc testing/store.cc)  # of tests
            target_link_libraries(hami_fake PUBLIC hami_kube)
            hami_test(kube_test SOURCES client_test.cc testing/other.cc LIBS hami_fake)
            add_executable(kube_bench EXCLUDE_FROM_ALL kube_bench.cc)
            target_link_libraries(kube_bench PRIVATE hami_fake $<$<BOOL:${X}>:(y)>)
        """
        self.assertEqual(self.check({**self.HEADERS, "src/kube/CMakeLists.txt": good}), [])
        for bad in (
            "add_library(hami_x STATIC a.cc testing/fake.cc)",
            "target_sources(hami_kube PRIVATE b.cc testing/store.cc)",
            "target_link_libraries(hami_kube PUBLIC hami_fake)",
            "add_executable(hami-x main.cc)\ntarget_link_libraries(hami-x PRIVATE hami_kube\n  hami_fake)",
        ):
            errors = self.check({**self.HEADERS, "src/kube/CMakeLists.txt": good, "src/net/more.cmake": bad})
            self.assertEqual(len(errors), 1, bad)
            self.assertIn("for tests", errors[0])

    def test_given_variables_that_change_then_they_are_counted_and_nothing_else_is(self):
        for line in (
            "int g_a = 0;", "constinit Lock g_b{Rank::kX};", "constinit std::atomic<uint64_t> g_c[4][2]{};", "char* g_d = nullptr;",
            "constinit Lock g_e{", "inline constinit thread_local Held t_f{};", "void* __dso_handle = &__dso_handle;",
            "  static unsigned calls = 0;", "static std::atomic<int*> g_h{nullptr};",
        ):
            self.assertEqual(len(layers.variables(line + "\n")), 1, line)
        for line in (
            "constexpr int kA = 0;", "extern Lock g_b;", "const char* const kC[] = {", "int F(int a);", "int F() {", "using A = B;",
            "inline constexpr uint64_t kD{1};", "// int g_a = 0;", "  int local = 0;", "struct A {", "enum class B : int {", "return x;",
            "static const int kE = 1;", "constinit const Port kF{", "template <typename T>", "namespace a {", "  static bool Is(int a);",
            "  static constexpr int kG = 1;", "bool operator==(const A&) const = default;",
        ):
            self.assertEqual(layers.variables(line + "\n"), [], line)

    def test_given_one_variable_more_than_a_folder_may_have_then_it_is_an_error(self):
        self.assertEqual(self.including("src/vgpu/hooks/a.cc", "constexpr int kA = 0;"), [])
        errors = self.including("src/vgpu/hooks/a.cc", "int g_a = 0;")
        self.assertEqual(len(errors), 1)
        self.assertIn("src/vgpu/hooks/a.cc: g_a", errors[0])
        self.assertEqual(self.including("src/vgpu/hooks/a_test.cc", "int g_a = 0;"), [])

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
