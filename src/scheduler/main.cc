// SPDX-License-Identifier: Apache-2.0

#include <unistd.h>

#include <array>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/log_file.h"
#include "base/signals.h"
#include "base/strings.h"
#include "kube/config.h"
#include "scheduler/program.h"

namespace {

using hami::scheduler::Message;
using hami::scheduler::Options;
using hami::scheduler::Program;

int Run(const Options& options) {
  const sigset_t signals = hami::base::BlockSignals();
  const auto level = options.verbosity >= 4 ? hami::base::LogLevel::kDebug : hami::base::LogLevel::kInfo;
  const auto logs = hami::base::StartLogTo(options.log_files, "hami-scheduler", level, options.log_style);
  if (!logs) {
    hami::base::LogError(logs.error());
    return hami::scheduler::kFailed;
  }
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
  const int signal = hami::base::WaitForEnd(signals, [] {
    hami::base::LogInfo(
        "SIGHUP: the log file, if any, is open anew; certificates and tokens are read anew as they change; "
        "--device-config-file and flags take a restart");
  });
  hami::base::LogInfo(hami::base::Concat({"SIG", ::sigabbrev_np(signal), ": finishing what has begun"}));
  (*program)->Stop();
  hami::base::LogInfo("stopped");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
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
