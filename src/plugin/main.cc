// SPDX-License-Identifier: Apache-2.0

#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "base/build_info.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/log_file.h"
#include "base/signals.h"
#include "plugin/agent.h"

namespace {

using namespace hami;

constexpr int kBadUsage = 2;

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
  const sigset_t signals = base::BlockSignals();
  base::LogInfo(base::VersionOf("hami-device-plugin") + ", node " + options.node_name);
  // SIGUSR1 is how the agent ends us; from others it is none of our business.
  std::atomic<bool> given_up = false;
  const auto give_up = [&given_up] {
    given_up = true;
    ::kill(::getpid(), SIGUSR1);
  };
  plugin::Agent agent(options);
  const base::Status started = agent.Start(give_up, ToldToEnd);
  if (!started && !ToldToEnd()) {
    base::LogError(started.error());
    return 1;
  }
  while (true) {
    int signal = 0;
    if (::sigwait(&signals, &signal) != 0) continue;
    if (signal == SIGHUP) {
      base::ReopenLog();
      agent.Restart();
    } else if (signal == SIGUSR2 || (signal == SIGUSR1 && !given_up)) {
      base::LogInfo(std::string("signal ignored: ") + ::strsignal(signal));
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
  if (start->action == plugin::Start::Action::kHelp) return Print(plugin::HelpText(start->help_form));
  if (start->action == plugin::Start::Action::kVersion) return Print(base::VersionOf("hami-device-plugin") + "\n");
  const plugin::Options& options = start->options;
  const auto level = options.verbosity >= 4 ? base::LogLevel::kDebug : base::LogLevel::kInfo;
  if (const auto logs = base::StartLogTo(options.log_files, "hami-device-plugin", level, options.log_style); !logs) {
    base::LogError(logs.error());
    return kBadUsage;
  }
  for (const std::string& warning : start->warnings) base::LogWarning(warning);
  return Run(options);
}
