// SPDX-License-Identifier: Apache-2.0
// The machine's books and its processes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdio>
#include <vector>

#include "simgpu/machine/life_line.h"
#include "simgpu/machine/state.h"
#include "simgpu/machine/testing/machine.h"

namespace simgpu {
namespace {

using ::testing::HasSubstr;

TEST_F(MachineTest, GivenCharges_WhenRefunded_ThenTheBooksAreExact) {
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              CHECK_OR(1, m.device_count() == 2);
              const std::uint64_t total = m.spec(0).total_bytes;
              CHECK_OR(2, m.FreeBytes(0) == total);
              CHECK_OR(3, m.Charge(0, 300 * kMiB, Use::kContext) && m.Charge(0, 5, Use::kData));
              CHECK_OR(4, m.UsedBytes(0) == 300 * kMiB + 5 && m.FreeBytes(0) == total - 300 * kMiB - 5);
              CHECK_OR(5, m.ProcessBytes(0, Use::kContext) == 300 * kMiB && m.ProcessBytes(0, Use::kData) == 5);
              CHECK_OR(6, m.UsedBytes(1) == 0);
              m.Refund(0, 5, Use::kData);
              m.Refund(0, 1000 * kMiB, Use::kContext);  // more than held: cut
              CHECK_OR(7, m.UsedBytes(0) == 0);
              return 0;
            }));
}

TEST_F(MachineTest, GivenFullDevice_WhenMoreAsked_ThenRefusedToTheByteNoOverflow) {
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              const std::uint64_t total = m.TotalBytes(0);
              CHECK_OR(1, !m.Charge(0, total + 1, Use::kData));
              CHECK_OR(2, m.Charge(0, total, Use::kData));
              CHECK_OR(3, !m.Charge(0, 1, Use::kData));
              CHECK_OR(4, !m.Charge(0, ~std::uint64_t{0}, Use::kData));
              CHECK_OR(5, m.UsedBytes(0) == total && m.FreeBytes(0) == 0);
              CHECK_OR(6, !m.Charge(-1, 1, Use::kData) && !m.Charge(2, 1, Use::kData));
              return 0;
            }));
}

// A GPU does not wait for a program that is stopped, wherever that was.
TEST_F(MachineTest, GivenProcessStoppedInLock_ThenOthersGoOnAndItStaysStopped) {
  for (const bool arbiter : {false, true}) {
    EXPECT_EQ(0, InChild([arbiter] {
                Machine& m = Machine::Get();
                CHECK_OR(1, m.Charge(0, 7, Use::kData));
                const pid_t stopped = fork();
                if (stopped == 0) {
                  alarm(50);
                  Machine& own = Machine::Get();
                  if (own.slot() < 0) _exit(1);
                  if (arbiter) {
                    own.LockArbiter(0);
                    raise(SIGSTOP);
                    own.UnlockArbiter(0);
                  } else {
                    const StateLock lock(own.state());
                    raise(SIGSTOP);
                  }
                  _exit(0);
                }
                int status = 0;
                CHECK_OR(2, waitpid(stopped, &status, WUNTRACED) == stopped && WIFSTOPPED(status));
                m.LockArbiter(0);
                m.UnlockArbiter(0);
                CHECK_OR(3, m.UsedBytes(0) == 7);
                // It may have come to its end in the time that it was given.
                CHECK_OR(4, waitpid(stopped, &status, WUNTRACED) == stopped);
                if (WIFSTOPPED(status)) {
                  kill(stopped, SIGCONT);
                  CHECK_OR(5, waitpid(stopped, &status, 0) == stopped);
                }
                CHECK_OR(6, WIFEXITED(status) && WEXITSTATUS(status) == 0);
                return 0;
              }));
  }
}

TEST_F(MachineTest, GivenKillInMidFlight_WhenAnybodyLooks_ThenItsMemoryIsBack) {
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              CHECK_OR(1, m.Charge(0, 7, Use::kData));
              Victim victim([] {
                if (!Machine::Get().Charge(0, 1000 * kMiB, Use::kData)) _exit(1);
                Machine::Get().AddContext(0);
              });
              CHECK_OR(2, m.UsedBytes(0) == 1000 * kMiB + 7);
              ProcessUsage list[4];
              CHECK_OR(3, m.Processes(0, list, 4) == 2);
              CHECK_OR(4, m.ProcessBytes(0, victim.pid) == 1000 * kMiB);
              victim.Kill();
              CHECK_OR(5, m.UsedBytes(0) == 7);
              CHECK_OR(6, m.Processes(0, list, 4) == 1);
              return 0;
            }));
}

