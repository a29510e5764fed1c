// SPDX-License-Identifier: Apache-2.0

#include "plugin/options.h"

#include <array>
#include <charconv>
#include <cstdlib>

#include "base/build_info.h"
#include "base/fd.h"
#include "base/flags.h"
#include "base/help_page.h"
#include "base/strings.h"
#include "plugin/node_config.h"
#include "plugin/options_file.h"
#include "plugin/xid_policy.h"

namespace hami::plugin {
namespace {

using base::Fail;
using base::FlagSet;
using base::Result;
using base::Status;

constexpr std::size_t kMostConfigBytes = 1 << 20;

// A list as a flag: `--x a,b --x c`. The first use in one source replaces what an earlier source said.
template <typename T>
class ListFlag {
 public:
  using One = Result<T> (*)(const std::string& text);
  ListFlag(std::vector<T>& out, One one) : out_(out), one_(one) {}

  void NewSource() { fresh_ = true; }
  Status Take(const std::string& value) {
    if (fresh_) out_.clear();
    fresh_ = false;
    for (const std::string& part : base::Split(value, ',')) {
      if (base::Trim(part).empty()) continue;
      auto item = one_(std::string(base::Trim(part)));
      if (!item) return tl::unexpected(item.error());
      out_.push_back(*std::move(item));
    }
    return {};
  }

 private:
  std::vector<T>& out_;
  One one_;
  bool fresh_ = true;
};

Result<std::string> ReadName(const std::string& text) { return text; }

// What several spellings and sources fill; lives as long as the flags do.
struct Targets {
  explicit Targets(Options& options)
      : out(options),
        strategies(options.list_strategies, ReadListStrategy),
        channels(options.imex_channels, ReadChannel),
        namespaces(options.disable_control_in, ReadName),
        schedulers(options.scheduler_names, ReadName) {}

  void NewSource() {
    strategies.NewSource();
    channels.NewSource();
    namespaces.NewSource();
    schedulers.NewSource();
  }

