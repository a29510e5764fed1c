# SPDX-License-Identifier: Apache-2.0
"""Cells of the table that were measured before: a file with one JSON object a line, so that hours of them can be collected
in pieces.

A line is never changed. Lines of another library or of other settings are left alone and not used; of several of the same
cell the one that the host disturbed least counts, so measuring again can only make a cell better known, and what was
measured has no say in it. A last line that was cut short, by whatever ended the run, is not there.
"""
import hashlib
import json
import pathlib

START = '{"conditions": '
KEY = ("sms", "shape", "limit", "seed")


def conditions_of(library, options):
    """What has to be the same for cells to belong into one table."""
    digest = hashlib.sha256(pathlib.Path(library).read_bytes()).hexdigest()[:16]
    return dict(library=digest, limiter=options.limiter, seconds=options.seconds, jitter=options.jitter)


def key_of(cell):
    return tuple(cell[name] for name in KEY)


class Cells:
    def __init__(self, path, conditions, good_enough):
        """`path` may be None: then nothing is kept. `good_enough(run)`: the cell need not be measured again."""
        self.path, self.conditions, self.good_enough = path, conditions, good_enough
        self.runs, self.foreign = {}, 0
        if path is not None and path.exists():
            self._read()

    def _read(self):
        text = self.path.read_text()
        lines = text.split("\n")
        for number, line in enumerate(lines[:-1], 1):
            try:
                entry = json.loads(line)
                run, conditions = entry["run"], entry["conditions"]
                key_of(run)
            except (ValueError, TypeError, KeyError) as error:
                self._refuse(number, error)
            if conditions == self.conditions:
                self._take(run)
            else:
                self.foreign += 1

        if lines[-1]:
            if not lines[-1].startswith(START[:len(lines[-1])]):
                self._refuse(len(lines), "it has no end")
            # The next cell must not be appended to half a line.
            self.path.write_text(text[:len(text) - len(lines[-1])])

    def _refuse(self, number, why):
        raise SystemExit(f"{self.path}, line {number}: not a cell of this benchmark ({why!r}); remove the line or name "
                         "another file")

    def _take(self, run):
        known = self.runs.get(key_of(run))
        if known is None or run["cpu_wait"] < known["cpu_wait"]:
            self.runs[key_of(run)] = run

    def has(self, key):
        return key in self.runs and self.good_enough(self.runs[key])

    def add(self, run):
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(dict(conditions=self.conditions, run=run)) + "\n")
        self._take(run)

    def of(self, sms, shape, limit, seeds):
        """The runs of one row that are there."""
        found = (self.runs.get((sms, shape, limit, seed)) for seed in range(1, seeds + 1))
        return [run for run in found if run is not None]
