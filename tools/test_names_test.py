#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The check of the documentation's tests finds those that are there and, above all, those that are not."""

import json
import pathlib
import tempfile
import unittest

import test_names

SOURCE = """
TEST(BoxTest, GivenABox_WhenOpened_ThenItIsEmpty) {}
TEST_P(
    ShapeTest, GivenShapes) {}
{"vmm_segments", Segments},
"""
CMAKE = "hami_test(box_test SOURCES box_test.cc)"


class TestNames(unittest.TestCase):
    def check(self, *words, heading="test"):
        with tempfile.TemporaryDirectory() as tmp:
            root = pathlib.Path(tmp)
            (root / "src").mkdir()
            (root / "src/box_test.cc").write_text(SOURCE)
            (root / "src/CMakeLists.txt").write_text(CMAKE)
            cells = ", ".join(f"`{word}`" for word in words)
            (root / "doc.md").write_text(f"| row | {heading} |\n|---|---|\n| `NoTest` | {cells} |\n\n`GivenText`\n")
            return test_names.check(root, ["doc.md"])

    def test_given_tests_that_are_there_when_named_then_nothing_is_said(self):
        words = ("BoxTest.GivenABox_WhenOpened_ThenItIsEmpty", "GivenABox…", "…ThenItIsEmpty", "BoxTest.*", "BoxTest",
                 "BoxTest.Given…Opened*", "ShapeTest.GivenShapes", "ShapeTest/vmm_segments", "vmm_segments", "vmm_…", "box_test")
        self.assertEqual(self.check(*words), ([], len(words)))

    def test_given_tests_that_are_not_there_when_named_then_each_is_told_with_its_line(self):
        words = ("BoxTest.GivenABox", "GivenABall…", "BallTest", "BallTest.*", "ShapeTest.GivenABox…", "ShapeTest/cube",
                 "vmm_parts", "ball_test", "ball_…")
        errors, count = self.check(*words)
        self.assertEqual(count, len(words))
        self.assertEqual(errors, [f"doc.md:3: there is no test {word}" for word in words])

    def test_given_a_name_that_is_too_long_then_it_is_told(self):
        name = "Given" + "a" * 56
        with tempfile.TemporaryDirectory() as tmp:
            root = pathlib.Path(tmp)
            (root / "src").mkdir()
            (root / "src/box_test.cc").write_text(f"TEST(Box, {name}) {{}}\nTEST(Box, {name[:-1]}) {{}}")
            self.assertEqual(test_names.check(root, []), ([f"Box.{name} has 61 characters, more than 60"], 1))

    def test_given_filters_of_mutants_then_those_that_match_nothing_are_told(self):
        right = ["BoxTest.GivenABox*", "*Opened*", "*.GivenShapes"]
        wrong = ["BoxTest.GivenABall*", "ShapeTest"]
        with tempfile.TemporaryDirectory() as tmp:
            root = pathlib.Path(tmp)
            (root / "src").mkdir()
            (root / "test/mutants").mkdir(parents=True)
            (root / "src/box_test.cc").write_text(SOURCE)
            run = ["build/test/box_test", "--gtest_filter=" + ":".join([*right, *wrong, "*/row"])]
            (root / "test/mutants/box.json").write_text(json.dumps([{"run": run}, {"run": ["tools/check"]}]))
            errors, count = test_names.check(root, [])
        self.assertEqual(count, len(right + wrong))
        self.assertEqual(errors, [f"test/mutants/box.json: no test is {pattern}" for pattern in wrong])

    def test_given_a_command_or_another_column_when_looked_at_then_it_is_no_test(self):
        self.assertEqual(self.check("make bench"), ([], 0))
        self.assertEqual(self.check("GivenABall", heading="value"), ([], 0))


if __name__ == "__main__":
    unittest.main()
