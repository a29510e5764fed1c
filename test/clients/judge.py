# SPDX-License-Identifier: Apache-2.0
"""What the guests must have seen: `judge_X(bare, limited, limit)` compares a guest's two reports and raises Failed."""
from expect import expect

MIB = 1 << 20
USABLE = 0.99
CONTEXT_MAX = 600 * MIB  # what a context and the client's own modules may take before its first allocation
BARE_MIN = 70 << 30  # an H100's memory


def check_fill(name, fill, oom_type):
    expect(fill["oom_type"] == oom_type, f"{name}: out of memory met as {fill['oom_type']}, not {oom_type}")
    expect("OUT_OF_MEMORY" in (fill["oom"] or ""), f"{name}: the refusal reads {fill['oom']!r}")
    share = fill["allocated"] / fill["free_start"]
    expect(share >= USABLE, f"{name}: only {share:.2%} of the free memory could be used")
    expect(fill["allocated"] + fill["free_full"] <= fill["free_start"], f"{name}: more was given than was free: {fill}")
    lost = fill["free_start"] - fill["free_end"]
    expect(lost == 0, f"{name}: {lost} bytes did not come back")


def check_memory(bare, limited, limit, oom_type):
    """The shape of every client that fills memory until refused."""
    for name, seen in (("bare", bare), ("limited", limited)):
        expect(seen["copies_equal"], f"{name}: a copy came back changed")
        expect(seen["fills"], f"{name}: no memory was filled")
        for kind, fill in seen["fills"].items():
            check_fill(f"{name}, {kind}", fill, oom_type)
        for kind, launch in seen["launches"].items():
            expect(launch["elapsed_ms"] > 0, f"{name}, {kind}: ten launches took no time")
    expect(bare["total"] > BARE_MIN, f"bare total is {bare['total']}")
    expect(limited["total"] == limit, f"the program sees {limited['total']} bytes, the limit is {limit}")
    for kind, fill in limited["fills"].items():
        gone = limit - fill["free_start"]
        expect(0 <= gone <= CONTEXT_MAX, f"{kind}: {gone} bytes gone before the first")
        expect(fill["allocated"] + gone <= limit, f"{kind}: the limit was exceeded")


def judge_numba(bare, limited, limit):
    check_memory(bare, limited, limit, "CudaAPIError")


def judge_bindings(bare, limited, limit):
    check_memory(bare, limited, limit, "DriverError")
    expect(limited["device_total"] == limit, f"cuDeviceTotalMem says {limited['device_total']}")
    for seen in (bare, limited):
        for kind, launch in seen["launches"].items():
            expect(launch["global"] == 7 and launch["global_size"] == 4, f"{kind}: `int counter = 7` reads {launch}")
            expect(256 <= launch["max_threads"] <= 1024, f"{kind}: max threads {launch['max_threads']}")


# Readings that move by themselves, and what a limit is about. All else that NVML says is the GPU's own, word for word.
NVML_EXCUSED = {
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetUtilizationRates",
}
NVML_ANSWERED = 60  # of some 170 questions; the others are answered with an error on this GPU


def judge_nvml(bare, limited, limit):
    for name, seen in (("bare", bare), ("limited", limited)):
        expect(seen["count"] == 1, f"{name}: {seen['count']} devices")
        expect(seen["total"] == seen["used"] + seen["free"], f"{name}: used + free is not the total")
        expect(len(seen["processes"]) == 1, f"{name}: {len(seen['processes'])} processes listed")
        pid, used = seen["processes"][0]
        expect(pid == seen["pid"], f"{name}: process {pid} listed, this is {seen['pid']}")
        expect(used >= seen["held"], f"{name}: {used} bytes for a process that holds {seen['held']}")
        answered = sum(not str(answer).startswith("error") for answer in seen["answers"].values())
        expect(answered >= NVML_ANSWERED, f"{name}: only {answered} questions were answered")
    expect(bare["total"] > BARE_MIN, f"bare total is {bare['total']}")
    expect(limited["total"] == limited["cuda_total"] == limit, f"NVML {limited['total']}, CUDA {limited['cuda_total']}")
    expect(limited["v2"] == [limit, limited["used"], limited["free"]], f"v2 differs: {limited['v2']}")
    expect(limited["free"] == limited["cuda_free"], "NVML and CUDA disagree on what is free")
    expect(limited["used"] == limited["processes"][0][1], "the only process does not hold what is used")
    expect(bare["answers"].keys() == limited["answers"].keys(), "not the same questions were asked")
    for call, answer in bare["answers"].items():
        if call not in NVML_EXCUSED:
            expect(limited["answers"][call] == answer, f"{call}: {answer} bare, {limited['answers'][call]} limited")


GPUSTAT_EXCUSED = {"memory.total", "memory.used", "power.draw", "processes", "temperature.gpu", "utilization.gpu"}


def judge_gpustat(bare, limited, limit):
    for name, seen in (("bare", bare), ("limited", limited)):
        expect(len(seen["gpus"]) == 1, f"{name}: {len(seen['gpus'])} GPUs")
        gpu = seen["gpus"][0]
        own = [process for process in gpu["processes"] if process["pid"] == seen["pid"]]
        expect(len(gpu["processes"]) == 1 and own, f"{name}: processes {gpu['processes']}")
        expect(own[0]["gpu_memory_usage"] >= seen["held"] // MIB, f"{name}: {own[0]}")
        expect(gpu["memory.used"] == own[0]["gpu_memory_usage"], f"{name}: {gpu['memory.used']} MiB used, {own[0]}")
        shown = " ".join(seen["text"].split())
        expect(f"{gpu['memory.used']} / {gpu['memory.total']} MB" in shown, f"{name}: text reads {shown!r}")
        expect(f"({own[0]['gpu_memory_usage']}M)" in shown, f"{name}: text reads {shown!r}")
    before, after = bare["gpus"][0], limited["gpus"][0]
    expect(before["memory.total"] > BARE_MIN // MIB, f"bare shows {before['memory.total']} MiB")
    expect(after["memory.total"] == limit // MIB, f"gpustat shows {after['memory.total']} MiB")
    expect(before.keys() == after.keys(), f"{sorted(before)} bare, {sorted(after)} limited")
    for key in before.keys() - GPUSTAT_EXCUSED:
        expect(before[key] == after[key], f"{key}: {before[key]} bare, {after[key]} limited")
    what = "gpu_memory_usage"
    expect(before["processes"][0][what] == after["processes"][0][what], "the process holds something else when limited")
