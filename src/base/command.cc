// SPDX-License-Identifier: Apache-2.0

#include "base/command.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <thread>

#include "base/fd.h"
#include "base/strings.h"

namespace hami::base {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostErrorBytes = 4096;
constexpr auto kReapPause = std::chrono::milliseconds(5);

struct Pipe {
  Fd read;
  Fd write;
};

Result<Pipe> NewPipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Fail(std::string("pipe: ") + std::strerror(errno));
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

std::vector<std::string> EnvironmentOf(const Command& command) {
  std::vector<std::string> all;
  for (const auto& [name, value] : command.environment) all.push_back(Concat({name, "=", value}));
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view text = *one;
    const std::string_view name = text.substr(0, text.find('='));
    bool replaced = false;
    for (const auto& [given, value] : command.environment) replaced = replaced || given == name;
    if (!replaced) all.emplace_back(text);
  }
  return all;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The read end of a pipe that holds TEXT; no file where there is no text.
Result<Fd> InputOf(const std::string& text) {
  // What a pipe always has room for: nobody reads while it is written.
  if (text.size() > PIPE_BUF) return Fail("the input is longer than " + std::to_string(PIPE_BUF) + " bytes");
  if (text.empty()) return Fd();
  auto pipe = NewPipe();
  if (!pipe) return tl::unexpected(pipe.error());
  HAMI_TRY(WriteAll(pipe->write.get(), text));
  return std::move(pipe->read);
}

Result<pid_t> Spawn(const Command& command, int in, int out, int err) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  if (in >= 0) {
    ::posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  } else {
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  ::posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  // A daemon blocks its signals and ignores SIGPIPE: neither is for others.
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> words = command.words;
  std::vector<std::string> environment = EnvironmentOf(command);
  pid_t pid = 0;
  const int failed = ::posix_spawnp(&pid, words.front().c_str(), &actions, &attributes, Pointers(words).data(),
                                    Pointers(environment).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return Fail("cannot run " + ShellQuote(command.words.front()) + ": " + std::strerror(failed));
  return pid;
}

// Takes what FD has into TEXT, as far as MOST; false at its end.
bool Take(Fd& fd, std::string& text, std::size_t most) {
  std::array<char, 16384> buffer;
  const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (got <= 0) {
    fd.Reset();
    return false;
  }
  text.append(buffer.data(), std::min(static_cast<std::size_t>(got), most - std::min(most, text.size())));
  return true;
}

// Reads until both ends are closed. An error: the time or the room is over.
Status ReadBoth(Fd& out, Fd& err, CommandResult& result, const Command& command, Clock::time_point end) {
  while (out || err) {
    std::array<pollfd, 2> ends{{{out.get(), POLLIN, 0}, {err.get(), POLLIN, 0}}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return Fail("did not end within " + std::to_string(command.limit.count()) + " ms");
    if (::poll(ends.data(), ends.size(), static_cast<int>(left.count())) < 0 && errno != EINTR) {
      return Fail(std::string("poll: ") + std::strerror(errno));
    }
    if (out && ends[0].revents != 0) (void)Take(out, result.out, command.most_bytes + 1);
    if (err && ends[1].revents != 0) (void)Take(err, result.err, kMostErrorBytes);
    if (result.out.size() > command.most_bytes) {
      return Fail("wrote more than " + std::to_string(command.most_bytes) + " bytes");
    }
  }
  return {};
}

// Its status; nothing: it still runs at END.
bool Reap(pid_t pid, int& status, Clock::time_point end) {
  while (true) {
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid || (ended < 0 && errno != EINTR)) return true;
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(kReapPause);
  }
}

}  // namespace

Result<CommandResult> RunCommand(const Command& command) {
  if (command.words.empty() || command.words.front().empty()) return Fail("no program is named");
  auto out = NewPipe();
  auto err = NewPipe();
  if (!out) return tl::unexpected(out.error());
  if (!err) return tl::unexpected(err.error());
  const auto in = InputOf(command.input);
  if (!in) return tl::unexpected(in.error());
  const Clock::time_point end = Clock::now() + command.limit;
  const auto pid = Spawn(command, in->get(), out->write.get(), err->write.get());
  if (!pid) return tl::unexpected(pid.error());
  out->write.Reset();
  err->write.Reset();
  CommandResult result;
  Status read = ReadBoth(out->read, err->read, result, command, end);
  int status = 0;
  if (read && !Reap(*pid, status, end)) {
    read = Fail("did not end within " + std::to_string(command.limit.count()) + " ms");
  }
  if (!read) {
    ::kill(-*pid, SIGKILL);
    ::waitpid(*pid, &status, 0);
    std::string why = ShellQuote(command.words.front()) + " " + read.error().message;
    if (!result.err.empty()) why += ": " + Printable(Trim(result.err));
    return Fail(why);
  }
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace hami::base
