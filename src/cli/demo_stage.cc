// SPDX-License-Identifier: Apache-2.0

#include "cli/demo_stage.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/fd.h"
#include "base/strings.h"
#include "cli/paths.h"

namespace hami::cli {
namespace {

constexpr std::size_t kMostOutput = 1 << 20;

base::Result<std::string> MakeFolder() {
  // The machine is shared memory: where there is a memory file system it does not belong on a disk.
  for (const char* parent : {"/dev/shm", "/tmp"}) {
    std::string pattern = std::string(parent) + "/hami-demo-XXXXXX";
    if (::mkdtemp(pattern.data()) != nullptr) return pattern;
  }
  return base::FailErrno("can not make a temporary folder");
}

std::string Guests() {
  const char* chosen = std::getenv("HAMI_DEMO_GUESTS");
  return chosen != nullptr ? chosen : ExecutableFolder() + "/../test/demo";
}

[[noreturn]] void Play(const std::vector<std::string>& words, const std::string& out, const std::string& err) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int out_fd = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const int err_fd = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const int in_fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (out_fd < 0 || err_fd < 0 || in_fd < 0) ::_exit(125);
  ::dup2(in_fd, 0);
  ::dup2(out_fd, 1);
  ::dup2(err_fd, 2);
  std::vector<std::string> copies = words;
  std::vector<char*> pointers;
  for (std::string& word : copies) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(pointers.front(), pointers.data());
  ::_exit(125);
}

}  // namespace

base::Result<Stage> Stage::Build(const std::string& gpus) {
  const auto simgpu = FindSimgpuFolder();
  if (!simgpu) return tl::unexpected(simgpu.error());
  if (const auto library = FindVgpuLibrary(); !library) return tl::unexpected(library.error());
  auto folder = MakeFolder();
  if (!folder) return tl::unexpected(folder.error());
  Stage stage;
  stage.folder_ = *folder;
  stage.hami_ = ExecutableFolder() + "/hami";
  stage.guests_ = Guests();
  stage.nvml_path_ = *simgpu + "/libnvidia-ml.so.1";
  ::setenv("SIMGPU", gpus.c_str(), 1);
  ::unsetenv("SIMGPU_CONFIG");
  ::setenv("SIMGPU_STATE", (stage.folder_ + "/machine").c_str(), 1);
  ::setenv("SIMGPU_PROFILE", "ideal", 1);
  ::setenv("HAMI_STATE_DIR", stage.StateFolder().c_str(), 1);
  ::setenv("LD_LIBRARY_PATH", simgpu->c_str(), 1);
  return stage;
}

Stage::Stage(Stage&& other) noexcept
    : folder_(std::exchange(other.folder_, {})),
      hami_(std::move(other.hami_)),
      guests_(std::move(other.guests_)),
      nvml_path_(std::move(other.nvml_path_)),
      actors_(std::exchange(other.actors_, {})) {}

Stage::~Stage() {
  if (folder_.empty()) return;
  KillAll();
  for (const Actor& actor : actors_) {
    if (!actor.wait_status) ::waitpid(actor.pid, nullptr, 0);
  }
  std::error_code error;  // nothing to be done about it, and nothing to be said at the end of a show
  std::filesystem::remove_all(folder_, error);
}

base::Status Stage::Start(const Role& role) {
  const std::string program = guests_ + "/" + role.guest;
  if (::access(program.c_str(), X_OK) != 0) {
    return base::Fail("the demo's program " + program + " is not there", "build everything first: tools/demo does");
  }
  std::vector<std::string> words{hami_,    "run",     "--mem",    std::to_string(role.limit_bytes),
                                 "--name", role.name, "--policy", "spread",
                                 "--",     program};
  words.insert(words.end(), role.arguments.begin(), role.arguments.end());
  const std::string stem = folder_ + "/" + role.name;
  const pid_t pid = ::fork();
  if (pid < 0) return base::FailErrno("can not start " + role.name);
  if (pid == 0) Play(words, stem + ".out", stem + ".err");
  ::setpgid(pid, pid);  // here too: whoever comes first
  Actor actor;
  actor.role = role;
  actor.pid = pid;
  actors_.push_back(std::move(actor));
  return {};
}

bool Stage::Observe() {
  bool playing = false;
  for (Actor& actor : actors_) {
    if (actor.wait_status) continue;
    int status = 0;
    if (::waitpid(actor.pid, &status, WNOHANG) == actor.pid) {
      actor.wait_status = status;
      ReadOutcome(actor);
    } else {
      playing = true;
    }
  }
  return playing;
}

void Stage::ReadOutcome(Actor& actor) const {
  const std::string stem = folder_ + "/" + actor.role.name;
  const auto output = base::ReadFile(stem + ".out", kMostOutput);
  for (const std::string& line : base::Split(output ? *output : "", '\n')) {
    const auto words = base::Split(line, ' ');
    if (words.size() != 2) continue;
    if (const auto value = base::ParseNumber(words[1])) actor.report[words[0]] = *value;
  }
  const auto complaints = base::ReadFile(stem + ".err", kMostOutput);
  actor.complaints = complaints ? *complaints : "";
}

void Stage::KillAll() {
  for (const Actor& actor : actors_) {
    // The group may outlive its first member; when it is empty there is nobody to be hit.
    if (actor.pid > 0) ::kill(-actor.pid, SIGKILL);
  }
}

std::optional<std::size_t> Stage::ActorOf(pid_t pid) const {
  const pid_t group = ::getpgid(pid);
  for (std::size_t i = 0; i < actors_.size(); ++i) {
    if (group > 0 && actors_[i].pid == group) return i;
  }
  return std::nullopt;
}

}  // namespace hami::cli
