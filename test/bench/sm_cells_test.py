#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import argparse
import pathlib
import tempfile
import unittest

import sm
import sm_cells

HERE = dict(library="1", limiter="library", seconds=12.0, jitter=0.1)


def run(limit=30, seed=1, wait=1.0, busy=30.0):
    return dict(sms=20, shape="tiny", limit=limit, seed=seed, cpu_wait=wait, busy=busy)


class CellsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name) / "cells"

    def tearDown(self):
        self.folder.cleanup()

    def open(self, conditions=HERE):
        return sm_cells.Cells(self.path, conditions, lambda run: run["cpu_wait"] <= 10)

    def test_given_cells_measured_before_then_they_are_there(self):
        first = self.open()
        first.add(run())
        first.add(run(limit=None))
        again = self.open()
        self.assertTrue(again.has((20, "tiny", 30, 1)))
        self.assertTrue(again.has((20, "tiny", None, 1)))
        self.assertFalse(again.has((20, "tiny", 30, 2)))
        self.assertEqual(again.of(20, "tiny", 30, 3), [run()])

    def test_given_other_library_or_settings_then_they_do_not_count_and_stay(self):
        self.open().add(run())
        other = self.open(dict(HERE, library="2"))
        self.assertEqual((other.runs, other.foreign), ({}, 1))
        other.add(run(busy=31.0))
        self.assertEqual(self.open().of(20, "tiny", 30, 1)[0]["busy"], 30.0)

    def test_given_disturbed_cell_then_it_is_due_again_and_the_less_disturbed_counts(self):
        self.open().add(run(wait=40.0, busy=20.0))
        cells = self.open()
        self.assertFalse(cells.has((20, "tiny", 30, 1)))
        cells.add(run(wait=50.0, busy=25.0))
        self.assertEqual(cells.of(20, "tiny", 30, 1)[0]["busy"], 20.0)
        cells.add(run(wait=2.0))
        self.assertTrue(self.open().has((20, "tiny", 30, 1)))

    def test_given_line_cut_short_then_the_rest_counts_and_more_can_be_added(self):
        self.open().add(run())
        with self.path.open("a") as file:
            file.write('{"conditions": {"libr')
        self.open().add(run(seed=2))
        self.assertEqual(len(self.open().of(20, "tiny", 30, 3)), 2)

    def test_given_something_else_then_it_is_refused_and_left_as_it_is(self):
        for text in ("# notes\n", "# notes", "{}\n", "[1]\n"):
            self.path.write_text(text)
            with self.assertRaisesRegex(SystemExit, "line 1"):
                self.open()
            self.assertEqual(self.path.read_text(), text)


class RowsTest(unittest.TestCase):
    @staticmethod
    def cell(shape, busy, wait=1.0):
        return dict(shape=shape, limit=50, sms=132, seed=1, long=4.0, busy=busy, work_rate=busy, cpu=1.0, helper_cpu=1.0, cpu_wait=wait,
                    windows_1s=[busy], windows_10s=[busy])

    def row(self, shape, native, busy, wait=1.0):
        return sm.summarise([self.cell(shape, busy, wait)], [self.cell(shape, native)], argparse.Namespace(jitter=0.1))

    def test_given_gpu_that_changes_between_processes_then_a_miss_counts(self):
        self.assertTrue(self.row("procs8", 71.5, 47.0)["judged"])

    def test_given_host_that_was_too_slow_then_a_miss_is_not_judged(self):
        self.assertFalse(self.row("half", 71.5, 47.0)["judged"])
        self.assertFalse(self.row("procs8", 71.5, 47.0, wait=90.0)["judged"])
        self.assertTrue(self.row("half", 99.0, 47.0)["judged"])


if __name__ == "__main__":
    unittest.main()
