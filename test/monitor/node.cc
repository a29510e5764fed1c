// SPDX-License-Identifier: Apache-2.0

#include "test/monitor/node.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/json.h"
#include "base/strings.h"

namespace hami::test {
namespace {

std::string ReadAll(const std::string& path) { return base::ReadFile(path, 64 << 20).value_or(""); }

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::string Process::out() const { return ReadAll(out_path); }
std::string Process::err() const { return ReadAll(err_path); }

void Node::SetUp() {
  std::string pattern = testing::TempDir() + "/hami-node-XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
  std::filesystem::create_directories(folder_ + "/vgpu/containers");
  api_ = std::make_unique<kube::FakeApiServer>();
  api_->Put(kube::kNodes, {{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", "node-1"}}}});
  const std::string kubeconfig =
      "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: \"http://127.0.0.1:" +
      std::to_string(api_->port()) +
      "\"}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n";
  ASSERT_TRUE(base::WriteNewFile(folder_ + "/kubeconfig", kubeconfig, 0600));
  ASSERT_TRUE(base::WriteNewFile(folder_ + "/machine.conf", "gpus 2xH100\ndevice 0 uuid=" + uuid_ + "\n", 0600));
}

void Node::TearDown() {
  for (const pid_t pid : running_) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  std::filesystem::remove_all(folder_);
}

Node::Environment Node::Machine() const {
  Environment environment{{"PATH", "/usr/bin:/bin"},
                          {"SIMGPU_CONFIG", folder_ + "/machine.conf"},
                          {"SIMGPU_STATE", folder_ + "/machine"},
                          {"SIMGPU_PROFILE", "ideal"},
                          {"LD_LIBRARY_PATH", HAMI_SIMGPU_FOLDER}};
  if (const char* options = std::getenv("ASAN_OPTIONS")) environment["ASAN_OPTIONS"] = options;
  return environment;
}

Process Node::Start(const std::vector<std::string>& words, const Environment& environment) {
  Process process;
  const std::string stem = folder_ + "/" + std::to_string(started_++);
  process.out_path = stem + ".out";
  process.err_path = stem + ".err";
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
  const base::Fd reader(ends[0]);
  process.input = base::Fd(ends[1]);
  std::vector<std::string> arguments = words;
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(variables);
  process.pid = ::fork();
  if (process.pid == 0) {
    const int out = ::open(process.out_path.c_str(), O_WRONLY | O_CREAT, 0600);
    const int err = ::open(process.err_path.c_str(), O_WRONLY | O_CREAT, 0600);
    if (::dup2(reader.get(), 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0) ::_exit(99);
    ::execve(argv.front(), argv.data(), envp.data());
    ::_exit(99);
  }
  running_.push_back(process.pid);
  return process;
}

int Node::Wait(const Process& process) {
  int status = 0;
  EXPECT_EQ(::waitpid(process.pid, &status, 0), process.pid);
  std::erase(running_, process.pid);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Process Node::StartMonitorOnly(const std::vector<std::string>& flags, const Environment& more) {
  Environment environment = Machine();
  environment["HOOK_PATH"] = folder_ + "/vgpu";
  environment["NODE_NAME"] = "node-1";
  environment["KUBECONFIG"] = folder_ + "/kubeconfig";
  for (const auto& [name, value] : more) environment[name] = value;
  std::vector<std::string> words{HAMI_MONITOR};
  words.insert(words.end(), flags.begin(), flags.end());
  return Start(words, environment);
}

void Node::StartServing(const std::vector<std::string>& flags) {
  std::vector<std::string> all{"--metrics-bind-address=127.0.0.1:0", "--tick=200ms", "--gpu-interval=1s"};
  all.insert(all.end(), flags.begin(), flags.end());
  monitor_ = StartMonitorOnly(all);
  std::string port;
  ASSERT_TRUE(Eventually([&] {
    const std::string log = monitor_.err();
    const std::size_t at = log.find(", port ");
    if (at == std::string::npos || log.find('\n', at) == std::string::npos) return false;
    port = log.substr(at + 7, log.find('\n', at) - at - 7);
    return true;
  })) << monitor_.err();
  auto client = net::Client::Make(*net::ParseUrl("http://127.0.0.1:" + port), {});
  ASSERT_TRUE(client);
  http_ = *std::move(client);
}

void Node::StartMonitor(const std::vector<std::string>& flags) {
  StartServing(flags);
  ASSERT_TRUE(Eventually([&] { return Get("/readyz").status == 200; })) << monitor_.err();
}

net::Response Node::Get(const std::string& target) {
  net::Call call;
  call.target = target;
  auto response = http_->Send(call);
  if (response) return *std::move(response);
  ADD_FAILURE() << response.error().message << "\n" << monitor_.err();
  return {};
}

std::optional<double> Node::Metric(const std::vector<std::string>& parts) {
  for (const std::string& line : base::Split(Get("/metrics").body, '\n')) {
    const bool all = std::all_of(parts.begin(), parts.end(),
                                 [&](const std::string& part) { return line.find(part) != std::string::npos; });
    if (all && !line.starts_with('#')) return std::strtod(line.c_str() + line.rfind(' '), nullptr);
  }
  return std::nullopt;
}

void Node::AddPod(const std::string& name, int mib, int cores, const std::string& node) {
  const std::string grant = uuid_ + ",NVIDIA," + std::to_string(mib) + "," + std::to_string(cores) + ":;";
  api_->Put(kube::kPods, {{"apiVersion", "v1"},
                          {"kind", "Pod"},
                          {"metadata",
                           {{"namespace", "team"},
                            {"name", name},
                            {"uid", "uid-" + name},
                            {"annotations", {{"hami.io/vgpu-devices-allocated", grant}}}}},
                          {"spec", {{"nodeName", node}, {"containers", {{{"name", "main"}}}}}}});
}

void Node::Annotate(const std::string& pod, const std::string& key, const std::string& value) {
  auto object = api_->Get(kube::kPods, "team", pod);
  ASSERT_TRUE(object);
  object->at("metadata").at("annotations").as_object()[key] = value;
  object->at("metadata").as_object().erase("resourceVersion");
  api_->Put(kube::kPods, *object);
}

std::string Node::ContainerFolder(const std::string& pod) const {
  return folder_ + "/vgpu/containers/uid-" + pod + "_main";
}

Process Node::StartGuest(const std::string& pod, const std::vector<std::string>& arguments, int mib, int cores,
                         const Environment& more) {
  std::filesystem::create_directories(ContainerFolder(pod));
  Environment environment = Machine();
  environment["LD_PRELOAD"] = HAMI_LIBVGPU;
  environment["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = ContainerFolder(pod) + "/8d0f.cache";
  environment["CUDA_DEVICE_MEMORY_LIMIT_0"] = std::to_string(mib) + "m";
  environment["CUDA_DEVICE_SM_LIMIT"] = std::to_string(cores);
  for (const auto& [name, value] : more) environment[name] = value;
  std::vector<std::string> words{HAMI_GUEST};
  words.insert(words.end(), arguments.begin(), arguments.end());
  Process process = Start(words, environment);
  EXPECT_TRUE(Eventually([&] { return process.out().starts_with("holds"); })) << process.err();
  return process;
}

bool Node::Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace hami::test
