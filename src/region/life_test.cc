// SPDX-License-Identifier: Apache-2.0
//
// Who counts as alive where little tells of it: closed descriptors, another pid namespace, a main thread that has
// ended.
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "region/process.h"
#include "region/table.h"
#include "region/testing/region.h"

namespace hami::region {
namespace {

void CloseAll() {
  constexpr int kAll = 4096;
  for (int fd = 3; fd < kAll; ++fd) close(fd);
}

// Runs `body` as the first process of a new pid namespace. -1 where that is not allowed.
template <typename Body>
pid_t SpawnNested(Body body) {
  return Spawn([&] {
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return 99;
    const pid_t inner = Spawn(body);
    return Join(inner);
  });
}

class LifeTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(Attach(&attachment_, path_.c_str(), TestConfig()), Status::kOk); }
  // A word that survives the closing of descriptors.
  static std::atomic<int>& Word() {
    static void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return *static_cast<std::atomic<int>*>(page);
  }
  static bool AwaitWord(int value) {
    for (int tries = 0; tries < 20'000 && Word() != value; ++tries) usleep(1000);
    return Word() == value;
  }
  // In a child: an account of its own with 300 bytes.
  int Hold() {
    AttachmentAfterFork(&attachment_);
    return Reserve(&attachment_, 0, 300, Kind::kData) == Status::kOk ? 0 : 1;
  }
  // Until the dead are swept out.
  uint64_t UsedInTheEnd() {
    for (int tries = 0; tries < 2000 && Used(attachment_, 0) != 0; ++tries) {
      Sweep(&attachment_);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Used(attachment_, 0);
  }
  [[noreturn]] static void Stay() {
    for (;;) pause();
  }

  const TempFolder folder_;
  const std::string path_ = folder_ / "a.cache";
  Attached attachment_;
};

TEST_F(LifeTest, GivenANestedNamespaceWithoutDescriptors_ThenItLives) {
  Word() = 0;
  const pid_t outer = SpawnNested([&] {
    if (Hold() != 0) return 1;
    CloseAll();
    Word() = 1;
    while (Word() != 2) usleep(1000);
    return 0;
  });
  if (!AwaitWord(1)) GTEST_SKIP() << "no pid namespaces here: " << Join(outer);
  EXPECT_EQ(Sweep(&attachment_), 0);
  EXPECT_EQ(Used(attachment_, 0), 300U);
  EXPECT_EQ(Reserve(&attachment_, 0, 701, Kind::kData), Status::kOverLimit);
  Word() = 2;
  EXPECT_EQ(Join(outer), 0);
  EXPECT_EQ(UsedInTheEnd(), 0U);
}

TEST_F(LifeTest, GivenANestedProcessThatBecomesAnother_ThenItsMemoryComesBack) {
  Word() = 0;
  const pid_t outer = SpawnNested([&] {
    if (Hold() != 0) return 1;
    CloseAll();
    Word() = 1;
    execlp("sleep", "sleep", "30", nullptr);
    return 3;
  });
  if (!AwaitWord(1)) GTEST_SKIP() << "no pid namespaces here: " << Join(outer);
  EXPECT_EQ(UsedInTheEnd(), 0U);
  kill(outer, SIGKILL);
  Join(outer);
}

TEST_F(LifeTest, GivenAForkedChildThatOutlivesItsParent_ThenTheParentIsDead) {
  Word() = 0;
  const pid_t outer = SpawnNested([&] {
    const pid_t parent = Spawn([&] {
      if (Hold() != 0) return 1;
      CloseAll();
      if (fork() == 0) Stay();
      return 0;
    });
    if (Join(parent) != 0) return 1;
    Word() = 1;
    while (Word() != 2) usleep(1000);
    return 0;  // and with it ends all of its namespace
  });
  if (!AwaitWord(1)) GTEST_SKIP() << "no pid namespaces here: " << Join(outer);
  EXPECT_EQ(UsedInTheEnd(), 0U);
  Word() = 2;
  EXPECT_EQ(Join(outer), 0);
}

class MainThreadTest : public LifeTest, public ::testing::WithParamInterface<bool> {};

TEST_P(MainThreadTest, GivenAMainThreadThatEnded_ThenTheProcessLives) {
  Word() = 0;
  const pid_t child = Spawn([&] {
    if (Hold() != 0) return 1;
    if (GetParam()) CloseAll();
    pthread_t other;
    pthread_create(
        &other, nullptr,
        [](void*) -> void* {
          usleep(50'000);  // the main thread is gone by then
          Word() = 1;
          while (Word() != 2) usleep(1000);
          _exit(0);
        },
        nullptr);
    syscall(SYS_exit, 0);  // of this thread alone, as pthread_exit does in the end
    return 2;
  });
  ASSERT_TRUE(AwaitWord(1));
  EXPECT_EQ(ReadProcessStat(child).presence, Presence::kThere);
  EXPECT_EQ(Sweep(&attachment_), 0);
  EXPECT_EQ(Used(attachment_, 0), 300U);
  EXPECT_EQ(Reserve(&attachment_, 0, 701, Kind::kData), Status::kOverLimit);
  Word() = 2;
  EXPECT_EQ(Join(child), 0);
  EXPECT_EQ(UsedInTheEnd(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Descriptors, MainThreadTest, ::testing::Bool(),
                         [](const auto& closed) { return closed.param ? "closed" : "open"; });

// The other way round: a process whose own main thread has ended judges others rightly.
TEST_F(LifeTest, GivenSweeperWithoutMainThread_ThenOnlyTheDeadAreSwept) {
  Word() = 0;
  const pid_t dead = Spawn([&] { return Hold(); });
  ASSERT_EQ(Join(dead), 0);
  ASSERT_EQ(Reserve(&attachment_, 0, 500, Kind::kData), Status::kOk);
  static Attachment* sweeper = nullptr;
  sweeper = &attachment_;
  const pid_t child = Spawn([&] {
    AttachmentAfterFork(&attachment_);
    pthread_t other;
    pthread_create(
        &other, nullptr,
        [](void*) -> void* {
          usleep(50'000);
          Sweep(sweeper);
          _exit(Used(*sweeper, 0) == 500 ? 0 : 4);
        },
        nullptr);
    syscall(SYS_exit, 0);
    return 2;
  });
  EXPECT_EQ(Join(child), 0);
}

}  // namespace
}  // namespace hami::region
