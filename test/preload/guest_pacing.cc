// SPDX-License-Identifier: Apache-2.0
// GPU time under a limit: what the simulated device counts, for every way to launch.
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "test/preload/guest_kernels.h"
#include "test/preload/guest_shapes.h"

namespace guest {
namespace {

// What is judged here is the library's share of the GPU's time, not the host's of its processors: where the user may,
// this process and the threads it will make run ahead of whatever else the machine does.
void BeginAhead() {
  const sched_param lowest{1};
  (void)sched_setscheduler(0, SCHED_RR, &lowest);
  Begin();
}

// Seconds that threads of a process were ready to run and had no processor, all of them together.
double Starved(const std::string& pid = "self") {
  double waited = 0;
  std::error_code gone;  // a process or a thread of it
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + pid + "/task", gone)) {
    double ran = 0, wait = 0;
    std::ifstream(task.path() / "schedstat") >> ran >> wait;
    waited += wait / 1e9;
  }
  return waited;
}

// The busy share in percent that `busy` counts in nanoseconds while `stretch` passes. The simulated device and its
// users need the host's processors to keep their times: a stretch in which they were kept waiting for them says nothing
// and is measured again; the last of five counts whatever happened.
double ShareWhile(const std::function<void()>& stretch, const std::function<uint64_t()>& busy,
                  const std::function<double()>& starved) {
  constexpr double kMostStarved = 0.05;
  constexpr int kStretches = 5;
  double share = 0;
  for (int i = 0; i < kStretches; ++i) {
    const uint64_t before = busy();
    const double waited = starved();
    const auto begin = Clock::now();
    stretch();
    const double wall = Seconds(begin);
    share = static_cast<double>(busy() - before) / wall / 1e7;
    if (starved() - waited < kMostStarved * wall) break;
  }
  return share;
}

// Calls `step` for a warm-up and then for `seconds`: the busy share of the device by its own counter.
double BusyShare(double seconds, const std::function<void()>& step) {
  const auto run = [&](double length) {
    const auto begin = Clock::now();
    while (Seconds(begin) < length) step();
  };
  run(0.4);
  return ShareWhile([&] { run(seconds); }, [] { return simgpu_busy_ns(0, 0); }, [] { return Starved(); });
}

void ExpectShare(double share, double want, double tolerance) {
  if (std::abs(share - want) > tolerance) {
    Fail(__FILE__, __LINE__, "busy share in 1/100 percent", std::lround(share * 100), std::lround(want * 100));
  }
}

// paced SHAPE PERCENT TOLERANCE [CALL]: every CALL takes 5 us longer
SCENARIO(paced) {
  BeginAhead();
  if (arguments.size() > 3) {
    const std::string fault = "fault delay_us=5 call=" + arguments[3];
    EXPECT_SAME(simgpu_inject(fault.c_str(), nullptr, 0), 1);
  }
  const double share = BusyShare(2.0, Shape(arguments.at(0)));
  ExpectShare(share, std::strtod(arguments.at(1).c_str(), nullptr), std::strtod(arguments.at(2).c_str(), nullptr));
}

// paced_recovered SHAPE PERCENT TOLERANCE: after a while in which the host was slow, so that no stream had work ahead.
SCENARIO(paced_recovered) {
  BeginAhead();
  for (const char* call : {"cuLaunchKernel", "cuEventRecord"}) {
    EXPECT_SAME(simgpu_inject(("fault delay_us=3 call=" + std::string(call)).c_str(), nullptr, 0), 1);
  }
  const auto step = Shape(arguments.at(0));
  const auto begin = Clock::now();
  while (Seconds(begin) < 1.5) step();
  EXPECT_SAME(simgpu_inject("clear", nullptr, 0), 1);
  while (Seconds(begin) < 2.3) step();
  const double share = BusyShare(1.5, step);
  ExpectShare(share, std::strtod(arguments.at(1).c_str(), nullptr), std::strtod(arguments.at(2).c_str(), nullptr));
}

