#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A mutant counts as caught only when a test that passes as things are fails because of it; nothing is left changed."""

import contextlib
import io
import json
import pathlib
import subprocess
import tempfile
import unittest

import mutants

SAYS_ONE = "echo '[  PASSED  ] 1 test.'; "


class NoBuild(mutants.Bench):
    """A bench whose compiler copies: x.sh becomes built.sh, as it was when it was built last."""

    def build(self, targets):
        text = (self.tree / "x.sh").read_text()
        (self.tree / "built.sh").write_text(text)
        return "it is no shell" if "syntax error" in text else None


class Mutants(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        (self.root / "test/mutants").mkdir(parents=True)

    def entry(self, **changes):
        return {"hazard": "A1", "what": "w", "file": "x.sh", "old": "exit 0", "new": "exit 1", "target": "t",
                "run": ["sh", "built.sh"], **changes}

    def write(self, *entries, source=SAYS_ONE + "exit 0\n"):
        (self.root / "x.sh").write_text(source)
        (self.root / "test/mutants/area.json").write_text(json.dumps(entries))
        return mutants.read_entries(self.root)

    def failed(self, *entries, source=SAYS_ONE + "exit 0\n", seconds=10):
        """How many of ENTRIES were not caught, and what was printed; the source must be as it was."""
        read = self.write(*entries, source=source)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            failed = mutants.run_all(NoBuild(self.root, seconds), read)
        self.assertEqual((self.root / "x.sh").read_text(), source)
        return failed, said.getvalue()

    def test_given_a_mutant_when_its_test_fails_then_it_is_caught(self):
        failed, said = self.failed(self.entry())
        self.assertEqual(failed, 0)
        self.assertIn("caught", said)

    def test_given_several_mutants_when_each_has_a_test_of_its_own_then_all_are_tried_as_things_are_first(self):
        failed, said = self.failed(self.entry(), self.entry(run=["sh", "built.sh", "again"]))
        self.assertEqual(failed, 0, said)

    def test_given_a_mutant_when_its_test_passes_then_it_survived(self):
        failed, said = self.failed(self.entry(new="exit 0 # changed"))
        self.assertEqual(failed, 1)
        self.assertIn("SURVIVED", said)

    def test_given_a_mutant_when_its_test_hangs_then_it_is_caught(self):
        failed, said = self.failed(self.entry(new="sleep 1000"), seconds=1)
        self.assertEqual(failed, 0)
        self.assertIn("hang", said)

    def test_given_a_mutant_when_it_does_not_compile_then_that_proves_nothing(self):
        failed, said = self.failed(self.entry(new="syntax error"))
        self.assertEqual(failed, 1)
        self.assertIn("does not compile", said)

    def test_given_a_test_when_it_fails_or_runs_nothing_anyway_then_that_proves_nothing(self):
        self.assertIn("fails as things are", self.failed(self.entry(), source="exit 3 # exit 0\n")[1])
        self.assertIn("runs no test", self.failed(self.entry(), source="exit 0\n")[1])
        self.assertIn("runs no test", self.failed(self.entry(), source="echo '[  PASSED  ] 0 tests.'; exit 0\n")[1])

    def test_given_entries_that_can_not_be_meant_when_read_then_file_and_entry_are_named(self):
        for changes, said in (
            ({"old": "nowhere"}, "old occurs 0 times in x.sh"),
            ({"old": "e"}, "not once"),
            ({"file": "y.sh"}, "no file y.sh"),
            ({"new": "exit 0"}, "the same"),
            ({"run": "sh x.sh"}, "list of words"),
            ({"extra": 1}, "exactly the keys"),
            ({"target": None}, "is a text"),
        ):
            with self.assertRaisesRegex(mutants.Wrong, r"test/mutants/area.json: entry 2.*" + said):
                self.write(self.entry(), self.entry(**changes))
        (self.root / "test/mutants/area.json").write_text("[")
        with self.assertRaisesRegex(mutants.Wrong, "area.json"):
            mutants.read_entries(self.root)

    def test_given_a_name_when_chosen_then_hazard_area_and_both_work(self):
        read = self.write(self.entry(), self.entry(hazard="A2"))
        for only, count in ((None, 2), ("A1", 1), ("area", 2), ("area/A2", 1)):
            self.assertEqual(len(mutants.chosen(read, only)), count, only)
        with self.assertRaises(mutants.Wrong):
            mutants.chosen(read, "A")

    def test_given_a_checkout_when_copied_again_then_only_what_differs_is_written(self):
        checkout = self.root / "checkout"
        (checkout / "src").mkdir(parents=True)
        subprocess.run(["git", "init", "-q", checkout], check=True)
        for name in ("src/a", "src/b", "c"):
            (checkout / name).write_text(name)
        tree = self.root / "tree"
        mutants.copy_tree(checkout, tree)
        (tree / "build").mkdir()
        (tree / "build/kept").write_text("")
        (tree / "src/a").write_text("a mutant that was left")
        before = (tree / "src/b").stat().st_mtime_ns
        (checkout / "c").unlink()
        mutants.copy_tree(checkout, tree)
        names = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
        self.assertEqual(names, {"src/a", "src/b", "build/kept"})
        self.assertEqual((tree / "src/a").read_text(), "src/a")
        self.assertEqual((tree / "src/b").stat().st_mtime_ns, before)


if __name__ == "__main__":
    unittest.main()
