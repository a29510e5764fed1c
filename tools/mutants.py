#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts old mistakes back, one at a time, and expects the test that is named for each to fail.

    mutants.py [--only HAZARD] [--list]

test/mutants/<area>.json is a list of
    {"hazard": "A3", "what": "the mistake, in a line", "file": "src/base/units.cc", "old": "text that occurs there once",
     "new": "text", "target": "what cmake builds", "run": ["build/test/units_test", "--gtest_filter=X.GivenY*"]}
The work is done in build/mutants/tree, a copy of what git knows of the checkout, with a build folder of its own. Every test
first has to pass there as things are, and to have run something: a test that says nothing proves nothing by failing.
"""

import argparse
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

KEYS = {"hazard", "what", "file", "old", "new", "target", "run"}
MOST_SECONDS = 120  # for a test; one that takes longer hangs
PASSED = re.compile(r"\[  PASSED  \] (\d+) test|^Ran (\d+) test", re.MULTILINE)  # of GoogleTest, of unittest


class Wrong(Exception):
    """An entry that can not be what its writer meant."""


class Mutant:
    def __init__(self, area, entry):
        self.area = area
        for key in KEYS:
            setattr(self, key, entry[key])

    @property
    def name(self):
        return f"{self.area}/{self.hazard}"


def read_entries(root):
    """All mutants of the tree; raises Wrong naming file and entry."""
    mutants = []
    for path in sorted((root / "test/mutants").glob("*.json")):
        where = path.relative_to(root)
        try:
            entries = json.loads(path.read_text())
        except ValueError as error:
            raise Wrong(f"{where}: {error}") from error
        if not isinstance(entries, list):
            raise Wrong(f"{where}: not a list of mutants")
        for number, entry in enumerate(entries, 1):
            check_entry(f"{where}: entry {number}", root, entry)
            mutants.append(Mutant(path.stem, entry))
    return mutants


def check_entry(where, root, entry):
    if not isinstance(entry, dict) or set(entry) != KEYS:
        raise Wrong(f"{where}: wants exactly the keys {', '.join(sorted(KEYS))}")
    where += f" ({entry['hazard']}: {entry['what']})"
    run = entry["run"]
    if not isinstance(run, list) or not run or not all(isinstance(word, str) for word in run):
        raise Wrong(f"{where}: run is not a list of words")
    if not all(isinstance(entry[key], str) for key in KEYS - {"run"}):
        raise Wrong(f"{where}: everything but run is a text")
    if entry["old"] == entry["new"]:
        raise Wrong(f"{where}: old and new are the same")
    source = root / entry["file"]
    if not source.is_file():
        raise Wrong(f"{where}: there is no file {entry['file']}")
    count = source.read_text().count(entry["old"])
    if count != 1:
        raise Wrong(f"{where}: old occurs {count} times in {entry['file']}, not once: {entry['old']!r}")


def chosen(mutants, only):
    picked = [m for m in mutants if only in (None, m.hazard, m.area, m.name)]
    if not picked:
        raise Wrong(f"no mutant is named {only}; there are {', '.join(sorted({m.name for m in mutants}))}")
    return picked


def copy_tree(root, tree):
    """Makes TREE what git knows of ROOT. A file that is the same stays as it is, so that it is not built again."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-coz", "--exclude-standard"], check=True, capture_output=True)
    names = {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}
    for name in names:
        source, target = root / name, tree / name
        if not source.is_file():
            continue  # deleted, and not yet committed so
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)
    for path in tree.rglob("*"):
        name = str(path.relative_to(tree))
        if path.is_file() and not name.startswith("build/") and (name not in names or not (root / name).is_file()):
            path.unlink()


class Bench:
    """The copy, and what can be done there."""

    def __init__(self, tree, seconds=MOST_SECONDS):
        self.tree = tree
        self.seconds = seconds

    def configure(self):
        command = ["cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"]
        done = subprocess.run(command, cwd=self.tree, capture_output=True, text=True)
        if done.returncode:
            raise Wrong("the copy can not be configured:\n" + tail(done.stdout + done.stderr))

    def build(self, targets):
        """Nothing, or what the compiler said."""
        command = ["nice", "-n", "19", "cmake", "--build", "build", "-j2", "--target", *sorted(targets)]
        done = subprocess.run(command, cwd=self.tree, capture_output=True, text=True)
        return tail(done.stdout + done.stderr) if done.returncode else None

    def run(self, command):
        """(exit status, output); a test that hangs has status None."""
        with subprocess.Popen(["nice", "-n", "15", *command], cwd=self.tree, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              start_new_session=True) as test:
            try:
                output, _ = test.communicate(timeout=self.seconds)
                status = test.returncode
            except subprocess.TimeoutExpired:
                status, output = None, ""
            try:
                os.killpg(test.pid, signal.SIGKILL)  # the test, should it hang, and whatever it left behind
            except ProcessLookupError:
                pass
        return status, output

    def unchanged(self, command):
        """Nothing when the test passes as things are and tests something, else why it can prove nothing."""
        status, output = self.run(command)
        if status is None:
            return "hangs as things are"
        if status:
            return "fails as things are:\n" + tail(output)
        if sum(int(a or b) for a, b in PASSED.findall(output)) == 0:
            return "runs no test"
        return None

    def verdict(self, mutant):
        """('caught' | 'SURVIVED' | 'ERROR', what there is to say)."""
        source = self.tree / mutant.file
        before = source.read_text()
        try:
            source.write_text(before.replace(mutant.old, mutant.new))
            said = self.build([mutant.target])
            if said is not None:
                return "ERROR", "does not compile:\n" + said
            status, _ = self.run(mutant.run)
        finally:
            source.write_text(before)
        if status == 0:
            return "SURVIVED", "passes all the same: " + " ".join(mutant.run)
        return "caught", "by a hang" if status is None else ""


def tail(text):
    return "\n".join("    " + line for line in text.splitlines()[-25:])


def run_all(bench, mutants):
    """Prints a line for each; how many were not caught."""
    said = bench.build({m.target for m in mutants})
    if said is not None:
        raise Wrong("the copy does not build as things are:\n" + said)
    # All of them before the first mutant: afterwards it is a mutant that lies there built.
    unchanged = {command: bench.unchanged(command) for command in {tuple(m.run) for m in mutants}}
    failed = 0
    for mutant in mutants:
        started = time.monotonic()
        said = unchanged[tuple(mutant.run)]
        result, text = ("ERROR", said) if said else bench.verdict(mutant)
        failed += result != "caught"
        print(f"  {result:8} {mutant.name:14} {time.monotonic() - started:4.0f} s  {mutant.what}", flush=True)
        if text:
            print(f"           {text}", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="HAZARD", help="a hazard (A3), an area (plugin), or both (plugin/A3)")
    parser.add_argument("--list", action="store_true", help="name the mutants, and check that each fits its source")
    arguments = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[1]
    mutants = chosen(read_entries(root), arguments.only)
    if arguments.list:
        for mutant in mutants:
            print(f"  {mutant.name:14} {mutant.file:32} {mutant.what}")
        return 0
    tree = root / "build/mutants/tree"
    tree.mkdir(parents=True, exist_ok=True)
    with open(tree.parent / "lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Wrong(f"another run works in {tree.parent}") from error
        copy_tree(root, tree)
        bench = Bench(tree)
        bench.configure()
        failed = run_all(bench, mutants)
    print(f"{len(mutants) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Wrong as wrong:
        print(f"mutants: {wrong}", file=sys.stderr)
        sys.exit(2)
