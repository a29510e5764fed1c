# SPDX-License-Identifier: Apache-2.0
"""One program that would use the whole GPU, and says what it did of it: for test/gpu/gpu_time.py.

    load.py calibrate                         ns of a block of work on an idle GPU, and what that was measured with
    load.py KIND SECONDS BLOCK_NS             lines of "ns done": CLOCK_MONOTONIC, and ns of work that had ended by then
Kinds of its own (driver API and a PTX kernel, no package needed): short, half, sync50, long500, graph100, streams8,
bursty. With PyTorch: matmul, step, step-graph; what they do is counted in iterations instead of ns.
A last line "stamps N BUSY SPAN" gives what kernels themselves wrote down by %globaltimer: how many did, for how many ns
one of them was at work, from the first beginning to the last end. Not for graphs, whose nodes have fixed arguments, nor
PyTorch; and beside others a kernel's time holds their slices. On simgpu kernels compute nothing: N is 0 there.
"""
import collections
import ctypes
import sys
import time

MICRO, MILLI = 1_000, 1_000_000
THREADS, ROUNDS = 1024, 1024
SLOTS = 1 << 20

# Each thread multiplies and adds for a fixed number of rounds, so a kernel's work does not depend on when it runs. Thread
# 0 of each block writes down when it begins and ends.
PTX = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry work(.param .u64 begins, .param .u64 ends, .param .u32 rounds)
{
  .reg .pred %silent, %null, %more, %never;
  .reg .u32 %thread, %left;
  .reg .u64 %begin, %end, %now, %old;
  .reg .f32 %x, %a, %b;
  ld.param.u64 %begin, [begins];
  ld.param.u64 %end, [ends];
  ld.param.u32 %left, [rounds];
  mov.u32 %thread, %tid.x;
  setp.ne.u32 %silent, %thread, 0;
  setp.eq.u64 %null, %begin, 0;
  or.pred %silent, %silent, %null;
  @%silent bra WORK;
  cvta.to.global.u64 %begin, %begin;
  cvta.to.global.u64 %end, %end;
  mov.u64 %now, %globaltimer;
  atom.global.min.u64 %old, [%begin], %now;
WORK:
  cvt.rn.f32.u32 %x, %thread;
  mov.f32 %a, 0f3F7FFFFF;
  mov.f32 %b, 0f3A83126F;
MORE:
  fma.rn.f32 %x, %x, %a, %b;
  fma.rn.f32 %x, %x, %a, %b;
  fma.rn.f32 %x, %x, %a, %b;
  fma.rn.f32 %x, %x, %a, %b;
  sub.u32 %left, %left, 1;
  setp.ne.u32 %more, %left, 0;
  @%more bra MORE;
  setp.eq.f32 %never, %x, 0fBF800000;
  @%never trap;
  @%silent bra DONE;
  mov.u64 %now, %globaltimer;
  atom.global.max.u64 %old, [%end], %now;
DONE:
  ret;
}
"""


class Driver:
    """The driver API, as far as it is needed. Every call that fails ends the program."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.context, self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuModuleLoadData", ctypes.byref(self.module), PTX.encode())
        self.call("cuModuleGetFunction", ctypes.byref(self.function), self.module, b"work")
        sms = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(sms), 16, 0)  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        self.sms, self.launched = sms.value, 0
        self.begins, self.ends = self.memory(0xFF), self.memory(0)
        self.values = (ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint32(ROUNDS))
        self.params = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in self.values))

    def call(self, name, *words):
        result = getattr(self.lib, name)(*words)
        if result != 0:
            sys.exit(f"load.py: {name} gave {result}")

    def memory(self, fill):
        at = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(8 * SLOTS))
        self.call("cuMemsetD8_v2", at, ctypes.c_ubyte(fill), ctypes.c_size_t(8 * SLOTS))
        return at.value

    def stream(self):
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)  # CU_STREAM_NON_BLOCKING
        return stream

    def event(self):
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), 2)  # CU_EVENT_DISABLE_TIMING
        return event

    def launch(self, blocks, stream, stamped=True):
        slot = 8 * (self.launched % SLOTS)
        self.values[0].value = self.begins + slot if stamped else 0
        self.values[1].value = self.ends + slot if stamped else 0
        self.launched += 1
        self.call("cuLaunchKernel", self.function, blocks, 1, 1, THREADS, 1, 1, 0, stream, self.params, None)

    def stamps(self):
        """(number, ns at work, ns from first to last) of what kernels wrote down."""
        count = min(self.launched, SLOTS)
        read = []
        for at in (self.begins, self.ends):
            values = (ctypes.c_uint64 * count)()
            self.call("cuMemcpyDtoH_v2", values, ctypes.c_uint64(at), ctypes.c_size_t(8 * count))
            read.append(values)
        spans = sorted((begin, end) for begin, end in zip(*read) if 0 < begin <= end)
        busy = until = 0
        for begin, end in spans:
            busy += max(0, end - max(begin, until))
            until = max(until, end)
        return len(spans), busy, until - spans[0][0] if spans else 0


