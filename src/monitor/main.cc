// SPDX-License-Identifier: Apache-2.0

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/build_info.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/log_file.h"
#include "base/signals.h"
#include "monitor/options.h"
#include "monitor/service.h"

namespace {

using namespace hami;

std::optional<std::string> Variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
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
  const auto level = options.verbosity >= 4 ? base::LogLevel::kDebug : base::LogLevel::kInfo;
  if (const auto logs = base::StartLogTo(options.log_files, "hami-monitor", level, options.log_style); !logs) {
    base::LogError(logs.error());
    return EXIT_FAILURE;
  }
  for (const std::string& warning : options.warnings) base::LogWarning(warning);
  const sigset_t signals = base::BlockSignals();
  const auto service = monitor::Service::Start(options);
  if (!service) {
    base::LogError(service.error());
    return EXIT_FAILURE;
  }
  base::LogInfo(base::VersionOf("hami-monitor") + ", node " + options.node_name + ", port " +
                std::to_string((*service)->port()));
  const int number = base::WaitForEnd(signals, [] { base::LogInfo("SIGHUP: the log file, if any, is open anew"); });
  base::LogInfo(std::string("stopping on signal ") + strsignal(number));
  // A thread that hangs in the driver can not be waited for, and may use what an orderly exit would take apart.
  if (!(*service)->Stop()) ::_exit(EXIT_SUCCESS);
  return EXIT_SUCCESS;
}
