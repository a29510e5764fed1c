#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a build says it was made from: build_info.cmake in checkouts, copies and archives."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "build_info.cmake"
MOMENT = "2024-02-03T04:05:06Z"


class BuildInfo(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="build-info-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.source = self.folder / "source"
        self.source.mkdir()
        self.out = self.folder / "build_info.cc"

    def git(self, *words):
        who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
        who |= {"GIT_AUTHOR_DATE": MOMENT, "GIT_COMMITTER_DATE": MOMENT, "HOME": str(self.folder)}
        done = subprocess.run(
            ["git", "-C", self.source, *words], env=os.environ | who, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def checkout(self):
        self.git("init", "-q")
        (self.source / "file").write_text("one\n")
        self.git("add", "file")
        self.git("commit", "-qm", "first")

    def said(self, source=None, epoch=None, **variables):
        """(version, revision, date) of the file that is written."""
        environment = {key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
        if epoch is not None:
            environment["SOURCE_DATE_EPOCH"] = epoch
        options = [f"-D{key}={value}" for key, value in variables.items()]
        options += [f"-DSOURCE={source or self.source}", f"-DOUT={self.out}", "-DVERSION=1.2.3"]
        subprocess.run(["cmake", *options, "-P", SCRIPT], env=environment, check=True, capture_output=True)
        return tuple(re.search(r'\{"(.*)", "(.*)", "(.*)"\}', self.out.read_text()).groups())

    def test_a_checkout_tells_its_commit_and_the_commits_date(self):
        self.checkout()
        self.assertEqual(self.said(), ("1.2.3", self.git("rev-parse", "--short=12", "HEAD"), MOMENT))

    def test_what_is_not_committed_is_told(self):
        self.checkout()
        (self.source / "file").write_text("two\n")
        self.assertEqual(self.said()[1], self.git("rev-parse", "--short=12", "HEAD") + "-dirty")

    def test_a_tag_is_told(self):
        self.checkout()
        self.git("tag", "v1.2.3")
        self.assertEqual(self.said()[1], "v1.2.3")

    def test_the_date_of_a_reproducible_build_wins(self):
        self.checkout()
        self.assertEqual(self.said(epoch="0")[2], "1970-01-01T00:00:00Z")
        self.assertEqual(self.said(epoch="soon")[2], MOMENT)

    def test_an_archive_knows_what_it_is_told(self):
        self.assertEqual(self.said(), ("1.2.3", "unknown", "unknown"))
        self.assertEqual(self.said(epoch="0", REVISION='v9"\\'), ("1.2.3", "v9__", "1970-01-01T00:00:00Z"))

    def test_a_copy_inside_a_checkout_is_not_that_checkout(self):
        self.checkout()
        copy = self.source / "build" / "copy"
        copy.mkdir(parents=True)
        self.assertEqual(self.said(source=copy), ("1.2.3", "unknown", "unknown"))

    def test_the_same_text_is_not_written_again(self):
        self.checkout()
        self.said()
        os.utime(self.out, (1, 1))
        self.said()
        self.assertEqual(self.out.stat().st_mtime, 1)


if __name__ == "__main__":
    unittest.main()
