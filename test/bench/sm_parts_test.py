#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import types
import unittest

import sm_parts
import sm_tenants

EVERY = 0.0005


def looks(busy_until, at=None):
    """What a judge sees of a device that is busy until then, in seconds after the order; looks `at` these times."""
    at = at or [i * EVERY for i in range(-4, 40)]
    return [(10 + t, 5 + min(t, busy_until)) for t in at]


def judged(*stops, slow=False):
    verdicts = sm_parts.Verdicts()
    with contextlib.redirect_stdout(io.StringIO()):
        sm_parts.judge_stops(verdicts, "half", stops, sm_parts.STOP_MS, slow)
    return verdicts.missed, verdicts.not_judged


class StopTest(unittest.TestCase):
    def stop(self, busy_until, at=None):
        return sm_parts.stop_of(looks(busy_until, at), 10, 10.3, EVERY)

    def test_given_a_judge_in_time_then_the_stop_lies_between_two_looks(self):
        stop = self.stop(0.0013)
        self.assertAlmostEqual(stop.earliest, 1.3)
        self.assertAlmostEqual(stop.latest, 1.5)
        self.assertAlmostEqual(stop.in_time, 1.5)
        self.assertAlmostEqual(stop.worked, 1.3)
        self.assertEqual(judged(stop), (0, 0))

    def test_given_a_judge_that_stood_still_then_a_late_look_is_not_judged(self):
        stop = self.stop(0.0009, [0, 0.0005, 0.0029, 0.0035])
        self.assertAlmostEqual(stop.latest, 2.9)
        self.assertAlmostEqual(stop.earliest, 0.9)
        self.assertAlmostEqual(stop.looked_away, 2.4)
        self.assertEqual(judged(stop), (0, 1))

    def test_given_a_guest_that_stops_too_late_then_it_is_missed_however_late_the_judge_is(self):
        self.assertEqual(judged(self.stop(0.0021)), (1, 0))
        self.assertEqual(judged(self.stop(0.0021, [0, 0.0005, 0.0029, 0.0035])), (1, 0))
        self.assertEqual(judged(self.stop(0.0009, [0, 0.0005, 0.0029, 0.0035]), self.stop(0.0021)), (1, 0))

    def test_given_too_little_to_tell_a_look_in_time_from_a_late_one_then_it_is_missed(self):
        self.assertEqual(judged(self.stop(0.0019, [0, 0.0018, 0.0022, 0.003])), (1, 0))

    def test_given_work_that_begins_again_after_the_order_then_its_end_counts(self):
        points = looks(0.0005) + [(10.1, 5.0005), (10.1005, 5.0009), (10.101, 5.0009)]
        self.assertGreater(sm_parts.stop_of(points, 10, 10.3, EVERY).earliest, 100)

    def test_given_no_work_after_the_order_then_it_stopped_at_once(self):
        self.assertEqual(sm_parts.stop_of(looks(-0.001), 10, 10.3, EVERY), sm_parts.Stop())


class PhaseTest(unittest.TestCase):
    def test_given_long_kernels_then_tenants_are_watched_for_many_of_them(self):
        options = types.SimpleNamespace(seconds=12.0)
        self.assertEqual(sm_tenants.phase_of(options, ("half", "tiny")), 6)
        self.assertEqual(sm_tenants.phase_of(options, ("sync50", "sync100")), 12)


class DueTest(unittest.TestCase):
    def test_given_some_without_a_limit_then_they_divide_what_the_others_present_leave(self):
        self.assertEqual(sm_tenants.due((20, 0, 30, 0), (0, 1, 2, 3), 100), {0: 20, 1: 25, 2: 30, 3: 25})
        self.assertEqual(sm_tenants.due((20, 0, 30, 0), (1, 3), 99), {1: 49.5, 3: 49.5})

    def test_given_limits_alone_then_each_is_due_its_own(self):
        self.assertEqual(sm_tenants.due((30, 70), (0, 1), 99), {0: 30, 1: 70})


class TargetTest(unittest.TestCase):
    def test_given_launches_that_five_per_cent_allow_then_that_is_the_target(self):
        for grain in (5e-6, 2e-4, 5e-4):
            self.assertEqual(sm_parts.p99_target(grain), sm_parts.P99_ADDED)

    def test_given_launches_too_long_for_it_then_the_target_lies_as_much_above_what_is_possible(self):
        self.assertAlmostEqual(sm_parts.p99_target(2e-3) - sm_parts.least_added(2e-3, sm_parts.IDLE_USED), sm_parts.P99_ADDED)


if __name__ == "__main__":
    unittest.main()
