// SPDX-License-Identifier: Apache-2.0

#include "test/integration/child.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/fd.h"

namespace hami::testcluster {
namespace {

constexpr auto kLook = std::chrono::milliseconds(2);
constexpr auto kPatience = std::chrono::seconds(60);

}  // namespace

Child::Child(const std::vector<std::string>& words, const Variables& environment, std::string log)
    : log_(std::move(log)) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment) entries.push_back(name + "=" + value);
  std::vector<char*> argv;
  std::vector<char*> envp;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  for (const std::string& entry : entries) envp.push_back(const_cast<char*>(entry.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  // Whatever an earlier program said there is not said by this one.
  ::unlink(log_.c_str());
  pid_ = ::fork();
  if (pid_ != 0) return;
  const int in = ::open("/dev/null", O_RDONLY);
  const int out = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (::dup2(in, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(out, 2) < 0) ::_exit(99);
  ::execve(argv.front(), argv.data(), envp.data());
  ::_exit(99);
}

Child::~Child() {
  if (!running()) return;
  Signal(SIGKILL);
  int status = 0;
  ::waitpid(pid_, &status, 0);
}

std::string Child::Log() const { return base::ReadFile(log_, 1U << 26U).value_or(""); }

void Child::Signal(int signal) const {
  if (pid_ > 0 && !exit_status_) ::kill(pid_, signal);
}

bool Child::running() { return pid_ > 0 && !Wait(std::chrono::milliseconds(0)); }

std::optional<int> Child::Wait(std::chrono::milliseconds span) {
  const auto end = std::chrono::steady_clock::now() + span;
  while (!exit_status_) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      exit_status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    } else if (std::chrono::steady_clock::now() >= end) {
      return std::nullopt;
    } else {
      std::this_thread::sleep_for(kLook);
    }
  }
  return exit_status_;
}

std::string Child::Said(const std::string& before, const std::string& after) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    // Asked first, so that the last words of a program that ended are read.
    const bool last = !running() || std::chrono::steady_clock::now() >= end;
    const std::string log = Log();
    if (const std::size_t begin = log.find(before); begin != std::string::npos) {
      const std::size_t from = begin + before.size();
      if (const std::size_t to = log.find(after, from); to != std::string::npos) return log.substr(from, to - from);
    }
    if (last) return {};
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace hami::testcluster
