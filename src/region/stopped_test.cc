// SPDX-License-Identifier: Apache-2.0
//
// A process that is stopped (a debugger, Ctrl-Z) between any two stores that belong together, at every kill point in
// turn. The others go on, and when it goes on, too, the books are right and the limit has held.
#include <atomic>
#include <csignal>
#include <thread>

#include "region/process.h"
#include "region/reader.h"
#include "region/table.h"
#include "region/testing/kill_point_hook.h"
#include "region/testing/region.h"

namespace hami::region {
namespace {

std::atomic<int> stop_at_point{0};
void (*when_it_goes_on)() = nullptr;  // in the thread that was stopped

}  // namespace

void KillPoint(int number) {
  int wanted = number;
  if (!stop_at_point.compare_exchange_strong(wanted, 0)) return;
  raise(SIGSTOP);
  if (when_it_goes_on != nullptr) when_it_goes_on();
}

namespace {

constexpr uint64_t kLimit = 1000;
constexpr uint64_t kTheirs = 400;
constexpr uint64_t kOurs = 700;
constexpr int kKillPoints = 43;
// What the documentation says of any wait; on a machine that is not too busy a fraction of it.
constexpr int64_t kLongestWait = 2'000'000'000;

enum class Script { kReserve, kRefund, kAttach, kSweep };

struct Board {
  std::atomic<int> step;  // 1: ready, 2: done, 3: may end
  std::atomic<uint64_t> held;
};

class StoppedTest : public ::testing::TestWithParam<int> {
 protected:
  static Board& OnBoard() {
    static void* const page = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return *static_cast<Board*>(page);
  }
  void SetUp() override { ASSERT_EQ(Attach(&attachment_, path_.c_str(), TestConfig(kLimit)), Status::kOk); }

  // The child's part; it stops in the middle if the script comes by the point.
  int Act(Script script) {
    Board& board = OnBoard();
    AttachmentAfterFork(&attachment_);
    if (script != Script::kAttach && EnsureSlot(&attachment_) != Status::kOk) return 1;
    if (script == Script::kRefund && Reserve(&attachment_, 0, kTheirs, Kind::kData) != Status::kOk) return 2;
    board.held = script == Script::kRefund ? kTheirs : 0;
    board.step = 1;
    stop_at_point = GetParam();
    if (script == Script::kReserve || script == Script::kAttach) {
      if (Reserve(&attachment_, 0, kTheirs, Kind::kData) == Status::kOk) board.held = kTheirs;
    } else if (script == Script::kRefund) {
      if (Refund(&attachment_, 0, kTheirs, Kind::kData) != Status::kOk) return 3;
      board.held = 0;
    } else {
      Sweep(&attachment_);
    }
    stop_at_point = 0;
    board.step = 2;
    while (board.step != 3) usleep(200);
    return 0;
  }

  // Until the child is stopped or has done its part.
  static void AwaitStop(pid_t child) {
    int status = 0;
    while (OnBoard().step != 2 && waitpid(child, &status, WNOHANG | WUNTRACED) == 0) usleep(100);
  }