  Options& out;
  bool strict = true;  // false: what HAMi skips without a word is no mistake
  ListFlag<ListStrategy> strategies;
  ListFlag<int> channels;
  ListFlag<std::string> namespaces;
  ListFlag<std::string> schedulers;
};

Status TakeDiscovery(const std::string& value) {
  if (value == "auto" || value == "nvml" || value.empty()) return {};
  if (value == "tegra") return Fail("Tegra devices are not supported; use auto");
  return Fail("must be auto or nvml");
}

void AddNodeFlags(FlagSet& flags, Targets& to) {
  Options& out = to.out;
  flags.Group("Node");
  flags.Text("node-name", "NAME", out.node_name, "name of this node [NODE_NAME]");
  flags.Text("config-file", "FILE", out.config_file, "device-config.yaml [CONFIG_FILE]");
  flags.Text("node-config-file", "FILE", out.node_config_file, "what single nodes do otherwise");
  flags.Text("kubeconfig", "FILE", out.kubeconfig, "how to reach the API server, outside of a pod [KUBECONFIG]");
  flags.Text("kubelet-socket", "SOCKET", out.kubelet_socket,
             "where to register; empty: serve no kubelet [KUBELET_SOCKET]");
  flags.Text("pod-resources-socket", "SOCKET", out.pod_resources_socket, "where the kubelet tells who has which slots");
  const auto address = [&out](const std::string& value) -> Status {
    out.metrics_address.reset();
    if (value.empty()) return {};
    const auto read = base::ParseHostPort(value);
    if (!read) return tl::unexpected(read.error());
    out.metrics_address = *read;
    return {};
  };
  flags.Custom("metrics-bind-address", "HOST:PORT", ":9397", address, "of /healthz, /readyz and /metrics; empty: none");
  flags.Text("hook-path", "DIR", out.hook_path, "libvgpu lives in DIR/vgpu, on the node and in containers [HOOK_PATH]");
  flags.Custom("allocate-timeout", "SECONDS", "10", base::TakeNumber(out.allocate_seconds, 1, 600),
               "for all that is asked of the API server in one allocation [ALLOCATE_TIMEOUT]");
  flags.Custom(
      "scheduler-name", "LIST", "hami-scheduler", [&to](const std::string& value) { return to.schedulers.Take(value); },
      "schedulerName, or patterns of it, of the pods that are given GPUs without the node's lock and without a seal "
      "[SCHEDULER_NAME]");
  flags.Text("grant-key-file", "FILE", out.grant_key_file,
             "keys that grants are sealed with, as the scheduler's: what is not sealed is not given without the node's "
             "lock [HAMI_GRANT_KEY_FILE]");
  flags.Bool("answer-handshake", out.answer_handshake, "answer schedulers that expect it (HAMi before 2.10)");
  flags.Custom("v", "LEVEL", "0", base::TakeNumber(out.verbosity, 0, 10), "more messages");
  flags.Shorthand('v');
  flags.Custom("logging-format", "text|json", "text", base::TakeParsed(out.log_style, base::ReadLoggingFormat),
               "how messages are written");
  base::AddLogFileFlags(flags, out.log_files);
}

void AddGpuFlags(FlagSet& flags, Targets& to) {
  Options& out = to.out;
  flags.Group("GPUs");
  flags.Bool("fail-on-init-error", out.fail_on_init_error,
             "without a driver at start: end; false: wait for one [FAIL_ON_INIT_ERROR]");
  flags.Custom("mig-strategy", "none|single|mixed", "none", base::TakeParsed(out.mig_strategy, ReadMigStrategy),
               "MIG devices that were made before, in mode hami-core: none: not looked at; single: they are what the "
               "resource of GPUs counts; mixed: each profile is a resource, as nvidia.com/mig-1g.10gb [MIG_STRATEGY]");
  flags.Custom("device-discovery-strategy", "auto|nvml", "auto", TakeDiscovery,
               "how GPUs are found [DEVICE_DISCOVERY_STRATEGY]");
  flags.Text("mig-minors-file", "FILE", out.mig_minors_file,
             "where the driver lists the capabilities of MIG instances, for device nodes of containers");
  flags.Text("nvml-library", "FILE", out.nvml_library, "the driver's libnvidia-ml.so.1; empty: as the linker finds it");
  flags.Bool("topology-score", out.topology_score,
             "register how close GPUs are, for topology-aware placement [ENABLE_TOPOLOGY_SCORE]");
  const auto checks = [&to](std::string& target, std::string (*mistake_in)(std::string_view)) {
    return [&to, &target, mistake_in](const std::string& value) -> Status {
      const std::string mistake = to.strict ? mistake_in(value) : "";
      if (!mistake.empty()) return Fail(mistake);
      target = value;
      return {};
    };
  };
  flags.Custom("disable-health-checks", "LIST", "", checks(out.disable_health_checks, MistakeInDisabled),
               "all, xids, or XID codes that do not count [DP_DISABLE_HEALTHCHECKS]");
  flags.Custom("enable-health-checks", "LIST", "", checks(out.enable_health_checks, MistakeInEnabled),
               "all, or XID codes that count all the same [DP_ENABLE_HEALTHCHECKS]");
}

void AddMpsFlags(FlagSet& flags, Targets& to) {
  flags.Group("Mode mps");
  flags.Text("mps-control", "PROGRAM", to.out.mps_control,
             "NVIDIA's MPS control daemon: a path, or a name in $PATH [MPS_CONTROL]");
  flags.Text("mps-root", "DIR", to.out.mps_root,
             "the daemons' pipes and logs, under the same path on the node and here [MPS_ROOT]");
  flags.Bool("mps-exclusive", to.out.mps_exclusive,
             "compute mode EXCLUSIVE_PROCESS while MPS serves a GPU: a program without MPS is refused there "
             "[MPS_EXCLUSIVE]");
}

void AddContainerFlags(FlagSet& flags, Targets& to) {
  Options& out = to.out;
  flags.Group("What containers get");
  flags.Custom(
      "device-list-strategy", "LIST", "envvar", [&to](const std::string& value) { return to.strategies.Take(value); },
      "envvar, volume-mounts, cdi-annotations, cdi-cri [DEVICE_LIST_STRATEGY]");
  flags.Custom("device-id-strategy", "uuid|index", "uuid", base::TakeParsed(out.id_strategy, ReadIdStrategy),
               "how GPUs are named [DEVICE_ID_STRATEGY]");
  flags.Bool("pass-device-specs", out.pass_device_specs, "name the /dev nodes, too [PASS_DEVICE_SPECS]");
  flags.Text("nvidia-driver-root", "DIR", out.driver_root, "where the driver is on the node [NVIDIA_DRIVER_ROOT]");
  flags.Text("dev-root", "DIR", out.dev_root, "where /dev is on the node; empty: the driver root [NVIDIA_DEV_ROOT]");
  flags.Text("nvidia-dev-root", "DIR", out.dev_root, "the same as --dev-root");
  flags.Text("driver-root-ctr-path", "DIR", out.driver_root_in_container,
             "where the driver root is mounted for this program [DRIVER_ROOT_CTR_PATH]");
  flags.Text("container-driver-root", "DIR", out.driver_root_in_container, "the same as --driver-root-ctr-path");
  flags.Text("cdi-annotation-prefix", "TEXT", out.cdi_annotation_prefix,
             "what the annotations of containers begin with under cdi-annotations [CDI_ANNOTATION_PREFIX]");
  flags.Text("nvidia-cdi-hook-path", "FILE", out.cdi_hook_path,
             "program that CDI specs call [NVIDIA_CDI_HOOK_PATH, NVIDIA_CTK_PATH]");
  flags.Text("nvidia-ctk-path", "FILE", out.cdi_hook_path, "the same as --nvidia-cdi-hook-path");
  flags.Bool("gdrcopy-enabled", out.gdrcopy, "give containers GDRCopy [GDRCOPY_ENABLED]");
  flags.Bool("gds-enabled", out.gds, "give containers GPUDirect Storage [GDS_ENABLED]");
  flags.Bool("mofed-enabled", out.mofed, "give containers Mellanox OFED [MOFED_ENABLED]");
  flags.Custom(
      "imex-channel-ids", "LIST", "", [&to](const std::string& value) { return to.channels.Take(value); },
      "IMEX channels for every container: none, or 0 [IMEX_CHANNEL_IDS]");
  flags.Bool("imex-required", out.imex_required,
             "a channel that is not there is an error; false: it is left out [IMEX_REQUIRED]");
  flags.Bool("common-area", out.common_area, "let containers on one GPU tell each other about its time [COMMON_AREA]");
  flags.Custom(
      "disable-control-in", "LIST", "*", [&to](const std::string& value) { return to.namespaces.Take(value); },
      "namespaces, or patterns of them, whose pods may switch the limits off with CUDA_DISABLE_CONTROL; empty: none "
      "[DISABLE_CONTROL_IN]");
}

void AddShareFlags(FlagSet& flags, Targets& to) {
  Options& out = to.out;
  flags.Group("Instead of device-config.yaml");
  const auto count = [&out](const std::string& value) -> Status {
    const auto number = base::ParseNumber(value);
    if (!number || *number < 1 || *number > 256) return Fail("must be a number from 1 to 256");
    out.split_count = static_cast<std::int64_t>(*number);
    return {};
  };
  flags.Custom("device-split-count", "COUNT", "", count, "containers per GPU [DEVICE_SPLIT_COUNT]");
  const auto factor = [](std::optional<double>& target) {
    return [&target](const std::string& value) -> Status {
      auto read = ReadScaling(value);
      if (!read) return tl::unexpected(read.error());
      target = *read;
      return {};
    };
  };
  flags.Custom("device-memory-scaling", "FACTOR", "", factor(out.memory_scaling),
               "offer more memory than there is [DEVICE_MEMORY_SCALING]");
  flags.Custom("device-cores-scaling", "FACTOR", "", factor(out.core_scaling),
               "offer more cores than there are [DEVICE_CORES_SCALING]");
  const auto limit = [&out](const std::string& value) -> Status {
    // Charts write `--disable-core-limit=` with nothing behind it.
    if (value.empty()) return {};
    const auto read = base::ParseGoBool(value);
    if (!read) return tl::unexpected(read.error());
    out.disable_core_limit = *read;
    return {};
  };
  flags.Custom("disable-core-limit", "true|false", "", limit, "do not limit GPU time [DISABLE_CORE_LIMIT]");
  flags.Text("resource-name", "NAME", out.resource_name, "must be resourceCountName, if given [RESOURCE_NAME]");
}

FlagSet MakeFlags(Targets& to) {
  FlagSet flags;
  AddNodeFlags(flags, to);
  AddGpuFlags(flags, to);
  AddMpsFlags(flags, to);
  AddContainerFlags(flags, to);
  AddShareFlags(flags, to);
  flags.Dead({"use-node-feature-api"}, true, "node features are not published");
  return flags;
}

struct Variable {
  const char* name;
  const char* flag;
};

// Where two name one flag, the later one wins.
constexpr std::array<Variable, 39> kVariables = {{
    {"NodeName", "node-name"},
    {"NODE_NAME", "node-name"},
    {"CONFIG_FILE", "config-file"},
    {"KUBELET_SOCKET", "kubelet-socket"},
    {"HOOK_PATH", "hook-path"},
    {"FAIL_ON_INIT_ERROR", "fail-on-init-error"},
    {"MIG_STRATEGY", "mig-strategy"},
    {"DEVICE_DISCOVERY_STRATEGY", "device-discovery-strategy"},
    {"ENABLE_TOPOLOGY_SCORE", "topology-score"},
    {"DP_DISABLE_HEALTHCHECKS", "disable-health-checks"},
    {"DP_ENABLE_HEALTHCHECKS", "enable-health-checks"},
    {"DEVICE_LIST_STRATEGY", "device-list-strategy"},
    {"DEVICE_ID_STRATEGY", "device-id-strategy"},
    {"PASS_DEVICE_SPECS", "pass-device-specs"},
    {"NVIDIA_DRIVER_ROOT", "nvidia-driver-root"},
    {"NVIDIA_DEV_ROOT", "dev-root"},
    {"DRIVER_ROOT_CTR_PATH", "driver-root-ctr-path"},
    {"CDI_ANNOTATION_PREFIX", "cdi-annotation-prefix"},
    {"NVIDIA_CTK_PATH", "nvidia-cdi-hook-path"},
    {"NVIDIA_CDI_HOOK_PATH", "nvidia-cdi-hook-path"},
    {"GDRCOPY_ENABLED", "gdrcopy-enabled"},
    {"GDS_ENABLED", "gds-enabled"},
    {"MOFED_ENABLED", "mofed-enabled"},
    {"IMEX_CHANNEL_IDS", "imex-channel-ids"},
    {"IMEX_REQUIRED", "imex-required"},
    {"COMMON_AREA", "common-area"},
    {"DISABLE_CONTROL_IN", "disable-control-in"},
    {"SCHEDULER_NAME", "scheduler-name"},
    {"HAMI_GRANT_KEY_FILE", "grant-key-file"},
    {"ALLOCATE_TIMEOUT", "allocate-timeout"},
    {"MPS_CONTROL", "mps-control"},
    {"MPS_ROOT", "mps-root"},
    {"MPS_EXCLUSIVE", "mps-exclusive"},
    {"DEVICE_SPLIT_COUNT", "device-split-count"},
    {"DEVICE_MEMORY_SCALING", "device-memory-scaling"},
    {"DEVICE_CORES_SCALING", "device-cores-scaling"},
    {"DISABLE_CORE_LIMIT", "disable-core-limit"},
    {"RESOURCE_NAME", "resource-name"},
    {"KUBECONFIG", "kubeconfig"},
}};

Status ApplyEnvironment(const FlagSet& flags, Targets& to, const Environment& environment) {
  for (const Variable& variable : kVariables) {
    const auto value = environment(variable.name);
    if (!value || value->empty()) continue;  // set to nothing is how manifests leave a variable out
    // $KUBECONFIG may name several files; whoever connects reads it as such.
    if (std::string_view(variable.name) == "KUBECONFIG") continue;
    to.NewSource();
    const auto parsed = flags.Parse({base::Concat({"--", variable.flag, "=", *value})});
    if (!parsed) {
      return Fail(base::Concat({"environment variable ", variable.name, ": ", parsed.error().message}),
                  parsed.error().hint);
    }
  }
  return {};
}

// Environment and arguments onto OPTIONS.
Result<FlagSet::Parsed> Apply(const std::vector<std::string>& arguments, const Environment& environment,
                              Options& options) {
  Targets to(options);
  const FlagSet flags = MakeFlags(to);
  to.strict = false;
  HAMI_TRY(ApplyEnvironment(flags, to, environment));
  to.strict = true;
  to.NewSource();
  return flags.Parse(arguments);
}

// HAMi skips what it does not know in these, so that its manifests may hold anything.
void WarnOfHealthChecks(const Environment& environment, std::vector<std::string>& warnings) {
  const auto look = [&](const char* name, std::string (*mistake_in)(std::string_view)) {
    const std::string mistake = mistake_in(environment(name).value_or(""));
    if (!mistake.empty())
      warnings.push_back(base::Concat({"environment variable ", name, ": ", mistake, " and is skipped"}));
  };
  look("DP_DISABLE_HEALTHCHECKS", MistakeInDisabled);
  look("DP_ENABLE_HEALTHCHECKS", MistakeInEnabled);
}

// A file that can not be read as device-config.yaml is for those to refuse who need what is in it.
Status JudgeResourceName(const Options& options, const std::optional<std::string>& device_text) {
  if (options.resource_name.empty()) return {};
  std::string configured;
  if (device_text) {
    const auto config = device::ParseDeviceConfig(*device_text, options.config_file);
    if (!config) return {};
    configured = config->nvidia.count_resource;
  }
  return CheckResourceName(options, configured.empty() ? NodeSettings().resource_name : configured);
}

// Help and the version are for everybody, whatever the environment says.
Start::Action WhatIsAsked(const std::vector<std::string>& arguments, base::HelpForm& form) {
  Options ignored;
  Targets to(ignored);
  const auto parsed = MakeFlags(to).Parse(arguments);
  if (parsed) form = parsed->form;
  if (parsed && parsed->help) return Start::Action::kHelp;
  if (parsed && parsed->words == std::vector<std::string>{"version"}) return Start::Action::kVersion;
  return Start::Action::kRun;
}

Status Check(const Options& options) {
  if (options.node_name.empty()) {
    return Fail("the name of this node is not known", "Set NODE_NAME from spec.nodeName (fieldRef), or --node-name.");
  }
  if (options.hook_path.empty()) return Fail("--hook-path must be an absolute path");
  const std::array<std::pair<const char*, const std::string*>, 5> paths = {{
      {"hook-path", &options.hook_path},
      {"kubelet-socket", &options.kubelet_socket},
      {"pod-resources-socket", &options.pod_resources_socket},
      {"nvidia-driver-root", &options.driver_root},
      {"dev-root", &options.dev_root},
  }};
  for (const auto& [flag, path] : paths) {
    if (path->empty() || path->front() == '/') continue;
    return Fail(base::Concat({"--", flag, " must be an absolute path, not ", base::ShellQuote(*path)}));
  }
  if (options.list_strategies.empty()) return Fail("--device-list-strategy names no strategy");
  if (options.scheduler_names.empty()) return Fail("--scheduler-name names no scheduler");
  return {};
}

}  // namespace

Result<Start> ReadOptions(const std::vector<std::string>& arguments, const Environment& environment,
                          const ReadText& read) {
  Start start;
  if (const auto action = WhatIsAsked(arguments, start.help_form); action != Start::Action::kRun) {
    start.action = action;
    return start;
  }
  // The first reading only finds the file; the file's own settings lie below the flags.
  Options found;
  const auto first = Apply(arguments, environment, found);
  if (!first) return tl::unexpected(first.error());
  if (!first->words.empty()) return Fail("unexpected argument: " + base::ShellQuote(first->words.front()));
  start.warnings = first->warnings;
  for (std::string& warning : base::LogFileWarnings(*first, found.log_files)) {
    start.warnings.push_back(std::move(warning));
  }
  WarnOfHealthChecks(environment, start.warnings);
  std::optional<std::string> text;
  if (!found.config_file.empty()) {
    auto there = read(found.config_file);
    if (!there) return tl::unexpected(there.error());
    text = *std::move(there);
    HAMI_TRY(ApplyOptionsFile(*text, found.config_file, start.options, start.warnings));
  }
  HAMI_TRY(Apply(arguments, environment, start.options));
  if (start.options.dev_root.empty()) start.options.dev_root = start.options.driver_root;
  HAMI_TRY(Check(start.options));
  HAMI_TRY(JudgeResourceName(start.options, text));
  return start;
}

std::string HelpText(base::HelpForm form) {
  Options options;
  Targets to(options);
  const base::HelpPage page{
      "hami-device-plugin", 8, "offers a node's GPUs, in shares, to Kubernetes",
      "hami-device-plugin: offers this node's NVIDIA GPUs, in shares, to Kubernetes.\n\n"
      "    hami-device-plugin [FLAGS]      run; every flag may come from the variable in [brackets]\n"
      "    hami-device-plugin version | --version\n",
      "\nEnvironment, besides: HAMI_LIBVGPU names the library that is installed; unset: the one beside this "
      "program.\n"
      "The API server is found by --kubeconfig, else $KUBECONFIG, else ~/.kube/config, else the pod's service "
      "account.\n"
      "Endpoints: /metrics; /healthz (it runs); /readyz (registered with the kubelet and on the node).\n"
      "SIGHUP: open the log file, serve and register anew. Exit status: 0 after SIGTERM, SIGINT or SIGQUIT, 1 when "
      "it can not go on, 2 "
      "for\n"
      "a mistake in flags, environment or the flags section of --config-file.\n"};
  return base::Render(page, MakeFlags(to), form, base::kBuildInfo);
}

std::optional<std::string> ProcessEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Result<std::string> ReadConfigText(const std::string& path) { return base::ReadLinkedFile(path, kMostConfigBytes); }

Result<MigStrategy> ReadMigStrategy(const std::string& text) {
  if (text == "none" || text.empty()) return MigStrategy::kNone;
  if (text == "single") return MigStrategy::kSingle;
  if (text == "mixed") return MigStrategy::kMixed;
  return Fail("must be none, single or mixed");
}

Result<ListStrategy> ReadListStrategy(const std::string& text) {
  if (text == "envvar") return ListStrategy::kEnvvar;
  if (text == "volume-mounts") return ListStrategy::kVolumeMounts;
  if (text == "cdi-annotations") return ListStrategy::kCdiAnnotations;
  if (text == "cdi-cri") return ListStrategy::kCdiCri;
  return Fail("must be envvar, volume-mounts, cdi-annotations or cdi-cri, not " + base::ShellQuote(text));
}

Result<IdStrategy> ReadIdStrategy(const std::string& text) {
  if (text == "uuid") return IdStrategy::kUuid;
  if (text == "index") return IdStrategy::kIndex;
  return Fail("must be uuid or index");
}

Result<int> ReadChannel(const std::string& text) {
  if (text == "0") return 0;
  return Fail("the only IMEX channel that can be given is 0");
}

Result<double> ReadScaling(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return Fail("must be a number");
  if (!(value > 0) || value > 100) return Fail("must be more than 0 and at most 100");
  return value;
}

}  // namespace hami::plugin
