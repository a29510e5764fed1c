// SPDX-License-Identifier: Apache-2.0
//
// The region file is attacked while a process uses it. The process may be refused memory; it must not crash, hang, or
// get more than the limit. Words that state a limit are left alone: a container that may write its file can change its
// own limit, and only an agent outside can see that. A file cut below the words in use is a SIGBUS for whoever maps it,
// which is documented; cut behind them, the next slow path notices.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>

#include "region/layout.h"
#include "simgpu/simgpu.h"
#include "test/stress/harness.h"
#include "test/stress/random.h"

namespace stress {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kLimit = 512 * kMiB;
constexpr uint64_t kPatience = 2'500'000'000;

class Hostile : public testing::Test {
 protected:
  Hostile() : container_(kLimit), random_(FromEnvironment("STRESS_SEED", 1)) {}
  ~Hostile() override {
    if (victim_ > 0) {
      kill(victim_, SIGKILL);
      Container::Wait(victim_);
    }
    if (file_ >= 0) close(file_);
  }

  void StartVictim() {
    victim_ = container_.Start("victim", {});
    ASSERT_TRUE(Rounds(3));
    file_ = open(container_.region().c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(file_, 0);
  }
  // Waits until the victim has lived through so many more rounds. False when it ended, or took too long.
  bool Rounds(uint64_t more) {
    const uint64_t wanted = cell().calls + more;
    const uint64_t deadline = MonotonicNs() + 20'000'000'000;
    while (cell().calls < wanted) {
      siginfo_t info{};
      const bool ended =
          waitid(P_PID, static_cast<id_t>(victim_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == victim_;
      if (ended || MonotonicNs() > deadline) return false;
      SleepUs(500);
    }
    return true;
  }
  void StopVictim() {
    container_.board().stop = 1;
    const Finished finished = Container::Wait(victim_);
    victim_ = -1;
    EXPECT_EQ(finished.status, 0);
    EXPECT_LE(cell().seen_used, kLimit);
    EXPECT_LT(cell().longest_ns, kPatience);
  }
  Cell& cell() { return container_.board().cells[0]; }

  // Random bytes over a random piece of [from, to) that leaves [spare_from, spare_to) alone.
  void Scribble(size_t from, size_t to, size_t spare_from, size_t spare_to) {
    uint8_t bytes[256];
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random_.Below(4) == 0 ? 0 : random_.Next());
    const size_t at = from + random_.Below(to - from - sizeof bytes);
    if (at + sizeof bytes > spare_from && at < spare_to) return;
    ASSERT_EQ(pwrite(file_, bytes, sizeof bytes, static_cast<off_t>(at)), static_cast<ssize_t>(sizeof bytes));
  }

  Container container_;
  Random random_;
  pid_t victim_ = -1;
  int file_ = -1;
};

using hami::region::Region;

TEST_F(Hostile, GivenRandomBytesInWirePart_ThenProcessLivesWithinLimit) {
  StartVictim();
  for (int i = 0; i < 40; ++i) {
    for (int j = 0; j < 16; ++j) {
      Scribble(0, hami::region::kRegionBytes, offsetof(Region, limit), offsetof(Region, sm_limit));
    }
    // The own slot, where it hurts most.
    Scribble(offsetof(Region, slots), offsetof(Region, slots) + 4096, 0, 0);
    ASSERT_TRUE(Rounds(1));
  }
  StopVictim();
}

TEST_F(Hostile, GivenRandomBytesInPrivatePart_ThenProcessLivesWithinLimit) {
  StartVictim();
  for (int i = 0; i < 40; ++i) {
    Scribble(hami::region::kPrivateOffset, hami::region::kPrivateOffset + 8192, 0, 0);
    for (int j = 0; j < 4; ++j) Scribble(hami::region::kPrivateOffset, hami::region::kFileBytes, 0, 0);
    ASSERT_TRUE(Rounds(1)) << "attack " << i;
  }
  StopVictim();
}

TEST_F(Hostile, GivenTheFileDeleted_ThenTheProcessKeepsItsAccount) {
  StartVictim();
  ASSERT_EQ(unlink(container_.region().c_str()), 0);
  ASSERT_TRUE(Rounds(20));
  StopVictim();
}

TEST_F(Hostile, GivenTheFileShrunkBehindTheWordsInUse_ThenTheSlowPathRefuses) {
  StartVictim();
  ASSERT_EQ(ftruncate(file_, static_cast<off_t>(hami::region::kFileBytes - 4096)), 0);
  ASSERT_TRUE(Rounds(3));
  EXPECT_EQ(cell().imported, 0u);  // the blocks of the last round: everything is refused once it was noticed
  StopVictim();
}

TEST_F(Hostile, GivenFileEmptied_ThenProcessEndsBySigbusOrLivesWithinLimit) {
  StartVictim();
  ASSERT_EQ(ftruncate(file_, 0), 0);
  if (Rounds(3)) {
    StopVictim();
    return;
  }
  const Finished finished = Container::Wait(victim_);
  victim_ = -1;
  EXPECT_TRUE(WIFSIGNALED(finished.status) && WTERMSIG(finished.status) == SIGBUS) << finished.status;
  EXPECT_LE(cell().seen_used, kLimit);
}

// A newcomer to a file that is no region must not map it, crash or go unlimited: limits are then its own.
TEST_F(Hostile, GivenAFileThatIsNoRegion_ThenANewProcessIsLimitedAllTheSame) {
  const int fd = open(container_.region().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  ASSERT_GE(fd, 0);
  uint8_t bytes[4096];
  for (size_t at = 0; at < hami::region::kFileBytes; at += sizeof bytes) {
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random_.Next());
    ASSERT_EQ(pwrite(fd, bytes, sizeof bytes, static_cast<off_t>(at)), static_cast<ssize_t>(sizeof bytes));
  }
  close(fd);
  StartVictim();
  StopVictim();
}

TEST_F(Hostile, GivenATruncatedRegion_ThenANewProcessIsLimitedAllTheSame) {
  StartVictim();
  StopVictim();
  container_.board().stop = 0;
  ASSERT_EQ(ftruncate(file_, static_cast<off_t>(random_.Below(hami::region::kRegionBytes))), 0);
  close(file_);
  StartVictim();
  StopVictim();
}

}  // namespace
}  // namespace stress
