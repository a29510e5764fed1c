#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
""".ci/run, with commands in the place of the real ones: nothing is left out without a word, nor fails without one."""
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / ".ci/run"
COMMANDS = ("test", "demo", "check", "fuzz-smoke", "clients", "e2e")


class CiRun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ci-run-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / ".ci").mkdir()
        (self.root / "tools").mkdir()
        shutil.copy(SCRIPT, self.root / ".ci/run")
        self.calls = self.root / "calls"
        for name in COMMANDS:
            self.command(name, "exit 0")

    def command(self, name, does):
        path = self.root / "tools" / name
        path.write_text(f'#!/bin/bash\necho "{name} $*" >>"{self.calls}"\n{does}\n')
        path.chmod(0o755)

    def run_it(self, *words):
        done = subprocess.run([self.root / ".ci/run", *words], capture_output=True, text=True, check=False, timeout=50)
        called = self.calls.read_text().splitlines() if self.calls.exists() else []
        return done.returncode, done.stdout, [call.strip() for call in called]

    def test_given_time_then_every_part_runs_and_is_reported(self):
        status, said, called = self.run_it()
        self.assertEqual(status, 0, said)
        self.assertEqual([call.split()[0] for call in called], [*COMMANDS, "e2e", "test"])
        self.assertEqual(called[-1], "test --only-slow")
        self.assertEqual(said.count(" ok  "), 8, said)

    def test_given_no_time_then_each_promised_part_is_named_and_it_fails(self):
        status, said, called = self.run_it("--limit", "60")
        self.assertEqual((status, called), (1, []), said)
        self.assertEqual(said.count("left out  promised"), 6, said)

    def test_given_a_part_that_fails_then_it_is_named_and_nothing_follows(self):
        self.command("check", "exit 3")
        status, said, called = self.run_it()
        self.assertEqual(status, 3)
        self.assertRegex(said, r"FAILED    \d+ s, status 3: tools/check")
        self.assertEqual(called[-1].split()[0], "check")

    def test_given_e2e_that_fails_once_then_what_failed_is_tried_again(self):
        self.command("e2e", "[[ -n ${1-} ]]")
        status, said, called = self.run_it()
        self.assertEqual(status, 0, said)
        self.assertIn("e2e --failed", called)
        self.command("e2e", "exit 1")
        self.assertEqual(self.run_it()[0], 1)

    def test_given_a_part_that_skips_then_the_reason_is_in_the_report(self):
        self.command("e2e", "echo 'skipped: no Go'")
        status, said, _ = self.run_it()
        self.assertEqual(status, 0)
        self.assertRegex(said, r"skipped, ok .*e2e.*\(no Go\)")

    def test_given_an_unknown_word_then_it_is_an_error(self):
        self.assertEqual(self.run_it("--fast")[0], 2)


if __name__ == "__main__":
    unittest.main()
