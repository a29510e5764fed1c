// SPDX-License-Identifier: Apache-2.0

#include "test/bench/sched_cell.h"

#include <unistd.h>

#include <ctime>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <span>
#include <thread>

#include "base/fd.h"
#include "base/strings.h"
#include "device/sign_of_life.h"
#include "net/client.h"
#include "test/integration/objects.h"

namespace hami::bench {
namespace {

namespace json = base::json;
using base::Fail;
using base::Result;
using base::Status;
using testcluster::BindBody;
using testcluster::FilterBody;

constexpr int kCards = 8;
constexpr auto kQuiet = std::chrono::milliseconds(300);
constexpr auto kPatience = std::chrono::seconds(180);
constexpr std::size_t kMostQueued = 64;
constexpr std::size_t kAlone = 500;  // Filters without anything beside them
// In the order in which Go's clients, kube-scheduler among them, name them; OpenSSL would begin with the second.
constexpr const char* kSuites = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

std::string NodeName(int number) {
  const std::string digits = std::to_string(number);
  return "gpu-node-" + std::string(5 - std::min<std::size_t>(digits.size(), 5), '0') + digits;
}

// kube-scheduler's own rule (numFeasibleNodesToFind): 50 % less one for every 125 nodes, at least 5 %, at least 100.
std::size_t Sample(std::size_t nodes) {
  if (nodes < 100) return nodes;
  const std::size_t percent = std::max<std::size_t>(5, nodes / 125 >= 50 ? 0 : 50 - nodes / 125);
  return std::max<std::size_t>(100, nodes * percent / 100);
}

// The order in which kube-scheduler names nodes that passed its own filters: sixteen workers take chunks of about the
// square root of the nodes, one chunk after the other, and write down what passed as they go.
void AsWorkersFindThem(std::vector<std::string>& names, std::minstd_rand& random) {
  constexpr std::size_t kWorkers = 16;
  const std::size_t count = names.size();
  const auto root = static_cast<std::size_t>(std::sqrt(static_cast<double>(count)));
  const std::size_t chunk = std::clamp<std::size_t>(root, 1, count / kWorkers + 1);
  std::vector<std::pair<std::size_t, std::size_t>> at;  // per worker: the next node, the end of its chunk
  std::size_t taken = 0;
  const auto take = [&] {
    const std::size_t begin = taken;
    taken = std::min(count, taken + chunk);
    return std::pair(begin, taken);
  };
  while (at.size() < kWorkers && taken < count) at.push_back(take());
  std::vector<std::string> found;
  found.reserve(count);
  while (!at.empty()) {
    const std::size_t worker = random() % at.size();
    auto& [next, end] = at[worker];
    found.push_back(std::move(names[next++]));
    if (next < end) continue;
    if (taken < count) {
      at[worker] = take();
    } else {
      at.erase(at.begin() + static_cast<std::ptrdiff_t>(worker));
    }
  }
  names = std::move(found);
}

double Milliseconds(net::Duration span) { return std::chrono::duration<double, std::milli>(span).count(); }

double Percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
}

}  // namespace

struct Cell::Run {
  std::size_t names = 0;
  std::vector<json::value> pods;
  std::unique_ptr<net::Client> extender;
  net::Deadline end;
  bool bind = false;  // or Filter alone
  std::size_t most = 0;
  std::vector<double> filter_ms;

  struct Job {
    const json::value* pod;
    std::string node;
  };
  std::mutex mutex;
  // Apart, so that a pod wakes one thread.
  std::condition_variable queued;
  std::condition_variable taken;
  std::deque<Job> queue;
  bool done = false;
  int placed = 0;
  int failed = 0;
  std::string first_failure;

  void Failed(const std::string& why) {
    const std::scoped_lock lock(mutex);
    ++failed;
    if (first_failure.empty()) first_failure = why;
  }
  Result<json::value> Post(const char* path, std::string body) const {
    const auto response = extender->Send({"POST",
                                          path,
                                          {{"Content-Type", "application/json"}},
                                          std::move(body),
                                          net::After(std::chrono::seconds(30)),
                                          nullptr});
    if (!response) return Fail(response.error().message);
    auto answer = base::ParseJson(response->body);
    if (response->status != 200 || !answer) return Fail("status " + std::to_string(response->status));
    return answer;
  }
};

