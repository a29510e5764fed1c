// SPDX-License-Identifier: Apache-2.0
//
// Random lives of processes and threads over all allocation paths, in one container. STRESS_SEED is the first seed and
// STRESS_COUNT the number of seeds of each shape; a failure prints the seed and the operations.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <ostream>

#include "simgpu/simgpu.h"
#include "test/stress/harness.h"
#include "test/stress/random.h"

namespace stress {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

struct Shape {
  const char* name;
  int processes = 1;
  uint64_t threads = 1;
  uint64_t rounds = 4;
  uint64_t steps = 200;
  uint64_t limit = 512 * kMiB;
  uint64_t quota = 0;  // of a process; 0: greedy
  uint64_t slack = 0;  // what measured memory may take beyond the limit for a moment
  bool exact = false, measured = false, contexts = false, fork = false, import = false, arrays = false;
  bool kill = false;
  const char* fault = nullptr;  // of the driver, as docs/develop/simgpu.md has them

  friend void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }
};

constexpr uint64_t kSettlesNs = 1'000'000'000;  // after a death

class Life {
 public:
  Life(const Shape& shape, uint64_t seed) : shape_(shape), seed_(seed), random_(seed), container_(shape.limit) {}

  ~Life() { simgpu_inject("clear", nullptr, 0); }
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;

  // Empty, or what went wrong.
  std::string Run() {
    if (shape_.fault != nullptr && simgpu_inject(shape_.fault, nullptr, 0) != 1) return "no such fault";
    for (int i = 0; i < shape_.processes; ++i) {
      StartOne(i);
    }
    std::string wrong;
    // One barrier before the first round, one after each, and one when all is freed.
    for (uint64_t barrier = 0; barrier < shape_.rounds + 2 && wrong.empty(); ++barrier) {
      if (shape_.kill && barrier > 1 && barrier <= shape_.rounds) KillOne();
      wrong = container_.AwaitBarrier(cells_, 60);
      if (wrong.empty()) wrong = container_.Compare(cells_, shape_.kill ? kSettlesNs : 0);
      if (!wrong.empty()) container_.board().failed = 1;
      container_.OpenBarrier();
    }
    for (const auto& [pid, cell] : cells_) {
      if (!wrong.empty()) EndWithin(pid, 5'000);
      const Finished finished = Container::Wait(pid);
      if (finished.status != 0 && wrong.empty()) {
        wrong = "process " + std::to_string(pid) + " ended with " + std::to_string(finished.status);
      }
    }
    if (watcher_.highest() > shape_.limit + shape_.slack) {
      wrong += "\nthe driver's books once showed " + std::to_string(watcher_.highest()) + " under a limit of " +
               std::to_string(shape_.limit);
    }
    if (wrong.empty() && simgpu_used_bytes(0) != 0) wrong = "the driver holds memory at the end";
    for (const auto& [pid, bytes] : container_.RegionBooks()) {
      if (bytes != 0 && wrong.empty()) wrong = "the region holds memory at the end";
    }
    return wrong;
  }

 private:
  void StartOne(int cell) {
    const pid_t pid = container_.Start("live", {{"seed", seed_ * 100 + static_cast<uint64_t>(cell)},
                                                {"cell", cell},
                                                {"threads", shape_.threads},
                                                {"rounds", shape_.rounds},
                                                {"steps", shape_.steps},
                                                {"quota", shape_.quota},
                                                {"audit", !shape_.measured},
                                                {"exact", shape_.exact},
                                                {"measured", shape_.measured},
                                                {"contexts", shape_.contexts},
                                                {"fork", shape_.fork},
                                                {"import", shape_.import},
                                                {"arrays", shape_.arrays},
                                                {"watch", shape_.kill ? 0 : shape_.limit + shape_.slack},
                                                {"wire", container_.wire(cell % 2)}});
    cells_[pid] = cell;
  }

  // A failed round ends with each process printing what it did; one that does not get there is ended.
  static void EndWithin(pid_t pid, int ms) {
    siginfo_t info{};
    for (int i = 0; i < ms; ++i) {
      if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid) return;
      SleepUs(1000);
    }
    kill(pid, SIGKILL);
  }

  void KillOne() {
    SleepUs(random_.Below(20'000));
    auto victim = cells_.begin();
    std::advance(victim, static_cast<std::ptrdiff_t>(random_.Below(cells_.size())));
    watcher_.Blind(true);
    container_.board().blind = 1;
    kill(victim->first, SIGKILL);
    Container::Wait(victim->first);
    for (Box& box : container_.board().boxes) {
      if (box.lock == victim->first) box.lock = 0;
      if (box.owner == victim->first) box.owner = 0;
    }
    cells_.erase(victim);
    SleepUs(20'000);
    simgpu_used_bytes(0);  // the driver looks for the dead when it is asked
    container_.board().blind = 0;
    watcher_.Blind(false);
  }

  const Shape& shape_;
  uint64_t seed_;
  Random random_;
  Container container_;
  Watcher watcher_;
  std::map<pid_t, int> cells_;
};

class Property : public testing::TestWithParam<Shape> {};

TEST_P(Property, GivenRandomLives_ThenTheBooksAgreeAndTheLimitHolds) {
  const uint64_t first = FromEnvironment("STRESS_SEED", 1);
  const uint64_t count = FromEnvironment("STRESS_COUNT", 2);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const std::string wrong = Life(GetParam(), seed).Run();
    ASSERT_EQ(wrong, "") << GetParam().name << ", STRESS_SEED=" << seed;
  }
}

const Shape kShapes[] = {
    {.name = "alone", .steps = 400, .exact = true, .fork = true, .arrays = true},
    {.name = "alone_measured",
     .steps = 300,
     .slack = 64 * kMiB,
     .exact = true,
     .measured = true,
     .contexts = true,
     .fork = true,
     .arrays = true},
    {.name = "threads_modest", .threads = 4, .steps = 300, .limit = 1024 * kMiB, .quota = 640 * kMiB, .fork = true},
    {.name = "threads_greedy", .threads = 4, .steps = 300, .fork = true, .arrays = true},
    {.name = "threads_contexts", .threads = 4, .limit = 1024 * kMiB, .quota = 640 * kMiB, .contexts = true},
    {.name = "threads_measured", .threads = 4, .slack = 64 * kMiB, .measured = true, .contexts = true},
    // Somebody is often in the driver for longer than a measurement waits.
    {.name = "threads_measured_slowly",
     .threads = 4,
     .slack = 64 * kMiB,
     .measured = true,
     .contexts = true,
     .fault = "fault call=cuMemFree_v2 delay_ms=150 percent=3"},
    {.name = "processes_modest",
     .processes = 4,
     .threads = 2,
     .limit = 1024 * kMiB,
     .quota = 128 * kMiB,
     .fork = true,
     .import = true},
    {.name = "processes_greedy", .processes = 4, .threads = 2, .fork = true, .import = true, .arrays = true},
    {.name = "processes_contexts", .processes = 6, .threads = 2, .rounds = 5, .contexts = true, .import = true},
    {.name = "processes_killed",
     .processes = 6,
     .threads = 2,
     .rounds = 5,
     .contexts = true,
     .import = true,
     .kill = true},
};

INSTANTIATE_TEST_SUITE_P(Shapes, Property, testing::ValuesIn(kShapes),
                         [](const testing::TestParamInfo<Shape>& shape) { return std::string(shape.param.name); });

}  // namespace
}  // namespace stress
