// SPDX-License-Identifier: Apache-2.0
//
// SIGKILL at random moments of random lives, from the first instruction of an attach to the last free, several at a
// time. Each worker stays within its share of the limit, so the memory of the dead is needed at once: a worker that is
// refused anything fails. After each round the region's books are those of the driver. STRESS_KILLS is how many die.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "simgpu/simgpu.h"
#include "test/stress/harness.h"
#include "test/stress/random.h"

namespace stress {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr int kWorkers = 6;
constexpr uint64_t kQuota = 96 * kMiB;
// Room for everybody's quota and context, and for one more that looks.
constexpr uint64_t kLimit = kWorkers * (kQuota + kContextBytes) + 32 * kMiB;
constexpr uint64_t kPatience = 2'000'000'000;

class Deaths : public testing::Test {
 protected:
  Deaths() : container_(kLimit), random_(FromEnvironment("STRESS_SEED", 1)) {
    server_ = container_.Start("serve", {{"socket", container_.orders_of_guest()},
                                         {"quota", kQuota},
                                         {"rounds", 1u << 30},
                                         {"steps", 1u << 30},
                                         {"contexts", 1},
                                         {"import", 0},
                                         {"largest", 16 * kMiB}});
  }
  ~Deaths() override {
    for (const auto& [pid, cell] : cells_) kill(pid, SIGKILL);
    kill(server_, SIGKILL);
    Container::Wait(server_);
  }

  void Order(int cell) {
    const struct { uint64_t cell, seed; } order{static_cast<uint64_t>(cell), random_.Next() >> 20};
    Cell& mine = container_.board().cells[cell];
    mine.reached = 0;
    mine.longest_ns = 0;
    mine.imported = 0;
    int64_t pid = 0;
    ASSERT_EQ(send(container_.orders(), &order, sizeof order, 0), static_cast<ssize_t>(sizeof order));
    ASSERT_EQ(recv(container_.orders(), &pid, sizeof pid, 0), static_cast<ssize_t>(sizeof pid));
    cells_[static_cast<pid_t>(pid)] = cell;
  }

  // Kills some; returns their cells when they are gone.
  std::vector<int> KillSome() {
    std::vector<int> free_cells;
    const uint64_t many = random_.Below(kWorkers) + 1;
    std::vector<pid_t> dying;
    for (uint64_t i = 0; i < many && !cells_.empty(); ++i) {
      auto victim = cells_.begin();
      std::advance(victim, static_cast<std::ptrdiff_t>(random_.Below(cells_.size())));
      kill(victim->first, SIGKILL);
      dying.push_back(victim->first);
      free_cells.push_back(victim->second);
      cells_.erase(victim);
      if (random_.OneIn(2)) SleepUs(random_.Below(300));
    }
    for (const pid_t pid : dying) {
      while (kill(pid, 0) == 0) SleepUs(50);  // the server collects it
      for (Box& box : container_.board().boxes) {
        if (box.owner == pid) box.owner = 0;
        if (box.lock == pid) box.lock = 0;
      }
    }
    return free_cells;
  }

  // Stops everybody who lives and compares. The promise is one second.
  void Inspect(bool also_fresh) {
    container_.board().pause = 1;
    const uint64_t from = MonotonicNs();
    ASSERT_EQ(container_.AwaitBarrier(cells_, 30), "");
    slowest_stop_ = std::max(slowest_stop_, MonotonicNs() - from);
    std::string wrong;
    const uint64_t deadline = MonotonicNs() + 1'000'000'000;
    do {
      wrong = container_.Compare(cells_);
    } while (!wrong.empty() && MonotonicNs() < deadline);
    ASSERT_EQ(wrong, "");
    for (const auto& [pid, cell] : cells_) {
      slowest_call_ = std::max<uint64_t>(slowest_call_, container_.board().cells[cell].longest_ns);
    }
    if (also_fresh) InspectFromInside();
  }

  void InspectFromInside() {
    uint64_t living = 0;
    for (const auto& [pid, cell] : cells_) living += simgpu_process_bytes(0, pid);
    const std::string wanted = std::to_string(living) + "\n";
    const uint64_t deadline = MonotonicNs() + 1'000'000'000;
    Finished seen;
    do {
      seen = container_.Run("seen", {});
      ASSERT_EQ(seen.status, 0);
    } while (seen.out != wanted && MonotonicNs() < deadline);
    EXPECT_EQ(seen.out, wanted);
  }

  Container container_;
  Random random_;
  pid_t server_ = -1;
  std::map<pid_t, int> cells_;
  uint64_t slowest_stop_ = 0, slowest_call_ = 0;
};

TEST_F(Deaths, GivenRandomWorkerKills_ThenBooksMatchDriverAndNobodyWaits) {
  const uint64_t kills = FromEnvironment("STRESS_KILLS", 2'000);
  // What a context costs is learnt once.
  Order(0);
  ASSERT_EQ(container_.AwaitBarrier(cells_, 30), "");
  for (int i = 1; i < kWorkers; ++i) Order(i);
  uint64_t dead = 0;
  uint64_t round = 0;
  for (; dead < kills && !HasFatalFailure(); ++round) {
    container_.board().pause = 0;
    container_.OpenBarrier();
    SleepUs(random_.Below(4'000));
    const std::vector<int> free_cells = KillSome();
    dead += free_cells.size();
    Inspect(round % 64 == 0);
    for (const int cell : free_cells) Order(cell);
  }
  std::printf("%llu killed in %llu rounds; slowest operation %.0f ms, slowest stop %.0f ms\n",
              static_cast<unsigned long long>(dead), static_cast<unsigned long long>(round),
              static_cast<double>(slowest_call_) / 1e6, static_cast<double>(slowest_stop_) / 1e6);
  EXPECT_LT(slowest_call_, kPatience);
  while (!cells_.empty() && !HasFatalFailure()) KillSome();
  uint64_t left = 0;
  for (const auto& [pid, bytes] : container_.RegionBooks()) left += bytes;
  EXPECT_EQ(left, 0u);
  EXPECT_EQ(simgpu_used_bytes(0), 0u);
}

}  // namespace
}  // namespace stress
