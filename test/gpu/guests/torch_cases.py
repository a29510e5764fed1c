# SPDX-License-Identifier: Apache-2.0
"""PyTorch under a limit. argv[1] names the case; prints one JSON line.

train   a few steps of a small transformer                 graphs  the same step as a CUDA graph
fill    the caching allocator up to its OutOfMemoryError   speed   seconds for a fixed number of steps (for ABBA)
The allocator is chosen by PYTORCH_CUDA_ALLOC_CONF, set by the caller: native, expandable segments, cudaMallocAsync.
"""
import json
import os
import sys
import time

import pynvml
import torch

MIB = 1 << 20


def nvml_view():
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    own = [p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid == os.getpid()]
    return {"nvml_total": memory.total, "nvml_used": memory.used, "nvml_own": own[0] if own else None}


def model_and_batch(width=512):
    layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
    return model, torch.randn(16, 128, width, device="cuda")


def make_step():
    model, batch = model_and_batch()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimiser.zero_grad(set_to_none=False)
        loss = model(batch).square().mean()
        loss.backward()
        optimiser.step()
        return loss

    return step


def train():
    step = make_step()
    losses = [float(step()) for _ in range(10)]
    return {"losses_fall": losses[-1] < losses[0]}


def capture(step):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    return graph, loss


def graphs():
    graph, loss = capture(make_step())
    first = None
    for _ in range(20):
        graph.replay()
        first = float(loss) if first is None else first
    return {"losses_fall": float(loss) < first}


def fill():
    held, total = [], 0
    free_start, _ = torch.cuda.mem_get_info()
    error = None
    for chunk in (512 * MIB, 64 * MIB, 8 * MIB, 2 * MIB):
        while True:
            try:
                held.append(torch.empty(chunk, dtype=torch.uint8, device="cuda"))
            except torch.cuda.OutOfMemoryError as why:
                error = str(why).splitlines()[0]
                break
            total += chunk
    held.clear()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    free_end, _ = torch.cuda.mem_get_info()
    return {"free_start": free_start, "allocated": total, "free_end": free_end, "oom": error}


def speed():
    step = make_step()
    replay = capture(step)[0].replay if os.environ.get("GRAPHS") else step
    for _ in range(20):
        replay()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(300):
        replay()
    torch.cuda.synchronize()
    return {"seconds": time.perf_counter() - begin}


if __name__ == "__main__":
    facts = {"train": train, "graphs": graphs, "fill": fill, "speed": speed}[sys.argv[1]]()
    free, total = torch.cuda.mem_get_info()
    facts.update(total=total, free=free, device_total=torch.cuda.get_device_properties(0).total_memory, **nvml_view())
    print(json.dumps(facts))