TEST_F(MachineTest, GivenManyKilledWhileCharging_WhenAllGone_ThenNothingIsLeft) {
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              for (unsigned round = 0; round < 12; ++round) {
                std::vector<pid_t> pids;
                for (int i = 0; i < 4; ++i) {
                  const pid_t pid = fork();
                  if (pid == 0) {
                    for (std::uint64_t n = 1;; n = n * 5 % 1021) {
                      if (Machine::Get().Charge(0, n * kMiB, Use::kData))
                        Machine::Get().Refund(0, n * kMiB, Use::kData);
                      const SharedId id = Machine::Get().CreateShared(1, n, Use::kData);
                      Machine::Get().DropHolder(id);
                    }
                  }
                  pids.push_back(pid);
                }
                usleep(3000 + round * 711);
                for (const pid_t pid : pids) kill(pid, SIGKILL);
                for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
                CHECK_OR(1, m.UsedBytes(0) == 0 && m.UsedBytes(1) == 0);
                CHECK_OR(2, m.FreeBytes(0) == m.spec(0).total_bytes);
              }
              return 0;
            }));
}

TEST_F(MachineTest, GivenAFork_WhenTheChildCharges_ThenItHasBooksOfItsOwn) {
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              CHECK_OR(1, m.Charge(0, 100, Use::kData));
              const int parent_slot = m.slot();
              const int code = InChild([parent_slot] {
                Machine& c = Machine::Get();
                CHECK_OR(1, c.slot() != parent_slot);
                CHECK_OR(2, c.ProcessBytes(0) == 0);
                CHECK_OR(3, c.Charge(0, 11, Use::kData) && c.UsedBytes(0) == 111);
                c.Refund(0, 100, Use::kData);  // can not give back what is the parent's
                CHECK_OR(4, c.UsedBytes(0) == 100);
                return 0;
              });
              CHECK_OR(10 + code, code == 0);
              CHECK_OR(2, m.UsedBytes(0) == 100 && m.ProcessBytes(0) == 100);
              return 0;
            }));
}

TEST_F(MachineTest, GivenSharedObject_WhenCreatorDies_ThenLivesWithOtherHolder) {
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              int ids[2];
              CHECK_OR(1, pipe(ids) == 0);
              Victim victim([&ids] {
                Machine& c = Machine::Get();
                if (!c.Charge(0, 64 * kMiB, Use::kData)) _exit(1);
                const SharedId id = c.ShareCharged(0, 64 * kMiB, Use::kData);
                if (write(ids[1], &id, sizeof id) != sizeof id) _exit(1);
              });
              SharedId id = 0;
              CHECK_OR(2, read(ids[0], &id, sizeof id) == sizeof id && id != 0);
              CHECK_OR(3, m.UsedBytes(0) == 64 * kMiB && m.ProcessBytes(0) == 0);
              CHECK_OR(4, m.AddHolder(id) && m.AddHolder(id) && m.Holders(id) == 2);
              CHECK_OR(5, m.UsedBytes(0) == 64 * kMiB);
              victim.Kill();
              CHECK_OR(6, m.UsedBytes(0) == 64 * kMiB && m.ProcessBytes(0) == 64 * kMiB && m.Holders(id) == 1);
              m.DropHolder(id);
              CHECK_OR(7, m.UsedBytes(0) == 0 && !m.AddHolder(id));
              return 0;
            }));
}

TEST_F(MachineTest, GivenExec_WhenNewProgramAttaches_ThenOldOnesMemoryIsFree) {
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              const pid_t pid = fork();
              if (pid == 0) {
                if (!Machine::Get().Charge(0, 500, Use::kData)) _exit(1);
                execl("/bin/sleep", "sleep", "30", static_cast<char*>(nullptr));
                _exit(1);
              }
              // The shell-less sleep never attaches: only its changed stack tells.
              bool free = false;
              for (int i = 0; i < 2000 && !free; ++i) {
                usleep(2000);
                char link[64], target[256];
                std::snprintf(link, sizeof link, "/proc/%d/exe", static_cast<int>(pid));
                const ssize_t n = readlink(link, target, sizeof target - 1);
                if (n <= 0) continue;
                if (std::string(target, static_cast<std::size_t>(n)).find("sleep") == std::string::npos) continue;
                m.Reap();
                free = m.UsedBytes(0) == 0;
              }
              kill(pid, SIGKILL);
              waitpid(pid, nullptr, 0);
              return free ? 0 : 1;
            }));
}

