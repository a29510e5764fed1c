#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real programs on a real GPU under `hami run`, and what the library costs them.

    test/gpu/run.py [--build build] [--mem 8g] [--out FILE.json] [--only WORD]...

Needs a machine with an NVIDIA driver, and for each case its own packages (torch, cupy, jax, rmm, nvcc); a case whose
packages are missing is skipped with a message, and so is everything where there is no GPU (exit status 0). Each case
compares what the program saw and used with the limit and with NVML's own figure for the process, taken from outside the
share. Overhead is measured in ABBA order. `--out` writes every figure as JSON for docs/results/.
"""
import argparse
import datetime
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
GUESTS = HERE / "guests"


class Failed(Exception):
    pass


def expect(condition, message):
    if not condition:
        raise Failed(message)


def has(*modules):
    code = "import importlib.util, sys; sys.exit(any(importlib.util.find_spec(m) is None for m in sys.argv[1:]))"
    return subprocess.run([sys.executable, "-c", code, *modules], check=False).returncode == 0


def has_gpu():
    return bool(shutil.which("nvidia-smi")) and not subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode


def gpu_name(*facts):
    """Name and driver of the GPU, and what else nvidia-smi is asked for."""
    query = ["nvidia-smi", f"--query-gpu={','.join(('name', 'driver_version', *facts))}", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


class Watcher(threading.Thread):
    """Samples, from outside the share, the most device memory that NVML attributes to one process tree."""

    def __init__(self, root):
        super().__init__(daemon=True)
        self.root, self.peak, self.done = root, 0, threading.Event()

    def tree(self):
        children = {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(") ", 1)[1].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
        found, queue = set(), [self.root]
        while queue:
            pid = queue.pop()
            found.add(pid)
            queue += children.get(pid, [])
        return found

    def run(self):
        query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
        while not self.done.wait(0.2):
            rows = subprocess.run(query, capture_output=True, text=True, check=False).stdout.splitlines()
            tree = self.tree()
            used = 0
            for row in rows:
                pid, _, mib = row.partition(",")
                if pid.strip().isdigit() and mib.strip().isdigit() and int(pid) in tree:
                    used += int(mib) * MIB
            self.peak = max(self.peak, used)


class Gpu:
    def __init__(self, build, limit, state):
        self.hami, self.limit = build / "bin/hami", limit
        self.env = dict(os.environ, HAMI_STATE_DIR=state)

    def share(self, argv, **env):
        return self.run([self.hami, "run", "--mem", f"{self.limit // MIB}m", "--", *argv], **env)

    def run(self, argv, **env):
        process = subprocess.Popen([str(a) for a in argv], env={**self.env, **env}, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        watcher = Watcher(process.pid)
        watcher.start()
        try:
            out, err = process.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Failed(f"{argv[-1]} did not end within 240 s") from None
        finally:
            watcher.done.set()
        if process.returncode != 0:
            raise Failed(f"exit status {process.returncode}: " + "\n".join((out + err).strip().splitlines()[-6:]))
        lines = [line for line in out.splitlines() if line.startswith("{")]
        facts = json.loads(lines[-1]) if lines else {"text": out}
        facts["nvml_peak_outside"] = watcher.peak
        return facts


def check_view(gpu, facts):
    for key in ("total", "device_total", "nvml_total"):
        if key in facts:
            expect(facts[key] == gpu.limit, f"{key} is {facts[key]}, the limit is {gpu.limit}")
    slack = max(64 * MIB, gpu.limit // 50)
    expect(facts["nvml_peak_outside"] <= gpu.limit + slack,
           f"NVML saw {facts['nvml_peak_outside'] // MIB} MiB, the limit is {gpu.limit // MIB} MiB")


def check_fill(gpu, facts):
    check_view(gpu, facts)
    expect(facts["oom"], "memory was never refused")
    expect(facts["allocated"] >= 0.99 * facts["free_start"], f"only {facts['allocated']} of {facts['free_start']} usable")
    if "free_end" in facts:
        expect(facts["free_end"] >= facts["free_start"] - 32 * MIB, "not everything came back")


ALLOCATORS = {"native": "", "expandable segments": "expandable_segments:True", "cudaMallocAsync": "backend:cudaMallocAsync"}


def torch_case(case, allocator):
    def run(gpu):
        facts = gpu.share([sys.executable, GUESTS / "torch_cases.py", case], PYTORCH_CUDA_ALLOC_CONF=ALLOCATORS[allocator])
        (check_fill if case == "fill" else check_view)(gpu, facts)
        expect(facts.get("losses_fall", True), "the loss did not fall")
        return facts
    return run


def guest_case(name, check):
    def run(gpu):
        facts = gpu.share([sys.executable, GUESTS / name])
        check(gpu, facts)
        return facts
    return run


def nvidia_smi(gpu):
    facts = gpu.share(["nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits"])
    total = int(facts["text"].strip().splitlines()[0].split(",")[0])
    expect(total == gpu.limit // MIB, f"nvidia-smi shows {total} MiB, the limit is {gpu.limit // MIB} MiB")
    return facts


def cuda_cpp(kind):
    def run(gpu):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "plain"
            subprocess.run(["nvcc", "-O2", f"-cudart={kind}", "-o", program, GUESTS / "plain.cu"], check=True)
            facts = gpu.share([program])
        check_fill(gpu, facts)
        expect(facts["right"], "the kernel's result is wrong")
        return facts
    return run


def overhead(graphs):
    """Median of share ÷ bare over ABBA pairs, fresh processes."""
    def run(gpu):
        guest = [sys.executable, GUESTS / "torch_cases.py", "speed"]
        env = {"GRAPHS": "1"} if graphs else {}
        bare, share = [], []
        for order in ("AB", "BA", "AB", "BA"):
            for side in order:
                facts = gpu.run(guest, **env) if side == "A" else gpu.share(guest, **env)
                (bare if side == "A" else share).append(facts["seconds"])
        ratio = statistics.median(s / b for s, b in zip(share, bare))
        expect(ratio <= 1.03, f"{(ratio - 1):.1%} slower under the library")
        return {"bare_s": bare, "share_s": share, "ratio": ratio}
    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build")
    parser.add_argument("--mem", default="8g")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    if not has_gpu():
        print("no NVIDIA GPU here: nothing was run\n0 passed, 0 failed, 1 skipped")
        return 0
    limit = int(options.mem.rstrip("gG")) << 30
    torch_there, nvcc_there = has("torch", "pynvml"), shutil.which("nvcc") is not None
    cases = [(f"PyTorch {case}, {allocator}", torch_case(case, allocator), torch_there)
             for allocator in ALLOCATORS for case in ("train", "graphs", "fill")]
    cases += [
        ("CuPy pools", guest_case("cupy_pool.py", check_fill), has("cupy")),
        ("RMM", guest_case("rmm_pools.py", check_fill), has("rmm")),
        ("JAX preallocation", guest_case("jax_preallocate.py", check_view), has("jax", "pynvml")),
        ("nvidia-smi", nvidia_smi, True),
        ("CUDA C++, static libcudart", cuda_cpp("static"), nvcc_there),
        ("CUDA C++, shared libcudart", cuda_cpp("shared"), nvcc_there),
        ("overhead of a training step", overhead(False), torch_there),
        ("overhead of a graph replay", overhead(True), torch_there),
    ]
    record = {"date": datetime.date.today().isoformat(), "machine": gpu_name("memory.total"), "limit": limit, "cases": {}}
    counts = {"ok": 0, "FAIL": 0, "skip": 0}
    with tempfile.TemporaryDirectory(prefix="hami-gpu-") as state:
        gpu = Gpu(options.build.resolve(), limit, state)
        for name, case, possible in cases:
            if options.only and not any(word in name for word in options.only):
                continue
            begin, facts, why = time.time(), {}, ""
            if not possible:
                verdict, why = "skip", "its packages are not installed"
            else:
                try:
                    facts, verdict = case(gpu), "ok"
                except (Failed, subprocess.CalledProcessError) as error:
                    verdict, why = "FAIL", str(error)
            counts[verdict] += 1
            record["cases"][name] = {"verdict": verdict, "why": why, **facts}
            print(f"  {verdict:4}  {name}  ({time.time() - begin:.1f} s) {why}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{counts['ok']} passed, {counts['FAIL']} failed, {counts['skip']} skipped")
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
