// SPDX-License-Identifier: Apache-2.0

#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/build_info.h"
#include "base/fd.h"
#include "base/log.h"
#include "plugin/agent.h"

namespace {

using namespace hami;

constexpr int kBadUsage = 2;

// Signals are taken one at a time, by this thread alone.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return signals;
}

// A signal to end that nobody took yet.
bool ToldToEnd() {
  sigset_t pending;
  sigemptyset(&pending);
  sigpending(&pending);
  return sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1 ||
         sigismember(&pending, SIGQUIT) == 1;
}

int Print(const std::string& answer) {
  const base::Status written = base::WriteAll(STDOUT_FILENO, answer);
  if (written) return 0;
  base::StartLog("hami-device-plugin");
  base::LogError(written.error());
  return 1;
}

int Run(const plugin::Options& options) {
  const sigset_t signals = BlockSignals();
  base::LogInfo(base::VersionOf("hami-device-plugin") + ", node " + options.node_name);
  plugin::Agent agent(options);
  // SIGUSR1 is how the agent ends us.
  const base::Status started = agent.Start([] { ::kill(::getpid(), SIGUSR1); }, ToldToEnd);
  if (!started && !ToldToEnd()) {
    base::LogError(started.error());
    return 1;
  }
  while (true) {
    int signal = 0;
    sigwait(&signals, &signal);
    if (signal == SIGHUP) {
      agent.Restart();
    } else {
      if (signal != SIGUSR1) base::LogInfo(std::string("stopping on signal ") + ::strsignal(signal));
      agent.Stop();
      return signal == SIGUSR1 ? 1 : 0;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  // Most threads wait most of the time; a heap for each of them would only keep memory.
  mallopt(M_ARENA_MAX, 2);
  const auto start = plugin::ReadOptions({argv + 1, argv + argc}, plugin::ProcessEnvironment, plugin::ReadConfigText);
  if (!start) {
    base::StartLog("hami-device-plugin");
    base::LogError(start.error());
    return kBadUsage;
  }
  if (start->action == plugin::Start::Action::kHelp) return Print(plugin::HelpText());
  if (start->action == plugin::Start::Action::kVersion) return Print(base::VersionOf("hami-device-plugin") + "\n");
  base::StartLog("hami-device-plugin", start->options.verbosity >= 4 ? base::LogLevel::kDebug : base::LogLevel::kInfo,
                 start->options.log_style);
  for (const std::string& warning : start->warnings) base::LogWarning(warning);
  return Run(start->options);
}
