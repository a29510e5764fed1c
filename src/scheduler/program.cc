// SPDX-License-Identifier: Apache-2.0

#include "scheduler/program.h"

#include <sys/resource.h>

#include <algorithm>
#include <set>
#include <thread>

#include "base/build_info.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/strings.h"
#include "device/config.h"
#include "device/vendors/sections.h"
#include "kube/recorder.h"
#include "net/server.h"
#include "sched/workload_text.h"
#include "scheduler/cache.h"
#include "scheduler/counters.h"
#include "scheduler/cpu_profile.h"
#include "scheduler/evictor.h"
#include "scheduler/extender.h"
#include "scheduler/keeper.h"
#include "scheduler/kube_api.h"
#include "scheduler/leader.h"
#include "scheduler/metrics.h"
#include "scheduler/page_service.h"
#include "scheduler/pprof.h"
#include "scheduler/reviews.h"
#include "scheduler/routes.h"

namespace hami::scheduler {
namespace {

constexpr std::size_t kMostConfigBytes = 4U << 20U;
// A bind call may wait long for its node, each on a thread.
constexpr unsigned kMainThreads = 256;
constexpr unsigned kMetricsThreads = 4;
// Of the metrics port: whoever reaches it shall not take the descriptors and the memory that pods are placed with.
constexpr std::size_t kMetricsConnections = 32;
constexpr std::uint64_t kMetricsBodyBytes = 4U << 10U;
constexpr std::size_t kMainConnections = 1024;
constexpr std::size_t kOtherDescriptors = 64 + PageService::kConnections;  // files, watches, epoll sets, the page
constexpr auto kFinishTime = std::chrono::seconds(15);
// The API server keeps connections, and sends no admission a second time that was cut off under way. Those in use end
// within this time, as each answer ends its connection.
constexpr auto kDrainTime = std::chrono::seconds(1);
constexpr auto kLastEventsTime = std::chrono::seconds(2);

// A file for several vendors starts this program unchanged; whoever has their devices should know.
void SayWhatIsScheduled(const std::string& file, const device::DeviceConfig& config,
                        const device::VendorSwitches& switches) {
  if (config.nvidia.count_resource.empty()) {
    base::LogWarning(file + ": nvidia.resourceCountName is empty: no pod is given a GPU");
  }
  const auto waits = [&](const char* section, bool on, const char* flag) {
    const auto first = config.others.lower_bound(section);
    if (on || first == config.others.end() || !first->first.starts_with(section)) return;
    base::LogInfo(base::Concat({file, ": devices of ", section, " are not scheduled without ", flag}));
  };
  waits("vnpus", switches.ascend, "--enable-ascend");
  waits("iluvatars", switches.iluvatar, "--enable-iluvatar");
}

std::string NamesOf(const device::Vendors& vendors) {
  std::vector<std::string> names;
  for (const auto& vendor : vendors) names.emplace_back(vendor->key());
  return base::Join(names, ", ");
}

base::Result<device::Vendors> LoadVendors(const Options& options) {
  const std::string& file = options.device_config_file;
  const auto text = base::ReadLinkedFile(file, kMostConfigBytes);
  if (!text) {
    return base::Fail("--device-config-file=" + file + ": " + text.error().message,
                      "mount the ConfigMap of device-config.yaml there, or name another file");
  }
  auto config = device::ParseDeviceConfig(*text, file);
  if (!config) return tl::unexpected(config.error());
  SayWhatIsScheduled(file, *config, options.vendors);
  device::Vendors vendors = device::MakeVendors(*config, options.vendors);
  if (const auto plain = device::CheckVendors(vendors); !plain) {
    return base::Fail(file + ": " + plain.error().message, plain.error().hint);
  }
  base::LogInfo(base::Concat({file, ": devices that are scheduled: ", NamesOf(vendors)}));
  return vendors;
}

base::Result<std::unique_ptr<kube::Client>> ConnectTo(const Options& options) {
  kube::ConfigSources sources;
  sources.kubeconfig = options.kubeconfig;
  const auto config = kube::FindConfig(sources);
  if (!config && !options.kubeconfig.empty()) {
    return base::Fail("--kubeconfig: " + config.error().message, config.error().hint);
  }
  if (!config) return tl::unexpected(config.error());
  kube::ClientOptions client;
  client.qps = options.kube_qps;
  client.burst = options.kube_burst;
  if (options.kube_timeout.count() > 0) client.timeout = options.kube_timeout;
  client.user_agent = std::string("hami-scheduler/") + base::kBuildInfo.version;
  client.max_idle_connections = kMainThreads;
  return kube::Client::Make(*config, client);
}

net::Duration CallTime(const Options& options) {
  constexpr auto kUsual = std::chrono::seconds(10);
  return options.kube_timeout.count() > 0 ? options.kube_timeout : kUsual;
}

double SecondsSince(net::Deadline begin) { return std::chrono::duration<double>(net::Clock::now() - begin).count(); }

base::Result<TakeProfile> LoadProfiler() {
  auto profiler = CpuProfiler::Load();
  if (!profiler) {
    base::LogWarning("--profiling: " + profiler.error().message + "; " + profiler.error().hint);
    return tl::unexpected(profiler.error());
  }
  return TakeProfile([profiler = *profiler](std::chrono::seconds span, const std::function<bool()>& enough) {
    return profiler.Record(span, enough);
  });
}

// The soft limit is 1,024 in many places, for programs that use select. As many as may be, then.
std::size_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMainConnections;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (limit.rlim_cur < limit.rlim_max && ::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return limit.rlim_cur;
}

// So many that the calls to the API server, each on a connection of its own, have descriptors when all of them are
// open.
std::size_t MainConnections(std::size_t descriptors) {
  constexpr std::size_t kOthers = kMainThreads + kMetricsConnections + kOtherDescriptors;
  constexpr std::size_t kLeast = 64;
  return std::clamp(descriptors > kOthers ? descriptors - kOthers : 0, kLeast, kMainConnections);
}

tl::unexpected<base::Error> NotServing(const std::string& address_flag, const net::Error& error) {
  if (error.cause == net::Cause::kTls) {
    return base::Fail("--cert_file, --key_file: " + error.message,
                      "mount the Secret with tls.crt and tls.key there, a certificate and the key that belongs to it");
  }
  return base::Fail(address_flag + ": " + error.message, "name another address, or end the program that listens there");
}

const char* ResultOf(const AdmissionAnswer& answer) {
  if (answer.http_status == 503) return "busy";
  if (answer.http_status != 200) return "unreadable";
  if (!answer.allowed) return "denied";
  return answer.patched ? "patched" : "unchanged";
}

}  // namespace

constexpr std::size_t kMostWorkloadBytes = 1U << 20U;
constexpr auto kEvictionRound = std::chrono::milliseconds(200);
constexpr device::UnixSeconds kAssumeSeconds = 300;  // a pod that was placed keeps its charge so long without a bind

namespace {

// Nothing where no file is named.
base::Result<std::vector<sched::RequestClass>> LoadWorkload(const std::string& file, const device::Vendors& vendors) {
  if (file.empty()) return std::vector<sched::RequestClass>();
  const auto text = base::ReadLinkedFile(file, kMostWorkloadBytes);
  if (!text) return base::Fail("--workload-file: " + text.error().message, text.error().hint);
  auto read = sched::ReadWorkload(*text, file, vendors);
  if (!read) return base::Fail("--workload-file: " + read.error().message, read.error().hint);
  return read;
}

}  // namespace

class Program::Parts {
 public:
  Parts(const Options& options, const std::string& host, device::Vendors vendors, std::unique_ptr<kube::Client> client,
        std::unique_ptr<device::GrantKeyring> keys)
      : options_(options),
        keys_(std::move(keys)),
        client_(std::move(client)),
        books_(std::move(vendors), {options.node_policy, options.device_policy}, kAssumeSeconds,
               keys_ == nullptr ? JudgeClaim() : JudgeSeals(*keys_, options.trust_unsealed)),
        recorder_(*client_, RecorderOptionsFor(options, host)),
        leader_(*client_, LeaderOptionsFor(options, host)),
        api_(*client_, books_.vendors(), options.node_selector, CallTime(options), options.bind_lease, &give_up_),
        lease_(api_, time_, LeaseNeeds(), BindLeaseOptionsFor(options, writer_)),
        binder_(books_, api_, time_, lease_, Recording(), BinderOptionsFor(options, writer_, keys_.get())),
        evictor_(books_, api_, Recording()),
        keeper_(books_, api_, time_, binder_, registration_, [this] { return leader_.leads(); }),
        cache_(
            *client_, books_, registration_, time_,
            {.settled = [this](std::string_view uid) { page_.Settled(uid); }, .node_selector = options.node_selector}),
        extender_(books_, binder_, time_, Recording(), [this] { return cache_.Synced() && leader_.leads(); },
                  {.offer_nodes = options.prioritize ? kOfferedNodes : 0,
                   .preempt = options.preemption,
                   .decided = [this](const PodName& pod, const auto& decision) { page_.Decided(pod, decision); }}),
        reviews_(books_, {options.scheduler_name, options.overwrite_default_scheduler},
                 sched::Writers(options.trusted_writers)),
        metrics_({[this](const auto& use) { books_.Read([&](const State& state) { use(state.ledger); }); },
                  [this] { return Count(); }, options.legacy_metrics}) {}

