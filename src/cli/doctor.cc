// SPDX-License-Identifier: Apache-2.0

#include "cli/doctor.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>
#include <iostream>

#include "base/build_info.h"
#include "base/fd.h"
#include "base/help_page.h"
#include "base/log.h"
#include "base/strings.h"
#include "cli/inventory.h"
#include "cli/paths.h"
#include "cli/state.h"
#include "cluster/command.h"

namespace hami::cli {
namespace {

using cluster::Finding;
using Level = Finding::Level;

constexpr const char* kOverview =
    "Usage: hami doctor [cluster] [flags]\n\n"
    "Says what is wrong with this machine (driver, library, folder of shares, sockets of the device plugin), or with\n"
    "`cluster` what is wrong with an installation on Kubernetes (nodes, programs and their versions, webhook, RBAC),\n"
    "and what to do about it.\n\n";

constexpr const char* kEpilogue =
    "\nExit status: 0 nothing is wrong, 1 something is; warnings do not count. 2: a mistake on the command line.\n";

Message Mistake(const base::Error& error) { return {base::MistakeText("hami doctor", error), kUsage}; }

void Driver(std::vector<Finding>& findings) {
  const auto nvml = Nvml::Load();
  const auto inventory = nvml ? nvml->Read() : base::Result<Inventory>(tl::unexpected(nvml.error()));
  if (!inventory) {
    const std::string& hint = inventory.error().hint;
    findings.push_back({Level::kError, "driver", inventory.error().message,
                        hint.empty() ? "install NVIDIA's driver, or try `hami sim -- COMMAND` without a GPU" : hint});
    return;
  }
  if (inventory->gpus.empty()) {
    findings.push_back({Level::kError, "driver", inventory->driver_version + " knows no GPU",
                        "lspci | grep -i nvidia shows whether the machine sees one; dmesg says what the driver did"});
    return;
  }
  findings.push_back({Level::kGood,
                      "driver",
                      base::Concat({inventory->driver_version, ", CUDA ", inventory->cuda_version, ", ",
                                    std::to_string(inventory->gpus.size()), " GPUs"}),
                      {}});
  for (const Gpu& gpu : inventory->gpus) {
    if (gpu.trouble.empty()) continue;
    findings.push_back(
        {Level::kError, "GPU " + gpu.uuid, gpu.trouble, "dmesg | grep -i xid; a reset or a restart may help"});
  }
}

void Library(std::vector<Finding>& findings) {
  const auto library = FindVgpuLibrary();
  if (library) {
    findings.push_back({Level::kGood, "library", *library, {}});
  } else {
    findings.push_back({Level::kError, "library", library.error().message, library.error().hint});
  }
}

void Shares(std::vector<Finding>& findings) {
  const auto state = State::Open();
  if (state) {
    findings.push_back({Level::kGood, "shares", "are kept in " + state->folder(), {}});
  } else {
    findings.push_back({Level::kError, "shares", state.error().message, state.error().hint});
  }
}

bool Exists(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0;
}

// Empty: somebody answers there.
std::string WhyNobodyListens(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return "the path is too long for a socket";
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) return std::strerror(errno);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return {};
  return std::strerror(errno);
}

void Socket(std::vector<Finding>& findings, const std::string& path, const char* about, const char* remedy) {
  const std::string why = WhyNobodyListens(path);
  if (why.empty()) {
    findings.push_back({Level::kGood, about, path + " answers", {}});
  } else {
    findings.push_back({Level::kError, about, path + ": " + why, remedy});
  }
}

}  // namespace

std::vector<Finding> ExamineMachine(const DoctorOptions& options) {
  std::vector<Finding> findings;
  findings.push_back({Level::kGood, "version", base::VersionOf("hami"), {}});
  Driver(findings);
  Library(findings);
  Shares(findings);
  // A machine that is no node of a cluster has no such folder.
  if (Exists(options.kubelet_folder)) {
    Socket(findings, options.kubelet_folder + "/kubelet.sock", "kubelet", "systemctl status kubelet");
    Socket(findings, options.kubelet_folder + "/nvidia-gpu.sock", "device plugin",
           "look at the pod of hami-device-plugin on this node: kubectl get pods -A -l "
           "app.kubernetes.io/component=hami-device-plugin -o wide");
  }
  return findings;
}

std::variant<DoctorOptions, Message> ParseDoctor(const std::vector<std::string>& arguments) {
  DoctorOptions options;
  base::FlagSet flags(base::FlagSet::Dialect::kCommand);
  flags.Group("What");
  flags.Custom("output", "table|json", "table",
               base::TakeChoice<Output>(options.output, {{"table", Output::kTable}, {"json", Output::kJson}}),
               "how the result is written");
  flags.Shorthand('o');
  flags.Group("Of a machine");
  flags.Text("kubelet-dir", "FOLDER", options.kubelet_folder, "where the kubelet has the sockets of device plugins");
  flags.Group("Of a cluster");
  flags.Text("kubeconfig", "FILE", options.source.kubeconfig,
             "how to reach the API server; without it $KUBECONFIG, ~/.kube/config, or the pod's service account");
  flags.Text("context", "NAME", options.source.context, "of the kubeconfig, in place of its current one");
  flags.Text("device-config-file", "FILE", options.source.device_config_file,
             "the scheduler's device-config.yaml, where resources have other names than HAMi's own");
  const auto parsed = flags.Parse(arguments);
  if (!parsed) return Mistake(parsed.error());
  if (parsed->help) {
    const base::HelpPage page{"hami doctor", 1, "what is wrong with a machine or a cluster, and what to do about it",
                              kOverview, kEpilogue};
    return Message{base::Render(page, flags, parsed->form, base::kBuildInfo), 0};
  }
  options.cluster = !parsed->words.empty() && parsed->words.front() == "cluster";
  if (parsed->words.size() > (options.cluster ? 1U : 0U)) {
    return Mistake({"'" + parsed->words.back() + "' is not understood", "hami doctor, or hami doctor cluster"});
  }
  return options;
}

int DoctorMain(const std::vector<std::string>& arguments) {
  const auto answer = ParseDoctor(arguments);
  if (const Message* message = std::get_if<Message>(&answer)) {
    (message->exit_status == 0 ? std::cout : std::cerr) << message->text << std::flush;
    return message->exit_status;
  }
  const auto& options = std::get<DoctorOptions>(answer);
  std::vector<Finding> findings;
  if (options.cluster) {
    const auto vendors = cluster::VendorsOf(options.source);
    const auto client = vendors ? cluster::Connect(options.source) : tl::unexpected(vendors.error());
    if (!client) {
      base::LogError(client.error());
      return kFailed;
    }
    findings = cluster::Examine(cluster::Gather(**client), *vendors);
  } else {
    findings = ExamineMachine(options);
  }
  const std::string text =
      options.output == Output::kJson ? base::Pretty(cluster::FindingsJson(findings)) : cluster::FindingsText(findings);
  if (const auto written = base::WriteAll(1, text); !written) {
    base::LogError(written.error());
    return kFailed;
  }
  return cluster::FindingsStatus(findings);
}

}  // namespace hami::cli
