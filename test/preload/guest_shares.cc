// SPDX-License-Identifier: Apache-2.0
#include "test/preload/guest_shares.h"

#include <sched.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "test/preload/guest_kernels.h"

namespace guest {
void BeginAhead() {
  const sched_param lowest{1};
  (void)sched_setscheduler(0, SCHED_RR, &lowest);
  Begin();
}

double Starved(const std::string& pid) {
  double waited = 0;
  std::error_code gone;  // a process or a thread of it
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + pid + "/task", gone)) {
    double ran = 0, wait = 0;
    std::ifstream(task.path() / "schedstat") >> ran >> wait;
    waited += wait / 1e9;
  }
  return waited;
}

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

void ExpectShare(double share, const std::string& want, const std::string& tolerance) {
  ExpectShare(share, std::strtod(want.c_str(), nullptr), std::strtod(tolerance.c_str(), nullptr));
}

}  // namespace guest
