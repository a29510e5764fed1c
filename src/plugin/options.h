// SPDX-License-Identifier: Apache-2.0
//
// How the plugin was started: flags over environment over the `flags:` section of the configuration file, with the
// names that HAMi's plugin has for them. Fixed for the life of the process; what may change while it runs is in
// node_config.h. Refuses what it does not know or can not honour, naming the flag, variable or line it came from.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/flags.h"
#include "base/log.h"
#include "base/log_file.h"
#include "base/result.h"
#include "plugin/mig_nodes.h"

namespace hami::plugin {

enum class MigStrategy { kNone, kSingle, kMixed };
// How a container is told which GPUs it has.
enum class ListStrategy { kEnvvar, kVolumeMounts, kCdiAnnotations, kCdiCri };
// By which name it is told.
enum class IdStrategy { kUuid, kIndex };

struct Options {
  // The node and its services.
  std::string node_name;
  std::string kubelet_socket = "/var/lib/kubelet/device-plugins/kubelet.sock";  // empty: no kubelet is served
  std::string pod_resources_socket = "/var/lib/kubelet/pod-resources/kubelet.sock";
  std::string kubeconfig;                                                    // empty: $KUBECONFIG, or the pod's account
  std::optional<base::HostPort> metrics_address = base::HostPort{"", 9397};  // /healthz, /readyz, /metrics
  std::string hook_path = "/usr/local";                                      // libvgpu lives in <hook_path>/vgpu
  std::string config_file;                                                   // device-config.yaml; empty: defaults
  std::string node_config_file = "/config/config.json";
  std::string mig_minors_file = kMigMinors;
  std::string nvml_library;  // empty: libnvidia-ml.so.1 of the dynamic linker

  // GPUs.
  bool fail_on_init_error = true;  // without a driver at start: end, rather than wait for one
  MigStrategy mig_strategy = MigStrategy::kNone;
  bool topology_score = false;        // register how close the GPUs are to each other
  std::string disable_health_checks;  // as in DP_DISABLE_HEALTHCHECKS
  std::string enable_health_checks;

  // What a container gets.
  std::vector<ListStrategy> list_strategies = {ListStrategy::kEnvvar};
  IdStrategy id_strategy = IdStrategy::kUuid;
  bool pass_device_specs = false;
  std::string driver_root = "/";
  std::string dev_root;  // empty in the input: the driver root
  std::string driver_root_in_container = "/driver-root";
  std::string cdi_annotation_prefix = "cdi.k8s.io/";
  std::string cdi_hook_path = "/usr/bin/nvidia-ctk";
  bool gdrcopy = false;
  bool gds = false;
  bool mofed = false;
  std::vector<int> imex_channels;  // none, or 0
  bool imex_required = false;      // a channel that is not there is an error, rather than left out
  bool common_area = true;         // let containers on one GPU tell each other about its time
  // Namespaces, or patterns of them, whose pods may switch the limits off with CUDA_DISABLE_CONTROL.
  std::vector<std::string> disable_control_in = {"*"};
  // spec.schedulerName, or patterns of it, of pods that hami-scheduler places.
  std::vector<std::string> scheduler_names = {"hami-scheduler"};
  std::string grant_key_file;                           // of the keys that grants are sealed with; empty: they are not
  std::string mps_control = "nvidia-cuda-mps-control";  // in mode mps: a path, or looked up in $PATH
  std::string mps_root = "/run/hami-cpp/mps";           // folders of the control daemons, the same on the node
  bool mps_exclusive = false;                           // compute mode EXCLUSIVE_PROCESS while MPS serves a GPU
  int allocate_seconds = 10;                            // for all that is asked of the API server in one allocation

  // Towards older schedulers.
  bool answer_handshake = false;  // write Reported_… when a scheduler asks

  // Given on the command line or in the environment; they replace the values of device-config.yaml.
  std::optional<std::int64_t> split_count;
  std::optional<double> memory_scaling;
  std::optional<double> core_scaling;
  std::optional<bool> disable_core_limit;
  std::string resource_name;

  int verbosity = 0;
  base::LogStyle log_style = base::LogStyle::kDaemon;
  base::LogFiles log_files;
};

struct Start {
  enum class Action { kRun, kHelp, kVersion };
  Action action = Action::kRun;
  base::HelpForm help_form = base::HelpForm::kText;
  Options options;
  std::vector<std::string> warnings;  // for the log
};

using Environment = std::function<std::optional<std::string>(const std::string& name)>;
using ReadText = std::function<base::Result<std::string>(const std::string& path)>;

// ARGUMENTS without the program's name.
base::Result<Start> ReadOptions(const std::vector<std::string>& arguments, const Environment& environment,
                                const ReadText& read);

std::string HelpText(base::HelpForm form = base::HelpForm::kText);

// What the operating system has.
std::optional<std::string> ProcessEnvironment(const std::string& name);
// A configuration file, through the links of a mounted ConfigMap.
base::Result<std::string> ReadConfigText(const std::string& path);

}  // namespace hami::plugin
