// SPDX-License-Identifier: Apache-2.0
//
// What hami-monitor costs on a full node: N containers with regions of four processes each, pods from a local API
// server, scrapes over HTTP. Prints one line of JSON: scrape p50 and p99, the page's size, resident memory, and CPU
// time.
//
//   node_monitor_bench [--monitor PATH] [--containers N] [--scrapes N] [--seconds S] [--devices D]
//
// The GPUs are eight simulated ones, unless LD_LIBRARY_PATH says where another driver is.

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/json.h"
#include "base/strings.h"
#include "kube/testing/fake_apiserver.h"
#include "net/client.h"
#include "region/ledger.h"
#include "region/region.h"

namespace {

namespace fs = std::filesystem;
using namespace hami;
using Clock = std::chrono::steady_clock;

constexpr int kProcesses = 4;  // in each region
constexpr int kRegionsOfAProcess = 32;

struct Options {
  std::string monitor = HAMI_MONITOR;
  int containers = 128;
  int scrapes = 1000;
  int seconds = 10;
  std::uint32_t devices = 1;
};

// Undone whichever way the program ends.
std::string g_folder;
pid_t g_monitor = -1;

void CleanUp() {
  if (g_monitor > 0) {
    ::kill(g_monitor, SIGKILL);
    ::waitpid(g_monitor, nullptr, 0);
  }
  std::error_code ignored;
  if (!g_folder.empty()) fs::remove_all(g_folder, ignored);
}

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "node_monitor_bench: %s\n", message.c_str());
  std::exit(1);
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--monitor") {
      options.monitor = value;
      continue;
    }
    const int number = std::atoi(value.c_str());
    if (number <= 0) Die(name + " must be a positive number");
    if (name == "--containers")
      options.containers = number;
    else if (name == "--scrapes")
      options.scrapes = number;
    else if (name == "--seconds")
      options.seconds = number;
    else if (name == "--devices")
      options.devices = static_cast<std::uint32_t>(std::min(number, 16));
    else
      Die("unknown option " + name);
  }
  return options;
}

std::string Uuid(std::uint32_t device) {
  char text[64];
  std::snprintf(text, sizeof text, "GPU-5ef1b8a0-0000-4000-8000-%012x", device);
  return text;
}

std::string FolderOf(const std::string& folder, int container) {
  return folder + "/containers/uid-" + std::to_string(container) + "_main";
}

void MakeRegion(const std::string& path, const Options& options) {
  region::Config config;
  config.device_count = options.devices;
  for (std::uint32_t d = 0; d < options.devices; ++d) {
    Uuid(d).copy(config.devices[d].uuid, region::kUuidBytes - 1);
    config.devices[d].memory_limit = std::uint64_t{4} << 30;
    config.devices[d].sm_limit = 30;
  }
  if (region::Create(path.c_str(), config) != region::Status::kOk) Die("can not make " + path);
}

// A process that is in the regions [FIRST, LAST), until this one ends.
void StartInhabitant(const std::string& folder, int first, int last) {
  int ready[2];
  if (::pipe2(ready, O_CLOEXEC) != 0) Die("can not make a pipe");
  const pid_t parent = ::getpid();
  if (::fork() != 0) {
    ::close(ready[1]);
    char byte = 0;
    if (::read(ready[0], &byte, 1) != 1) Die("a process could not attach to its regions");
    ::close(ready[0]);
    return;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  static region::Attachment attachments[kRegionsOfAProcess];
  for (int i = first; i < last; ++i) {
    region::Attachment& attachment = attachments[i - first];
    const std::string path = FolderOf(folder, i) + "/r.cache";
    if (region::Attach(&attachment, path.c_str(), {}) != region::Status::kOk) ::_exit(1);
    if (region::Reserve(&attachment, 0, std::uint64_t{1} << 28, region::Kind::kData) != region::Status::kOk) ::_exit(1);
  }
  if (::write(ready[1], "x", 1) != 1) ::_exit(1);
  for (;;) ::pause();
}

void MakeContainers(const std::string& folder, const Options& options) {
  for (int i = 0; i < options.containers; ++i) {
    fs::create_directories(FolderOf(folder, i));
    MakeRegion(FolderOf(folder, i) + "/r.cache", options);
  }
  for (int process = 0; process < kProcesses; ++process) {
    for (int i = 0; i < options.containers; i += kRegionsOfAProcess) {
      StartInhabitant(folder, i, std::min(options.containers, i + kRegionsOfAProcess));
    }
  }
}

void AddPod(kube::FakeApiServer& api, int number, const Options& options) {
  const std::string name = "train-job-with-a-usual-name-" + std::to_string(number);
  std::string grant;
  for (std::uint32_t d = 0; d < options.devices; ++d) grant += Uuid(d) + ",NVIDIA,4096,30:";
  api.Put(kube::kPods, {{"apiVersion", "v1"},
                        {"kind", "Pod"},
                        {"metadata",
                         {{"namespace", "research"},
                          {"name", name},
                          {"uid", "uid-" + std::to_string(number)},
                          {"annotations", {{"hami.io/vgpu-devices-allocated", grant + ";"}}}}},
                        {"spec", {{"nodeName", "node-1"}, {"containers", {{{"name", "main"}}}}}}});
}

pid_t StartMonitor(const Options& options, const std::string& folder) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  const int err = ::open((folder + "/err").c_str(), O_WRONLY | O_CREAT, 0600);
  ::dup2(err, 2);
  if (::getenv("LD_LIBRARY_PATH") == nullptr) {
    ::setenv("LD_LIBRARY_PATH", HAMI_SIMGPU_FOLDER, 1);
    ::setenv("SIMGPU", "8xH100", 1);
    ::setenv("SIMGPU_STATE", (folder + "/machine").c_str(), 1);
    ::setenv("SIMGPU_PROFILE", "ideal", 1);
  }
  ::setenv("HOOK_PATH", folder.c_str(), 1);
  ::setenv("NODE_NAME", "node-1", 1);
  ::setenv("KUBECONFIG", (folder + "/kubeconfig").c_str(), 1);
  ::execl(options.monitor.c_str(), "hami-monitor", "--metrics-bind-address=127.0.0.1:0", nullptr);
  ::_exit(127);
}

