// SPDX-License-Identifier: Apache-2.0
// GPU time beside others: requests that go first, orders that are obeyed, and what a bound on the work in flight must
// not hold.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "region/common_area.h"
#include "test/preload/guest_kernels.h"
#include "test/preload/guest_shapes.h"
#include "test/preload/guest_shares.h"
#include "vgpu/time/turns.h"

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

// paced_requests MS PID US: while a request of so many ms is under way, the process has so many us of the GPU at most,
// in half of the requests and the best of eight rounds. The device's own time counts: a host that holds up this thread
// or the device between two kernels makes each request longer.
SCENARIO(paced_requests) {
  const int kernels = 2 * std::atoi(arguments.at(0).c_str());
  const pid_t other = std::atoi(arguments.at(1).c_str());
  const int64_t most = std::atoi(arguments.at(2).c_str());
  constexpr size_t kRequests = 100;
  BeginAhead();
  const CUstream stream = NewStream();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  int64_t best = INT64_MAX;
  for (int round = 0; round < 8 && best > most; ++round) {
    std::vector<int64_t> others_us;
    for (size_t i = 0; i < kRequests; ++i) {
      const uint64_t before = simgpu_busy_ns(0, other);
      for (int k = 0; k < kernels; ++k) LaunchWide(Kernel("us500"), stream);
      OK(cuStreamSynchronize(stream));
      others_us.push_back(static_cast<int64_t>(simgpu_busy_ns(0, other) - before) / 1000);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const auto median = others_us.begin() + kRequests / 2;
    std::nth_element(others_us.begin(), median, others_us.end());
    best = std::min(best, *median);
  }
  if (best > most) Fail(__FILE__, __LINE__, "us that the other had while a request was under way", best, most);
}

// The file where those that share a GPU meet.
hami::region::CommonArea* Area() {
  const int file = open(getenv("HAMI_COMMON_AREA"), O_RDWR | O_CLOEXEC);
  EXPECT(file >= 0);
  void* const mapped = mmap(nullptr, sizeof(hami::region::CommonArea), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  EXPECT(mapped != MAP_FAILED);
  return static_cast<hami::region::CommonArea*>(mapped);
}

// The line of this process, which just launched and is the only one of that rank: one that ended may have left its own.
const hami::region::CommonMember* LineOf(const hami::region::CommonArea& area, int rank) {
  const hami::region::CommonMember* found = nullptr;
  for (const auto& line : area.members) {
    const uint64_t process = hami::region::Load(line.process);
    if (process == 0 || process == hami::vgpu::time::kTurnItself || hami::region::Load(line.rank) != rank) continue;
    if (found == nullptr || hami::region::Load(line.seen_at) > hami::region::Load(found->seen_at)) found = &line;
  }
  if (found == nullptr) Fail(__FILE__, __LINE__, "lines of that rank", 0, 1);
  return found;
}

// paced_alone: without a limit and with nobody else, launches are looked at once in 500 ms, for the monitor.
SCENARIO(paced_alone) {
  BeginAhead();
  const CUstream stream = NewStream();
  const CUfunction f = Kernel("us20");
  LaunchWide(f, stream);
  const hami::region::CommonMember* const line = LineOf(*Area(), std::atoi(getenv("CUDA_TASK_PRIORITY")));
  int looks = 0;
  int64_t seen_at = hami::region::Load(line->seen_at);
  for (int i = 0; i < 300; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    LaunchWide(f, stream);
    const int64_t now_seen = hami::region::Load(line->seen_at);
    looks += now_seen != seen_at ? 1 : 0;
    seen_at = now_seen;
  }
  if (looks > 5) Fail(__FILE__, __LINE__, "looks at 300 launches", looks, 5);
}

// paced_neighbour_at_start: one comes right after the first launch of a process without a limit, which was alone, and
// before its helper thread looked. The next launch takes the turn. On one processor the helper comes when this thread
// sleeps.
SCENARIO(paced_neighbour_at_start) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
  EXPECT(sched_setaffinity(0, sizeof one, &one) == 0);
  BeginAhead();
  const CUstream stream = NewStream();
  const CUfunction f = Kernel("us20");
  hami::region::CommonArea* const area = Area();
  LaunchWide(f, stream);
  const hami::region::CommonMember* const line = LineOf(*area, 0);
  EXPECT(CommonLinesOf(area).Join(-1, uint64_t{1} << 32 | 1, hami::region::Load(line->gpu), Monotonic()) >= 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const int64_t begin = Monotonic();
  LaunchWide(f, stream);
  EXPECT(hami::region::Load(line->work_until) >= begin);
}

// paced_short_requests: single kernels of 20 us, of which a lease pays for several, with a pause after each: nine of
// ten take the turn, which says that work is under way.
SCENARIO(paced_short_requests) {
  constexpr int kRequests = 200;
  BeginAhead();
  const CUstream stream = NewStream();
  const CUfunction f = Kernel("us20");
  LaunchWide(f, stream);
  OK(cuStreamSynchronize(stream));
  const hami::region::CommonMember* const line = LineOf(*Area(), 0);
  int took = 0;
  for (int i = 0; i < kRequests; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const int64_t begin = Monotonic();
    LaunchWide(f, stream);
    took += hami::region::Load(line->work_until) >= begin ? 1 : 0;
    OK(cuStreamSynchronize(stream));
  }
  if (took * 10 < kRequests * 9) Fail(__FILE__, __LINE__, "of 200 requests took the turn", took, kRequests * 9 / 10);
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
