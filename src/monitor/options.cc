// SPDX-License-Identifier: Apache-2.0

#include "monitor/options.h"

#include <algorithm>

#include "base/build_info.h"
#include "base/help_page.h"
#include "base/strings.h"

namespace hami::monitor {
namespace {

using std::chrono::milliseconds;

constexpr int kUsageStatus = 2;

constexpr const char* kOverview =
    "Usage: hami-monitor [flags]\n"
    "       hami-monitor version | --version\n\n"
    "Watches the containers of one node that share GPUs: serves what they use to Prometheus, lets the\n"
    "important ones go first, applies changed limits, and removes what finished pods left behind.\n\n"
    "Environment:\n"
    "  HOOK_PATH             required; the directory that holds containers/ (usually /usr/local/vgpu)\n"
    "  NODE_NAME             required; the node this runs on (fieldRef spec.nodeName)\n"
    "  HAMI_RESYNC_INTERVAL  how long directories of pods that are gone stay at least (default 5m; 10s or more)\n"
    "  KUBECONFIG            kubeconfig files, when --kubeconfig is not given; else ~/.kube/config, else the pod's\n"
    "                        service account\n";

constexpr const char* kEndpoints =
    "\nEndpoints: /metrics; /v1/use (what the shares use, as JSON); /healthz (rounds are made); /readyz (the pods are\n"
    "known, one round is done, and the containers can be listed).\n"
    "SIGHUP opens the log file anew.\n"
    "Exit status: 0 after SIGTERM, SIGINT or SIGQUIT, 1 when it can not go on, 2 for wrong flags or environment.\n";

base::FlagSet::Take Duration(milliseconds& out, milliseconds least, milliseconds most, const char* range) {
  return [&out, least, most, range](const std::string& text) {
    const auto parsed = base::ParseGoDuration(text);
    if (!parsed) return base::Status(tl::unexpected(parsed.error()));
    if (*parsed < least || *parsed > most) return base::Status(base::Fail(std::string("must be from ") + range));
    out = *parsed;
    return base::Status();
  };
}

void AddFlags(base::FlagSet& flags, Options& options) {
  flags.Group("Metrics");
  flags.Custom("metrics-bind-address", "HOST:PORT", ":9394",
               base::TakeParsed(options.metrics_address, base::ParseHostPort),
               "where /metrics, /v1/use, /healthz and /readyz are served; no host: on every interface");
  flags.Bool("legacy-metrics", options.legacy_metrics,
             "also serve the metrics under HAMi's older names, like HostGPUMemoryUsage");
  flags.Bool("compat-labels", options.compat_labels,
             "labels exactly as HAMi writes them, defects included; false: node on every GPU metric, device_type "
             "without the doubled vendor");
  flags.Custom("gpu-interval", "DURATION", "2s",
               Duration(options.gpu_interval, milliseconds(1000), milliseconds(60'000), "1s to 60s"),
               "how often the GPUs are asked");
  flags.Group("Containers");
  flags.Custom("tick", "DURATION", "1s", Duration(options.tick, milliseconds(200), milliseconds(5000), "200ms to 5s"),
               "how often the regions are read and feedback is given");
  flags.Bool("feedback", options.feedback,
             "stop less important tasks while more important ones run, and lift the limit of a task that is alone");
  flags.Bool("resize", options.resize, "apply the pod annotation hami-cpp/resize");
  flags.Group("Other");
  flags.Text("kubeconfig", "FILE", options.kubeconfig, "how to reach the API server");
  flags.Custom("v", "LEVEL", "0", base::TakeNumber(options.verbosity, 0, 10), "4 and more: also debug messages");
  flags.Shorthand('v');
  flags.Custom("logging-format", "text|json", "text", base::TakeParsed(options.log_style, base::ReadLoggingFormat),
               "how messages are written");
  base::AddLogFileFlags(flags, options.log_files);
}

// Any duration, as in HAMi. A folder is made before its pod is known here, so that less than the floor would take
// folders from containers that start.
base::Status ReadResync(const std::string& text, Options& options) {
  constexpr milliseconds kLeast{10'000};
  if (text.empty()) return {};
  const bool negative = text.front() == '-';
  const auto parsed = base::ParseGoDuration(std::string_view(text).substr(negative ? 1 : 0));
  if (!parsed) {
    return base::Fail("HAMI_RESYNC_INTERVAL=" + base::ShellQuote(text) + ": " + parsed.error().message,
                      parsed.error().hint);
  }
  options.resync = negative ? kLeast : std::max(*parsed, kLeast);
  if (negative || *parsed < kLeast) {
    options.warnings.push_back("HAMI_RESYNC_INTERVAL=" + base::ShellQuote(text) +
                               " is taken as 10s: folders of containers that start would be removed before");
  }
  return {};
}

base::Status ReadEnvironment(const Environment& environment, Options& options) {
  const auto require = [&](const char* name, const char* hint, std::string& out) -> base::Status {
    out = environment(name).value_or("");
    return out.empty() ? base::Status(base::Fail(std::string(name) + " is not set", hint)) : base::Status();
  };
  HAMI_TRY(require("HOOK_PATH", "the directory on the node that holds containers/, usually /usr/local/vgpu",
                   options.hook_path));
  HAMI_TRY(require("NODE_NAME", "in the DaemonSet: valueFrom.fieldRef.fieldPath spec.nodeName", options.node_name));
  return ReadResync(environment("HAMI_RESYNC_INTERVAL").value_or(""), options);
}

Command Mistake(const base::Error& error) {
  return {
      std::nullopt,
      {"hami-monitor: " + error.message + "\n" + (error.hint.empty() ? "" : "  " + error.hint + "\n"), kUsageStatus}};
}

}  // namespace

Command ParseCommand(const std::vector<std::string>& arguments, const Environment& environment) {
  Options options;
  base::FlagSet flags;
  AddFlags(flags, options);
  auto parsed = flags.Parse(arguments);
  if (!parsed) return Mistake(parsed.error());
  if (parsed->help) {
    const base::HelpPage page{"hami-monitor", 8, "measures the GPU shares of one node", kOverview, kEndpoints};
    return {std::nullopt, {base::Render(page, flags, parsed->form, base::kBuildInfo), 0}};
  }
  if (parsed->words == std::vector<std::string>{"version"})
    return {std::nullopt, {base::VersionOf("hami-monitor") + "\n", 0}};
  if (!parsed->words.empty()) {
    return Mistake({"'" + base::Printable(parsed->words.front()) + "' is not understood", "--help lists every flag"});
  }
  if (const auto read = ReadEnvironment(environment, options); !read) return Mistake(read.error());
  options.warnings.insert(options.warnings.end(), parsed->warnings.begin(), parsed->warnings.end());
  for (std::string& warning : base::LogFileWarnings(*parsed, options.log_files)) {
    options.warnings.push_back(std::move(warning));
  }
  return {std::move(options), {}};
}

}  // namespace hami::monitor
