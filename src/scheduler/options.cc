// SPDX-License-Identifier: Apache-2.0

#include "scheduler/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/build_info.h"
#include "base/help_page.h"
#include "base/strings.h"

namespace hami::scheduler {
namespace {

using base::Fail;
using base::FlagSet;
using base::Status;

constexpr const char* kOverview =
    "hami-scheduler — shares of GPUs for pods: extender of kube-scheduler and admission webhook\n"
    "\n"
    "Usage:\n"
    "  hami-scheduler --device-config-file FILE [FLAGS]\n"
    "  hami-scheduler version | --version\n"
    "\n"
    "Try it against the cluster that kubectl talks to:\n"
    "  hami-scheduler --device-config-file device-config.yaml --scheduler-name hami-scheduler -v 4\n"
    "  curl -s localhost:9395/metrics\n"
    "\n"
    "In a cluster, with TLS for the webhook and two replicas:\n"
    "  hami-scheduler --http_bind=0.0.0.0:443 --cert_file=/tls/tls.crt --key_file=/tls/tls.key \\\n"
    "      --scheduler-name=hami-scheduler --device-config-file=/device-config.yaml \\\n"
    "      --leader-elect --leader-elect-resource-name=hami-scheduler --leader-elect-resource-namespace=kube-system\n"
    "\n"
    "Flags are written --x=y or --x y.\n";

constexpr const char* kEpilogue =
    "\n"
    "Environment:\n"
    "  KUBECONFIG               kubeconfig files, when --kubeconfig is not given; else ~/.kube/config, else the pod's\n"
    "                           service account\n"
    "  POD_NAME, POD_NAMESPACE  the pod we run in: it gets the label hami.io/scheduler-role\n"
    "  HAMI_NODELOCK_EXPIRE     as --node-lock-timeout, which wins over it\n"
    "  HAMI_GRANT_KEY_FILE      as --grant-key-file, which wins over it\n"
    "\n"
    "SIGHUP opens the log file anew; certificates and tokens are read anew by themselves; what else is in files is "
    "read\n"
    "at the start only.\n"
    "Exit status: 0 after SIGTERM, SIGINT or SIGQUIT, 1 when the start failed, 2 for a mistake on the command line.\n";

constexpr const char* kFileDecides = "resource names come from --device-config-file";

void AddDead(FlagSet& flags) {
  flags.Dead({"cambricon-mlu-name",
              "cambricon-mlu-memory",
              "cambricon-mlu-cores",
              "dcu-name",
              "dcu-memory",
              "dcu-cores",
              "mthreads-name",
              "mthreads-memory",
              "mthreads-cores",
              "metax-name",
              "metax-vcount",
              "metax-vcore",
              "metax-vmemory",
              "kunlun-name",
              "kunlun-vcount",
              "kunlun-vmemory",
              "enflame-gcu-resource-name",
              "enflame-drs-gcu-resource-name",
              "enflame-vgcu-resource-name",
              "enflame-vgcu-legacy-resource-name",
              "enflame-vgcu-percentage-resource-name",
              "enflame-gcu-memory-resource-name",
              "enflame-gcu-core-resource-name"},
             false, kFileDecides);
  flags.Dead({"sgpu-topology-aware"}, true, kFileDecides);
  flags.Dead({"default-mem", "default-cores", "default-gpu"}, false,
             "defaults come from nvidia.defaultMemory, defaultCores and defaultGPUNum in --device-config-file");
  flags.Dead({"debug"}, true, "use -v=4");
}

bool IsLabelText(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return (c < 128 && std::isalnum(c) != 0) || c == '-' || c == '_' || c == '.' || c == '/';
  });
}

// "a=b,c=d". Several flags add up.
Status TakeSelector(std::map<std::string, std::string>& out, const std::string& text) {
  for (const std::string& part : base::Split(text, ',')) {
    const std::size_t equals = part.find('=');
    // As `a!=b` and `a==b`, which no label would ever match.
    const bool good = equals != std::string::npos && equals > 0 && IsLabelText(part.substr(0, equals)) &&
                      IsLabelText(part.substr(equals + 1));
    if (!good) {
      return Fail("'" + part + "' is not KEY=VALUE", "labels are compared for equality only, like gpu=on,zone=a");
    }
    out[part.substr(0, equals)] = part.substr(equals + 1);
  }
  return {};
}

