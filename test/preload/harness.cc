// SPDX-License-Identifier: Apache-2.0
#include "test/preload/harness.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

extern char** environ;

namespace preload {
namespace {

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// The child's half. Only what may follow a fork in a threaded program.
[[noreturn]] void Exec(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                       const char* out, const char* err) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (const std::string& variable : environment) envp.push_back(const_cast<char*>(variable.c_str()));
  envp.push_back(nullptr);
  if (out != nullptr) {
    dup2(open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    dup2(open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed leaves no guest at work
  execve(argv[0], argv.data(), envp.data());
  _exit(127);
}

}  // namespace

Preload::Preload() {
  std::string pattern = testing::TempDir() + "/preload-XXXXXX";
  folder_ = mkdtemp(pattern.data());
  environment_ = {{"LD_PRELOAD", PRELOAD_LIBRARY},
                  {"LD_LIBRARY_PATH", PRELOAD_DRIVER_FOLDER},
                  {"SIMGPU", "1xH100"},
                  {"SIMGPU_STATE", machine()},
                  {"SIMGPU_PROFILE", "ideal"},
                  {"CUDA_DEVICE_MEMORY_SHARED_CACHE", region()},
                  {"CUDA_DEVICE_MEMORY_LIMIT", "1g"},
                  {"PATH", "/usr/bin:/bin"},
                  {"GUEST_FOLDER", folder_}};
}

Preload::~Preload() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

Outcome Preload::RunProgram(const std::string& program, std::vector<std::string> arguments, const Environment& extra) {
  Environment merged = environment_;
  for (const auto& [name, value] : extra) merged[name] = value;
  std::vector<std::string> variables;
  for (const auto& [name, value] : merged) {
    if (value != "-") variables.push_back(name + "=" + value);
  }
  arguments.insert(arguments.begin(), program);
  const std::string out = folder_ + "/out";
  const std::string err = folder_ + "/err";
  const pid_t pid = fork();
  if (pid == 0) Exec(arguments, variables, out.c_str(), err.c_str());
  Outcome outcome;
  outcome.status = Wait(pid);
  outcome.out = Slurp(out);
  outcome.err = Slurp(err);
  return outcome;
}

Outcome Preload::Run(std::vector<std::string> arguments, const Environment& extra) {
  return RunProgram(PRELOAD_GUEST, std::move(arguments), extra);
}

pid_t Preload::Start(std::vector<std::string> arguments, const Environment& extra) {
  Environment merged = environment_;
  for (const auto& [name, value] : extra) merged[name] = value;
  std::vector<std::string> variables;
  for (const auto& [name, value] : merged) {
    if (value != "-") variables.push_back(name + "=" + value);
  }
  arguments.insert(arguments.begin(), PRELOAD_GUEST);
  const pid_t pid = fork();
  if (pid == 0) Exec(arguments, variables, nullptr, nullptr);
  return pid;
}

int Preload::Wait(pid_t pid) {
  int status = -1;
  waitpid(pid, &status, 0);
  return status;
}

void Preload::Pass(const std::vector<std::string>& arguments, const Environment& extra) {
  const std::string name = arguments.empty() ? "" : arguments[0];
  Outcome outcome = Run(arguments, extra);
  for (int tries = 1; tries < tries_ && !outcome.ok(); ++tries) outcome = Run(arguments, extra);
  EXPECT_EQ(outcome.status, 0) << name << ": signal " << (outcome.status & 0x7f) << ", exit " << (outcome.status >> 8)
                               << "\n"
                               << outcome.err << outcome.out;
  EXPECT_EQ(outcome.err, "") << name << " made noise";
}

}  // namespace preload