  ~Parts() { Stop(); }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  void Fix(std::vector<sched::RequestClass> workload) {
    books_.Locked([&](State& state) { state.filter.workload().Fix(std::move(workload)); });
  }
  base::Status Start();
  void Stop();

 private:
  static kube::RecorderOptions RecorderOptionsFor(const Options& options, const std::string& host);
  static LeaderOptions LeaderOptionsFor(const Options& options, const std::string& host);
  static BindLeaseOptions BindLeaseOptionsFor(const Options& options, const std::string& writer);
  static BinderOptions BinderOptionsFor(const Options& options, const std::string& writer, device::GrantKeyring* keys);
  BindLease::Needs LeaseNeeds();
  RecordEvent Recording();
  Endpoints MakeEndpoints();
  std::vector<Reading> Count() const;
  base::Status Listen();

  const Options options_;
  const std::unique_ptr<device::GrantKeyring> keys_;  // none: grants are not sealed
  const std::string writer_ = NewWriterName();
  net::Canceller hurry_;  // thrown first: whoever waits for a node or for the books answers now
  net::Canceller enough_;
  net::Canceller give_up_;  // thrown last: nobody answers, and nobody waits for it any more
  net::Canceller ended_;
  const std::unique_ptr<kube::Client> client_;
  Books books_;
  kube::EventRecorder recorder_;
  Leader leader_;
  KubeApi api_;
  WallTime time_{hurry_};
  BindLease lease_;
  Binder binder_;
  Evictor evictor_;
  PageService page_{
      options_,
      writer_,
      {books_, *client_, time_, [this] { return leader_.leads(); }, [this] { return cache_.Synced(); }, hurry_}};
  Registration registration_;
  Keeper keeper_;
  Cache cache_;
  Extender extender_;
  Reviews reviews_;
  Metrics metrics_;
  std::thread keeping_;
  std::thread leasing_;
  std::thread evicting_;
  std::unique_ptr<net::Server> metrics_server_;
  std::unique_ptr<net::Server> main_server_;  // last: it calls into all of the above
};

kube::RecorderOptions Program::Parts::RecorderOptionsFor(const Options& options, const std::string& host) {
  kube::RecorderOptions recorder;
  recorder.component = options.scheduler_name.empty() ? "hami-scheduler" : options.scheduler_name;
  recorder.host = host;
  return recorder;
}

LeaderOptions Program::Parts::LeaderOptionsFor(const Options& options, const std::string& host) {
  LeaderOptions leader;
  leader.elect = options.leader_elect;
  leader.lease_name = options.lease_name;
  leader.lease_namespace = options.lease_namespace;
  leader.host = host;
  leader.pod_name = options.pod_name;
  leader.pod_namespace = options.pod_namespace;
  return leader;
}

BindLeaseOptions Program::Parts::BindLeaseOptionsFor(const Options& options, const std::string& writer) {
  BindLeaseOptions lease;
  lease.writer = writer;
  lease.enabled = !options.bind_lease.name.empty();
  return lease;
}

BindLease::Needs Program::Parts::LeaseNeeds() {
  return {[this] { return leader_.leads(); }, [this] { return binder_.Unsettled(); },
          [this] { return cache_.Reached(); }, [this](const Owner& pod) { return binder_.RevokeBefore(pod); }};
}

BinderOptions Program::Parts::BinderOptionsFor(const Options& options, const std::string& writer,
                                               device::GrantKeyring* keys) {
  BinderOptions binder;
  binder.keys = keys;
  binder.writer = writer;
  binder.lock.lock_timeout = options.lock_timeout.count();
  binder.group_wait = options.lock_retry_timeout.count();
  return binder;
}

RecordEvent Program::Parts::Recording() {
  return [this](const PodName& pod, const sched::Event& event) {
    kube::EventTarget target;
    target.ns = pod.ns;
    target.name = pod.name;
    target.uid = pod.uid;
    recorder_.Record(target, event.warning ? kube::EventType::kWarning : kube::EventType::kNormal, event.reason,
                     event.message);
    if (options_.verbosity < 4) return;
    base::LogDebug(base::Concat(
        {"event pod=", pod.ns, "/", pod.name, " reason=", event.reason, " message=\"", event.message, "\""}));
  };
}

Endpoints Program::Parts::MakeEndpoints() {
  Endpoints endpoints;
  if (options_.profiling) endpoints.pprof = PprofRoutes(LoadProfiler(), hurry_);
  endpoints.filter = [this](std::string_view body, const Abandoned& abandoned) {
    const net::Deadline begin = net::Clock::now();
    Reply reply = extender_.Filter(body, abandoned);
    metrics_.ObserveFilter(SecondsSince(begin));
    return reply;
  };
  endpoints.prioritize = [this](std::string_view body) { return extender_.Prioritize(body); };
  endpoints.preempt = [this](std::string_view body) { return extender_.Preempt(body); };
  endpoints.bind = [this](std::string_view body, const Abandoned& abandoned) {
    const net::Deadline begin = net::Clock::now();
    Reply reply = extender_.Bind(body, abandoned);
    metrics_.ObserveBind(SecondsSince(begin));
    return reply;
  };
  endpoints.review = [this](std::string_view body) {
    AdmissionAnswer answer = reviews_.Answer(body);
    metrics_.CountAdmission(ResultOf(answer));
    return answer;
  };
  endpoints.readiness = [this] {
    return std::string(leader_.leads() ? "leading" : "following") +
           (cache_.Synced() ? ", books complete\n" : ", books incomplete: /filter waits\n");
  };
  return endpoints;
}

base::Status Program::Parts::Listen() {
  net::ServerOptions serving;
  serving.host = options_.http.host;
  serving.port = options_.http.port;
  if (!options_.cert_file.empty()) serving.tls = net::TlsFiles{options_.cert_file, options_.key_file};
  serving.max_threads = kMainThreads;
  serving.max_connections = MainConnections(RaiseDescriptorLimit());
  serving.body_limit = BodyLimitOf;
  serving.large_bodies_bytes = kLargeBodiesBytes;
  auto main_server = net::Server::Start(serving, MainRoutes(MakeEndpoints()));
  if (!main_server) return NotServing("--http_bind", main_server.error());
  main_server_ = *std::move(main_server);

  net::ServerOptions watching;
  watching.host = options_.metrics.host;
  watching.port = options_.metrics.port;
  watching.max_threads = kMetricsThreads;
  watching.max_connections = kMetricsConnections;
  watching.limits.body_bytes = kMetricsBodyBytes;
  auto metrics_server =
      net::Server::Start(watching, MetricsRoutes([this](net::BodyWriter& out) { metrics_.Write(out); }));
  if (!metrics_server) return NotServing("--metrics-bind-address", metrics_server.error());
  metrics_server_ = *std::move(metrics_server);
  HAMI_TRY(page_.Start());
  base::LogInfo(base::Concat({VersionLine(), " serves http", serving.tls ? "s" : "", " on ",
                              serving.host.empty() ? "*" : serving.host, ":", std::to_string(main_server_->port()),
                              ", metrics on ", watching.host.empty() ? "*" : watching.host, ":",
                              std::to_string(metrics_server_->port())}));
  return {};
}

base::Status Program::Parts::Start() {
  HAMI_TRY(Listen());
  leader_.Start();
  cache_.Start();
  keeping_ = std::thread([this] { keeper_.Run(enough_); });
  leasing_ = std::thread([this] { lease_.Run(enough_); });
  if (!options_.preemption) return {};
  evicting_ = std::thread([this] {
    do {
      evictor_.RunOnce();
    } while (!enough_.SleepUntil(net::After(kEvictionRound)));
  });
  return {};
}

void Program::Parts::Stop() {
  hurry_.Cancel();
  page_.Stop();
  // What a call to a silent API server leaves unknown is settled by the next scheduler, which finds the lease unclean.
  std::thread patience([this] {
    if (!ended_.SleepUntil(net::After(kFinishTime))) give_up_.Cancel();
  });
  if (main_server_) {
    main_server_->Drain(kDrainTime);
    main_server_->Stop(kFinishTime);
  }
  enough_.Cancel();
  if (keeping_.joinable()) keeping_.join();
  if (leasing_.joinable()) leasing_.join();
  if (evicting_.joinable()) evicting_.join();
  ended_.Cancel();
  patience.join();
  leader_.Stop();
  cache_.Stop();
  recorder_.Stop(kLastEventsTime);
  if (metrics_server_) metrics_server_->Stop(std::chrono::seconds(1));
}

std::vector<Reading> Program::Parts::Count() const {
  return AllReadings({extender_.counters(), binder_.counters(), keeper_.counters(), cache_.counters(),
                      client_->counters(), recorder_.counters(), books_.Read([](const State& state) {
                        return BooksCounters{state.ledger.counters(), state.filter.counters(),
                                             state.ledger.node_count(), state.ledger.pod_count(),
                                             state.pendings().size()};
                      }),
                      leader_.leads(), cache_.Synced(), lease_.term().mode});
}

Program::Program(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Program::~Program() = default;

base::Result<std::unique_ptr<Program>> Program::Start(const Options& options, const std::string& host) {
  for (const std::string& warning : options.warnings) base::LogWarning(warning);
  auto vendors = LoadVendors(options);
  if (!vendors) return tl::unexpected(vendors.error());
  auto client = ConnectTo(options);
  if (!client) return tl::unexpected(client.error());
  std::unique_ptr<device::GrantKeyring> keys;
  if (!options.grant_key_file.empty()) {
    auto read = device::GrantKeyring::OfFile(options.grant_key_file);
    if (!read) return base::Fail("--grant-key-file: " + read.error().message, read.error().hint);
    keys = *std::move(read);
  }
  auto workload = LoadWorkload(options.workload_file, *vendors);
  if (!workload) return tl::unexpected(workload.error());
  auto parts = std::make_unique<Parts>(options, host, *std::move(vendors), *std::move(client), std::move(keys));
  if (!workload->empty()) parts->Fix(*std::move(workload));
  HAMI_TRY(parts->Start());
  return std::unique_ptr<Program>(new Program(std::move(parts)));
}

void Program::Stop() { parts_->Stop(); }

}  // namespace hami::scheduler
