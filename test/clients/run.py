#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs programs that nobody here wrote on simgpu, bare and then under libvgpu with a limit, and compares.

    run.py --build DIR [--only NAME]...

DIR is the build folder; its clients/ holds the virtual environments that tools/clients made. Prints one line a check
and `N passed, N failed, N skipped`; exit status 1 when a check failed.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

MIB = 1 << 20
HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 3 << 30
USABLE = 0.99


class Failed(Exception):
    pass


def expect(condition, message):
    if not condition:
        raise Failed(message)


class Bench:
    """One simulated machine and one state folder for `hami run`, thrown away afterwards."""

    def __init__(self, build, folder, gpus="1xH100"):
        self.build, self.folder = build, pathlib.Path(folder)
        self.env = dict(
            os.environ,
            SIMGPU=gpus,
            SIMGPU_STATE=str(self.folder / "machine"),
            SIMGPU_QUIET="1",
            HAMI_STATE_DIR=str(self.folder / "shares"),
            LD_LIBRARY_PATH=str(build / "simgpu"),
            NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS="0",
        )

    def bare(self, argv):
        return self._run([str(a) for a in argv])

    def limited(self, argv, *options, limit=LIMIT):
        share = [self.build / "bin/hami", "run", "--mem", str(limit // MIB) + "m", *options, "--"]
        return self._run([str(a) for a in share + list(argv)])

    def _run(self, argv):
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
            raise Failed(f"exit status {done.returncode} from {' '.join(argv[-3:])}\n{tail}")
        return done.stdout


def facts(output):
    return json.loads(output.strip().splitlines()[-1])


def check_fill(bare, limited, limit, oom_type, context_max=600 * MIB):
    """The shape of every client that fills memory until refused."""
    for name, seen in (("bare", bare), ("limited", limited)):
        expect(seen["copies_equal"], f"{name}: a copy came back changed")
        expect(seen["oom_type"] == oom_type, f"{name}: out of memory met as {seen['oom_type']}, not {oom_type}")
        expect("OUT_OF_MEMORY" in (seen["oom"] or ""), f"{name}: the refusal reads {seen['oom']!r}")
        share = seen["allocated"] / seen["free_start"]
        expect(share >= USABLE, f"{name}: only {share:.2%} of the free memory could be used")
        expect(seen["allocated"] <= seen["free_start"], f"{name}: more was given than was free")
        expect(seen["free_end"] >= seen["free_start"], f"{name}: not everything came back")
    expect(bare["total"] > 70 << 30, f"bare total is {bare['total']}")
    expect(limited["total"] == limit, f"the program sees {limited['total']} bytes, the limit is {limit}")
    expect(limited.get("device_total", limit) == limit, "cuDeviceTotalMem differs from the limit")
    expect(limit - limited["free_start"] <= context_max, f"{limit - limited['free_start']} bytes gone before the first")
    expect(limited["allocated"] <= limit, "the limit was exceeded")


def client_bindings(bench, python):
    guest = [python, HERE / "guests/bindings_driver.py"]
    bare, limited = facts(bench.bare(guest)), facts(bench.limited(guest))
    check_fill(bare, limited, LIMIT, "DriverError")
    for seen in (bare, limited):
        for kind, launch in seen["launches"].items():
            expect(launch["global"] == 7 and launch["global_size"] == 4, f"{kind}: __device__ int counter = 7 reads {launch}")
            expect(launch["elapsed_ms"] > 0, f"{kind}: ten launches took no time")
            expect(launch["max_threads"] in range(256, 1025), f"{kind}: max threads {launch['max_threads']}")


def client_numba(bench, python):
    guest = [python, HERE / "guests/numba_jit.py"]
    check_fill(facts(bench.bare(guest)), facts(bench.limited(guest)), LIMIT, "CudaAPIError")


def client_nvml(bench, python):
    guest = [python, HERE / "guests/nvml_view.py"]
    bare, limited = facts(bench.bare(guest)), facts(bench.limited(guest))
    for name, seen in (("bare", bare), ("limited", limited)):
        expect(seen["count"] == 1, f"{name}: {seen['count']} devices")
        expect(seen["total"] == seen["used"] + seen["free"], f"{name}: used + free is not the total")
        expect(len(seen["processes"]) == 1, f"{name}: {len(seen['processes'])} processes listed")
        pid, used = seen["processes"][0]
        expect(pid == seen["pid"], f"{name}: process {pid} listed, this is {seen['pid']}")
        expect(used >= seen["held"], f"{name}: {used} bytes for a process that holds {seen['held']}")
    expect(limited["total"] == limited["cuda_total"] == LIMIT, f"NVML says {limited['total']}, CUDA {limited['cuda_total']}")
    expect(limited["v2"][0] == LIMIT and limited["v2"][1] == limited["used"], f"v2 differs: {limited['v2']}")
    expect(limited["free"] == limited["cuda_free"], "NVML and CUDA disagree on what is free")
    # What is not about memory is the GPU's own, word for word; only readings that move are excused.
    moving = {"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetBAR1MemoryInfo"}
    for call, answer in bare["answers"].items():
        if call not in moving:
            expect(limited["answers"][call] == answer, f"{call}: {answer} bare, {limited['answers'][call]} limited")


def client_gpustat(bench, python):
    guest = [python, HERE / "guests/gpustat_view.py"]
    bare, limited = facts(bench.bare(guest)), facts(bench.limited(guest))
    for name, seen in (("bare", bare), ("limited", limited)):
        gpu = seen["gpus"][0]
        own = [p for p in gpu["processes"] if p["pid"] == seen["pid"]]
        expect(len(gpu["processes"]) == 1 and own, f"{name}: processes {gpu['processes']}")
        expect(own[0]["gpu_memory_usage"] >= seen["held"] // MIB, f"{name}: {own[0]}")
        expect(f"/ {gpu['memory.total']} MB" in " ".join(seen["text"].split()), f"{name}: text reads {seen['text']!r}")
    expect(limited["gpus"][0]["memory.total"] == LIMIT // MIB, f"gpustat shows {limited['gpus'][0]['memory.total']} MiB")
    expect(bare["gpus"][0]["memory.total"] > 70 << 10, f"bare shows {bare['gpus'][0]['memory.total']} MiB")
    for key in ("name", "uuid", "enforced.power.limit"):
        expect(bare["gpus"][0][key] == limited["gpus"][0][key], f"{key} differs")


def client_ffmpeg(bench, _python):
    source = ["-f", "lavfi", "-i", "testsrc=duration=1:rate=25:size=640x360"]
    base = ["ffmpeg", "-hide_banner", "-loglevel", "error", "-init_hw_device", "cuda"]
    plain = ["ffmpeg", "-hide_banner", "-loglevel", "error", *source, "-vf", "format=nv12", "-f", "framemd5", "-"]
    through = base + source + ["-vf", "format=nv12,hwupload,hwdownload,format=nv12", "-f", "framemd5", "-"]
    sums = bench.bare(plain)
    expect(sum(not line.startswith("#") for line in sums.splitlines()) == 25, "FFmpeg made no 25 frames")
    expect(bench.bare(through) == sums, "bare: a frame changed on its way through the GPU")
    expect(bench.limited(through) == sums, "limited: a frame changed on its way through the GPU")
    # A limit too small for the frames: FFmpeg's own error, not a crash.
    try:
        bench.limited(through, limit=304 * MIB)
    except Failed as failed:
        expect("memory" in str(failed).lower(), f"the refusal does not name memory:\n{failed}")
        expect("exit status -" not in str(failed), f"FFmpeg died:\n{failed}")
    else:
        raise Failed("25 frames went through a share that holds little more than a context")


def images(build, env13):
    """The images' own script: one `ok NAME` or `FAIL NAME why` a line."""
    with tempfile.TemporaryDirectory(prefix="hami-clients-") as folder:
        bench = Bench(build, folder)
        done = subprocess.run(
            ["bash", HERE / "images/run.sh", build, env13],
            env=bench.env, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith(("ok ", "FAIL "))]
    if done.returncode == 77:
        return 0, 0, 1
    for line in lines:
        print("  " + ("ok    " if line.startswith("ok ") else "FAIL  ") + "images: " + line.split(" ", 1)[1])
    failed = sum(line.startswith("FAIL") for line in lines)
    if done.returncode != 0 and not failed or not lines:
        print("  FAIL  images: run.sh ended with", done.returncode, done.stderr[-500:])
        failed += 1
    return sum(line.startswith("ok ") for line in lines), failed, 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    build = options.build.resolve()
    env12, env13 = build / "clients/venv12", build / "clients/venv13"
    clients = [
        ("cuda-bindings 13 + NVRTC", client_bindings, env13),
        ("cuda-bindings 12 + NVRTC", client_bindings, env12),
        ("Numba, CUDA 13", client_numba, env13),
        ("Numba, CUDA 12", client_numba, env12),
        ("nvidia-ml-py", client_nvml, env13),
        ("gpustat", client_gpustat, env13),
        ("FFmpeg upload and download", client_ffmpeg, None),
    ]
    passed = failed = skipped = 0
    for name, client, env in clients:
        if options.only and not any(word in name for word in options.only):
            continue
        if env is not None and not (env / "ready").exists():
            print(f"  skip  {name}: its packages could not be had")
            skipped += 1
            continue
        with tempfile.TemporaryDirectory(prefix="hami-clients-") as folder:
            try:
                client(Bench(build, folder), env and env / "bin/python")
            except (Failed, subprocess.TimeoutExpired) as why:
                print(f"  FAIL  {name}: {why}")
                failed += 1
            else:
                print(f"  ok    {name}")
                passed += 1
        sys.stdout.flush()
    if not options.only or "images" in options.only:
        if (env13 / "ready").exists():
            results = images(build, env13)
            passed, failed, skipped = passed + results[0], failed + results[1], skipped + results[2]
        else:
            skipped += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
