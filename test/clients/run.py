#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs programs that nobody here wrote on simgpu, bare and then under libvgpu with a limit, and compares.

    run.py --build DIR [--only NAME]... [--sabotage]

DIR is the build folder; its clients/ holds the virtual environments that tools/clients made. Prints one line a check
and `N passed, N failed, N skipped`; exit status 1 when a check failed. With --sabotage the limited half runs without
libvgpu: what still passes then proves nothing, so every client must fail.
"""
import argparse
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import ffmpeg
from expect import Failed, expect
from judge import judge_bindings, judge_gpustat, judge_numba, judge_nvml

MIB = 1 << 20
HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 3 << 30

Client = collections.namedtuple("Client", "name environment run")


class Bench:
    """One simulated machine and one state folder for `hami run`, thrown away afterwards."""

    def __init__(self, build, folder, sabotage=False):
        self.hami, self.folder = build / "bin/hami", pathlib.Path(folder)
        self.without_library = ["env", "-u", "LD_PRELOAD"] if sabotage else []
        self.env = dict(
            os.environ,
            SIMGPU="1xH100",
            SIMGPU_PROFILE="ideal",
            SIMGPU_STATE=str(self.folder / "machine"),
            SIMGPU_QUIET="1",
            HAMI_STATE_DIR=str(self.folder / "shares"),
            LD_LIBRARY_PATH=str(build / "simgpu"),
            NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS="0",
        )
        for name in ("LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "LIBCUDA_LOG_LEVEL", "SIMGPU_CONFIG"):
            self.env.pop(name, None)

    def bare(self, argv):
        return subprocess.run(
            [str(word) for word in argv], env=self.env, capture_output=True, text=True, timeout=300, check=False
        )

    def limited(self, argv, limit=LIMIT):
        share = [self.hami, "run", "--mem", f"{limit // MIB}m", "--"]
        return self.bare([*share, *self.without_library, *argv])

    def expect_nothing_left(self):
        """Every byte and every share came back, now that the programs have ended."""
        seen = json.loads(succeeded("hami smi", self.bare([self.hami, "smi", "--output", "json"])))
        expect(seen["shares"] == [], f"shares are left behind: {seen['shares']}")
        expect(seen["gpus"][0]["used_bytes"] == 0, f"{seen['gpus'][0]['used_bytes']} bytes of the GPU are still in use")
        left = [path.name for path in (self.folder / "shares/shares").glob("*")]
        expect(not left, f"folders are left behind: {left}")


def succeeded(name, done):
    """The standard output of a program that ended well and had nothing to complain about."""
    tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
    expect(done.returncode == 0, f"{name}: exit status {done.returncode}\n{tail}")
    expect(not done.stderr.strip(), f"{name}: it said on stderr:\n{tail}")
    return done.stdout


def guest(script, judge):
    """A client that is a script in guests/ and reports one line of JSON; `judge(bare, limited, LIMIT)` looks at two."""

    def run(bench, python):
        argv = [python, HERE / "guests" / script]
        bare = json.loads(succeeded("bare", bench.bare(argv)))
        limited = json.loads(succeeded("limited", bench.limited(argv)))
        judge(bare, limited, LIMIT)
        try:
            judge(bare, bare, LIMIT)
        except Failed:
            return
        raise Failed("a run without a limit passes for a limited one: this check can not fail")

    return run


def images(build, env13, sabotage):
    """The images' own script: one `ok NAME` or `FAIL NAME why` a line."""
    with tempfile.TemporaryDirectory(prefix="hami-clients-") as folder:
        bench = Bench(build, folder, sabotage)
        done = subprocess.run(
            ["bash", HERE / "images/run.sh", build, env13, *bench.without_library],
            env=bench.env, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
    if done.returncode == 77:
        print("  skip  images: no nvcc")
        return 0, 0, 1
    lines = [line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("ok ", "FAIL "))]
    failures = [rest for verdict, rest in lines if verdict == "FAIL"]
    for rest in failures:
        print("  FAIL  images:", rest)
    for label, count in collections.Counter(rest.split("/")[0] for verdict, rest in lines if verdict == "ok").items():
        print(f"  ok    images: {label}, {count} checks")
    if not lines or (done.returncode != 0) != bool(failures):
        print("  FAIL  images: run.sh ended with", done.returncode, done.stderr[-500:])
        failures.append("run.sh")
    return len(lines) - len(failures), len(failures), 0


def all_clients(build):
    env12, env13 = build / "clients/venv12", build / "clients/venv13"
    bindings = guest("bindings_driver.py", judge_bindings)
    numba = guest("numba_jit.py", judge_numba)
    return [
        Client("cuda-bindings 13 + NVRTC", env13, bindings),
        Client("cuda-bindings 12 + NVRTC", env12, bindings),
        Client("Numba, CUDA 13", env13, numba),
        Client("Numba, CUDA 12", env12, numba),
        Client("nvidia-ml-py", env13, guest("nvml_view.py", judge_nvml)),
        Client("gpustat", env13, guest("gpustat_view.py", judge_gpustat)),
        Client("FFmpeg, upload and download", None, ffmpeg.client_transfer),
        Client("FFmpeg, filters", None, ffmpeg.client_filters),
        Client("FFmpeg, a share too small", None, ffmpeg.client_too_small),
    ]


def missing(client):
    if client.environment is not None:
        return None if (client.environment / "ready").exists() else "its packages could not be had"
    return None if shutil.which("ffmpeg") else "there is no ffmpeg"


def run_client(client, build, sabotage):
    """None, or what failed."""
    with tempfile.TemporaryDirectory(prefix="hami-clients-") as folder:
        bench = Bench(build, folder, sabotage)
        try:
            client.run(bench, client.environment and client.environment / "bin/python")
            bench.expect_nothing_left()
        except (Failed, subprocess.TimeoutExpired) as why:
            return str(why)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--sabotage", action="store_true")
    options = parser.parse_args()
    build = options.build.resolve()
    passed = failed = skipped = 0
    for client in all_clients(build):
        if options.only and not any(word in client.name for word in options.only):
            continue
        why_not = missing(client)
        if why_not:
            print(f"  skip  {client.name}: {why_not}")
            skipped += 1
            continue
        why = run_client(client, build, options.sabotage)
        print(f"  FAIL  {client.name}: {why}" if why else f"  ok    {client.name}", flush=True)
        passed, failed = passed + (why is None), failed + (why is not None)
    if not options.only or "images" in options.only:
        results = images(build, build / "clients/venv13", options.sabotage)
        passed, failed, skipped = passed + results[0], failed + results[1], skipped + results[2]
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed + skipped else 0


if __name__ == "__main__":
    sys.exit(main())