// "kube-system/name", or nothing.
Status TakeLease(LeaseName& out, const std::string& text) {
  const std::size_t slash = text.find('/');
  const std::string ns = text.substr(0, slash);
  const std::string name = slash == std::string::npos ? std::string() : text.substr(slash + 1);
  const bool good = IsLabelText(ns) && IsLabelText(name) && !ns.empty() && !name.empty();
  if (!good && !text.empty()) {
    return Fail("'" + text + "' is not NAMESPACE/NAME", "name a lease, like kube-system/hami-scheduler-bind, or none");
  }
  out = {ns, name};
  return {};
}

// "system:serviceaccount:kube-system:hami-*,admin". Several flags add up.
Status TakeUsers(std::vector<std::string>& out, const std::string& text) {
  for (const std::string& part : base::Split(text, ',')) {
    const std::string user(base::Trim(part));
    const std::size_t star = user.find('*');
    if (user.empty() || user == "*" || (star != std::string::npos && star + 1 != user.size())) {
      return Fail("'" + part + "' is no user's name",
                  "name users as the API server does, like system:serviceaccount:kube-system:hami-*, with a * at the "
                  "end alone");
    }
    out.push_back(user);
  }
  return {};
}

Status TakeMode(bool& prioritize, const std::string& text) {
  if (text != "filter" && text != "prioritize") return Fail("'" + text + "' is not filter or prioritize");
  prioritize = text == "prioritize";
  return {};
}

Status TakeQps(double& out, const std::string& text) {
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || !std::isfinite(value)) {
    return Fail("not a number of calls a second");
  }
  out = std::max(value, 0.0);
  return {};
}

enum class PageAuth { kAuto, kNone, kToken };

struct Reader {
  Options options;
  PageAuth page_auth = PageAuth::kAuto;
  FlagSet flags;
  bool lock_timeout_given = false;
  bool trusted_writers_given = false;

  Reader() {
    AddServing();
    AddPage();
    AddDeciding();
    AddTrusting();
    AddKubernetes();
    AddReplicas();
    AddWatching();
    AddDead(flags);
  }

  void AddServing() {
    flags.Group("Serving");
    flags.Custom("http_bind", "HOST:PORT", "127.0.0.1:8080", base::TakeParsed(options.http, base::ParseHostPort),
                 "where kube-scheduler (/filter, /bind) and the API server (/webhook) find us; no host means every "
                 "interface");
    flags.Text("cert_file", "FILE", options.cert_file,
               "certificate chain (PEM); HTTPS when this and --key_file are given. Read again when it changes");
    flags.Text("key_file", "FILE", options.key_file, "its private key (PEM)");
    flags.Bool("profiling", options.profiling,
               "answer /debug/pprof/ beside /filter, for `go tool pprof .../debug/pprof/profile`. Needs gperftools' "
               "libprofiler.so.0");
  }

  void AddPage() {
    flags.Group("The page");
    flags.Custom(
        "page-bind-address", "HOST:PORT", "127.0.0.1:9396",
        [this](const std::string& text) -> Status {
          options.page_given = true;
          options.page.reset();
          if (text.empty()) return {};
          return base::TakeParsed(options.page, base::ParseHostPort)(text);
        },
        "where people look at the cluster with a browser, and `hami cluster --server` reads it; read-only. Empty: "
        "nowhere. Beyond the loopback it has the certificate of --cert_file, where one is given");
    flags.Custom("page-auth", "auto|none|token", "auto",
                 base::TakeChoice<PageAuth>(
                     page_auth, {{"auto", PageAuth::kAuto}, {"none", PageAuth::kNone}, {"token", PageAuth::kToken}}),
                 "token: readers bring a bearer token whose user may get the nonResourceURL /v1/state, as the API "
                 "server is asked by TokenReview and SubjectAccessReview; auto: token beyond the loopback, none on it");
    flags.Custom(
        "page-monitors", "NAMESPACE/SERVICE", "",
        [this](const std::string& text) -> Status {
          options.page_monitors.reset();
          if (text.empty()) return {};
          return base::TakeParsed(options.page_monitors, page::ParseServiceName)(text);
        },
        "the Service of hami-monitor: the page shows what shares used over the last hour, as GET /v1/use of each "
        "monitor behind it says. Needs list on endpointslices there. Empty: the page shows what was given alone");
    flags.Custom(
        "page-sample-interval", "DURATION", "1m", [this](const std::string& text) { return TakeSampling(text); },
        "how often the monitors are asked, 1s to 10m; one sample a minute is kept");
  }

