// SPDX-License-Identifier: Apache-2.0

#include "monitor/service.h"

#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/strings.h"
#include "kube/config.h"
#include "kube/store.h"
#include "monitor/metrics.h"
#include "monitor/monitor.h"
#include "monitor/probes.h"
#include "monitor/use.h"
#include "net/gzip.h"
#include "net/server.h"
#include "net/url.h"

namespace hami::monitor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kPatience{2000};

std::unique_ptr<kube::Client> MakeClient(const kube::Config& config, base::Error& error) {
  kube::ClientOptions options;
  options.user_agent = "hami-monitor";
  options.max_idle_connections = 2;
  auto client = kube::Client::Make(config, options);
  if (client) return *std::move(client);
  error = client.error();
  return nullptr;
}

// The pods of one node, as a store kept by a watch that the server narrows down.
class NodePods {
 public:
  NodePods(kube::Client& client, const std::string& node)
      : store_([](const base::json::value& object) { return kube::ReadPod(object, KeepAnnotation); }),
        source_(client, kube::kPods, {}, {"", "spec.nodeName=" + node}),
        reflector_(source_, store_, OptionsOf()) {
    reflector_.Start();
  }
  Pods Get() const { return {reflector_.synced(), store_.All()}; }
  void Stop() { reflector_.Stop(); }

 private:
  static kube::ReflectorOptions OptionsOf() {
    kube::ReflectorOptions options;
    options.name = "pods of this node";
    return options;
  }
  kube::Store<kube::Pod> store_;
  kube::ApiListWatcher source_;
  kube::Reflector reflector_;
};

}  // namespace

class Service::Impl {
 public:
  Impl(const Options& options, std::unique_ptr<kube::Client> client)
      : options_(options),
        client_(std::move(client)),
        recorder_(*client_, RecorderOptionsOf(options)),
        pods_(*client_, options.node_name),
        gpus_([](XidCounts& heard) { return MakeNvmlSource({}, nvml::kProcGpus, heard); },
              {options.gpu_interval, seconds(2), seconds(60)}),
        monitor_(ConfigOf(options), OutsideOf()) {}

  base::Status Serve() {
    net::ServerOptions server;
    server.host = options_.metrics_address.host;
    server.port = options_.metrics_address.port;
    server.max_threads = 8;
    server.max_connections = 64;
    server.limits.body_bytes = 4096;
    auto started = net::Server::Start(server, [this](const net::Request& request) { return Answer(request); });
    if (!started) {
      return base::Fail("can not serve metrics: " + started.error().message, "choose another --metrics-bind-address");
    }
    server_ = *std::move(started);
    loop_ = std::thread([this] { Loop(); });
    node_check_ = std::thread([this] { CheckNode(); });
    return {};
  }

  std::uint16_t port() const { return server_->port(); }

  bool Stop() {
    if (std::exchange(stopped_, true)) return true;
    stop_.Cancel();
    if (loop_.joinable()) loop_.join();
    if (node_check_.joinable()) node_check_.join();
    monitor_.Release();
    if (server_) server_->Stop(seconds(1));
    pods_.Stop();
    recorder_.Stop(seconds(1));
    return gpus_.Stop(kPatience);
  }

 private:
  static kube::RecorderOptions RecorderOptionsOf(const Options& options) {
    kube::RecorderOptions recorder;
    recorder.component = "hami-monitor";
    recorder.host = options.node_name;
    recorder.most_queued = 100;
    recorder.most_remembered = 256;
    return recorder;
  }

  static Monitor::Config ConfigOf(const Options& options) {
    return {options.node_name, options.hook_path, options.tick, std::chrono::duration_cast<seconds>(options.resync),
            options.feedback,  options.resize};
  }

  Monitor::Outside OutsideOf() {
    const auto tell = [this](const kube::Pod& pod, kube::EventType type, std::string_view reason,
                             std::string_view message) {
      recorder_.Record({"Pod", "v1", pod.metadata.ns, pod.metadata.name, pod.metadata.uid}, type, reason, message);
    };
    return {[this] { return pods_.Get(); }, [this] { return gpus_.Last(); }, tell};
  }

