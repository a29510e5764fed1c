// SPDX-License-Identifier: Apache-2.0
// Threads that are held at the gate: nobody waits for them who should not, they wait for nobody who waits for them, and
// whatever ends them or the process meanwhile ends it. A scenario that hangs is ended by its alarm, and has failed.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>
#include <thread>

#include "test/preload/guest_kernels.h"

namespace guest {
namespace {

using std::chrono::milliseconds;

constexpr const char* kImage =
    "simgpu-image 1\n"
    "kernel us20\n  cost total 20us\n"
    "kernel ms20\n  cost total 20ms\n"
    "kernel unseen\n  cost total 50us\n";

CUfunction Kernel(const char* name) {
  static const CUmodule module = LoadImage(kImage);
  return KernelOf(module, name);
}

// 20 ms of work that are known to be 20 ms: the limit decides for how long the next launch is held.
void GoIntoDebt() {
  const CUstream stream = NewStream();
  Launch(Kernel("ms20"), stream);
  OK(cuStreamSynchronize(stream));
}

// A thread that launches, and is held.
class Held {
 public:
  explicit Held(CUcontext context) : thread_([this, context] { Run(context); }) {
    while (!called_) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT(!returned_);
  }
  bool returned() const { return returned_; }
  int64_t returned_at() const { return returned_at_; }
  CUresult result() const { return result_; }
  std::thread& thread() { return thread_; }
  CUresult Join() {
    thread_.join();
    return result_;
  }

 private:
  void Run(CUcontext context) {
    OK(cuCtxSetCurrent(context));
    const CUstream stream = NewStream();
    const CUfunction f = Kernel("us20");
    called_ = true;
    result_ = TryLaunch(f, stream);
    returned_at_ = Monotonic();
    returned_ = true;
  }

