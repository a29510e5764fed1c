// SPDX-License-Identifier: Apache-2.0

#include "mps/control.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/command.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/strings.h"
#include "region/reader.h"

namespace hami::mps {
namespace {

using base::Concat;

constexpr std::size_t kMostProcessFile = 64;
// Clients of other users connect through the pipe folder and cannot remove what is in it.
constexpr unsigned kPipeMode = 01777;
constexpr unsigned kFolderMode = 0755;
constexpr Millis kDeathWithin = 2'000;
constexpr auto kDeathPause = std::chrono::milliseconds(5);

base::Status MakeFolder(const std::string& path, unsigned mode) {
  HAMI_TRY(base::MakeFolders(path, kFolderMode));
  if (::chmod(path.c_str(), mode) != 0) return base::FailErrno("chmod " + path);
  return {};
}

std::vector<std::pair<std::string, std::string>> EnvironmentOf(const Place& place) {
  // With the UUID alone the daemon's clients number its GPU 0, whatever it is on the machine.
  return {{"CUDA_VISIBLE_DEVICES", place.uuid},
          {"CUDA_MPS_PIPE_DIRECTORY", place.Pipe()},
          {"CUDA_MPS_LOG_DIRECTORY", place.Log()}};
}

class FileActions {
 public:
  FileActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

// A session of its own, with the signals of a fresh process.
int SpawnDetached(const std::string& program, const std::string& output, std::vector<std::string>& environment,
                  pid_t* pid) {
  FileActions actions;
  ::posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(actions.get(), STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  ::posix_spawn_file_actions_adddup2(actions.get(), STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  std::string name = program;
  std::string foreground = "-f";
  std::vector<char*> words = {name.data(), foreground.data(), nullptr};
  std::vector<char*> pointers;
  for (std::string& text : environment) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  const int failed = ::posix_spawnp(pid, name.c_str(), actions.get(), &attributes, words.data(), pointers.data());
  ::posix_spawnattr_destroy(&attributes);
  return failed;
}

// Ours, without what another daemon's or a client's would be told by, and with the place's.
std::vector<std::string> WholeEnvironment(const Place& place) {
  std::vector<std::string> all;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view text = *one;
    if (!text.starts_with("CUDA_MPS_") && !text.starts_with("CUDA_VISIBLE_DEVICES=") &&
        !text.starts_with("LD_PRELOAD=")) {
      all.emplace_back(text);
    }
  }
  for (const auto& [name, value] : EnvironmentOf(place)) all.push_back(Concat({name, "=", value}));
  return all;
}

std::optional<Process> ReadProcess(const Place& place) {
  const auto text = base::ReadFile(place.ProcessFile(), kMostProcessFile);
  return text ? ParseProcessFile(*text) : std::nullopt;
}

bool IsProcess(const Process& process) { return region::ProcessStartTime(process.pid) == process.start; }

}  // namespace

Control::Control(Place place, std::chrono::milliseconds answer_within)
    : place_(std::move(place)), answer_within_(answer_within) {}

base::Result<std::string> Control::Ask(const std::string& command) const {
  base::Command run;
  run.words = {place_.program};
  run.environment = EnvironmentOf(place_);
  run.input = command + "\n";
  run.limit = answer_within_;
  auto result = base::RunCommand(run);
  if (!result) return tl::unexpected(result.error());
  if (result->status != 0) {
    const std::string_view said = base::Trim(result->err.empty() ? result->out : result->err);
    return base::Fail(Concat(
        {command, ": ", said.empty() ? "exit status " + std::to_string(result->status) : base::Printable(said)}));
  }
  return std::move(result->out);
}

bool Control::Lives() const {
  const auto process = ReadProcess(place_);
  if (!process) return false;
  if (IsProcess(*process)) return true;
  // Where it was our child its end is taken note of, once: the id may be another child's soon.
  ::waitpid(process->pid, nullptr, WNOHANG);
  ::unlink(place_.ProcessFile().c_str());
  return false;
}

base::Result<Server> Control::AskServer(int pid) const {
  const std::string number = std::to_string(pid);
  Server server;
  server.pid = pid;
  const auto clients = Ask("get_client_list " + number);
  if (!clients) return tl::unexpected(clients.error());
  const auto pids = ParsePids(*clients);
  if (!pids) return base::Fail("get_client_list: not a list of process ids: " + base::Printable(base::Trim(*clients)));
  server.clients = *pids;
  // Daemons of before CUDA 12 do not know the question; then no fault can be told from the outside.
  const auto status = Ask("get_server_status " + number);
  if (const auto known = status ? ParseServerStatus(*status) : std::nullopt) server.status = *known;
  return server;
}

Seen Control::Look() const {
  Seen seen;
  seen.process = Lives();
  const auto list = Ask("get_server_list");
  if (!list) {
    seen.trouble = list.error().message;
    return seen;
  }
  const auto pids = ParsePids(*list);
  if (!pids) {
    seen.trouble = "get_server_list: not a list of process ids: " + base::Printable(base::Trim(*list));
    return seen;
  }
  for (const int pid : *pids) {
    auto server = AskServer(pid);
    if (!server) {
      seen.trouble = server.error().message;
      return seen;
    }
    seen.servers.push_back(*std::move(server));
  }
  seen.answers = true;
  return seen;
}

base::Status Control::Start() const {
  HAMI_TRY(MakeFolder(place_.folder, kFolderMode));
  HAMI_TRY(MakeFolder(place_.Pipe(), kPipeMode));
  HAMI_TRY(MakeFolder(place_.Log(), kFolderMode));
  std::vector<std::string> environment = WholeEnvironment(place_);
  pid_t pid = 0;
  const int failed = SpawnDetached(place_.program, place_.Log() + "/output.log", environment, &pid);
  if (failed != 0) return base::Fail(Concat({"cannot run ", place_.program, ": ", std::strerror(failed)}));
  const Process process{pid, region::ProcessStartTime(pid)};
  if (process.start == 0) {
    return base::Fail(place_.program + " ended at once: " + place_.Log() + "/output.log says why");
  }
  const base::Status kept = base::ReplaceFile(place_.ProcessFile(), ProcessFileText(process), 0644);
  if (!kept) ::kill(pid, SIGKILL);  // it could not be found again
  return kept;
}

base::Status Control::Configure(const Limits& limits, const std::vector<Server>& servers) const {
  const std::string percent = std::to_string(limits.percent);
  HAMI_TRY(Ask("set_default_active_thread_percentage " + percent));
  for (const Server& server : servers) {
    HAMI_TRY(Ask(Concat({"set_active_thread_percentage ", std::to_string(server.pid), " ", percent})));
  }
  if (limits.memory_mib == 0) return {};
  const std::string memory = Concat({"0 ", std::to_string(limits.memory_mib), "M"});
  HAMI_TRY(Ask("set_default_device_pinned_mem_limit " + memory));
  for (const Server& server : servers) {
    HAMI_TRY(Ask(Concat({"set_device_pinned_mem_limit ", std::to_string(server.pid), " ", memory})));
  }
  return {};
}

base::Status Control::Quit() const {
  const auto answer = Ask("quit");
  return answer ? base::Status() : base::Status(tl::unexpected(answer.error()));
}

base::Status Control::Kill() const {
  const auto process = ReadProcess(place_);
  if (!process || !IsProcess(*process)) return {};
  // Its servers are in its session and would keep the GPU.
  if (::kill(-process->pid, SIGKILL) != 0 && ::kill(process->pid, SIGKILL) != 0 && errno != ESRCH) {
    return base::FailErrno("cannot end process " + std::to_string(process->pid));
  }
  // One that is still on its way out would be taken for a daemon that lives.
  const Millis end = Now() + kDeathWithin;
  while (Lives() && Now() < end) std::this_thread::sleep_for(kDeathPause);
  return {};
}

base::Result<std::string> FindProgram(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    if (::access(program.c_str(), X_OK) == 0) return program;
    return base::FailErrno("cannot run " + program);
  }
  const char* path = std::getenv("PATH");
  for (const std::string& folder : base::Split(path == nullptr ? "/usr/bin:/bin" : path, ':')) {
    std::string whole = Concat({folder.empty() ? "." : folder, "/", program});
    if (::access(whole.c_str(), X_OK) == 0) return whole;
  }
  return base::Fail(program + " is not in $PATH",
                    "it comes with NVIDIA's driver (Debian and Ubuntu: nvidia-cuda-mps, nvidia-compute-utils-…)");
}

std::vector<Notice> Tend(const Control& control, const Wanted& wanted, Memory& memory, Millis now, const Rules& rules) {
  Decision decision = Decide(wanted, control.Look(), memory, now, rules);
  base::Status done;
  switch (decision.action) {
    case Action::kStart:
      done = control.Start();
      break;
    case Action::kConfigure:
      done = control.Configure(wanted.limits, decision.memory.servers);
      if (!done) decision.memory.told = false;
      break;
    case Action::kQuit:
      done = control.Quit();
      break;
    case Action::kKill:
      done = control.Kill();
      break;
    case Action::kNone:
      break;
  }
  memory = std::move(decision.memory);
  if (!done) {
    const std::string& why = done.error().message;
    if (decision.action == Action::kStart) memory.trouble = why;
    decision.notices.push_back({true, "MpsDaemonTrouble", "MPS: " + why});
  }
  return std::move(decision.notices);
}

Millis Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace hami::mps