  Status TakeSampling(const std::string& text) {
    HAMI_TRY(base::TakeParsed(options.page_sample_interval, base::ParseGoDuration)(text));
    if (options.page_sample_interval >= std::chrono::seconds(1) &&
        options.page_sample_interval <= std::chrono::minutes(10)) {
      return {};
    }
    return Fail("it is 1s to 10m");
  }

  void AddDeciding() {
    flags.Group("Deciding");
    flags.Text("device-config-file", "FILE", options.device_config_file,
               "device-config.yaml: which resources each vendor owns. Required; HAMi's own files load unchanged");
    flags.Bool("enable-ascend", options.vendors.ascend, "schedule the Ascend chips of vnpus in device-config.yaml");
    flags.Bool("enable-iluvatar", options.vendors.iluvatar,
               "schedule the Iluvatar chips of iluvatars in device-config.yaml");
    flags.Text("scheduler-name", "NAME", options.scheduler_name,
               "written to spec.schedulerName by the webhook; also the source of our events");
    flags.Bool("force-overwrite-default-scheduler", options.overwrite_default_scheduler,
               "also take over pods that name default-scheduler");
    flags.Text("node-scheduler-policy", "POLICY", options.node_policy,
               "binpack: the fullest node that fits; spread: the emptiest; fragmentation: the one where the pod costs "
               "the pods "
               "that usually come the least. hami.io/node-scheduler-policy on a pod wins");
    flags.Text("gpu-scheduler-policy", "POLICY", options.device_policy,
               "binpack, spread, fragmentation, topology-aware, mutex, numa, or a chain like numa,binpack. "
               "hami.io/gpu-scheduler-policy on a pod wins");
    flags.Custom(
        "extender-mode", "MODE", "filter",
        [this](const std::string& text) { return TakeMode(options.prioritize, text); },
        "filter: /filter names the one node where the pod goes, as HAMi does; prioritize: it names those that fit, 100 "
        "at "
        "most, and kube-scheduler chooses by its own scores and those of /prioritize, with prioritizeVerb: prioritize "
        "and a weight in its configuration");
    flags.Text(
        "workload-file", "FILE", options.workload_file,
        "what pods usually ask for, for the policy fragmentation: CSV, a class of pods a line, with the columns "
        "weight, cpu, memory, resources and annotations as in a pod (| divides lists). Without it that is learnt "
        "from the pods");
    flags.Bool(
        "preemption", options.preemption,
        "a pod that finds no place has pods of lower priority evicted, the fewest of the lowest priorities on one "
        "node; disruption budgets hold. Needs the right to create pods/eviction");
    flags.Custom(
        "node-label-selector", "KEY=VALUE,...", "",
        [this](const std::string& text) { return TakeSelector(options.node_selector, text); },
        "only nodes with these labels are registered");
    flags.Custom(
        "node-lock-timeout", "DURATION", "5m",
        [this](const std::string& text) -> Status {
          lock_timeout_given = true;
          return base::TakeParsed(options.lock_timeout, base::ParseGoDuration)(text);
        },
        "after this long the lock of a node may be taken over");
    flags.Custom("node-lock-retry-timeout", "DURATION", "28s",
                 base::TakeParsed(options.lock_retry_timeout, base::ParseGoDuration),
                 "how long the binding of a member of a PodGroup waits for a locked node; 0: not at all. Keep it below "
                 "the extender's httpTimeout");
  }

  void AddTrusting() {
    flags.Group("Trusting");
    flags.Custom(
        "trusted-writers", "USER,...", "system:serviceaccount:NAMESPACE:hami-*",
        [this](const std::string& text) {
          trusted_writers_given = true;
          return TakeUsers(options.trusted_writers, text);
        },
        "who may write HAMi's own annotations and labels on pods, as the API server names users; a * at the end stands "
        "for anything. From others they are taken off new pods, and refused later. NAMESPACE is $POD_NAMESPACE, or "
        "kube-system");
    flags.Text("grant-key-file", "FILE", options.grant_key_file,
               "keys that grants are sealed with, the same as the device plugins have: one a line, 16 bytes or more in "
               "hex or base64; the first one seals, all prove. Read again when it changes. Without it grants are not "
               "sealed");
    flags.Bool(
        "trust-unsealed", options.trust_unsealed,
        "with --grant-key-file: grants without a seal count for at most what their pods ask for, as those of HAMi's "
        "scheduler. Set it to false when no such pod runs any more: then a running pod without a seal closes its "
        "node until the plugin has written its grant anew or refused it");
  }

