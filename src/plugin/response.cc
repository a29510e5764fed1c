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
  return options.id_strategy == IdStrategy::kIndex ? IndexOf(card) : card.uuid;
}

// A MIG device of GPU number MINOR.
struct GivenInstance {
  std::string uuid;
  std::string gpu_uuid;
  std::optional<unsigned> minor;
  int gpu_instance = 0;
  int compute_instance = 0;
};

// What the container is given: GPUs, or MIG devices, either those that were there before or those that were made for
// it.
struct Given {
  std::vector<const Card*> cards;
  std::vector<GivenInstance> made;  // empty: the cards themselves

  std::vector<std::string> Ids(const Options& options) const {
    std::vector<std::string> ids;
    for (const GivenInstance& instance : made) ids.push_back(instance.uuid);
    if (!made.empty()) return ids;
    for (const Card* card : cards) ids.push_back(IdOf(*card, options));
    return ids;
  }

  std::set<unsigned> Minors() const {
    std::set<unsigned> minors;
    for (const Card* card : cards) {
      if (card->minor) minors.insert(*card->minor);
    }
    return minors;
  }

  std::vector<GivenInstance> Instances() const {
    std::vector<GivenInstance> all = made;
    for (const Card* card : cards) {
      if (!card->part) continue;
      all.push_back({card->uuid, card->part->gpu_uuid, card->minor, static_cast<int>(card->part->gpu_instance),
                     static_cast<int>(card->part->compute_instance)});
    }
    return all;
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

// What is RANDOM must be the same when the question is repeated.
void AddCdi(const std::string& random, const Given& given, const ResponseSettings& settings, Response& response) {
  const Options& options = *settings.options;
  const bool by_annotation = Uses(options, ListStrategy::kCdiAnnotations);
  const bool by_field = Uses(options, ListStrategy::kCdiCri);
  if (!by_annotation && !by_field) return;
  std::vector<std::string> names;
  for (const std::string& id : given.Ids(options)) names.push_back(CdiName("gpu", id));
  for (const int channel : settings.imex_channels) names.push_back(CdiName("imex-channel", std::to_string(channel)));
  for (const std::string& mode : settings.cdi_modes) names.push_back(CdiName(mode, "all"));
  if (by_annotation) {
    response.annotations[Concat({options.cdi_annotation_prefix, "nvidia-device-plugin_", random})] =
        base::Join(names, ",");
  }
  if (by_field) response.cdi_devices = std::move(names);
}

// Where NVIDIA's runtime reads names of devices, it knows their nodes. Otherwise they are ours to say, here or in the
// CDI file.
bool NeedsCapabilities(const Options& options) {
  return options.pass_device_specs ||
         (!Uses(options, ListStrategy::kEnvvar) && !Uses(options, ListStrategy::kVolumeMounts));
}

// The device nodes of a MIG device. An error where a container would be given it and could not use it.
base::Result<std::vector<std::string>> CapabilitiesOf(const GivenInstance& instance, const ResponseSettings& settings) {
  if (!instance.minor) {
    return base::Fail(Concat({"the driver does not tell which /dev/nvidia<N> is ", instance.gpu_uuid, ", and ",
                              instance.uuid, " is a part of it"}),
                      "nvidia-smi -q names it as Minor Number; delete the pod when it does");
  }
  auto nodes = MigCapabilities(settings.mig_minors, *instance.minor, instance.gpu_instance, instance.compute_instance);
  if (nodes) return *std::move(nodes);
  return base::Fail(
      Concat({settings.options->mig_minors_file, " has no capability of ", instance.uuid, " (GPU instance ",
              std::to_string(instance.gpu_instance), " of ", instance.gpu_uuid, ")"}),
      "the kernel module nvidia makes it; --device-list-strategy=envvar without --pass-device-specs needs none");
}

base::Status AddDeviceNodes(const Given& given, const ResponseSettings& settings, Response& response) {
  const Options& options = *settings.options;
  std::vector<std::string> capabilities;
  for (const GivenInstance& instance : given.Instances()) {
    if (!NeedsCapabilities(options)) break;
    const auto nodes = CapabilitiesOf(instance, settings);
    if (!nodes) return tl::unexpected(nodes.error());
    capabilities.insert(capabilities.end(), nodes->begin(), nodes->end());
  }
  if (!options.pass_device_specs) return {};
  std::string root = options.dev_root.empty() ? options.driver_root : options.dev_root;
  while (!root.empty() && root.back() == '/') root.pop_back();
  const auto add = [&](const std::string& path) { response.devices.push_back({path, root + path, "rw"}); };
  for (const std::string& path : settings.node_paths) add(path);
  for (const unsigned minor : given.Minors()) add("/dev/nvidia" + std::to_string(minor));
  for (const std::string& node : capabilities) add(node);
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
    if (card->part || !settings.common_areas.contains(card->uuid)) continue;
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
    if (card.part) limit.cores = 0;  // its part of the GPU's time is its own: the hardware keeps it
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
      if (one.mig_uuid != limit.uuid) continue;
      const Card* card = cards.Find(one.gpu_uuid);
      given.made.push_back({one.mig_uuid, one.gpu_uuid, card == nullptr ? std::nullopt : card->minor, one.gpu_instance,
                            one.compute_instance});
    }
  }
  Response response;
  AddDevices(given, settings, response);
  AddCdi(record.cache.substr(0, record.cache.rfind(".cache")), given, settings, response);
  HAMI_TRY(AddDeviceNodes(given, settings, response));
  AddLimits(*limits, cards.settings, response);
  AddLibrary(record, settings, response);
  if (given.made.empty()) AddCommonAreas(given.cards, settings, response);
  if (settings.mps) AddMps(limits->front(), *settings.mps, response);
  return response;
}

base::Result<Response> MakePartResponse(const std::vector<std::string>& slots, const Cards& cards,
                                        const ResponseSettings& settings) {
  Given given;
  for (const std::string& slot : slots) {
    const auto part =
        std::find_if(cards.parts.begin(), cards.parts.end(), [&](const auto& c) { return c.uuid == slot; });
    if (part == cards.parts.end()) {
      return base::Fail(base::Printable(slot) + " is no MIG device of this node",
                        "it was removed, or the GPU is divided otherwise now; delete the pod");
    }
    given.cards.push_back(&*part);
  }
  if (given.cards.empty()) return base::Fail("the kubelet asks for no MIG device");
  Response response;
  AddDevices(given, settings, response);
  AddCdi(slots.front(), given, settings, response);
  HAMI_TRY(AddDeviceNodes(given, settings, response));
  return response;
}

const std::vector<std::string>& ControlNodes() {
  static const std::vector<std::string> nodes = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
                                                 "/dev/nvidia-modeset"};
  return nodes;
}

}  // namespace hami::plugin
