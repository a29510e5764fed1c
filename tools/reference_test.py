#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of reference.py: each kind of gap is seen, and a tree without gaps passes."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import reference

TABLES = {
    "commands": [{"name": "run", "summary": "run it"}],
    "annotations": [{"key": "hami.io/x", "author": "tenant", "on": "pod", "text": "what"}],
    "variables": [{"name": "HAMI_A", "reader": "hami", "text": "a folder"}],
    "events": [{"reason": "GpuGone", "type": "Warning", "on": "node", "author": "x", "text": "it is gone"}],
    "keys": [{"file": "f.yaml", "section": "", "key": "memoryFactor", "text": "a factor"}],
}
FLAG = {"name": "mem", "letter": "", "type": "SIZE", "default": "1|2", "help": "memory", "group": "Options", "bool": False}
READER = '#include "device/config_reader.h"\nvoid f() { in.Text("memoryFactor", x); }\n'


def page(program, **flag):
    return {"program": program, "section": 1, "summary": "run it", "before": "Usage\n", "after": "", "flags": [{**FLAG, **flag}]}


class ReferenceTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.tables = json.loads(json.dumps(TABLES))
        self.flag = {}
        self.write("src/cli/a.cc", 'getenv("HAMI_A")')
        self.write("src/device/config.cc", READER)
        self.write("src/monitor/m.cc", 'page.Family("hami_x_total", kCounter, "How often "\n "it was");')
        self.write("src/plugin/p.cc", 'events_.push_back({true, "GpuGone", "it"});')

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def programs(self):
        answers = {"--help=reference": self.tables, "run --help=json": page("hami run", **self.flag)}
        for name in ("hami", *reference.DAEMONS):
            cases = "".join(f"'{words}') cat <<'END'\n{json.dumps(answer)}\nEND\n;;\n" for words, answer in answers.items())
            cases += f"'--help=json') cat <<'END'\n{json.dumps(page(name))}\nEND\n;;\n*--help=man) printf '.TH A 1 2020-01-01\\n.SH NAME\\na \\\\- b\\n' ;;\n"
            self.write(f"bin/{name}", f"#!/bin/sh\ncase \"$*\" in\n{cases}esac\n")
            (self.root / f"bin/{name}").chmod(0o755)

    def main(self, *words):
        self.programs()
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = reference.main([*words, "--bin", str(self.root / "bin"), str(self.root)])
        return status, out.getvalue()

    def mistakes(self):
        self.main()
        return self.main("--check")[1]

    def test_given_pages_just_written_then_nothing_is_found(self):
        self.assertEqual(self.main()[0], 0)
        status, out = self.main("--check")
        self.assertEqual((status, out.count("\n")), (0, 1), out)
        self.assertIn("| `hami_x_total` | counter | How often it was |", (self.root / "docs/reference/metrics.md").read_text())
        self.assertIn("| `--mem` | `SIZE` | `1\\|2` | memory |", (self.root / "docs/reference/hami.md").read_text())

    def test_given_a_page_that_is_not_what_the_programs_say_then_it_is_named(self):
        self.main()
        self.write("docs/reference/hami.md", "mine")
        self.write("docs/reference/more.md", "mine")
        status, out = self.main("--check")
        self.assertEqual(status, 1)
        self.assertIn("docs/reference/hami.md is not what the programs say", out)
        self.assertIn("docs/reference/more.md is none of the pages", out)

    def test_given_something_that_no_table_names_then_it_is_named(self):
        for name, text, what in (
            ("src/cli/b.cc", 'getenv("HAMI_B")', "src/cli/b.cc: reads HAMI_B"),
            ("src/monitor/b.cc", 'Record(target, kube::EventType::kWarning, "GpuBack", text)', "writes the event GpuBack"),
            ("src/device/b.cc", READER.replace("memoryFactor", "other"), "src/device/b.cc: reads the key other"),
            ("src/monitor/n.cc", 'Odd("hami_y_total", value)', "src/monitor/n.cc: hami_y_total has no text"),
        ):
            self.write(name, text)
            self.assertIn(what, self.mistakes())
            (self.root / name).unlink()

    def test_given_a_row_that_no_source_knows_then_it_is_named(self):
        for kind, row, what in (
            ("variables", {"name": "HAMI_C", "reader": "x", "text": "t"}, "nothing reads HAMI_C"),
            ("events", {"reason": "GpuOld", "type": "", "on": "", "author": "", "text": "t"}, "nothing writes the event GpuOld"),
            ("keys", {"file": "f", "section": "", "key": "old", "text": "t"}, "nothing reads the key old"),
        ):
            self.tables[kind].append(row)
            self.assertIn(what, self.mistakes())

    def test_given_something_without_a_text_then_it_is_named(self):
        for kind, name in (("variables", "HAMI_A"), ("annotations", "hami.io/x"), ("events", "GpuGone"), ("keys", "memoryFactor")):
            self.tables[kind][0]["text"] = " "
            self.assertIn(f"{name} has no text", self.mistakes())
        self.flag = {"help": ""}
        self.assertIn("hami run --mem has no text", self.mistakes())


if __name__ == "__main__":
    unittest.main()