class Progress:
    """Iterations with events behind them; no more than `depth` under way."""

    def __init__(self, driver, depth):
        self.driver, self.free, self.under_way, self.done = driver, [driver.event() for _ in range(depth)], collections.deque(), 0

    def add(self, work, stream):
        event = self.free.pop()
        self.driver.call("cuEventRecord", event, stream)
        self.under_way.append((event, work))
        if not self.free:
            self.settle()

    def settle(self):
        event, work = self.under_way.popleft()
        self.driver.call("cuEventSynchronize", event)
        self.free.append(event)
        self.done += work
        print(time.monotonic_ns(), self.done)


def calibrate(driver):
    """ns of one block when the GPU is full: the least of several kernels of many waves, each waited for."""
    stream, blocks = driver.stream(), 64 * driver.sms
    spans = []
    for _ in range(16):
        begin = time.monotonic_ns()
        driver.launch(blocks, stream)
        driver.call("cuStreamSynchronize", stream)
        spans.append(time.monotonic_ns() - begin)
    print(f"{min(spans) / blocks:.3f} {driver.sms} SMs, {blocks} blocks, least {min(spans)} ns, {driver.stamps()[0]} stamps")


def captured(driver, blocks, nodes):
    stream, graph, exec_ = driver.stream(), ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuStreamBeginCapture_v2", stream, 2)  # CU_STREAM_CAPTURE_MODE_RELAXED
    for _ in range(nodes):
        driver.launch(blocks, stream, stamped=False)
    driver.call("cuStreamEndCapture", stream, ctypes.byref(graph))
    driver.call("cuGraphInstantiateWithFlags", ctypes.byref(exec_), graph, ctypes.c_uint64(0))
    return exec_


def own_kind(driver, kind, seconds, block_ns):
    def blocks(ns, width=1.0):
        return max(1, round(ns * width / block_ns))

    end = time.monotonic() + seconds
    streams = [driver.stream() for _ in range(8)]
    if kind in ("short", "half", "sync50", "long500"):
        ns, depth, together = {"short": (20 * MICRO, 4, 64), "half": (500 * MICRO, 16, 1), "sync50": (50 * MILLI, 1, 1),
                               "long500": (500 * MILLI, 2, 1)}[kind]
        progress = Progress(driver, depth)
        while time.monotonic() < end:
            for _ in range(together):
                driver.launch(blocks(ns), streams[0])
            progress.add(together * blocks(ns) * block_ns, streams[0])
    elif kind == "graph100":
        each = blocks(20 * MICRO)
        exec_, progress = captured(driver, each, 100), Progress(driver, 4)
        while time.monotonic() < end:
            driver.call("cuGraphLaunch", exec_, streams[0])
            progress.add(100 * each * block_ns, streams[0])
    elif kind == "streams8":
        each, progress = blocks(200 * MICRO, 1 / 8), Progress(driver, 16)
        while time.monotonic() < end:
            for stream in streams:
                for _ in range(4):
                    driver.launch(each, stream)
                progress.add(4 * each * block_ns, stream)
    elif kind == "bursty":
        progress, due = Progress(driver, 64), time.monotonic()
        while time.monotonic() < end:
            for _ in range(50):
                driver.launch(blocks(MILLI), streams[0])
                progress.add(blocks(MILLI) * block_ns, streams[0])
            while progress.under_way:
                progress.settle()
            due = max(due + 0.25, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
    else:
        sys.exit(f"load.py: no kind is called {kind}")
    while progress.under_way:
        progress.settle()


def torch_kind(kind, seconds):
    import torch

    if kind == "matmul":
        a = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)

        def iterate():
            torch.mm(a, a)
    else:
        import torch_cases

        iterate = torch_cases.make_step()
        for _ in range(3):
            iterate()
        if kind == "step-graph":
            graph, _ = torch_cases.capture(iterate)
            iterate = graph.replay
    under_way, done, end = collections.deque(), 0, time.monotonic() + seconds
    while time.monotonic() < end or under_way:
        if time.monotonic() < end:
            iterate()
            under_way.append(torch.cuda.Event())
            under_way[-1].record()
        if len(under_way) > 4 or time.monotonic() >= end:
            under_way.popleft().synchronize()
            done += 1
            print(time.monotonic_ns(), done)


def main():
    if sys.argv[1] in ("matmul", "step", "step-graph"):
        return torch_kind(sys.argv[1], float(sys.argv[2]))
    driver = Driver()
    if sys.argv[1] == "calibrate":
        return calibrate(driver)
    own_kind(driver, sys.argv[1], float(sys.argv[2]), float(sys.argv[3]))
    driver.call("cuCtxSynchronize")
    print("stamps", *driver.stamps())


if __name__ == "__main__":
    main()
