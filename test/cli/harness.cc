// SPDX-License-Identifier: Apache-2.0

#include "harness.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

namespace hami::e2e {

int Outcome::exit_status() const {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

void Machine::SetUp() {
  std::string pattern = testing::TempDir() + "/hami-e2e-XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
  environment_ = {{"PATH", "/usr/bin:/bin"},
                  {"SIMGPU", "2xH100"},
                  {"SIMGPU_STATE", folder_ + "/machine"},
                  {"SIMGPU_PROFILE", "ideal"},
                  {"HAMI_STATE_DIR", folder_ + "/state"},
                  {"LD_LIBRARY_PATH", HAMI_SIMGPU_FOLDER}};
  if (const char* options = std::getenv("ASAN_OPTIONS")) environment_["ASAN_OPTIONS"] = options;
}

void Machine::TearDown() {
  for (const pid_t group : groups_) ::kill(-group, SIGKILL);
  for (const pid_t pid : unwaited_) ::waitpid(pid, nullptr, 0);
  std::filesystem::remove_all(folder_);
}

Process Machine::Start(const std::vector<std::string>& arguments, int input) {
  Process process;
  const std::string stem = folder_ + "/" + std::to_string(started_++);
  process.out_path = stem + ".out";
  process.err_path = stem + ".err";
  std::vector<std::string> words{HAMI_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment_) entries.push_back(name + "=" + value);
  std::vector<char*> argv;
  std::vector<char*> envp;
  for (std::string& word : words) argv.push_back(word.data());
  for (std::string& entry : entries) envp.push_back(entry.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  process.pid = ::fork();
  if (process.pid == 0) {
    ::setpgid(0, 0);
    const int in = input >= 0 ? input : ::open("/dev/null", O_RDONLY);
    const int out = ::open(process.out_path.c_str(), O_WRONLY | O_CREAT, 0600);
    const int err = ::open(process.err_path.c_str(), O_WRONLY | O_CREAT, 0600);
    if (::dup2(in, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0) ::_exit(99);
    ::execve(argv.front(), argv.data(), envp.data());
    ::_exit(99);
  }
  ::setpgid(process.pid, process.pid);
  groups_.push_back(process.pid);
  unwaited_.push_back(process.pid);
  return process;
}

Outcome Machine::Wait(const Process& process) {
  Outcome outcome;
  EXPECT_EQ(::waitpid(process.pid, &outcome.wait_status, 0), process.pid);
  std::erase(unwaited_, process.pid);
  constexpr std::size_t kMost = 1 << 24;
  outcome.out = base::ReadFile(process.out_path, kMost).value_or("");
  outcome.err = base::ReadFile(process.err_path, kMost).value_or("");
  return outcome;
}

std::string Machine::Output(const Process& process) const {
  return base::ReadFile(process.out_path, 1 << 24).value_or("");
}

base::json::value Machine::Json(const std::vector<std::string>& arguments) {
  const Outcome outcome = Hami(arguments);
  auto parsed = base::ParseJson(outcome.out);
  EXPECT_TRUE(parsed) << outcome.out << outcome.err;
  return parsed ? *parsed : base::json::value();
}

std::vector<std::string> Machine::ShareNames() {
  std::vector<std::string> names;
  const base::json::value document = Json({"ps", "--output", "json"});
  for (const base::json::value& share : document.at("shares").as_array()) {
    names.emplace_back(share.at("name").as_string().c_str());
  }
  return names;
}

std::vector<std::string> Machine::Folders() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/state/shares", error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool Machine::Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

bool Machine::IsRunning(pid_t pid) {
  const auto stat = base::ReadFile("/proc/" + std::to_string(pid) + "/stat", 4096);
  if (!stat) return false;
  const std::size_t end = stat->rfind(')');
  return end != std::string::npos && end + 2 < stat->size() && (*stat)[end + 2] != 'Z' && (*stat)[end + 2] != 'X';
}

Gate::Gate() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
  reader = base::Fd(ends[0]);
  writer = base::Fd(ends[1]);
}

}  // namespace hami::e2e
