#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of docs_check.py: each kind of untruth is seen, and a true tree passes."""

import pathlib
import tempfile
import unittest

import docs_check

HELP = "#!/bin/sh\necho tools/go\n"


class DocsCheckTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.write("Makefile", "test: ## all\n")
        self.write("src/cli/run.cc", "")
        self.write("docs/design/architecture.md", "# A b\n| `src/cli/` | x |\n| `tools/`, `docs/` | y |\n")
        self.write("tools/go", HELP)
        self.write("README.md", "[a](docs/design/architecture.md#a-b) `make test` tools/go `src/cli/run.cc` [w](https://x/y)\n")

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def test_given_a_true_tree_then_nothing_is_found(self):
        self.assertEqual(docs_check.check(self.root), [])

    def test_given_something_that_is_not_there_then_it_is_named(self):
        for text, what in (
            ("[a](docs/none.md)", "no such file: docs/none.md"),
            ("[a](docs/design/architecture.md#none)", "no such heading: docs/design/architecture.md#none"),
            ("`make none`", "no such target: make none"),
            ("`tools/none --x`", "no such command: tools/none"),
            ("`src/cli/none.cc`", "no such place: src/cli/none.cc"),
        ):
            self.write("README.md", text)
            self.assertEqual(docs_check.check(self.root), [f"README.md: {what}"])

    def test_given_a_folder_without_a_row_then_it_is_named(self):
        self.write("src/net/x.cc", "")
        self.assertEqual(docs_check.check(self.root), ["docs/design/architecture.md: no row for src/net/"])

    def test_given_a_translation_out_of_step_then_it_is_named(self):
        self.write("README.md", "# A\n\n    tools/go --x    # why\n\n[a](docs/design/architecture.md)\n")
        self.write("README.zh.md", "# B\n\n    tools/go --x    # 为什么\n\n[b](docs/design/architecture.md) [en](README.md)\n")
        self.assertEqual(docs_check.check(self.root), [])
        for kind, text in (
            ("headings", "# B\n\n## C\n\n    tools/go --x\n\n[b](docs/design/architecture.md)\n"),
            ("commands", "# B\n\n    tools/go --y    # why\n\n[b](docs/design/architecture.md)\n"),
            ("links", "# B\n\n    tools/go --x\n"),
        ):
            self.write("README.zh.md", text)
            self.assertEqual([line.split(" differ")[0] for line in docs_check.check(self.root)], [f"README.zh.md: {kind}"])

    def test_given_a_source_that_names_a_lost_file_then_it_is_named(self):
        for name, text, what in (
            ("src/cli/run.cc", "// See docs/none.md.\n", "no such place: docs/none.md"),
            ("src/cli/run.cc", 'Say("see docs/none.md");\n', "no such place: docs/none.md"),
            ("deploy/values.yaml", "# (docs/none.md)\n", "no such place: docs/none.md"),
            ("src/cli/run.cc", "int a;  // as none.h has it\n", "no such file: none.h"),
        ):
            self.write(name, text)
            self.assertEqual(docs_check.check(self.root), [f"{name}:1: {what}"])
            self.write(name, "")

    def test_given_a_source_that_names_what_is_there_then_all_is_well(self):
        self.write("src/cli/run.cc", "#include <none.h>\n// run.cc, src/cli/run.cc and docs/design/architecture.md; *_none.cc\n")
        self.write("tools/x_test.py", '"docs/none.md"')  # tests make trees of their own
        self.assertEqual(docs_check.check(self.root), [])

    def test_given_a_command_without_help_then_it_is_named(self):
        for script in ("#!/bin/sh\nexit 1\n", "#!/bin/sh\necho building\n"):
            self.write("tools/go", script)
            self.assertEqual(len(docs_check.check(self.root)), 1)


if __name__ == "__main__":
    unittest.main()