// A process that is the first one of a pid namespace of its own, as in a container. Its pid here is that of the child
// which waits for it; 0 where such namespaces are not allowed.
pid_t Contained(int ready, const std::function<void()>& body) {
  const pid_t outer = fork();
  if (outer != 0) return outer;
  alarm(50);
  if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
    _exit(write(ready, "-", 1) == 1 ? 0 : 1);
  }
  const pid_t inner = fork();
  if (inner == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    if (write(ready, "x", 1) != 1) _exit(1);
    while (true) pause();
  }
  waitpid(inner, nullptr, 0);
  _exit(0);
}

TEST_F(MachineTest, GivenOtherPidNamespace_WhenKilled_ThenMemoryIsBackOnlyThen) {
  const int code = InChild([] {
    Machine& m = Machine::Get();
    CHECK_OR(1, m.Charge(0, 7, Use::kData));
    int ready[2];
    CHECK_OR(2, pipe(ready) == 0);
    const pid_t pid = Contained(ready[1], [] {
      if (!Machine::Get().Charge(0, 1000 * kMiB, Use::kData)) _exit(1);
    });
    char c = 0;
    CHECK_OR(3, read(ready[0], &c, 1) == 1);
    if (c == '-') return 99;
    m.Reap();
    CHECK_OR(4, m.UsedBytes(0) == 1000 * kMiB + 7);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    for (int i = 0; i < 5000 && m.UsedBytes(0) != 7; ++i) {  // the kernel buries it after its parent
      usleep(1000);
      m.Reap();
    }
    CHECK_OR(5, m.UsedBytes(0) == 7);
    return 0;
  });
  if (code == 99) GTEST_SKIP() << "pid namespaces are not allowed here";
  EXPECT_EQ(0, code);
}

TEST_F(MachineTest, GivenForkedChildThatStays_WhenParentDies_ThenLifeLineIsFree) {
  EXPECT_EQ(0, InChild([] {
              CHECK_OR(1, Machine::Get().slot() == 0);
              int child_pipe[2];
              CHECK_OR(2, pipe(child_pipe) == 0);
              Victim parent([&child_pipe] {
                if (Machine::Get().slot() != 1) _exit(1);
                const pid_t child = fork();
                if (child == 0) {
                  while (true) pause();
                }
                if (write(child_pipe[1], &child, sizeof child) != sizeof child) _exit(1);
              });
              pid_t child = 0;
              CHECK_OR(3, read(child_pipe[0], &child, sizeof child) == sizeof child);
              CHECK_OR(4, LifeLineHeld(0) && LifeLineHeld(1) && !LifeLineHeld(2));
              parent.Kill();
              const bool free = !LifeLineHeld(1);
              const bool stays = kill(child, 0) == 0;
              kill(child, SIGKILL);
              return free && stays ? 0 : 5;
            }));
}

TEST_F(MachineTest, GivenFirstComers_WhenAllAttachAtOnce_ThenOneMachineServesAll) {
  EXPECT_EQ(0, InChild([] {
              int go[2];
              CHECK_OR(1, pipe(go) == 0);
              std::vector<pid_t> pids;
              constexpr int kProcesses = 60;
              for (int i = 0; i < kProcesses; ++i) {
                const pid_t pid = fork();
                if (pid == 0) {
                  close(go[1]);
                  char c = 0;
                  if (read(go[0], &c, 1) != 0) _exit(3);  // end of file starts us all
                  Machine& m = Machine::Get();
                  _exit(m.device_count() == 2 && m.Charge(1, kMiB, Use::kData) ? 0 : 1);
                }
                pids.push_back(pid);
              }
              close(go[0]);
              close(go[1]);
              int bad = 0;
              for (const pid_t pid : pids) {
                int status = 0;
                waitpid(pid, &status, 0);
                bad += status != 0;
              }
              CHECK_OR(2, bad == 0);
              CHECK_OR(3, Machine::Get().UsedBytes(1) == 0);
              return 0;
            }));
}

TEST_F(MachineTest, GivenAProcessThatStays_WhenAnotherAttaches_ThenItNeedNotWait) {
  EXPECT_EQ(0, InChild([] {
              Victim stays([] { Machine::Get(); });
              alarm(5);  // less than an attacher waits for the file's lock
              return InChild([] { return Machine::Get().ok() ? 0 : 1; });
            }));
}

