// SPDX-License-Identifier: Apache-2.0

#include "cli/supervise.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>

#include "base/files.h"

namespace hami::cli {
namespace {

// Descriptors this high are not in the way of scripts that use 3 … 9, or of shells that use 10 and more.
constexpr int kLifeLineFloor = 100;

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

StartFailure ExplainExec(const std::string& program, int error_number) {
  const bool missing = error_number == ENOENT;
  StartFailure failure;
  failure.error.message = "can not run '" + program + "': " + std::strerror(error_number);
  if (missing && program.find('/') == std::string::npos) {
    failure.error.hint = "there is no such program in PATH; a program in this folder is run as ./" + program;
  } else if (missing && ::access(program.c_str(), F_OK) == 0) {
    failure.error.hint = "the file is there; the interpreter or loader that it names is not";
  }
  failure.exit_status = missing ? kNotFound : kCannotRun;
  return failure;
}

sigset_t ForwardedSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&set, number);
  return set;
}

// What the command must find as we found it.
struct Inherited {
  sigset_t mask;
  struct sigaction child_action;
};

[[noreturn]] void BecomeCommand(std::vector<std::string> command, std::vector<std::string> entries,
                                const Inherited& inherited, pid_t supervisor, const std::vector<base::Fd>& kept,
                                int report) {
  // Dies with its supervisor, as it would if there were only one process. The parent may be gone before the request.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != supervisor) ::_exit(kRunFailed);
  // Without FD_CLOEXEC: everything that the command starts holds the share alive.
  for (const base::Fd& fd : kept) {
    if (::fcntl(fd.get(), F_DUPFD, kLifeLineFloor) < 0 && ::fcntl(fd.get(), F_DUPFD, 3) < 0) ::_exit(kRunFailed);
  }
  ::sigaction(SIGCHLD, &inherited.child_action, nullptr);
  ::sigprocmask(SIG_SETMASK, &inherited.mask, nullptr);
  ::execvpe(command.front().c_str(), Pointers(command).data(), Pointers(entries).data());
  const int error_number = errno;
  // If even this fails the parent sees an end of file and then our status.
  static_cast<void>(!::write(report, &error_number, sizeof error_number));
  ::_exit(error_number == ENOENT ? kNotFound : kCannotRun);
}

// A process of our group that takes no signal. What was sent to the whole group is pending there; what was sent to us
// alone is not, and no field of a signal tells the two apart. The kernel reaches the youngest of a group first, so by
// the time a signal is here it is there, too.
class Witness {
 public:
  Witness() { Start(); }
  ~Witness() { End(); }
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  // Whether signal NUMBER, which has arrived here, was sent to the group. Once for each time that it was.
  bool Saw(int number) {
    if (pid_ <= 0) return false;
    if (!IsPending(number)) {
      constexpr timespec kMoment{0, 2'000'000};  // for kernels with another order
      ::nanosleep(&kMoment, nullptr);
      if (!IsPending(number)) return false;
    }
    // Only a new one has nothing pending.
    End();
    Start();
    return true;
  }

  void End() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
  }

 private:
  void Start() {
    const pid_t group_member = ::getpid();
    pid_ = ::fork();
    if (pid_ != 0) return;
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::prctl(PR_SET_NAME, "hami-witness");
    if (::getppid() != group_member) ::_exit(0);
    while (true) ::pause();
  }
  bool IsPending(int number) const {
    constexpr std::string_view kField = "\nShdPnd:\t";
    const auto text = base::ReadFile("/proc/" + std::to_string(pid_) + "/status", 1 << 16);
    const std::size_t at = text ? text->find(kField) : std::string::npos;
    if (at == std::string::npos) return false;
    return (std::strtoull(text->c_str() + at + kField.size(), nullptr, 16) >> (number - 1) & 1) != 0;
  }

  pid_t pid_ = -1;
};

// Whether a signal that arrived here reached the command as well: from the terminal (si_code SI_KERNEL), or from a
// sender that means the group, where the command is still in ours.
bool ReachedCommand(const siginfo_t& info, pid_t command, Witness& witness) {
  if (info.si_code > 0) return true;
  return witness.Saw(info.si_signo) && ::getpgid(command) == ::getpgrp();
}

// Waits until the command has ended, passing on what others send to us alone, and what is EARLY: that came before there
// was a command.
Ending WaitAndForward(pid_t command, const sigset_t& watched, sigset_t early, Witness& witness) {
  while (true) {
    int status = 0;
    const pid_t ended = ::waitpid(command, &status, WNOHANG);
    if (ended == command) {
      if (WIFSIGNALED(status)) return {128 + WTERMSIG(status), WTERMSIG(status)};
      return {WEXITSTATUS(status), 0};
    }
    siginfo_t info{};
    const int number = ::sigwaitinfo(&watched, &info);
    if (number <= 0 || number == SIGCHLD) continue;
    const bool reached = ReachedCommand(info, command, witness) && sigismember(&early, number) == 0;
    sigdelset(&early, number);
    if (!reached) ::kill(command, number);
  }
}

}  // namespace

tl::expected<Ending, StartFailure> Supervise(const std::vector<std::string>& command, const Environment& environment,
                                             std::vector<base::Fd> kept) {
  const auto impossible = [](const char* what) {
    return tl::unexpected(StartFailure{{std::string(what) + ": " + std::strerror(errno), ""}, kRunFailed});
  };
  Inherited inherited{};
  sigset_t watched = ForwardedSignals();
  sigaddset(&watched, SIGCHLD);
  // An inherited "ignore" would let the command vanish without a status.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &standard, &inherited.child_action);
  ::sigprocmask(SIG_BLOCK, &watched, &inherited.mask);
  Witness witness;

  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) return impossible("can not make a pipe");
  base::Fd report_out(report[0]);
  base::Fd report_in(report[1]);

  const pid_t supervisor = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return impossible("can not fork");
  if (child == 0) {
    BecomeCommand(command, Flatten(environment), inherited, supervisor, kept, report_in.get());
  }
  sigset_t early;
  ::sigpending(&early);
  report_in.Reset();
  int error_number = 0;
  ssize_t got = 0;
  do {
    got = ::read(report_out.get(), &error_number, sizeof error_number);
  } while (got < 0 && errno == EINTR);
  const Ending ending = WaitAndForward(child, watched, early, witness);
  witness.End();
  // Until now this process held the share alive too: the command may have closed what it inherited, as daemons do, and
  // begin to use the GPU later. From here on only what it left in the background does.
  kept.clear();
  if (got == static_cast<ssize_t>(sizeof error_number)) {
    return tl::unexpected(ExplainExec(command.front(), error_number));
  }
  return ending;
}

void EndAs(const Ending& ending) {
  if (ending.signal != 0) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    ::sigaction(ending.signal, &standard, nullptr);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, ending.signal);
    ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
    ::kill(::getpid(), ending.signal);
  }
  std::exit(ending.exit_status);
}

StartFailure Replace(const std::vector<std::string>& command, const Environment& environment) {
  std::vector<std::string> words = command;
  std::vector<std::string> entries = Flatten(environment);
  // execvpe looks in the PATH of this process, not in the one that it hands over.
  if (const auto path = environment.find("PATH"); path != environment.end()) ::setenv("PATH", path->second.c_str(), 1);
  ::execvpe(words.front().c_str(), Pointers(words).data(), Pointers(entries).data());
  return ExplainExec(command.front(), errno);
}

}  // namespace hami::cli
