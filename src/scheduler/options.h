// SPDX-License-Identifier: Apache-2.0
//
// The command line and environment of hami-scheduler as plain values, and its help text. Every flag of HAMi 2.10's
// scheduler is accepted as it is spelled there; those that decide nothing any more are accepted with a warning. Nothing
// is opened or asked here, and a value that can not be meant is refused here and not later.

#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/flags.h"
#include "base/log.h"
#include "base/log_file.h"
#include "device/vendors/sections.h"
#include "page/monitors.h"
#include "scheduler/api.h"

namespace hami::scheduler {

struct Options {
  base::HostPort http{"127.0.0.1", 8080};
  base::HostPort metrics{"", 9395};
  std::string cert_file;  // both or neither
  std::string key_file;
  bool profiling = false;                                                 // is there a /debug/pprof/?
  std::optional<base::HostPort> page{base::HostPort{"127.0.0.1", 9396}};  // nothing: there is no page
  bool page_given = false;  // else a port that is taken is no reason not to start
  bool page_tokens = false;
  std::optional<page::ServiceName> page_monitors;  // nothing: use is not asked for
  std::chrono::milliseconds page_sample_interval = std::chrono::minutes(1);

  std::string scheduler_name;
  std::string node_policy = "binpack";
  std::string device_policy = "spread";
  std::string workload_file;  // empty: learnt
  std::map<std::string, std::string> node_selector;
  std::string device_config_file;
  bool preemption = false;         // pods go for others of higher priority
  bool prioritize = false;         // kube-scheduler chooses among the nodes that fit
  device::VendorSwitches vendors;  // which multi-chip vendors are on
  bool overwrite_default_scheduler = true;
  std::vector<std::string> trusted_writers;  // user names; a * at the end stands for anything
  std::string grant_key_file;                // empty: grants are not sealed
  bool trust_unsealed = true;
  std::chrono::milliseconds lock_timeout = std::chrono::minutes(5);
  std::chrono::milliseconds lock_retry_timeout = std::chrono::seconds(28);

  std::string kubeconfig;
  double kube_qps = 0;  // 0: no limit of our own
  int kube_burst = 10;
  std::chrono::seconds kube_timeout{0};  // 0: the client's own

  bool leader_elect = false;
  std::string lease_name;
  std::string lease_namespace;
  LeaseName bind_lease{"kube-system", "hami-scheduler-bind"};  // no name: none
  // Of the pod we run in; empty outside of a cluster.
  std::string pod_name;
  std::string pod_namespace;

  bool legacy_metrics = false;
  int verbosity = 0;  // 4 and more: debug lines
  base::LogStyle log_style = base::LogStyle::kDaemon;
  base::LogFiles log_files;

  std::vector<std::string> warnings;  // one line each, for the log
};

// Text to print, and the status to end with: help, version, or a mistake.
struct Message {
  std::string text;
  int exit_status = 0;
};

inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;

// Whether only this machine reaches ADDRESS.
bool IsLoopback(const base::HostPort& address);

using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// ARGUMENTS without the program's name.
std::variant<Options, Message> ParseOptions(const std::vector<std::string>& arguments, const Environment& environment);

// "hami-scheduler 1.2.3".
std::string VersionLine();

}  // namespace hami::scheduler