Cell::Cell(CellOptions options) : options_(std::move(options)) {
  for (int n = 0; n < options_.nodes; ++n) {
    names_.push_back(NodeName(n));
    json::value node = testcluster::GpuNode(names_.back(), kCards);
    if (IsAmd(n)) {
      testcluster::MakeAmd(node, kCards);
    } else if (!options_.locks) {
      json::object& annotations = node.at("metadata").at("annotations").as_object();
      const std::string registered(annotations.at("hami.io/node-nvidia-register").as_string());
      annotations[device::kConcurrentAllocate] = "1";
      annotations[device::kPluginAlive] = device::FormatAlive(std::time(nullptr), registered);
    }
    api_.Put(kube::kNodes, node);
  }
  for (int p = 0; p < options_.running; ++p) {
    const std::string& node = names_[static_cast<std::size_t>(p) % names_.size()];
    const int card = p / options_.nodes % kCards;
    json::value pod = testcluster::RunningPod("running-" + std::to_string(p), node, card, 1000, 5);
    if (IsAmd(p % options_.nodes)) testcluster::MakeAmdPod(pod);
    api_.Put(kube::kPods, pod);
  }
}

Cell::~Cell() = default;

Status Cell::StartScheduler() {
  const std::string base_path = options_.folder + "/";
  const auto write = [&](const char* name, const std::string& text) {
    const std::string path = base_path + name;
    ::unlink(path.c_str());
    return base::WriteNewFile(path, text, 0600);
  };
  HAMI_TRY(write("kubeconfig", testcluster::Kubeconfig("http://127.0.0.1:" + std::to_string(api_.port()))));
  HAMI_TRY(
      write("device-config.yaml", testcluster::DeviceConfig() + (options_.mixed ? testcluster::OtherVendors() : "")));
  std::vector<std::string> words{options_.scheduler,
                                 "--kubeconfig=" + base_path + "kubeconfig",
                                 "--device-config-file=" + base_path + "device-config.yaml",
                                 "--http_bind=127.0.0.1:0",
                                 "--metrics-bind-address=127.0.0.1:0",
                                 "--scheduler-name=hami-scheduler",
                                 "--cert_file=" + base_path + "tls.crt",
                                 "--key_file=" + base_path + "tls.key"};
  if (options_.mixed) words.insert(words.end(), {"--enable-ascend", "--enable-iluvatar"});
  child_ = std::make_unique<testcluster::Child>(words, testcluster::Child::Variables{{"PATH", "/usr/bin:/bin"}},
                                                base_path + "scheduler.log");
  main_port_ = child_->Said("serves https on 127.0.0.1:", ",");
  metrics_port_ = child_->Said("metrics on 127.0.0.1:", "\n");
  if (main_port_.empty()) return Fail("hami-scheduler did not start:\n" + child_->Log());
  net::ClientOptions options;
  options.tls.insecure = true;
  const auto client = net::Client::Make(*net::ParseUrl("https://127.0.0.1:" + main_port_), options);
  if (!client) return Fail(client.error().message);
  for (const net::Deadline end = net::After(kPatience); net::Clock::now() < end;) {
    net::Call ask;
    ask.target = "/readyz";
    const auto ready = (*client)->Send(ask);
    if (ready && ready->body.find("books complete") != std::string::npos) return WaitUntilQuiet();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return Fail("hami-scheduler has not read the cluster:\n" + child_->Log());
}

Status Cell::StartNull() {
  const std::string base_path = options_.folder + "/";
  child_ = std::make_unique<testcluster::Child>(
      std::vector<std::string>{options_.self, "--null-extender", "http://127.0.0.1:" + std::to_string(api_.port()),
                               base_path + "tls.crt", base_path + "tls.key"},
      testcluster::Child::Variables{{"PATH", "/usr/bin:/bin"}}, base_path + "null.log");
  main_port_ = child_->Said("null extender on port ", "\n");
  metrics_port_.clear();
  return main_port_.empty() ? Status(Fail("the null extender did not start:\n" + child_->Log())) : Status();
}

// Start-up work (handshakes, new pods told by the watch) is not what a placement costs.
Status Cell::WaitUntilQuiet() {
  const net::Deadline end = net::After(kPatience);
  for (double before = -1; net::Clock::now() < end;) {
    const double now = CpuMs();
    if (before >= 0 && now - before < 3) return {};
    before = now;
    std::this_thread::sleep_for(kQuiet);
  }
  return Fail("the extender does not come to rest");
}

double Cell::CpuMs() const {
  clockid_t clock{};
  timespec time{};
  if (::clock_getcpuclockid(child_->pid(), &clock) != 0 || ::clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

double Cell::rss_mib(const char* field) const {
  const auto status = base::ReadFile("/proc/" + std::to_string(child_->pid()) + "/status", 1U << 16U);
  const std::size_t at = status ? status->find(field) : std::string::npos;
  return at == std::string::npos ? 0
                                 : std::strtod(status->c_str() + at + std::string_view(field).size(), nullptr) / 1024;
}

std::string Cell::Scrape() const {
  std::string text;
  net::Call call;
  call.target = "/metrics";
  call.deadline = net::After(kPatience);
  const auto client = net::Client::Make(*net::ParseUrl("http://127.0.0.1:" + metrics_port_), {});
  if (!client) return text;
  const auto streamed = (*client)->Stream(call, [&](const net::ResponseStart&, std::string_view piece) {
    text += piece;
    return true;
  });
  return streamed ? text : std::string();
}

std::vector<double> Cell::Metrics(const std::vector<std::string>& names) const {
  std::vector<double> values(names.size(), 0);
  if (metrics_port_.empty()) return values;
  const std::string text = Scrape();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::size_t at = text.find("\n" + names[i] + "{");
    const std::size_t value = at == std::string::npos ? at : text.find("} ", at);
    if (value != std::string::npos) values[i] = std::strtod(text.c_str() + value + 2, nullptr);
  }
  return values;
}

std::size_t Cell::NamesOf(bool every) const { return every ? names_.size() : Sample(names_.size()); }

void Cell::FilterAll(Run& run) {
  std::vector<std::string> names;
  std::minstd_rand random;
  run.filter_ms.clear();
  for (const json::value& pod : std::span(run.pods).first(std::min(run.most, run.pods.size()))) {
    if (net::Clock::now() > run.end) break;
    // kube-scheduler goes on from where its last sample ended.
    names.clear();
    for (std::size_t i = 0; i < run.names; ++i) names.push_back(names_[(window_ + i) % names_.size()]);
    window_ = (window_ + run.names) % names_.size();
    AsWorkersFindThem(names, random);
    std::string body = FilterBody(pod, names);
    const net::Deadline begin = net::Clock::now();
    const auto answer = run.Post("/filter", std::move(body));
    run.filter_ms.push_back(Milliseconds(net::Clock::now() - begin));
    const json::array* chosen =
        answer && answer->is_object() ? base::GetArray(answer->get_object(), "NodeNames") : nullptr;
    if (chosen == nullptr || chosen->size() != 1) {
      run.Failed("filter: " + (answer ? json::serialize(*answer).substr(0, 300) : answer.error().message));
      continue;
    }
    if (!run.bind) continue;
    std::unique_lock lock(run.mutex);
    run.taken.wait(lock, [&] { return run.queue.size() < kMostQueued; });
    run.queue.push_back({&pod, std::string(chosen->front().as_string())});
    run.queued.notify_one();
  }
  const std::scoped_lock lock(run.mutex);
  run.done = true;
  run.queued.notify_all();
}

void Cell::BindAll(Run& run) {
  while (true) {
    std::unique_lock lock(run.mutex);
    run.queued.wait(lock, [&] { return run.done || !run.queue.empty(); });
    if (run.queue.empty()) return;
    const Run::Job job = std::move(run.queue.front());
    run.queue.pop_front();
    run.taken.notify_one();
    lock.unlock();
    const auto answer = run.Post("/bind", BindBody(*job.pod, job.node));
    const auto error = answer && answer->is_object() ? base::GetString(answer->get_object(), "Error") : std::nullopt;
    if (!answer || (error && !error->empty())) {
      run.Failed("bind: " + (answer ? *error : answer.error().message));
      continue;
    }
    Plugin(*job.pod, job.node);
    lock.lock();
    ++run.placed;
  }
}

// What the device plugin does when the kubelet asks it for the pod's device.
void Cell::Plugin(const json::value& pod, const std::string& node) {
  api_.Edit(kube::kPods, "default", std::string(pod.at("metadata").at("name").as_string()), [](json::value& now) {
    json::object& metadata = now.at("metadata").as_object();
    if (!metadata["annotations"].is_object()) return;
    json::object& annotations = metadata["annotations"].get_object();
    annotations.erase("hami.io/vgpu-devices-to-allocate");
    annotations["hami.io/bind-phase"] = "success";
  });
  if (!options_.locks || metrics_port_.empty()) return;
  api_.Edit(kube::kNodes, "", node,
            [](json::value& now) { now.at("metadata").at("annotations").as_object().erase("hami.io/mutex.lock"); });
}

Result<Phase> Cell::Place(bool every) {
  Run run;
  run.names = NamesOf(every);
  net::ClientOptions client;
  client.tls.insecure = true;
  client.tls.suites = kSuites;
  client.max_idle = static_cast<std::size_t>(options_.binders) + 1;
  auto extender = net::Client::Make(*net::ParseUrl("https://127.0.0.1:" + main_port_), client);
  if (!extender) return Fail(extender.error().message);
  run.extender = *std::move(extender);
  for (int i = 0; i < options_.pods; ++i) {
    run.pods.push_back(api_.Put(kube::kPods, testcluster::PendingPod("p-" + std::to_string(serial_++), 500, 2)));
  }
  HAMI_TRY(WaitUntilQuiet());

  Phase phase;
  phase.names = run.names;
  // First Filter alone. A pod that is not bound is simply placed anew by the next Filter.
  run.most = kAlone;
  run.end = net::After(std::chrono::seconds(options_.seconds));
  FilterAll(run);
  phase.alone_p50_ms = Percentile(run.filter_ms, 0.50);
  phase.alone_p99_ms = Percentile(run.filter_ms, 0.99);
  HAMI_TRY(WaitUntilQuiet());

  run.bind = true;
  run.done = false;
  run.most = run.pods.size();
  const double cpu = CpuMs();
  const std::uint64_t calls = api_.AskedInAll();
  const net::Deadline begin = net::Clock::now();
  run.end = begin + std::chrono::seconds(options_.seconds);
  std::vector<std::thread> binders;
  for (int i = 0; i < options_.binders; ++i) binders.emplace_back([&] { BindAll(run); });
  FilterAll(run);
  for (std::thread& binder : binders) binder.join();

  phase.placed = run.placed;
  phase.failed = run.failed;
  phase.first_failure = run.first_failure;
  phase.per_second = run.placed / (Milliseconds(net::Clock::now() - begin) / 1e3);
  HAMI_TRY(WaitUntilQuiet());  // what the pods' events still cost is theirs
  const double asked = std::max(run.placed, 1);
  phase.cpu_ms = (CpuMs() - cpu) / asked;
  phase.calls = static_cast<double>(api_.AskedInAll() - calls) / asked;
  phase.filter_p50_ms = Percentile(run.filter_ms, 0.50);
  phase.filter_p99_ms = Percentile(run.filter_ms, 0.99);
  phase.rss_mib = rss_mib();
  return phase;
}

}  // namespace hami::bench
