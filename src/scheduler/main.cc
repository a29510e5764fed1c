// SPDX-License-Identifier: Apache-2.0

#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "base/log.h"
#include "kube/config.h"
#include "scheduler/program.h"

namespace {

using hami::scheduler::Message;
using hami::scheduler::Options;
using hami::scheduler::Program;

// Requests bring many small and some large allocations that live for a moment, on threads that pass them on. Fastbins
// would be swept at every large one, and memory given back to the system would be asked for again by the next request.
void TuneAllocator() {
  constexpr int kKeptBytes = 64 << 20;
  constexpr int kStepBytes = 1 << 20;
  ::mallopt(M_MXFAST, 0);
  ::mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  ::mallopt(M_TOP_PAD, kStepBytes);
  // As soon as one of these is set, this one does not adapt itself any more.
  ::mallopt(M_MMAP_THRESHOLD, kStepBytes);
}

// A thread's own store of free chunks holds seven of a size, and a request frees some hundreds at once: the rest would
// be merged and split again for each. The C library takes this setting from the environment alone, at its start.
void KeepMoreChunks(char** argv) {
  constexpr const char* kVariable = "GLIBC_TUNABLES";
  const char* given = std::getenv(kVariable);
  const std::string tunables = given == nullptr ? "" : given;
  if (tunables.find("glibc.malloc.tcache_count") != std::string::npos) return;
  ::setenv(kVariable, (tunables + (tunables.empty() ? "" : ":") + "glibc.malloc.tcache_count=1000").c_str(), 1);
  // By its own path, so that it keeps its name; where this fails it goes on as it is.
  std::array<char, PATH_MAX> path{};
  if (::readlink("/proc/self/exe", path.data(), path.size() - 1) > 0) ::execv(path.data(), argv);
}

// Blocked here, before there is a second thread, so that every thread inherits it and only sigwait sees them.
sigset_t BlockEndSignals() {
  sigset_t ends;
  ::sigemptyset(&ends);
  ::sigaddset(&ends, SIGTERM);
  ::sigaddset(&ends, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return ends;
}

int Run(const Options& options) {
  TuneAllocator();
  const sigset_t ends = BlockEndSignals();
  hami::base::StartLog("hami-scheduler",
                       options.verbosity >= 4 ? hami::base::LogLevel::kDebug : hami::base::LogLevel::kInfo,
                       options.log_style);
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0') {
    hami::base::LogError("this machine has no host name, which the lease's holder is compared with");
    return hami::scheduler::kFailed;
  }
  const auto program = Program::Start(options, host.data());
  if (!program) {
    hami::base::LogError(program.error());
    return hami::scheduler::kFailed;
  }
  int signal = 0;
  ::sigwait(&ends, &signal);
  hami::base::LogInfo(signal == SIGTERM ? "SIGTERM: finishing what has begun" : "SIGINT: finishing what has begun");
  (*program)->Stop();
  hami::base::LogInfo("stopped");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  KeepMoreChunks(argv);
  const auto parsed =
      hami::scheduler::ParseOptions({argv + (argc > 0 ? 1 : 0), argv + argc}, hami::kube::ProcessEnvironment);
  if (const Options* options = std::get_if<Options>(&parsed)) return Run(*options);
  const auto& message = std::get<Message>(parsed);
  if (message.exit_status != 0) {
    std::cerr << message.text << std::flush;
  } else if (!(std::cout << message.text << std::flush)) {
    hami::base::StartLog("hami-scheduler");
    hami::base::LogError("can not write to standard output");
    return hami::scheduler::kFailed;
  }
  return message.exit_status;
}
