// SPDX-License-Identifier: Apache-2.0
// GPU time under a limit: what the simulated device counts, for every way to launch.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

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
#include "test/preload/guest_shares.h"

namespace guest {
namespace {

// paced SHAPE PERCENT TOLERANCE [CALL]: every CALL takes 5 us longer
SCENARIO(paced) {
  BeginAhead();
  if (arguments.size() > 3) {
    const std::string fault = "fault delay_us=5 call=" + arguments[3];
    EXPECT_SAME(simgpu_inject(fault.c_str(), nullptr, 0), 1);
  }
  const double share = BusyShare(2.0, Shape(arguments.at(0)));
  ExpectShare(share, arguments.at(1), arguments.at(2));
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
  ExpectShare(share, arguments.at(1), arguments.at(2));
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
  ExpectShare(share, arguments.at(0), arguments.at(1));
}

// Without a limit the device is as busy as the program keeps it.
SCENARIO(unpaced) {
  BeginAhead();
  EXPECT(BusyShare(0.5, Shape("streams")) > 80);
}

// paced_worker END SHAPE: goes on launching until there is a file of that name; `paced_share_of` looks.
SCENARIO(paced_worker) {
  BeginAhead();
  const auto step = Shape(arguments.at(1));
  while (!Exists(arguments.at(0).c_str())) {
    const auto begin = Clock::now();
    for (int i = 0; i < 20 && Seconds(begin) < 0.05; ++i) step();
  }
}

// paced_lingers: launches, and takes its time to end.
SCENARIO(paced_lingers) {
  std::atexit([] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); });  // after what is registered later
  BeginAhead();
  LaunchWide(Kernel("us500"), nullptr);
  OK(cuCtxSynchronize());
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
  const auto launch = UpdatedGraph(stream, [] { return 20'000'000; });
  const auto begin = Clock::now();
  for (int i = 0; i < 20; ++i) launch();
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
  ExpectShare(BusyShare(1.0, step), arguments.at(0), "6");
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
