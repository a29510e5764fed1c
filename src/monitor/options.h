// SPDX-License-Identifier: Apache-2.0
//
// What hami-monitor was asked to do: flags spelled as HAMi's monitor takes them, and its environment (HOOK_PATH,
// NODE_NAME, HAMI_RESYNC_INTERVAL). Pure: the environment is an argument. Refuses values out of range and required
// names that are missing, saying where they come from.

#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/flags.h"
#include "base/log.h"
#include "base/log_file.h"

namespace hami::monitor {

struct Options {
  base::HostPort metrics_address{"", 9394};
  bool legacy_metrics = false;
  bool compat_labels = true;
  bool feedback = true;
  bool resize = true;
  std::chrono::milliseconds tick{1000};          // 0.2 … 5 s
  std::chrono::milliseconds gpu_interval{2000};  // 1 … 60 s
  std::chrono::milliseconds resync{300'000};     // how long a directory outlives what is known of its pod, at least
  std::string kubeconfig;                        // empty: $KUBECONFIG, ~/.kube/config, the pod's own account
  std::string hook_path;                         // the directory that holds containers/
  std::string node_name;
  int verbosity = 0;
  base::LogStyle log_style = base::LogStyle::kDaemon;
  base::LogFiles log_files;
  std::vector<std::string> warnings;
};

// To be printed instead of running: help and version on stdout (status 0), mistakes on stderr.
struct Answer {
  std::string text;
  int exit_status = 0;
};

using Environment = std::function<std::optional<std::string>(const std::string& name)>;

struct Command {
  std::optional<Options> run;
  Answer answer;  // when there is nothing to run
};

// ARGUMENTS without the program's name.
Command ParseCommand(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace hami::monitor
