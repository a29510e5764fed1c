// SPDX-License-Identifier: Apache-2.0

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/build_info.h"
#include "base/fd.h"
#include "base/log.h"
#include "monitor/options.h"
#include "monitor/service.h"

namespace {

using namespace hami;

std::optional<std::string> Variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// Blocked before any thread starts, so that the main thread is the one that hears of them.
sigset_t BlockSignals() {
  sigset_t ending;
  sigemptyset(&ending);
  for (const int number : {SIGTERM, SIGINT, SIGQUIT}) sigaddset(&ending, number);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return ending;
}

int Print(const monitor::Answer& answer) {
  const bool mistake = answer.exit_status != 0;
  const base::Status written = base::WriteAll(mistake ? STDERR_FILENO : STDOUT_FILENO, answer.text);
  if (written || mistake) return answer.exit_status;
  base::StartLog("hami-monitor");
  base::LogError(written.error());
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  const monitor::Command command = monitor::ParseCommand({argv + (argc > 0 ? 1 : 0), argv + argc}, Variable);
  if (!command.run) return Print(command.answer);
  const monitor::Options& options = *command.run;
  base::StartLog("hami-monitor", options.verbosity >= 4 ? base::LogLevel::kDebug : base::LogLevel::kInfo,
                 options.log_style);
  for (const std::string& warning : options.warnings) base::LogWarning(warning);
  const sigset_t ending = BlockSignals();
  const auto service = monitor::Service::Start(options);
  if (!service) {
    base::LogError(service.error());
    return EXIT_FAILURE;
  }
  base::LogInfo(base::VersionOf("hami-monitor") + ", node " + options.node_name + ", port " +
                std::to_string((*service)->port()));
  int number = 0;
  sigwait(&ending, &number);
  base::LogInfo(std::string("stopping on signal ") + strsignal(number));
  // A thread that hangs in the driver can not be waited for, and may use what an orderly exit would take apart.
  if (!(*service)->Stop()) ::_exit(EXIT_SUCCESS);
  return EXIT_SUCCESS;
}