  void Loop() {
    do {
      const auto began = Clock::now();
      monitor_.Tick({std::chrono::system_clock::now(), began});
      last_round_.store(Clock::now());
      const auto next = began + options_.tick;
      if (stop_.SleepUntil(std::max(next, Clock::now() + milliseconds(10)))) return;
    } while (!stop_.cancelled());
  }

  // A wrong name is a node without pods, which looks like one that has nothing to do.
  void CheckNode() {
    constexpr seconds kAskAgain{5};
    do {
      const auto node = client_->Get(kube::kNodes, {}, options_.node_name, {&stop_, kPatience});
      const bool absent = !node && node.error().reason == kube::Reason::kNotFound;
      std::string trouble;
      if (absent) {
        trouble = base::Concat({"there is no node ", base::Printable(options_.node_name),
                                ": set NODE_NAME from spec.nodeName (fieldRef), or --node-name"});
      }
      {
        const std::scoped_lock lock(node_mutex_);
        if (!trouble.empty() && trouble != node_trouble_) base::LogError(trouble);
        node_trouble_ = std::move(trouble);
      }
      // Not to be allowed to ask is no trouble.
      if (node || node.error().reason == kube::Reason::kForbidden) return;
    } while (!stop_.SleepUntil(Clock::now() + kAskAgain));
  }

  std::string NodeTrouble() const {
    const std::scoped_lock lock(node_mutex_);
    return node_trouble_;
  }

  net::Response Answer(const net::Request& request) const {
    const std::string_view path = net::PathOf(request.target);
    if (request.method != "GET" && request.method != "HEAD") return PlainAnswer(405, "only GET\n");
    net::Response response;
    if (path == "/metrics") {
      response = net::Compressed(request, Metrics());
    } else if (path == "/v1/use") {
      response = {200, {{"Content-Type", "application/json"}}, device::WriteUse(UseOf(*monitor_.Last())), {}};
    } else if (path == "/healthz") {
      response = Health(Clock::now() - last_round_.load());
    } else if (path == "/readyz") {
      response = Readiness(monitor_.Last()->self, NodeTrouble());
    } else {
      response = PlainAnswer(404, "there are /metrics, /v1/use, /healthz and /readyz\n");
    }
    if (request.method == "HEAD") response.body.clear();
    return response;
  }

  net::Response Metrics() const {
    const MetricsTime now{
        std::chrono::duration_cast<seconds>(std::chrono::system_clock::now().time_since_epoch()).count(), Clock::now(),
        last_scrape_.load()};
    net::Response response;
    response.headers = {{"Content-Type", kMetricsContentType}};
    response.body =
        RenderMetrics(*monitor_.Last(), *gpus_.Last(), {options_.legacy_metrics, options_.compat_labels}, now);
    last_scrape_.store(std::chrono::duration<double>(Clock::now() - now.steady).count());
    return response;
  }

  const Options options_;
  const std::unique_ptr<kube::Client> client_;
  kube::EventRecorder recorder_;
  NodePods pods_;
  GpuSampler gpus_;
  Monitor monitor_;
  net::Canceller stop_;
  std::atomic<Clock::time_point> last_round_{Clock::now()};
  mutable std::atomic<double> last_scrape_{0};
  std::unique_ptr<net::Server> server_;
  std::thread loop_;
  std::thread node_check_;
  mutable std::mutex node_mutex_;
  std::string node_trouble_;
  bool stopped_ = false;
};

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Service::~Service() { Stop(); }
std::uint16_t Service::port() const { return impl_->port(); }
bool Service::Stop() { return impl_->Stop(); }

base::Result<std::unique_ptr<Service>> Service::Start(const Options& options) {
  kube::ConfigSources sources;
  sources.kubeconfig = options.kubeconfig;
  auto config = kube::FindConfig(sources);
  if (!config) return tl::unexpected(config.error());
  base::Error error;
  auto client = MakeClient(*config, error);
  if (!client) return tl::unexpected(std::move(error));
  auto impl = std::make_unique<Impl>(options, std::move(client));
  if (auto served = impl->Serve(); !served) {
    impl->Stop();
    return tl::unexpected(std::move(served).error());
  }
  return std::unique_ptr<Service>(new Service(std::move(impl)));
}

}  // namespace hami::monitor
