// SPDX-License-Identifier: Apache-2.0

#include "plugin/response.h"

#include <algorithm>

#include "base/strings.h"
#include "base/units.h"
#include "device/vendors/mig_placement.h"
#include "mps/client.h"
#include "plugin/cdi.h"
#include "plugin/mig_nodes.h"
#include "plugin/node_selector.h"
#include "region/layout.h"

namespace hami::plugin {
namespace {

using base::Concat;

constexpr const char* kVisibleDevices = "NVIDIA_VISIBLE_DEVICES";
constexpr const char* kVolumeRoot = "/var/run/nvidia-container-devices";

bool Uses(const Options& options, ListStrategy strategy) {
  return std::find(options.list_strategies.begin(), options.list_strategies.end(), strategy) !=
         options.list_strategies.end();
}

// By which name the container is told of a card.
std::string IdOf(const Card& card, const Options& options) {
  return options.id_strategy == IdStrategy::kIndex ? std::to_string(card.index) : card.uuid;
}

// What the container is given: whole GPUs, or instances of them.
struct Given {
  std::vector<const Card*> cards;
  std::vector<device::MigReservation> mig;  // empty: the cards themselves

  std::vector<std::string> Ids(const Options& options) const {
    std::vector<std::string> ids;
    for (const device::MigReservation& instance : mig) ids.push_back(instance.mig_uuid);
    if (!mig.empty()) return ids;
    for (const Card* card : cards) ids.push_back(IdOf(*card, options));
    return ids;
  }
};

void AddDevices(const Given& given, const ResponseSettings& settings, Response& response) {
  const Options& options = *settings.options;
  const std::vector<std::string> ids = given.Ids(options);
  std::vector<std::string> channels;
  for (const int channel : settings.imex_channels) channels.push_back(std::to_string(channel));

  if (Uses(options, ListStrategy::kEnvvar)) {
    response.environment[kVisibleDevices] = base::Join(ids, ",");
    if (!channels.empty()) response.environment["NVIDIA_IMEX_CHANNELS"] = base::Join(channels, ",");
  }
  if (Uses(options, ListStrategy::kVolumeMounts)) {
    response.environment[kVisibleDevices] = kVolumeRoot;
    for (const std::string& id : ids) response.mounts.push_back({Concat({kVolumeRoot, "/", id}), "/dev/null", false});
    for (const std::string& channel : channels) {
      response.mounts.push_back({Concat({kVolumeRoot, "/imex/", channel}), "/dev/null", false});
    }
  }
  if (options.gdrcopy) response.environment["NVIDIA_GDRCOPY"] = "enabled";
  if (options.gds) response.environment["NVIDIA_GDS"] = "enabled";
  if (options.mofed) response.environment["NVIDIA_MOFED"] = "enabled";
}

void AddCdi(const Record& record, const Given& given, const ResponseSettings& settings, Response& response) {
  const Options& options = *settings.options;
  const bool by_annotation = Uses(options, ListStrategy::kCdiAnnotations);
  const bool by_field = Uses(options, ListStrategy::kCdiCri);
  if (!by_annotation && !by_field) return;
  std::vector<std::string> names;
  for (const std::string& id : given.Ids(options)) names.push_back(CdiName("gpu", id));
  for (const int channel : settings.imex_channels) names.push_back(CdiName("imex-channel", std::to_string(channel)));
  for (const std::string& mode : settings.cdi_modes) names.push_back(CdiName(mode, "all"));
  if (by_annotation) {
    // HAMi puts a random id behind the name; ours must be the same when the question is repeated.
    const std::string key = Concat({options.cdi_annotation_prefix, "nvidia-device-plugin_", record.cache});
    response.annotations[key.substr(0, key.rfind(".cache"))] = base::Join(names, ",");
  }
  if (by_field) response.cdi_devices = std::move(names);
}

base::Status AddDeviceNodes(const Given& given, const Cards& cards, const ResponseSettings& settings,
                            Response& response) {
  const Options& options = *settings.options;
  if (!options.pass_device_specs) return {};
  std::string root = options.dev_root.empty() ? options.driver_root : options.dev_root;
  while (!root.empty() && root.back() == '/') root.pop_back();
  const auto add = [&](const std::string& path) { response.devices.push_back({path, root + path, "rw"}); };
  for (const std::string& path : settings.node_paths) add(path);
  for (const Card* card : given.cards) {
    if (card->minor) add("/dev/nvidia" + std::to_string(*card->minor));
  }
  for (const device::MigReservation& instance : given.mig) {
    const Card* card = cards.Find(instance.gpu_uuid);
    if (card == nullptr || !card->minor) continue;
    const auto nodes =
        MigCapabilities(settings.mig_minors, *card->minor, instance.gpu_instance, instance.compute_instance);
    if (!nodes) {
      return base::Fail(Concat({kMigMinors, " has no capability of ", instance.mig_uuid, " (GPU instance ",
                                std::to_string(instance.gpu_instance), " of ", instance.gpu_uuid, ")"}),
                        "the kernel module nvidia makes it; --pass-device-specs=false goes on without device nodes");
    }
    for (const std::string& node : *nodes) add(node);
  }
  return {};
}

std::string MebibytesText(std::uint64_t bytes) { return std::to_string(bytes / base::kMiB) + "m"; }

void AddLimits(const std::vector<DeviceLimit>& limits, const NodeSettings& node, Response& response) {
  auto& environment = response.environment;
  std::vector<std::string> by_uuid;
  for (std::size_t i = 0; i < limits.size(); ++i) {
    const DeviceLimit& limit = limits[i];
    const std::string number = std::to_string(i);
    environment["CUDA_DEVICE_MEMORY_LIMIT_" + number] = MebibytesText(limit.memory_bytes);
    environment["CUDA_DEVICE_SM_LIMIT_" + number] = std::to_string(limit.cores);
    by_uuid.push_back(Concat({limit.uuid, "=", MebibytesText(limit.memory_bytes), ":", std::to_string(limit.cores)}));
  }
  environment["CUDA_DEVICE_SM_LIMIT"] = std::to_string(limits.front().cores);
  environment["HAMI_DEVICE_LIMITS"] = base::Join(by_uuid, ",");
  // The numbers above then mean the same GPUs as in the program. The pod's own value comes after ours and wins.
  environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  if (node.memory_scaling > 1) environment["CUDA_OVERSUBSCRIBE"] = "true";
  if (!node.log_level.empty()) environment["LIBCUDA_LOG_LEVEL"] = node.log_level;
  if (node.disable_core_limit) environment["GPU_CORE_UTILIZATION_POLICY"] = "disable";
}

void AddLibrary(const Record& record, const ResponseSettings& settings, Response& response) {
  const std::string vgpu = settings.options->hook_path + "/vgpu";
  response.environment["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = Concat({vgpu, "/", record.cache});
  // The folder first: a runtime that mounts in this order would else hide the library behind it.
  response.mounts.push_back({vgpu, Concat({vgpu, "/", record.folder}), false});
  response.mounts.push_back({vgpu + "/libvgpu.so", record.library, true});
  if (record.share_file) {
    const std::string name = Concat({"/", region::kShareFile});
    response.mounts.push_back({vgpu + name, Concat({vgpu, "/", record.folder, name}), true});
  }
  response.mounts.push_back({"/tmp/vgpulock", "/tmp/vgpulock", false});
  const bool may_disable = MayDisableControl(record, *settings.options);
  if (record.preload || !may_disable) {
    response.mounts.push_back({"/etc/ld.so.preload", vgpu + "/ld.so.preload", true});
  }
  // Any file does; a variable could be unset by the container, what is mounted can not.
  if (!may_disable) response.mounts.push_back({region::kControlSign, vgpu + "/ld.so.preload", true});
  if (settings.has_license) {
    response.mounts.push_back({"/tmp/license", vgpu + "/license", true});
    response.mounts.push_back({"/usr/bin/vgpuvalidator", vgpu + "/vgpuvalidator", true});
  }
}

// The folder of a card's area, not the area itself: there the next one appears when the plugin was started anew.
void AddCommonAreas(const std::vector<const Card*>& cards, const ResponseSettings& settings, Response& response) {
  const std::string here = Concat({settings.options->hook_path, "/vgpu/", kCommonFolder, "/"});
  for (const Card* card : cards) {
    if (!settings.common_areas.contains(card->uuid)) continue;
    response.environment["HAMI_COMMON_AREA"] = kCommonInContainer;
    response.mounts.push_back({Concat({kCommonInContainer, "/", card->uuid}), here + card->uuid, true});
  }
}

// The GPU's time is shared by MPS, so that libvgpu keeps to memory.
void AddMps(const DeviceLimit& limit, const MpsShare& share, Response& response) {
  mps::ClientLimits limits;
  limits.percent = limit.cores;
  limits.memory_mib = std::min(limit.memory_bytes, limit.physical_bytes) / base::kMiB;
  for (const auto& [name, value] : mps::ClientEnvironment(mps::kDefaultPipe, limits))
    response.environment[name] = value;
  response.environment["GPU_CORE_UTILIZATION_POLICY"] = "disable";
  response.mounts.push_back({mps::kDefaultPipe, share.pipe, false});
  response.mounts.push_back({"/dev/shm", share.shared_memory, false});
}

bool IsGranted(const Card& card, const device::ContainerGrant& grant) {
  return std::any_of(grant.begin(), grant.end(), [&](const device::Share& share) { return share.uuid == card.uuid; });
}

// As the driver numbers the instances of one GPU.
std::vector<device::MigReservation> InOrder(std::vector<device::MigReservation> instances) {
  std::sort(instances.begin(), instances.end(),
            [](const auto& a, const auto& b) { return a.gpu_instance < b.gpu_instance; });
  return instances;
}

}  // namespace

bool MayDisableControl(const Record& record, const Options& options) {
  const std::vector<std::string>& allowed = options.disable_control_in;
  return std::any_of(allowed.begin(), allowed.end(), [&](const std::string& pattern) {
    return pattern == "*" || ((!record.assumed || record.alike) && MatchesPattern(pattern, record.owner.ns));
  });
}

base::Result<std::vector<DeviceLimit>> LimitsOf(const device::ContainerGrant& grant, const Cards& cards) {
  std::vector<DeviceLimit> limits;
  for (const device::Share& share : grant) {
    if (device::GpuOfOldInstance(share.uuid)) {
      return base::Fail(
          "the grant names " + base::Printable(share.uuid) + ", a MIG instance as HAMi before 2.10 wrote it",
          "its scheduler plans other instances than this plugin makes: upgrade it, and delete the pod");
    }
    if (cards.Find(share.uuid) == nullptr) {
      return base::Fail("the grant names " + base::Printable(share.uuid) + ", which is no GPU of this node",
                        "the scheduler's picture of this node is older than its GPUs; delete the pod to place it anew");
    }
    if (share.memory <= 0) {
      return base::Fail("the grant gives no memory on " + share.uuid + ", and no memory would mean no limit");
    }
  }
  for (const Card& card : cards.cards) {
    DeviceLimit limit{card.uuid, 0, 0, static_cast<std::uint64_t>(card.physical_memory) * base::kMiB};
    for (const device::Share& share : grant) {
      if (share.uuid != card.uuid) continue;
      limit.memory_bytes += static_cast<std::uint64_t>(share.memory) * base::kMiB;
      limit.cores = std::min(100, limit.cores + share.cores);
    }
    if (limit.memory_bytes > 0) limits.push_back(std::move(limit));
  }
  if (limits.empty()) return base::Fail("the grant is empty");
  return limits;
}

base::Result<std::vector<DeviceLimit>> LimitsOf(const Record& record, const Cards& cards) {
  auto limits = LimitsOf(record.grant, cards);
  if (!limits || record.mig.empty() || cards.settings.mode != OperatingMode::kMig) return limits;
  if (record.mig.size() != record.grant.size()) return base::Fail("the grant has not one MIG instance for each share");
  std::vector<DeviceLimit> instances;
  for (const Card& card : cards.cards) {
    for (const device::MigReservation& one : InOrder(record.mig)) {
      if (one.gpu_uuid != card.uuid) continue;
      if (!one.Realised()) return base::Fail("a MIG instance of the grant has not been made");
      const device::MiB memory = record.grant[static_cast<std::size_t>(one.device)].memory;
      const auto bytes = static_cast<std::uint64_t>(memory) * base::kMiB;
      // Its part of the GPU's time is its own: the hardware keeps it.
      instances.push_back({one.mig_uuid, bytes, 0, bytes});
    }
  }
  return instances;
}

base::Result<Response> MakeResponse(const Record& record, const Cards& cards, const ResponseSettings& settings) {
  const auto limits = LimitsOf(record, cards);
  if (!limits) return tl::unexpected(limits.error());
  if (settings.options->imex_required && settings.imex_channels.size() < settings.options->imex_channels.size()) {
    return base::Fail("an IMEX channel is required and its device node is not there");
  }
  Given given;
  for (const Card& card : cards.cards) {
    if (IsGranted(card, record.grant)) given.cards.push_back(&card);
  }
  for (const DeviceLimit& limit : *limits) {
    for (const device::MigReservation& one : record.mig) {
      if (one.mig_uuid == limit.uuid) given.mig.push_back(one);
    }
  }
  Response response;
  AddDevices(given, settings, response);
  AddCdi(record, given, settings, response);
  HAMI_TRY(AddDeviceNodes(given, cards, settings, response));
  AddLimits(*limits, cards.settings, response);
  AddLibrary(record, settings, response);
  if (given.mig.empty()) AddCommonAreas(given.cards, settings, response);
  if (settings.mps) AddMps(limits->front(), *settings.mps, response);
  return response;
}

const std::vector<std::string>& ControlNodes() {
  static const std::vector<std::string> nodes = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
                                                 "/dev/nvidia-modeset"};
  return nodes;
}

}  // namespace hami::plugin
