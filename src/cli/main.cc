// SPDX-License-Identifier: Apache-2.0

#include <csignal>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "cert/command.h"
#include "cli/commands.h"
#include "cli/doctor.h"
#include "cli/environment.h"
#include "cli/mps.h"
#include "cli/paths.h"
#include "cli/supervise.h"
#include "cluster/command.h"
#include "upgrade/command.h"

namespace {

struct Dispatch {
  int operator()(const hami::cli::RunOptions& options) const { return hami::cli::Run(options); }
  int operator()(const hami::cli::SetOptions& options) const { return hami::cli::Set(options); }
  int operator()(const hami::cli::PsOptions& options) const { return hami::cli::Ps(options); }
  int operator()(const hami::cli::SmiOptions& options) const { return hami::cli::Smi(options); }
  int operator()(const hami::cli::SimOptions& options) const { return hami::cli::Sim(options); }
  int operator()(const hami::cli::ConfigOptions& options) const { return hami::cli::Config(options); }
  int operator()(const hami::cli::ClusterOptions& options) const { return hami::cli::Cluster(options); }
  int operator()(const hami::cli::Message& message) const {
    (message.exit_status == 0 ? std::cout : std::cerr) << message.text << std::flush;
    return message.exit_status;
  }
};

bool LooksAtTheMachine(const hami::cli::Options& options) {
  return std::holds_alternative<hami::cli::PsOptions>(options) ||
         std::holds_alternative<hami::cli::SmiOptions>(options) ||
         std::holds_alternative<hami::cli::SetOptions>(options);
}

// Inside a share NVML shows the share, and this program would count as one that uses it: starts again without the
// library that does so. Where that fails, the share is what can be seen.
void SeeTheMachine(const std::vector<std::string>& arguments) {
  const hami::cli::Environment environment = hami::cli::CurrentEnvironment();
  if (!hami::cli::IsInsideShare(environment)) return;
  std::vector<std::string> words{hami::cli::ExecutablePath()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  static_cast<void>(hami::cli::Replace(words, hami::cli::WithoutLibrary(environment)));
}

// `ulimit -f`: a file that would grow too large is an error with its message, and not the end of this program. A
// handler, because the command that is run finds the default again.
void TakeLargeFilesAsErrors() {
  struct sigaction action {};
  ::sigaction(SIGXFSZ, nullptr, &action);
  if (action.sa_handler != SIG_DFL) return;
  action.sa_handler = [](int) {};
  ::sigaction(SIGXFSZ, &action, nullptr);
}

// The commands with flags of their own; nothing: it is none of them.
std::optional<int> OfCluster(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return std::nullopt;
  if (arguments.size() == 2 && arguments.front() == "help") return OfCluster({arguments.back(), "--help"});
  const std::vector<std::string> rest{arguments.begin() + 1, arguments.end()};
  if (arguments.front() == "cert") return hami::cert::Main(rest);
  if (arguments.front() == "cluster") return hami::cluster::Main(rest);
  if (arguments.front() == "upgrade") return hami::upgrade::Main(rest);
  if (arguments.front() != "doctor") return std::nullopt;
  SeeTheMachine(arguments);
  return hami::cli::DoctorMain(rest);
}

}  // namespace

int main(int argc, char** argv) {
  hami::base::OccupyStandardDescriptors();
  hami::base::StartLog("hami");
  TakeLargeFilesAsErrors();
  const std::vector<std::string> arguments{argv + (argc > 0 ? 1 : 0), argv + argc};
  if (const auto status = OfCluster(arguments)) return *status;
  if (!arguments.empty() && arguments.front() == "mps-keeper") {
    return hami::cli::KeepMps({arguments.begin() + 1, arguments.end()});
  }
  const hami::cli::Options options = hami::cli::ParseOptions(arguments);
  if (LooksAtTheMachine(options)) SeeTheMachine(arguments);
  const int status = std::visit(Dispatch{}, options);
  if (std::cout.flush()) return status;
  hami::base::LogError("can not write to standard output");
  if (status != 0) return status;
  return std::holds_alternative<hami::cli::RunOptions>(options) ? hami::cli::kRunFailed : hami::cli::kFailed;
}
