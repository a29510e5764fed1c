#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when a test's name is longer than 60 characters, or one is named that is not there: by a table in the documentation,
or by the filter of a mutant (test/mutants/*.json), which would then be caught by nothing.

    test_names.py [ROOT] [FILE...]      default: the files in FILES below

Looked at are the words in `backticks` in the last column of each table row that is headed `test`. Each is one of
    SuiteTest.GivenThisWhenThat…   GivenThis…   SuiteTest.*   SuiteTest   Suite/parameter     of GoogleTest
    base_test, plugin_wire_fuzz                                                              a program of the tests
    vmm_segments, processes_…                                                                a word of the tests' sources
and `…` or `*` stands for anything. A word with a space in it is a command and is not looked at.
"""

import json
import pathlib
import re
import sys

FILES = ("docs/develop/hazards.md", "docs/operate/device-plugin.md", "docs/develop/device-plugin-rows.md")
TEST = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)")
SUITE = re.compile(r"\b(?:INSTANTIATE_TEST_SUITE_P\(\s*\w+\s*,\s*(\w+)|(?:class|struct)\s+(\w+))")
WORD = re.compile(r"[A-Za-z_]\w*")
SOURCES = {".cc", ".h", ".c", ".py", ".cmake"}
FOLDERS = ("src", "simgpu", "test", "cmake")
LONGEST = 60  # characters: more do not fit beside a suite's name in a line of a test's output
FILTER = "--gtest_filter="


class Known:
    """What the sources of a tree call tests."""

    def __init__(self, root):
        self.tests = set()
        self.words = set()
        for folder in FOLDERS:
            for path in (root / folder).rglob("*"):
                if path.suffix in SOURCES or path.name == "CMakeLists.txt":
                    text = path.read_text(errors="replace")
                    self.tests.update(TEST.findall(text))
                    self.words.update(WORD.findall(text))
        self.suites = {suite for suite, _ in self.tests}

    def has(self, name):
        suite, dot, test = name.partition(".")
        if dot:
            return any(s == suite and fits(test, t) for s, t in self.tests)
        if name.startswith(("Given", "When")):
            return any(fits(name, t) for _, t in self.tests)
        suite, slash, parameter = name.partition("/")
        if slash:
            return suite in self.suites and parameter in self.words
        if name[0].isupper():
            return name in self.suites
        return any(fits(name, word) for word in self.words) if is_open(name) else name in self.words

    def is_filtered(self, pattern):
        return any(fits(pattern, f"{suite}.{test}") for suite, test in self.tests)


def is_open(name):
    return "…" in name or "*" in name


def fits(pattern, name):
    return re.fullmatch(".*".join(re.escape(part) for part in re.split(r"…|\*", pattern)), name) is not None


def named(text):
    """(line number, word) of every test that the tables of TEXT name."""
    heading = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            heading = False
            continue
        last = line.rstrip().rstrip("|").rsplit("|", 1)[-1]
        if last.strip() == "test":
            heading = True
        elif heading:
            for word in re.findall(r"`([^`]+)`", last):
                if " " not in word:
                    yield number, word


def filters(root):
    """(file, pattern) of every test that a mutant is to be caught by, but for those of one row of a suite (`*/row`)."""
    for path in sorted((root / "test/mutants").glob("*.json")):
        for mutant in json.loads(path.read_text()):
            for word in mutant["run"]:
                if word.startswith(FILTER):
                    for pattern in word.removeprefix(FILTER).split(":"):
                        if "/" not in pattern:
                            yield path.relative_to(root), pattern


def check(root, files):
    known = Known(root)
    errors = [f"{suite}.{test} has {len(test)} characters, more than {LONGEST}"
              for suite, test in sorted(known.tests) if len(test) > LONGEST]
    count = len(errors)
    for file, pattern in filters(root):
        count += 1
        if not known.is_filtered(pattern):
            errors.append(f"{file}: no test is {pattern}")
    for file in files:
        for number, word in named((root / file).read_text()):
            count += 1
            if not known.has(word):
                errors.append(f"{file}:{number}: there is no test {word}")
    return errors, count


def main():
    words = sys.argv[1:]
    root = pathlib.Path(words[0] if words else pathlib.Path(__file__).parents[1]).resolve()
    errors, count = check(root, words[1:] or FILES)
    for error in errors:
        print(error)
    print(f"{count - len(errors)} names of tests are right, {len(errors)} wrong")
    return 1 if errors or not count else 0


if __name__ == "__main__":
    sys.exit(main())