  std::atomic<bool> called_{false};
  std::atomic<bool> returned_{false};
  std::atomic<int64_t> returned_at_{0};
  CUresult result_ = CUDA_ERROR_UNKNOWN;
  std::thread thread_;
};

CUdeviceptr NewFlag() {
  CUdeviceptr flag = 0;
  OK(cuMemAlloc_v2(&flag, 64));
  OK(cuMemsetD32_v2(flag, 0, 16));
  return flag;
}

CUgraphExec GraphThatWaitsFor(CUdeviceptr flag) {
  CUgraph graph = nullptr;
  CUgraphNode wait = nullptr;
  CUgraphExec exec = nullptr;
  CUstreamBatchMemOpParams op{};
  op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  op.waitValue.address = flag;
  op.waitValue.value = 1;
  op.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{};
  OK(cuCtxGetCurrent(&params.ctx));
  params.count = 1;
  params.paramArray = &op;
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddBatchMemOpNode(&wait, graph, nullptr, 0, &params));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

// gate_peer HOW: work of a kind that was never seen before, which ends only when this thread has launched more. What
// it waits for is a value behind it in its stream, a value within it (as a kernel that spins until its peer runs), or
// a function on the host.
SCENARIO(gate_peer) {
  Begin();
  alarm(20);
  const std::string& how = arguments.at(0);
  const CUstream waits = NewStream();
  const CUstream releases = NewStream();
  const CUdeviceptr flag = NewFlag();
  const CUgraphExec spins = GraphThatWaitsFor(flag);
  std::atomic<bool> released{false};
  for (int i = 0; i < 500; ++i) Launch(Kernel("us20"), releases);
  OK(cuStreamSynchronize(releases));

  if (how == "value") OK(cuStreamWaitValue32(waits, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
  if (how == "host") {
    OK(cuLaunchHostFunc(
        waits,
        [](void* go) {
          while (!*static_cast<std::atomic<bool>*>(go)) std::this_thread::sleep_for(milliseconds(1));
        },
        &released));
  }
  if (how == "within") {
    OK(cuGraphLaunch(spins, waits));
  } else {
    Launch(Kernel("unseen"), waits);
  }
  for (int i = 0; i < 50; ++i) Launch(Kernel("us20"), releases);
  if (how == "host") {
    OK(cuStreamSynchronize(releases));
    released = true;
  } else {
    OK(cuStreamWriteValue32(releases, flag, 1, 0));
  }
  OK(cuCtxSynchronize());
  if (how == "within") return;
  // And the account is as if nothing had been waited for.
  const auto begin = Clock::now();
  for (int i = 0; i < 500; ++i) Launch(Kernel("us20"), releases);
  OK(cuStreamSynchronize(releases));
  EXPECT(Seconds(begin) < 3);
}

// gate_peer_behind LIMIT: such work, with something behind it in its own stream before this thread launches what it
// waits for. What is behind can not be that, so it may be held for a second; not again and again, though.
SCENARIO(gate_peer_behind) {
  Begin();
  alarm(20);
  const double limit = std::strtod(arguments.at(0).c_str(), nullptr) / 100;
  const CUstream waits = NewStream();
  const CUstream releases = NewStream();
  for (int i = 0; i < 500; ++i) Launch(Kernel("us20"), releases);
  OK(cuStreamSynchronize(releases));
  for (unsigned round = 0; round < (limit < 0.25 ? 1 : 3); ++round) {
    const CUdeviceptr flag = NewFlag();
    OK(cuGraphLaunch(GraphThatWaitsFor(flag), waits));  // another one each time, when the one before is paid for
    const auto begin = Clock::now();
    Launch(Kernel("unseen"), waits, round + 1);
    Launch(Kernel("us20"), releases);
    OK(cuStreamWriteValue32(releases, flag, 1, 0));
    OK(cuCtxSynchronize());
    // What is charged of it before it ends holds everybody.
    const double most = (round == 0 ? 1.3 : 0.3) + 0.06 / limit;
    if (Seconds(begin) > most)
      Fail(__FILE__, __LINE__, "milliseconds", std::lround(Seconds(begin) * 1e3), std::lround(most * 1e3));
  }
}

// The same between two processes of a container.
SCENARIO(gate_peer_waits) {
  Begin();
  alarm(20);
  const CUdeviceptr flag = NewFlag();
  const CUstream waits = NewStream();
  const CUstream releases = NewStream();
  OK(cuGraphLaunch(GraphThatWaitsFor(flag), waits));
  Touch("waiting");
  AwaitFile("release");
  OK(cuStreamWriteValue32(releases, flag, 1, 0));
  OK(cuCtxSynchronize());
}
SCENARIO(gate_peer_releases) {
  Begin();
  alarm(20);
  AwaitFile("waiting");
  const CUstream stream = NewStream();
  for (int i = 0; i < 500; ++i) Launch(Kernel("us20"), stream);
  OK(cuStreamSynchronize(stream));
  Touch("release");
}

// Two streams that wait for each other's events in turn.
SCENARIO(gate_events) {
  Begin();
  alarm(20);
  const CUstream streams[2] = {NewStream(), NewStream()};
  CUevent events[2] = {};
  for (CUevent& event : events) OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  for (int i = 0; i < 400; ++i) {
    const int side = i % 2;
    Launch(Kernel(i % 100 == 99 ? "unseen" : "us20"), streams[side]);
    OK(cuEventRecord(events[side], streams[side]));
    OK(cuStreamWaitEvent(streams[1 - side], events[side], 0));
  }
  OK(cuCtxSynchronize());
}

// A function on the host that launches. A driver may refuse that; it has to come back.
SCENARIO(gate_host_function) {
  Begin();
  alarm(20);
  GoIntoDebt();
  struct Call {
    CUstream stream;
    CUfunction f;
    std::atomic<bool> done;
  } call{NewStream(), Kernel("unseen"), false};
  const CUstream stream = NewStream();
  OK(cuLaunchHostFunc(
      stream,
      [](void* arg) {
        auto* const c = static_cast<Call*>(arg);
        (void)TryLaunch(c->f, c->stream);
        c->done = true;
      },
      &call));
  OK(cuCtxSynchronize());
  EXPECT(call.done);
}

// While one thread is held, the others work as ever.
SCENARIO(gate_others_go_on) {
  const CUcontext context = Begin();
  alarm(20);
  const CUstream stream = NewStream();
  CUevent event = nullptr;
  OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  GoIntoDebt();
  Held held(context);
  const auto begin = Clock::now();
  OK(cuCtxSynchronize());
  OK(cuStreamSynchronize(stream));
  OK(cuEventRecord(event, stream));
  OK(cuEventSynchronize(event));
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, kMiB));
  OK(cuMemsetD8_v2(block, 1, kMiB));
  OK(cuMemFree_v2(block));
  EXPECT(Room() > 0);
  OK(cuModuleUnload(LoadImage(kImage)));
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  Launch(Kernel("us20"), stream);
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphUpload(exec, stream));
  OK(cuGraphExecDestroy(exec));
  CUcontext other = nullptr;
  OK(cuCtxCreate_v2(&other, 0, 0));
  OK(cuCtxDestroy_v2(other));
  const double took = Seconds(begin);
  EXPECT(took < 1.0);
  EXPECT(!held.returned());
  OK(held.Join());
}

// The child of a fork begins with nothing held; its parent goes on.
SCENARIO(gate_fork) {
  const CUcontext context = Begin();
  alarm(20);
  GoIntoDebt();
  Held held(context);
  const auto begin = Clock::now();
  const pid_t child = fork();
  if (child == 0) {
    const bool as_driver =
        cuMemFree_v2(0) == CUDA_ERROR_NOT_INITIALIZED && TryLaunch(nullptr, nullptr) == CUDA_ERROR_NOT_INITIALIZED;
    std::_Exit(as_driver ? 0 : 3);
  }
  int status = -1;
  EXPECT_SAME(waitpid(child, &status, 0), child);
  EXPECT_SAME(status, 0);
  EXPECT(Seconds(begin) < 1);
  OK(held.Join());
}

// gate_end HOW: the process ends at once, whoever is held.
SCENARIO(gate_end) {
  const CUcontext context = Begin();
  alarm(20);
  GoIntoDebt();
  auto* const held = new Held(context);
  Touch("held");
  if (arguments.at(0) == "exit") std::exit(0);
  held->thread().join();  // a signal comes
}

// A launch is not a place at which a thread can be cancelled: it takes place, and the thread ends behind it.
SCENARIO(gate_cancel) {
  const CUcontext context = Begin();
  alarm(20);
  GoIntoDebt();
  struct Call {
    CUcontext context;
    std::atomic<bool> called{false};
    std::atomic<bool> returned{false};
  } call{context};
  pthread_t thread;
  const int made = pthread_create(
      &thread, nullptr,
      [](void* arg) -> void* {
        auto* const c = static_cast<Call*>(arg);
        OK(cuCtxSetCurrent(c->context));
        const CUstream stream = NewStream();
        const CUfunction f = Kernel("us20");
        c->called = true;
        OK(TryLaunch(f, stream));
        c->returned = true;
        for (;;) usleep(1000);
      },
      &call);
  EXPECT_SAME(made, 0);
  while (!call.called) std::this_thread::sleep_for(milliseconds(1));
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT(!call.returned);
  EXPECT_SAME(pthread_cancel(thread), 0);
  void* ended = nullptr;
  EXPECT_SAME(pthread_join(thread, &ended), 0);
  EXPECT(ended == PTHREAD_CANCELED);
  EXPECT(call.returned);
  Launch(Kernel("us20"), NewStream());
  OK(cuCtxSynchronize());
}

// Signals that are handled neither shorten the wait nor spoil the launch.
SCENARIO(gate_handler) {
  Begin();
  alarm(20);
  static std::atomic<int> handled{0};
  struct sigaction action {};
  action.sa_handler = [](int) { ++handled; };
  sigaction(SIGUSR1, &action, nullptr);
  GoIntoDebt();
  const pthread_t self = pthread_self();
  std::atomic<bool> done{false};
  std::thread nags([&] {
    while (!done) {
      pthread_kill(self, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  });
  const CUstream stream = NewStream();
  const auto begin = Clock::now();
  errno = 77;
  Launch(Kernel("us20"), stream);
  EXPECT_SAME(errno, 77);
  const double took = Seconds(begin);
  done = true;
  nags.join();
  EXPECT(handled > 10);
  EXPECT(took > 0.3);  // 20 ms at 5 %
}

// gate_context_gone HOW: what a thread is held for goes away meanwhile.
SCENARIO(gate_context_gone) {
  CUcontext context = Begin();
  alarm(20);
  const bool created = arguments.at(0) == "destroyed";
  if (created) OK(cuCtxCreate_v2(&context, 0, 0));
  const CUstream stream = NewStream();
  const CUfunction f = KernelOf(LoadImage(kImage), "ms20");
  Launch(f, stream);
  OK(cuStreamSynchronize(stream));
  std::atomic<bool> called{false};
  std::atomic<int> result{-1};
  std::thread thread([&] {
    OK(cuCtxSetCurrent(context));
    called = true;
    result = TryLaunch(f, stream);
  });
  while (!called) std::this_thread::sleep_for(milliseconds(1));
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_SAME(result.load(), -1);
  const auto begin = Clock::now();
  if (created) {
    OK(cuCtxDestroy_v2(context));
  } else {
    OK(cuDevicePrimaryCtxReset_v2(0));
  }
  EXPECT(Seconds(begin) < 1);
  thread.join();
  EXPECT(result.load() > 0);  // the driver's own refusal
  Begin();
  Launch(KernelOf(LoadImage(kImage), "us20"), NewStream());
  OK(cuCtxSynchronize());
}

// A long wait, which a change in the region ends: tells how many ms after the change.
SCENARIO(gate_released) {
  const CUcontext context = Begin();
  alarm(30);
  GoIntoDebt();
  Held held(context);
  Touch("held");
  AwaitFile("changed");
  OK(held.Join());
  Tell("after_us", (held.returned_at() - NumberIn("changed")) / 1000);
}

// gate_storm PERCENT: threads and streams that go on launching, graphs among it, until all is calm and they have come
// to no more than that much of the device again.
SCENARIO(gate_storm) {
  const CUcontext context = Begin();
  alarm(60);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  const CUfunction f = Kernel("us20");
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      OK(cuCtxSetCurrent(context));
      const CUstream stream = NewStream();
      CUgraph graph = nullptr;
      CUgraphExec exec = nullptr;
      OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      for (int n = 0; n < 10; ++n) Launch(f, stream);
      OK(cuStreamEndCapture(stream, &graph));
      OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
      while (!stop) {
        for (int n = 0; n < 20; ++n) Launch(f, stream);
        OK(cuGraphLaunch(exec, stream));
        if (i % 2 == 0) OK(cuStreamSynchronize(stream));
      }
    });
  }
  Touch("running");
  AwaitFile("calm");
  const double most = std::strtod(arguments.at(0).c_str(), nullptr);
  double share = 101;
  const uint64_t calm = simgpu_busy_ns(0, 0);
  for (int i = 0; i < 30 && share > most; ++i) {
    const auto begin = Clock::now();
    const uint64_t before = simgpu_busy_ns(0, 0);
    std::this_thread::sleep_for(milliseconds(500));
    share = static_cast<double>(simgpu_busy_ns(0, 0) - before) / Seconds(begin) / 1e7;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  OK(cuCtxSynchronize());
  EXPECT(simgpu_busy_ns(0, 0) > calm);
  if (share > most)
    Fail(__FILE__, __LINE__, "percent of the device at a limit of 30", static_cast<long long>(share), 30);
}

}  // namespace
}  // namespace guest