  void Run(Script script) {
    Board& board = OnBoard();
    board.step = 0;
    const pid_t child = Spawn([&] { return Act(script); });
    AwaitStop(child);
    const bool held_before = board.held != 0 && board.step == 2;

    int64_t begin = MonotonicNanos();
    const Status ours = Reserve(&attachment_, 0, kOurs, Kind::kData);
    EXPECT_LT(MonotonicNanos() - begin, kLongestWait);
    EXPECT_TRUE(ours == Status::kOk || ours == Status::kOverLimit) << StatusName(ours);
    if (held_before) {
      EXPECT_EQ(ours, Status::kOverLimit);
    }
    if (script == Script::kSweep) {
      EXPECT_EQ(ours, Status::kOk);
    }
    begin = MonotonicNanos();
    EXPECT_EQ(Join(Spawn([&] {
                static Attachment other;
                if (Attach(&other, path_.c_str(), TestConfig(kLimit)) != Status::kOk) return 1;
                const Status status = Reserve(&other, 0, 1, Kind::kData);
                Detach(&other);
                return status == Status::kOk || status == Status::kOverLimit ? 0 : 2;
              })),
              0);
    EXPECT_LT(MonotonicNanos() - begin, kLongestWait);

    kill(child, SIGCONT);
    while (board.step != 2 && waitpid(child, nullptr, WNOHANG) == 0) usleep(200);
    const uint64_t mine = ours == Status::kOk ? kOurs : 0;
    EXPECT_LE(mine + board.held, kLimit);
    EXPECT_EQ(Used(attachment_, 0), mine + board.held);
    EXPECT_EQ(Charge(&attachment_, 0, 0, Kind::kData), Status::kOk);
    EXPECT_EQ(attachment_.area->lock, 0U);
    EXPECT_EQ(Refund(&attachment_, 0, mine, Kind::kData), Status::kOk);
    EXPECT_EQ(Used(attachment_, 0), board.held);
    board.step = 3;
    EXPECT_EQ(Join(child), 0);
    EXPECT_EQ(Reserve(&attachment_, 0, kLimit, Kind::kData), Status::kOk);
  }

  const TempFolder folder_;
  const std::string path_ = folder_ / "a.cache";
  Attached attachment_;
};

TEST_P(StoppedTest, GivenAPeerStoppedWhileItReserves_ThenOthersGoOn) { Run(Script::kReserve); }
TEST_P(StoppedTest, GivenAPeerStoppedWhileItGivesBack_ThenOthersGoOn) { Run(Script::kRefund); }
TEST_P(StoppedTest, GivenAPeerStoppedWhileItAttaches_ThenOthersGoOn) { Run(Script::kAttach); }

TEST_P(StoppedTest, GivenAPeerStoppedWhileItSweeps_ThenOthersGoOn) {
  const pid_t dead = Spawn([&] {
    AttachmentAfterFork(&attachment_);
    return Reserve(&attachment_, 0, kOurs, Kind::kData) == Status::kOk ? 0 : 1;
  });
  ASSERT_EQ(Join(dead), 0);
  Run(Script::kSweep);
}

// The lock was taken from the process while it stood, so that another thread of it could have it first.
TEST_P(StoppedTest, GivenTwoThreadsOfAStoppedPeer_ThenBothCount) {
  static std::atomic<bool> go;
  static std::atomic<bool> done;
  Board& board = OnBoard();
  board.step = 0;
  const pid_t child = Spawn([&] {
    AttachmentAfterFork(&attachment_);
    if (Reserve(&attachment_, 0, 1, Kind::kData) != Status::kOk) return 1;
    std::thread other([this] {
      while (!go) usleep(100);
      Refund(&attachment_, 0, 1, Kind::kData);
      done = true;
    });
    when_it_goes_on = [] {
      go = true;
      for (int ms = 0; ms < 20 && !done; ++ms) usleep(1000);
    };
    stop_at_point = GetParam();
    const Status status = Reserve(&attachment_, 0, kTheirs, Kind::kData);
    stop_at_point = 0;
    go = true;
    other.join();
    board.held = OwnUsed(attachment_, 0, Kind::kData);
    board.step = 2;
    while (board.step != 3) usleep(200);
    return status == Status::kOk ? 0 : 2;
  });
  AwaitStop(child);
  EXPECT_EQ(Reserve(&attachment_, 0, 1, Kind::kData), Status::kOk);
  kill(child, SIGCONT);
  while (board.step != 2 && waitpid(child, nullptr, WNOHANG) == 0) usleep(200);
  EXPECT_EQ(board.held, kTheirs);
  EXPECT_EQ(Used(attachment_, 0), kTheirs + 1);
  Snapshot snapshot;
  EXPECT_EQ(ReadSnapshotFile(path_.c_str(), true, &snapshot), Status::kOk);
  EXPECT_EQ(snapshot.devices[0].used, kTheirs + 1);
  board.step = 3;
  EXPECT_EQ(Join(child), 0);
}

INSTANTIATE_TEST_SUITE_P(KillPoints, StoppedTest, ::testing::Range(1, kKillPoints + 1));

}  // namespace
}  // namespace hami::region
