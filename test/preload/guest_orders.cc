// SPDX-License-Identifier: Apache-2.0
// GPU time beside others: requests that go first, orders that are obeyed, and what a bound on the work in flight must
// not hold.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <thread>

#include "test/preload/guest_kernels.h"
#include "test/preload/guest_shapes.h"
#include "test/preload/guest_shares.h"

namespace guest {
namespace {

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

// Requests one by one, with `pause` after each: `percent` of them take `most` seconds at most, in the best of eight
// rounds, for the host's sake: it may be slow for some seconds.
void ExpectLatency(size_t requests, size_t percent, double most, std::chrono::milliseconds pause,
                   const std::function<void(CUstream)>& launch) {
  BeginAhead();
  const CUstream stream = NewStream();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto at = static_cast<std::ptrdiff_t>(requests * percent / 100);
  double best = 1;
  for (int round = 0; round < 8 && best > most; ++round) {
    std::vector<double> latencies;
    for (size_t i = 0; i < requests; ++i) {
      const auto begin = Clock::now();
      launch(stream);
      OK(cuStreamSynchronize(stream));
      latencies.push_back(Seconds(begin));
      std::this_thread::sleep_for(pause);
    }
    std::nth_element(latencies.begin(), latencies.begin() + at, latencies.end());
    best = std::min(best, latencies[static_cast<size_t>(at)]);
  }
  if (best > most) {
    Fail(__FILE__, __LINE__, "us until a request was done", std::lround(best * 1e6), std::lround(most * 1e6));
  }
}

// paced_requests MS: half of the requests of so many ms take a fifth more at most.
SCENARIO(paced_requests) {
  const int kernels = 2 * std::atoi(arguments.at(0).c_str());
  ExpectLatency(100, 50, 5e-4 * kernels * 1.2, std::chrono::milliseconds(5), [kernels](CUstream stream) {
    for (int k = 0; k < kernels; ++k) LaunchWide(Kernel("us500"), stream);
  });
}

// paced_short_requests US: of single kernels of 20 us, of which a lease pays for several, 95 % take so many us at most.
SCENARIO(paced_short_requests) {
  ExpectLatency(200, 95, std::atof(arguments.at(0).c_str()) * 1e-6, std::chrono::milliseconds(2),
                [](CUstream stream) { LaunchWide(Kernel("us20"), stream); });
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

// paced_captures: short kernels, now and then one that takes longer than was expected, and captures while that is at
// work.
SCENARIO(paced_captures) {
  BeginAhead();
  const CUstream stream = NewStream();
  const CUfunction f = Kernel("given");
  for (int i = 1; i <= 600; ++i) {
    const bool is_long = i % 60 == 0;
    uint64_t nanos = is_long ? 3'000'000 : 20'000;
    void* params[] = {&nanos};
    Launch(f, stream, 1, 1, params);
    if (is_long) {
      OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      Launch(f, stream, 1, 1, params);
      CUgraph graph = nullptr;
      OK(cuStreamEndCapture(stream, &graph));
      OK(cuGraphDestroy(graph));
    }
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

// paced_lagging LEAST BUSY TOLERANCE [BLOCKS]: kernels of 0.2 ms beside one stream with ones of 100 ms, which leave
// room for them unless BLOCKS fill the GPU, and which they are not to wait for: they have LEAST percent of the time and
// more. All of it keeps the GPU busy for BUSY percent.
SCENARIO(paced_lagging) {
  BeginAhead();
  const unsigned blocks = arguments.size() > 3 ? static_cast<unsigned>(std::stoul(arguments[3])) : 32;
  const CUstream slow = NewStream();
  const CUstream quick = NewStream();
  const CUfunction f = Kernel("given");
  const CUfunction g = Kernel("eighth");
  CUevent end = nullptr;
  OK(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING));
  uint64_t work = uint64_t{100'000'000} * blocks / 2;
  void* params[] = {&work};
  uint64_t launched = 0;
  const auto step = [&] {
    if (cuEventQuery(end) == CUDA_SUCCESS) {
      LaunchWide(f, slow, blocks, params);
      OK(cuEventRecord(end, slow));
    }
    LaunchWide(g, quick, 32);
    ++launched;
  };
  double part = 0;
  const auto stretch = [&] {
    OK(cuStreamSynchronize(quick));
    launched = 0;
    const auto begin = Clock::now();
    while (Seconds(begin) < 3) step();
    OK(cuStreamSynchronize(quick));
    part = static_cast<double>(launched) * 2e-4 / Seconds(begin);
  };
  BusyShare(0.1, step);
  const double busy = ShareWhile(
      stretch, [] { return simgpu_busy_ns(0, getpid()); }, [] { return Starved(); });
  ExpectShare(busy, arguments.at(1), arguments.at(2));
  if (part * 100 < std::stod(arguments.at(0))) {
    Fail(__FILE__, __LINE__, "kernels of 0.2 ms, in 1/1000 of the time", std::lround(part * 1e3), 0);
  }
}

}  // namespace
}  // namespace guest
