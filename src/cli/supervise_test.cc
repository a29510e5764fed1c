// SPDX-License-Identifier: Apache-2.0

#include "cli/supervise.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>

namespace hami::cli {
namespace {

// Supervises COMMAND in a child of its own (it must be single-threaded and may end by a signal); the raw wait status.
struct Supervised {
  pid_t pid = -1;
  int Wait() const {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return status;
  }
};

Supervised Start(const std::vector<std::string>& command, const std::function<void()>& before = {}) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (before) before();
    std::vector<base::Fd> kept;
    kept.push_back(base::Open("/dev/null", O_RDONLY).value());
    const auto ending = Supervise(command, CurrentEnvironment(), std::move(kept));
    if (!ending) ::_exit(ending.error().exit_status);
    EndAs(*ending);
  }
  return {pid};
}

std::vector<std::string> Shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

TEST(Supervision, GivenCommands_WhenTheyEnd_ThenTheirStatusIsOurs) {
  EXPECT_EQ(WEXITSTATUS(Start(Shell("exit 0")).Wait()), 0);
  EXPECT_EQ(WEXITSTATUS(Start(Shell("exit 37")).Wait()), 37);
  const int killed = Start(Shell("kill -SEGV $$")).Wait();
  ASSERT_TRUE(WIFSIGNALED(killed));
  EXPECT_EQ(WTERMSIG(killed), SIGSEGV);
}

TEST(Supervision, GivenNoSuchOrNoProgram_WhenStarted_ThenStatusesOfEnv) {
  EXPECT_EQ(WEXITSTATUS(Start({"no-such-program-anywhere"}).Wait()), 127);
  EXPECT_EQ(WEXITSTATUS(Start({"/"}).Wait()), 126);
}

TEST(Supervision, GivenNothingToStartItWith_WhenStarted_ThenHamisOwnFailure) {
  const int status = Start({"true"}, [] {
                       // Room for the life line, and none for anything behind it.
                       const int next = ::dup(STDIN_FILENO);
                       ::close(next);
                       const rlimit few{static_cast<rlim_t>(next) + 1, static_cast<rlim_t>(next) + 1};
                       ::setrlimit(RLIMIT_NOFILE, &few);
                     }).Wait();
  EXPECT_EQ(WEXITSTATUS(status), 125) << "126 would say that the command can not be run";
}

TEST(Supervision, GivenScriptWithoutItsInterpreter_WhenStarted_ThenTold) {
  const std::string path = testing::TempDir() + "/hami-script-" + std::to_string(::getpid());
  ASSERT_TRUE(base::WriteNewFile(path, "#!/no/such/interpreter\n", 0700));
  const StartFailure failure = Replace({path}, CurrentEnvironment());
  ::unlink(path.c_str());
  EXPECT_EQ(failure.exit_status, 127);
  EXPECT_NE(failure.error.hint.find("interpreter"), std::string::npos);
}

TEST(Supervision, GivenIgnoredChildSignal_WhenCommandEnds_ThenStatusStillSeen) {
  EXPECT_EQ(WEXITSTATUS(Start(Shell("exit 5"), [] { ::signal(SIGCHLD, SIG_IGN); }).Wait()), 5);
}

// A command that says on a pipe when it is ready.
class Forwarding : public testing::TestWithParam<int> {};

TEST_P(Forwarding, GivenSignalSentToUs_WhenTheCommandHandlesIt_ThenItDecides) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const std::string out = std::to_string(ends[1]);
  const Supervised run = Start(
      Shell("trap 'exit 42' HUP INT QUIT TERM USR1 USR2; echo ready >&" + out + "; while :; do sleep 0.01; done"));
  char byte = 0;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  ASSERT_EQ(::kill(run.pid, GetParam()), 0);
  const int status = run.Wait();
  ::close(ends[0]);
  ::close(ends[1]);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

INSTANTIATE_TEST_SUITE_P(Signals, Forwarding, testing::Values(SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2));

// Reads bytes up to COUNT, or until nothing came for a while; how many.
int ReadUpTo(int fd, int count) {
  int got = 0;
  pollfd waiting{fd, POLLIN, 0};
  char byte = 0;
  while (got < count && ::poll(&waiting, 1, 500) == 1 && ::read(fd, &byte, 1) == 1) ++got;
  return got;
}

class GroupSignal : public testing::TestWithParam<int> {};

TEST_P(GroupSignal, ReachesTheCommandOnce) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const std::string out = std::to_string(ends[1]);
  const std::string count = "trap 'printf x >&" + out + "' HUP INT QUIT TERM USR1 USR2; ";
  // What it waits by ignores the signals: it is in the group as well.
  const Supervised run = Start(
      Shell(count + "printf r >&" + out + "; while :; do (trap '' HUP INT QUIT TERM USR1 USR2; exec sleep 0.01); done"),
      [] { ::setpgid(0, 0); });
  ASSERT_EQ(ReadUpTo(ends[0], 1), 1);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(::kill(-run.pid, GetParam()), 0);
    EXPECT_EQ(ReadUpTo(ends[0], 2), 1) << "to the group, round " << round;
    ASSERT_EQ(::kill(run.pid, GetParam()), 0);
    EXPECT_EQ(ReadUpTo(ends[0], 2), 1) << "to hami alone, round " << round;
  }
  ::kill(-run.pid, SIGKILL);
  run.Wait();
  ::close(ends[0]);
  ::close(ends[1]);
}

INSTANTIATE_TEST_SUITE_P(Signals, GroupSignal, testing::Values(SIGHUP, SIGINT, SIGTERM, SIGUSR1));

TEST(Supervision, GroupSignalAndACommandOfItsOwnGroup_ThenItIsPassedOn) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const std::string out = std::to_string(ends[1]);
  const Supervised run =
      Start({"setsid", "/bin/sh", "-c", "trap 'exit 42' TERM; printf r >&" + out + "; while :; do sleep 0.01; done"},
            [] { ::setpgid(0, 0); });
  ASSERT_EQ(ReadUpTo(ends[0], 1), 1);
  ASSERT_EQ(::kill(-run.pid, SIGTERM), 0);
  EXPECT_EQ(WEXITSTATUS(run.Wait()), 42);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Supervision, GivenSupervisorKilled_WhenItIsGone_ThenTheCommandIsToo) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const Supervised run = Start(Shell("echo ready >&" + std::to_string(ends[1]) + "; exec sleep 1000"));
  ::close(ends[1]);
  char byte = 0;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  ASSERT_EQ(::kill(run.pid, SIGKILL), 0);
  run.Wait();
  // The command held the write end; the end of file says that it died.
  std::array<char, 16> rest{};
  ssize_t got = 0;
  while ((got = ::read(ends[0], rest.data(), rest.size())) > 0) {
  }
  EXPECT_EQ(got, 0);
  ::close(ends[0]);
}

}  // namespace
}  // namespace hami::cli