// paced_switch PERCENT TOLERANCE: kernels of 10 us that come to take 1 ms, while nobody waits for any. What is queued
// before that shows can not be called back, and is made up for.
SCENARIO(paced_switch) {
  BeginAhead();
  const CUstream stream = NewStream();
  const CUfunction f = Kernel("given");
  const auto step = [&](uint64_t ns) {
    uint64_t work = ns * 132;
    void* params[] = {&work};
    LaunchWide(f, stream, kWide, params);
  };
  BusyShare(0.5, [&] { step(10'000); });
  const uint64_t before = simgpu_busy_ns(0, 0);
  const auto begin = Clock::now();
  while (Seconds(begin) < 5.5) step(1'000'000);
  const double share = static_cast<double>(simgpu_busy_ns(0, 0) - before) / Seconds(begin) / 1e7;
  ExpectShare(share, std::strtod(arguments.at(0).c_str(), nullptr), std::strtod(arguments.at(1).c_str(), nullptr));
}

// Without a limit the device is as busy as the program keeps it.
SCENARIO(unpaced) {
  BeginAhead();
  EXPECT(BusyShare(0.5, Shape("streams")) > 80);
}

// paced_worker END: goes on launching until there is a file of that name; `paced_observer` and `paced_share_of` look.
SCENARIO(paced_worker) {
  BeginAhead();
  const auto step = Shape("ex");
  while (!Exists(arguments.at(0).c_str())) {
    for (int i = 0; i < 20; ++i) step();
  }
}

// paced_server END: serves until there is a file of that name: 2 ms of work, then 5 ms without.
SCENARIO(paced_server) {
  BeginAhead();
  const CUstream stream = NewStream();
  while (!Exists(arguments.at(0).c_str())) {
    for (int i = 0; i < 4; ++i) LaunchWide(Kernel("us500"), stream);
    OK(cuStreamSynchronize(stream));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// paced_blips END: 20 us of work each ms, until there is a file of that name.
SCENARIO(paced_blips) {
  BeginAhead();
  const CUstream stream = NewStream();
  while (!Exists(arguments.at(0).c_str())) {
    LaunchWide(Kernel("us20"), stream);
    OK(cuStreamSynchronize(stream));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// paced_requests MS: the median latency of requests of so many ms, in the best of three rounds, for the host's sake.
SCENARIO(paced_requests) {
  BeginAhead();
  const CUstream stream = NewStream();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const int kernels = 2 * std::atoi(arguments.at(0).c_str());
  const double most = 5e-4 * kernels * 1.2;
  double best = 1;
  for (int round = 0; round < 3 && best > most; ++round) {
    std::vector<double> latencies;
    for (int i = 0; i < 100; ++i) {
      const auto begin = Clock::now();
      for (int k = 0; k < kernels; ++k) LaunchWide(Kernel("us500"), stream);
      OK(cuStreamSynchronize(stream));
      latencies.push_back(Seconds(begin));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::nth_element(latencies.begin(), latencies.begin() + 50, latencies.end());
    best = std::min(best, latencies[50]);
  }
  if (best > most) {
    Fail(__FILE__, __LINE__, "us until a request was done", std::lround(best * 1e6), std::lround(most * 1e6));
  }
}

// paced_first_request: tells in `others_ns` what others have of the device meanwhile, who never saw this process launch
// anything.
SCENARIO(paced_first_request) {
  BeginAhead();
  const CUstream stream = NewStream();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto others = [] { return simgpu_busy_ns(0, 0) - simgpu_busy_ns(0, getpid()); };
  const auto before = others();
  for (int k = 0; k < 4; ++k) LaunchWide(Kernel("us500"), stream);
  OK(cuStreamSynchronize(stream));
  Tell("others_ns", others() - before);
}

// paced_share_of DELAY SECONDS PERCENT TOLERANCE OWNER PID...: what one process has of the device, or with 0 all have,
// by a process that launches nothing. PID... are those at work.
SCENARIO(paced_share_of) {
  const auto value = [&](size_t i) { return std::strtod(arguments.at(i).c_str(), nullptr); };
  const auto sleep = [](double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); };
  sleep(value(0));
  const double share =
      ShareWhile([&] { sleep(value(1)); }, [&] { return simgpu_busy_ns(0, std::atoi(arguments.at(4).c_str())); },
                 [&] {
                   double all = 0;
                   for (size_t i = 5; i < arguments.size(); ++i) all += Starved(arguments[i]);
                   return all;
                 });
  ExpectShare(share, value(2), value(3));
}

// Dies with work queued and paid for.
SCENARIO(paced_victim) {
  BeginAhead();
  const auto step = Shape("ex");
  const auto begin = Clock::now();
  while (Seconds(begin) < 0.5) step();
  raise(SIGKILL);
}

// A capture of more work than the limit would let pass neither waits nor is spoilt, and measures nothing.
SCENARIO(paced_capture) {
  BeginAhead();
  const CUstream stream = NewStream();
  const CUfunction f = Kernel("ms50");
  const CUfunction unseen = Kernel("us20");
  LaunchWide(f, stream);  // known, and a debt of half a second at 10 %
  OK(cuStreamSynchronize(stream));
  CUgraph graph = nullptr;
  const auto begin = Clock::now();
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (int i = 0; i < 50; ++i) LaunchWide(f, stream);
  for (int i = 0; i < 50; ++i) LaunchWide(unseen, stream);
  OK(cuStreamEndCapture(stream, &graph));
  EXPECT(Seconds(begin) < 0.2);
  size_t nodes = 0;
  OK(cuGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_SAME(nodes, 100);
}

// How long the next launch on the stream is held, in seconds; what was launched there before has ended by then.
double HeldBehind(CUstream stream, const std::function<void()>& launch) {
  CUevent end = nullptr;
  OK(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING));
  OK(cuEventRecord(end, stream));
  const auto begin = Clock::now();
  launch();
  const double held = Seconds(begin);
  OK(cuEventQuery(end));
  return held;
}

void ExpectSeconds(double seconds, double want, double tolerance) {
  if (std::abs(seconds - want) > tolerance) {
    Fail(__FILE__, __LINE__, "milliseconds", std::lround(seconds * 1e3), std::lround(want * 1e3));
  }
}

// paced_long LIMIT: kernels of 300 ms, launched without waiting for any. What comes behind the first, of which nobody
// knows how long it takes, goes when that is paid for, and not before; and so on.
SCENARIO(paced_long) {
  BeginAhead();
  const double limit = std::strtod(arguments.at(0).c_str(), nullptr) / 100;
  const CUfunction f = Kernel("ms300");
  const auto of = [&](CUstream stream) { return [f, stream] { LaunchWide(f, stream); }; };
  const CUstream stream = NewStream();
  const auto begin = Clock::now();
  LaunchWide(f, stream);
  ExpectSeconds(HeldBehind(stream, of(stream)), 0.3 / limit, 0.05);
  if (limit < 0.25) return;
  HeldBehind(stream, of(stream));
  ExpectSeconds(Seconds(begin), 0.6 / limit, 0.05);
  // Of another kind, on the default stream.
  OK(cuStreamSynchronize(stream));
  const auto narrower = [f] { LaunchWide(f, nullptr, kWide - 1); };
  narrower();
  EXPECT(HeldBehind(nullptr, narrower) > 0.29);
}

// paced_lifted: behind such a kernel a capture is not held, and a launch no longer than there is a limit.
SCENARIO(paced_lifted) {
  BeginAhead();
  const CUstream stream = NewStream();
  const CUfunction f = Kernel("ms300");
  const auto begin = Clock::now();
  LaunchWide(f, stream);
  CUgraph graph = nullptr;
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (int i = 0; i < 10; ++i) LaunchWide(f, stream);
  OK(cuStreamEndCapture(stream, &graph));
  EXPECT(Seconds(begin) < 0.05);
  Touch("running");
  LaunchWide(f, stream);
  EXPECT(Exists("changed"));
  EXPECT(Seconds(begin) < 0.25);
}

// paced_longer: one of 200 ms that takes 40 ms longer than those before is paid for before the next one goes.
SCENARIO(paced_longer) {
  BeginAhead();
  const CUstream stream = NewStream();
  const auto launch = [f = Kernel("given"), stream](uint64_t ms) {
    uint64_t work = ms * 1'000'000 * 132;
    void* params[] = {&work};
    LaunchWide(f, stream, kWide, params);
  };
  for (int i = 0; i < 3; ++i) {
    launch(200);
    OK(cuStreamSynchronize(stream));
  }
  launch(240);
  ExpectSeconds(HeldBehind(stream, [&] { launch(200); }), 0.24 / 0.95, 0.02);
}

// A graph that is updated before each launch is of a kind that was never seen, and ends when it ends.
SCENARIO(paced_updates) {
  BeginAhead();
  const CUstream stream = NewStream();
  const CUfunction f = Kernel("given");
  uint64_t work = uint64_t{20'000'000} * 132;
  void* params[] = {&work};
  CUDA_KERNEL_NODE_PARAMS node{};
  node.func = f;
  node.gridDimX = kWide;
  node.gridDimY = node.gridDimZ = node.blockDimY = node.blockDimZ = 1;
  node.blockDimX = 1024;
  node.kernelParams = params;
  CUgraph graph = nullptr;
  CUgraphNode added = nullptr;
  CUgraphExec exec = nullptr;
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddKernelNode_v2(&added, graph, nullptr, 0, &node));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  const auto begin = Clock::now();
  for (int i = 0; i < 20; ++i) {
    OK(cuGraphExecKernelNodeSetParams_v2(exec, added, &node));
    OK(cuGraphLaunch(exec, stream));
  }
  OK(cuStreamSynchronize(stream));
  ExpectSeconds(Seconds(begin), 19 * 0.02 / 0.5 + 0.02, 0.05);
}

// Tells the test when it runs, waits for its change, and then has the share named.
SCENARIO(paced_change) {
  BeginAhead();
  const auto step = Shape("ex");
  const auto begin = Clock::now();
  while (Seconds(begin) < 0.3) step();
  Touch("running");
  while (!Exists("changed")) step();
  ExpectShare(BusyShare(1.0, step), std::strtod(arguments.at(0).c_str(), nullptr), 6);
}

// Blocked by the monitor: nothing runs; released: it goes on. The test turns the word.
SCENARIO(paced_blocked) {
  BeginAhead();
  const auto step = Shape("ex");
  std::thread observer([] {
    Touch("running");
    AwaitFile("changed");
    std::this_thread::sleep_for(std::chrono::milliseconds(60));  // what is queued ends
    const uint64_t before = simgpu_busy_ns(0, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_SAME(simgpu_busy_ns(0, 0), before);
    Touch("stopped");
    AwaitFile("released");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT(simgpu_busy_ns(0, 0) > before + 1'000'000);
    Touch("done");
  });
  while (!Exists("done")) step();
  observer.join();
}

// paced_side_by_side LEAST: eight streams of an eighth of the device each. While they are let go, so many are at work.
SCENARIO(paced_side_by_side) {
  const double least = std::strtod(arguments.at(0).c_str(), nullptr);
  BeginAhead();
  std::vector<CUstream> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(NewStream());
  const CUfunction f = Kernel("eighth");
  uint64_t launched = 0;
  const auto step = [&] { LaunchWide(f, streams[launched++ % 8], 32); };
  const auto settled = [&] {  // time in kernels, of all streams together, and time in which the device was busy
    for (const CUstream stream : streams) OK(cuStreamSynchronize(stream));
    return std::pair{static_cast<double>(launched) * 2e5, static_cast<double>(simgpu_busy_ns(0, getpid()))};
  };
  BusyShare(0.1, step);
  const auto before = settled();
  BusyShare(1.6, step);
  const auto after = settled();
  const double at_once = (after.first - before.first) / (after.second - before.second);
  if (at_once < least) Fail(__FILE__, __LINE__, "streams at once, in hundredths", std::lround(at_once * 100), 800);
}

// paced_wakes MOST: how often a second the library's own threads wake up beside eight streams that wait for their turn.
SCENARIO(paced_wakes) {
  BeginAhead();
  const auto wakes = [] {
    double all = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name, word;
      std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
      if (name == "simgpu" || task.path().filename() == std::to_string(getpid())) continue;
      std::ifstream status(task.path() / "status");
      double count = 0;
      while (status >> word) {
        if (word == "voluntary_ctxt_switches:" && status >> count) all += count;
      }
    }
    return all;
  };
  const auto step = Shape("streams");
  BusyShare(0.6, step);
  const double before = wakes();
  const auto begin = Clock::now();
  while (Seconds(begin) < 2) step();
  const double rate = (wakes() - before) / Seconds(begin);
  EXPECT(rate > 0);
  const double most = std::strtod(arguments.at(0).c_str(), nullptr);
  if (rate > most) Fail(__FILE__, __LINE__, "wakes a second", std::lround(rate), std::lround(most));
}

// Kernels of a nanosecond, on a GPU that waits for them.
SCENARIO(paced_nothing) {
  BeginAhead();
  const CUstream stream = NewStream();
  const CUfunction f = Kernel("nothing");
  for (int round = 0; round < 1000; ++round) {
    for (int i = 0; i < 100; ++i) LaunchWide(f, stream, 1);
    OK(cuStreamSynchronize(stream));
  }
}

// paced_stop SHAPE [PID...]: how many ns of the GPU's time this process and those have in the 100 ms after an order,
// which came at the time that the test writes into `ordered`; told in `done`. The device's own time counts, so it does
// not matter how late anybody sees what.
SCENARIO(paced_stop) {
  BeginAhead();
  const auto step = Shape(arguments.at(0));
  std::vector<pid_t> pids{getpid()};
  for (size_t i = 1; i < arguments.size(); ++i) pids.push_back(std::atoi(arguments[i].c_str()));
  std::thread observer([&pids] {
    const auto busy_of_all = [&pids] {
      uint64_t sum = 0;
      for (const pid_t pid : pids) sum += simgpu_busy_ns(0, pid);
      return sum;
    };
    Touch("running");
    std::vector<std::pair<int64_t, uint64_t>> seen;
    int64_t until = 0;
    for (int64_t now = Monotonic(); until == 0 || now < until; now = Monotonic()) {
      seen.emplace_back(now, busy_of_all());
      if (until == 0 && Exists("ordered")) until = now + 100'000'000;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    const int64_t ordered = NumberIn("ordered");
    uint64_t before = 0;
    for (const auto& [at, busy] : seen) {
      if (before == 0 && at >= ordered) before = busy;
    }
    EXPECT(before > 0);
    Tell("done", static_cast<int64_t>(seen.back().second - before));
  });
  while (!Exists("done")) step();
  observer.join();
}

// paced_own_wait: 60 ms of kernels behind a wait that this thread itself ends once it has launched them all. The
// simulated GPU would never come to them else.
SCENARIO(paced_own_wait) {
  BeginAhead();
  const CUstream stream = NewStream();
  const CUfunction f = Kernel("us500");
  BusyShare(0.3, [&] { LaunchWide(f, stream); });
  OK(cuStreamSynchronize(stream));
  CUdeviceptr flag = 0;
  OK(cuMemAlloc_v2(&flag, 4));
  OK(cuMemsetD32_v2(flag, 0, 1));
  OK(cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
  const auto begin = Clock::now();
  for (int i = 0; i < 120; ++i) LaunchWide(f, stream);
  const double held = Seconds(begin);
  OK(cuStreamWriteValue32_v2(NewStream(), flag, 1, 0));
  OK(cuStreamSynchronize(stream));
  if (held > 0.5) Fail(__FILE__, __LINE__, "ms until all were launched", std::lround(held * 1e3), 500);
}

// paced_lagging: kernels of 0.2 ms beside one stream with long ones that leave room for them, which are not to wait for
// those. Another container has the GPU half of the time.
SCENARIO(paced_lagging) {
  BeginAhead();
  const CUstream slow = NewStream();
  const CUstream quick = NewStream();
  const CUfunction f = Kernel("given");
  const CUfunction g = Kernel("eighth");
  CUevent end = nullptr;
  OK(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING));
  uint64_t work = uint64_t{100'000'000} * 16;
  void* params[] = {&work};
  uint64_t launched = 0;
  const auto step = [&] {
    if (cuEventQuery(end) == CUDA_SUCCESS) {
      LaunchWide(f, slow, 32, params);
      OK(cuEventRecord(end, slow));
    }
    LaunchWide(g, quick, 32);
    ++launched;
  };
  BusyShare(0.1, step);
  OK(cuStreamSynchronize(quick));
  const uint64_t before = launched;
  const auto begin = Clock::now();
  while (Seconds(begin) < 2) step();
  OK(cuStreamSynchronize(quick));
  const double part = static_cast<double>(launched - before) * 2e-4 / Seconds(begin);
  if (part < 0.32) Fail(__FILE__, __LINE__, "kernels of 0.2 ms, in 1/1000 of the time", std::lround(part * 1e3), 400);
}

// A child has a lease, a helper and measurements of its own.
SCENARIO(paced_fork) {
  // The parent has used the library, not yet the driver, which does not survive a fork.
  EXPECT_SAME(cuMemFree_v2(0), CUDA_ERROR_NOT_INITIALIZED);
  const pid_t child = fork();
  if (child == 0) {
    BeginAhead();
    ExpectShare(BusyShare(1.5, Shape("ex")), 25, 6);
    std::_Exit(0);
  }
  int status = -1;
  EXPECT_SAME(waitpid(child, &status, 0), child);
  EXPECT_SAME(status, 0);
}

}  // namespace
}  // namespace guest