  void AddKubernetes() {
    flags.Group("Kubernetes");
    flags.Text("kubeconfig", "FILE", options.kubeconfig,
               "where the API server is and who we are to it; without it $KUBECONFIG, ~/.kube/config, or the pod's "
               "service account. Users with 'exec' are asked that program for a credential");
    flags.Custom(
        "kube-qps", "N", "0", [this](const std::string& text) { return TakeQps(options.kube_qps, text); },
        "calls a second to the API server; 0: as many as its own fairness allows");
    flags.Custom("kube-burst", "N", "10", base::TakeNumber(options.kube_burst, 0, 1'000'000),
                 "calls that may be saved up under --kube-qps");
    flags.Custom(
        "kube-timeout", "SECONDS", "0",
        [this](const std::string& text) -> Status {
          int seconds = 0;
          HAMI_TRY(base::TakeNumber(seconds, 0, 3600)(text));
          options.kube_timeout = std::chrono::seconds(seconds);
          return {};
        },
        "the longest that one call may take; 0: 10 seconds, and 30 for a page of a list");
  }

  void AddReplicas() {
    flags.Group("Replicas");
    flags.Bool("leader-elect", options.leader_elect,
               "answer /filter and register nodes only while kube-scheduler beside us holds the lease named below. "
               "/webhook and /bind are answered always");
    flags.Text("leader-elect-resource-name", "NAME", options.lease_name, "the lease of kube-scheduler");
    flags.Text("leader-elect-resource-namespace", "NAMESPACE", options.lease_namespace, "and its namespace");
    flags.Custom(
        "bind-lease", "NAMESPACE/NAME", "kube-system/hami-scheduler-bind",
        [this](const std::string& text) { return TakeLease(options.bind_lease, text); },
        "the lease by which the schedulers of a cluster know whether they are alone: then a binding is one write. It "
        "must be the same for all. Empty: none, and every binding writes a ticket on its node");
  }

  void AddWatching() {
    flags.Group("Watching");
    flags.Custom("metrics-bind-address", "HOST:PORT", ":9395", base::TakeParsed(options.metrics, base::ParseHostPort),
                 "where Prometheus finds /metrics");
    flags.Bool("legacy-metrics", options.legacy_metrics, "also the metric names of HAMi before 2.9");
    flags.Custom("v", "LEVEL", "0", base::TakeNumber(options.verbosity, 0, 100),
                 "4 and more: a line for every event of a pod");
    flags.Shorthand('v');
    flags.Custom("logging-format", "text|json", "text", base::TakeParsed(options.log_style, base::ReadLoggingFormat),
                 "how messages are written");
    base::AddLogFileFlags(flags, options.log_files);
  }
};

Message Mistake(const base::Error& error) { return {base::MistakeText("hami-scheduler", error), kUsage}; }

// What no single flag can see.
Status CheckTogether(const Options& options) {
  if (options.device_config_file.empty()) {
    return Fail("--device-config-file is missing, so that no resource would be scheduled",
                "mount the ConfigMap of device-config.yaml and name the file, like "
                "--device-config-file=/device-config.yaml");
  }
  if (options.cert_file.empty() != options.key_file.empty()) {
    return Fail(options.cert_file.empty() ? "--key_file without --cert_file" : "--cert_file without --key_file",
                "HTTPS needs both; leave both out for plain HTTP");
  }
  if (!options.trust_unsealed && options.grant_key_file.empty()) {
    return Fail("--trust-unsealed=false without --grant-key-file: no grant would ever count",
                "give the file of keys that the device plugins have, too");
  }
  if (options.leader_elect && (options.lease_name.empty() || options.lease_namespace.empty())) {
    return Fail("--leader-elect does not know which lease to watch",
                "add --leader-elect-resource-name and --leader-elect-resource-namespace as kube-scheduler has them");
  }
  return {};
}