TEST_F(MachineTest, GivenCreatorDiedHalfWay_WhenNextComes_ThenMachineBuiltAnew) {
  const int fd = open(state_.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(0, ftruncate(fd, static_cast<off_t>(sizeof(State))));
  const std::uint64_t magic = kStateMagic;  // magic written, ready not yet
  ASSERT_EQ(static_cast<ssize_t>(sizeof magic), pwrite(fd, &magic, sizeof magic, 0));
  close(fd);
  EXPECT_EQ(
      0, InChild([] { return Machine::Get().device_count() == 2 && Machine::Get().Charge(0, 1, Use::kData) ? 0 : 1; }));
}

// What a process writes to stderr while it attaches in vain.
std::string AttachError() {
  int err[2];
  if (pipe(err) != 0) return "pipe failed";
  const int code = InChild([&err] {
    dup2(err[1], 2);
    Machine& m = Machine::Get();
    return m.ok() || m.device_count() != 0 || m.Charge(0, 1, Use::kData) || m.FreeBytes(0) != 0 ? 1 : 0;
  });
  close(err[1]);
  std::string text(4096, 0);
  const ssize_t n = read(err[0], text.data(), text.size());
  close(err[0]);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return code == 0 ? text : "the machine was usable: " + text;
}

TEST_F(MachineTest, GivenOtherConfig_WhenAttaching_ThenErrorNamesBothAndRemedy) {
  ASSERT_EQ(0, InChild([] { return Machine::Get().ok() ? 0 : 1; }));
  setenv("SIMGPU", "1xT4", 1);
  const std::string text = AttachError();
  EXPECT_THAT(text, HasSubstr("SIMGPU=2xH100"));
  EXPECT_THAT(text, HasSubstr("SIMGPU=1xT4"));
  EXPECT_THAT(text, HasSubstr("SIMGPU_STATE"));
  unsetenv("SIMGPU");  // who asks for nothing takes what is there
  EXPECT_EQ(0, InChild([] { return Machine::Get().device_count() == 2 ? 0 : 1; }));
}

TEST_F(MachineTest, GivenFileThatIsNoState_WhenAttaching_ThenRefusedAndUntouched) {
  { std::ofstream(state_) << "my precious thesis, which is longer than a header of some bytes"; }
  chmod(state_.c_str(), 0600);
  EXPECT_THAT(AttachError(), HasSubstr("state file"));
  struct stat st = {};
  ASSERT_EQ(0, stat(state_.c_str(), &st));
  EXPECT_EQ(63, st.st_size);
}

TEST_F(MachineTest, GivenAStateFileOpenToOthers_WhenAttaching_ThenRefused) {
  { std::ofstream out(state_); }
  chmod(state_.c_str(), 0666);
  EXPECT_THAT(AttachError(), HasSubstr("0600"));
}

TEST_F(MachineTest, GivenAStateFileOfAnotherUser_WhenRootAttaches_ThenRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(0, InChild([] { return Machine::Get().ok() ? 0 : 1; }));
  ASSERT_EQ(0, chown(state_.c_str(), 12345, 12345));
  EXPECT_THAT(AttachError(), HasSubstr("0600"));
}

TEST_F(MachineTest, GivenCountersThatLeadNowhere_WhenAttaching_ThenRefused) {
  for (const std::size_t at : {offsetof(State, device_count), offsetof(State, slots_used), offsetof(State, shared_used),
                               offsetof(State, delayed_count)}) {
    unlink(state_.c_str());
    ASSERT_EQ(0, InChild([] { return Machine::Get().ok() ? 0 : 1; }));
    {
      std::fstream file(state_, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(at));
      file.write("\xff\xff\xff\x7f", 4);
    }
    EXPECT_THAT(AttachError(), HasSubstr("something else wrote")) << at;
  }
}

TEST_F(MachineTest, GivenAPidOffsetThatIsNoNumber_WhenAttaching_ThenRefused) {
  setenv("SIMGPU_PID_OFFSET", "10oo", 1);
  EXPECT_THAT(AttachError(), HasSubstr("SIMGPU_PID_OFFSET=10oo"));
  setenv("SIMGPU_PID_OFFSET", "1000", 1);
  EXPECT_EQ(0, InChild([] { return Machine::Get().ok() ? 0 : 1; }));
  unsetenv("SIMGPU_PID_OFFSET");
}

TEST_F(MachineTest, GivenABadConfigFile_WhenAttaching_ThenFileAndLineAreNamed) {
  Config("option clock=virtual\noption colour=red\n");
  EXPECT_THAT(AttachError(), HasSubstr(config_ + ":2: 'colour' is no option"));
}

TEST_F(MachineTest, GivenAMadeFile_WhenLookedAt_ThenOnlyItsUserMayReadIt) {
  ASSERT_EQ(0, InChild([] { return Machine::Get().ok() ? 0 : 1; }));
  struct stat st = {};
  ASSERT_EQ(0, stat(state_.c_str(), &st));
  EXPECT_EQ(0600u, st.st_mode & 07777);
}

}  // namespace
}  // namespace simgpu