std::string WaitForPort(const std::string& folder) {
  for (int i = 0; i < 1000; ++i) {
    const std::string log = base::ReadFile(folder + "/err", 1 << 20).value_or("");
    const std::size_t at = log.find(", port ");
    if (at != std::string::npos && log.find('\n', at) != std::string::npos)
      return log.substr(at + 7, log.find('\n', at) - at - 7);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  Die("the monitor does not start: " + base::ReadFile(folder + "/err", 1 << 20).value_or(""));
}

std::string Get(net::Client& client, const std::string& target, int* status) {
  net::Call call;
  call.target = target;
  auto response = client.Send(call);
  if (!response) Die(response.error().message);
  *status = response->status;
  return response->body;
}

long StatusKiB(pid_t pid, const std::string& field) {
  const std::string status = base::ReadFile("/proc/" + std::to_string(pid) + "/status", 1 << 16).value_or("");
  const std::size_t at = status.find(field + ":");
  return at == std::string::npos ? 0 : std::atol(status.c_str() + at + field.size() + 1);
}

double CpuSeconds(pid_t pid) {
  const std::string stat = base::ReadFile("/proc/" + std::to_string(pid) + "/stat", 4096).value_or("");
  const std::vector<std::string> fields = base::Split(stat.substr(stat.rfind(')') + 2), ' ');
  if (fields.size() < 13) return 0;
  return (std::atof(fields[11].c_str()) + std::atof(fields[12].c_str())) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

struct Figures {
  std::vector<double> milliseconds;
  std::size_t bytes = 0;
};

Figures Scrape(net::Client& client, const Options& options) {
  Figures figures;
  int status = 0;
  for (int i = 0; i < options.scrapes; ++i) {
    const auto begin = Clock::now();
    figures.bytes = Get(client, "/metrics", &status).size();
    figures.milliseconds.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::sort(figures.milliseconds.begin(), figures.milliseconds.end());
  return figures;
}

void Measure(net::Client& client, pid_t pid, const Options& options) {
  int status = 0;
  const auto patience = Clock::now() + std::chrono::seconds(30);
  while (Count(Get(client, "/metrics", &status), "\nhami_container_processes{") < options.containers) {
    if (Clock::now() > patience) Die("not all containers are shown");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  Figures figures = Scrape(client, options);
  const double cpu = CpuSeconds(pid);
  std::this_thread::sleep_for(std::chrono::seconds(options.seconds));
  const double idle = (CpuSeconds(pid) - cpu) / options.seconds * 100;
  const auto at = [&](double part) {
    return figures.milliseconds[static_cast<std::size_t>(part * static_cast<double>(figures.milliseconds.size() - 1))];
  };
  std::printf(
      "{\"containers\": %d, \"devices\": %u, \"page_bytes\": %zu, \"scrape_ms\": {\"p50\": %.3f, \"p99\": %.3f, "
      "\"max\": %.3f}, "
      "\"rss_kib\": %ld, \"rss_anonymous_kib\": %ld, \"cpu_percent_between_scrapes\": %.2f}\n",
      options.containers, options.devices, figures.bytes, at(0.5), at(0.99), at(1), StatusKiB(pid, "VmRSS"),
      StatusKiB(pid, "RssAnon"), idle);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  std::string folder = "/tmp/node-monitor-bench-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) Die("can not make a folder");
  g_folder = folder;
  std::atexit(&CleanUp);
  MakeContainers(folder, options);  // forks, so before there are threads
  kube::FakeApiServer api;
  for (int i = 0; i < options.containers; ++i) AddPod(api, i, options);
  const std::string kubeconfig =
      "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: \"http://127.0.0.1:" +
      std::to_string(api.port()) +
      "\"}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n";
  if (!base::WriteNewFile(folder + "/kubeconfig", kubeconfig, 0600)) Die("can not write the kubeconfig");
  g_monitor = StartMonitor(options, folder);
  auto client = net::Client::Make(*net::ParseUrl("http://127.0.0.1:" + WaitForPort(folder)), {});
  if (!client) Die(client.error().message);
  Measure(**client, g_monitor, options);
  ::kill(g_monitor, SIGTERM);
  int status = 0;
  ::waitpid(std::exchange(g_monitor, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