bool IsOneOf(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// What works, and hardly as it was meant.
void WarnOfOddities(Options& options) {
  const auto warn = [&](std::string_view text) { options.warnings.emplace_back(text); };
  if (!IsOneOf(options.node_policy, {"binpack", "spread", "fragmentation"})) {
    warn("--node-scheduler-policy=" + options.node_policy +
         " is neither binpack, spread nor fragmentation, and means binpack");
  }
  const std::vector<std::string> words = base::Split(options.device_policy, ',');
  for (const std::string& word : words) {
    if (IsOneOf(base::Trim(word), {"binpack", "spread", "topology-aware", "mutex", "numa", "fragmentation"})) continue;
    warn("--gpu-scheduler-policy: '" + word + "' is no policy, and " +
         (words.size() > 1 ? "is left out" : "means spread"));
  }
  if (options.lock_timeout.count() == 0) {
    warn("a node lock timeout of 0 makes every lock void: pods of one node may get each other's cards");
  }
}

void SettlePage(PageAuth auth, Options& options) {
  if (!options.page) return;
  const bool loopback = IsLoopback(*options.page);
  options.page_tokens = auth == PageAuth::kToken || (auth == PageAuth::kAuto && !loopback);
  if (loopback) return;
  if (!options.page_tokens) {
    options.warnings.emplace_back("--page-auth=none: whatever reaches the page's port reads who runs what");
  } else if (options.cert_file.empty()) {
    options.warnings.emplace_back("--page-bind-address without --cert_file: readers' tokens travel in plain text");
  }
}

// An explicit flag wins over the environment, which wins over the default.
Status ReadEnvironment(const Environment& environment, Options& options, bool lock_timeout_given) {
  options.pod_name = environment("POD_NAME").value_or("");
  options.pod_namespace = environment("POD_NAMESPACE").value_or("");
  if (options.grant_key_file.empty()) options.grant_key_file = environment("HAMI_GRANT_KEY_FILE").value_or("");
  const auto expire = environment("HAMI_NODELOCK_EXPIRE");
  if (!expire || expire->empty() || lock_timeout_given) return {};
  const auto parsed = base::ParseGoDuration(*expire);
  if (!parsed) return Fail("HAMI_NODELOCK_EXPIRE=" + *expire + ": " + parsed.error().message, parsed.error().hint);
  options.lock_timeout = *parsed;
  return {};
}

}  // namespace

bool IsLoopback(const base::HostPort& address) {
  return address.host == "localhost" || address.host == "::1" || address.host.starts_with("127.");
}

std::string VersionLine() { return base::VersionOf("hami-scheduler"); }

std::variant<Options, Message> ParseOptions(const std::vector<std::string>& arguments, const Environment& environment) {
  Reader reader;
  auto parsed = reader.flags.Parse(arguments);
  if (!parsed) return Mistake(parsed.error());
  if (parsed->help) {
    const base::HelpPage page{"hami-scheduler", 8, "places pods that ask for shares of GPUs", kOverview, kEpilogue};
    return Message{base::Render(page, reader.flags, parsed->form, base::kBuildInfo), 0};
  }
  if (!parsed->words.empty() && parsed->words.front() == "version") {
    if (parsed->words.size() == 1) return Message{VersionLine() + "\n", 0};
    return Mistake({"'" + parsed->words[1] + "' is one word too many", "`version` stands alone"});
  }
  if (!parsed->words.empty()) {
    return Mistake(
        {"'" + parsed->words.front() + "' is no command", "the only one is `version`; --help shows the rest"});
  }
  Status good = ReadEnvironment(environment, reader.options, reader.lock_timeout_given);
  if (good) good = CheckTogether(reader.options);
  if (!reader.trusted_writers_given) {
    const std::string& ns = reader.options.pod_namespace;
    reader.options.trusted_writers = {"system:serviceaccount:" + (ns.empty() ? "kube-system" : ns) + ":hami-*"};
  }
  if (!good) return Mistake(good.error());
  reader.options.warnings = std::move(parsed->warnings);
  SettlePage(reader.page_auth, reader.options);
  for (std::string& warning : base::LogFileWarnings(*parsed, reader.options.log_files)) {
    reader.options.warnings.push_back(std::move(warning));
  }
  WarnOfOddities(reader.options);
  return reader.options;
}

}  // namespace hami::scheduler
