// SPDX-License-Identifier: Apache-2.0
//
// What test/bench/sm.py and test/gpu/suite.py run: the programs whose GPU time is limited, and the judge that looks on.
// A guest finds the driver as a client does (dlopen and dlsym) and knows nothing of limits. It tells how far it is
// through the board, a file that guests, judge and sm.py map; the judge reads what the simulated device itself counts
// (simgpu_busy_ns).
//
//   sm_guest load BOARD SLOT SHAPE SEED JITTER FAKE
//       until the board says stop; FAKE: a limit that it keeps by itself, 0 for none
//   sm_guest requests BOARD SLOT SEED RATE SECONDS [one | warm]
//       Poisson requests of 2 ms GPU time; prints latency and ideal in us. Ten kernels; `one`: a single one whose
//       length is an argument; `warm`: it ran for 0.06 to 0.36 ms at the same grid before
//   sm_guest light BOARD SLOT SECONDS
//       a launch of 1 ms each 20 ms; prints latency and ideal in us
//   sm_guest turns BOARD SLOT COUNT MS
//       kernels of 0.5 ms in turns that slots 0 to COUNT - 1 hand on, until the board says stop
//   sm_guest calibrate BOARD
//       ns of a round of the kernel on a real GPU, which all others want in SM_ROUND_NS
//   sm_guest watch BOARD SLOTS SECONDS INTERVAL_MS
//       the judge: a line for each sample
//
// FAKE is a limiter that cannot be had from outside: it knows what each kernel will take. It shows that the judge
// tells good from bad.

#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "sm_programs.h"

namespace sm {
namespace {

struct Shape {
  const char* name;
  void (*run)(Guest& guest);
};

constexpr Shape kShapes[] = {
    {"tiny", [](Guest& guest) { guest.Async(5 * kMicro); }},
    {"us20", [](Guest& guest) { guest.Async(20 * kMicro); }},
    {"ahead", [](Guest& guest) { guest.Async(100 * kMicro); }},
    {"half", [](Guest& guest) { guest.Bounded(500 * kMicro, 16); }},
    {"sync40us", [](Guest& guest) { guest.Bounded(40 * kMicro, 1); }},
    {"mixed", [](Guest& guest) { guest.Mixed(20 * kMicro, 64); }},
    {"mixed-sync", [](Guest& guest) { guest.Mixed(20 * kMicro, 1); }},
    {"anew", [](Guest& guest) { guest.Anew(80 * kMicro, 64); }},
    {"half-sync", [](Guest& guest) { guest.Bounded(500 * kMicro, 1); }},
    {"sync50", [](Guest& guest) { guest.Bounded(50 * kMilli, 1); }},
    {"sync100", [](Guest& guest) { guest.Bounded(100 * kMilli, 1); }},
    {"long500", [](Guest& guest) { guest.Bounded(500 * kMilli, 2); }},
    {"graph100", [](Guest& guest) { guest.Graphs(100, 20 * kMicro, 4); }},
    {"graph-tiny", [](Guest& guest) { guest.Graphs(100, 5 * kMicro, 16); }},
    {"streams8", [](Guest& guest) { guest.Streams(200 * kMicro); }},
    {"procs8", [](Guest& guest) { guest.Bounded(kMilli, 4); }},
    {"milli", [](Guest& guest) { guest.Bounded(kMilli, 4); }},
    {"host-bound", [](Guest& guest) { guest.HostBound(1, 200 * kMicro, 200 * kMicro); }},
    {"short-sync", [](Guest& guest) { guest.HostBound(1, 60 * kMicro, 500 * kMicro); }},
    {"eager", [](Guest& guest) { guest.Eager(); }},
    {"steps10", [](Guest& guest) { guest.Steps(10 * kMilli); }},
    {"token", [](Guest& guest) { guest.HostBound(20, 20 * kMicro, 300 * kMicro); }},
    {"bursty", [](Guest& guest) { guest.Bursts(250 * kMilli, 50, kMilli); }},
};

int Load(Guest& guest, const std::string& name) {
  const auto* const shape = std::ranges::find(kShapes, name, &Shape::name);
  if (shape == std::end(kShapes)) {
    std::fprintf(stderr, "sm_guest: no shape is called %s\n", name.c_str());
    return 2;
  }
  guest.Begin();
  shape->run(guest);
  return 0;
}

}  // namespace
}  // namespace sm

int main(int argc, char** argv) {
  using namespace sm;
  prctl(PR_SET_TIMERSLACK, 1);
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // a benchmark that is killed leaves no load behind
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "load" && argc == 8) {
    Guest guest(Board::Map(argv[2]), std::atoi(argv[3]), std::strtoull(argv[5], nullptr, 10), std::atof(argv[6]),
                std::atof(argv[7]));
    return Load(guest, argv[4]);
  }
  if (what == "calibrate" && argc == 3) {
    Guest guest(Board::Map(argv[2]), 0, 1, 0, 0);
    std::printf("%.6f\n", guest.RoundNs());
    return 0;
  }
  if (what == "light" && argc == 5) {
    Guest guest(Board::Map(argv[2]), std::atoi(argv[3]), 1, 0, 0);
    guest.Begin();
    guest.Light(kMilli, 20 * kMilli, std::atof(argv[4]));
    return 0;
  }
  if (what == "turns" && argc == 6) {
    Guest guest(Board::Map(argv[2]), std::atoi(argv[3]), 1, 0, 0);
    guest.Begin();
    guest.InTurns(std::atoi(argv[3]), std::atoi(argv[4]), static_cast<Nanos>(std::atof(argv[5]) * kMilli));
    return 0;
  }
  const std::string how = argc > 7 ? argv[7] : "";
  if (what == "requests" && (argc == 7 || (argc == 8 && (how == "one" || how == "warm")))) {
    Guest guest(Board::Map(argv[2]), std::atoi(argv[3]), std::strtoull(argv[4], nullptr, 10), 0, 0);
    guest.Begin();
    guest.Requests(std::atof(argv[5]), std::atof(argv[6]), how);
    return 0;
  }
  if (what == "watch" && argc == 6) {
    return Watch(Board::Map(argv[2]), static_cast<std::size_t>(std::atoi(argv[3])), std::atof(argv[4]),
                 std::atof(argv[5]));
  }
  std::fprintf(stderr, "sm_guest: see the head of test/bench/sm_guest.cc\n");
  return 2;
}
