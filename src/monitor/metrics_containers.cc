// SPDX-License-Identifier: Apache-2.0

#include "monitor/metrics_parts.h"

namespace hami::monitor {
namespace {

constexpr auto kGauge = base::Exposition::Type::kGauge;
constexpr auto kCounter = base::Exposition::Type::kCounter;
constexpr std::size_t kUuidLabel = 40;  // "GPU-" or "MIG-" and 36 characters, as HAMi cuts it

struct LabelledDevice {
  const ContainerPicture* container;
  const DeviceUse* use;
  base::LabelText labels;
  base::LabelText legacy;
};

struct LabelledContainer {
  const ContainerPicture* container;
  base::LabelText labels;
};

base::LabelText LegacyLabels(const ContainerPicture& container, const std::string& index, std::string_view uuid) {
  return {{"podnamespace", container.ns}, {"podname", container.pod}, {"ctrname", container.container},
          {"vdeviceid", index},           {"deviceuuid", uuid},       {"zone", kZone}};
}

std::vector<LabelledDevice> LabelDevices(const Picture& picture, bool legacy) {
  std::vector<LabelledDevice> devices;
  for (const ContainerPicture& container : picture.containers) {
    for (std::size_t d = 0; d < container.region.devices.size(); ++d) {
      const DeviceUse& use = container.region.devices[d];
      if (use.uuid.empty()) continue;
      const std::string index = std::to_string(d);
      const std::string_view uuid = std::string_view(use.uuid).substr(0, kUuidLabel);
      LabelledDevice device{&container, &use, {}, {}};
      device.labels = {{"namespace", container.ns}, {"pod", container.pod}, {"container", container.container},
                       {"vdevice_index", index},    {"device_uuid", uuid},  {"zone", kZone}};
      if (legacy) device.legacy = LegacyLabels(container, index, uuid);
      devices.push_back(std::move(device));
    }
  }
  return devices;
}

// Seconds since the last kernel; nothing when there was none or nobody tells.
std::optional<std::uint64_t> Elapsed(const ContainerPicture& container, std::int64_t unix_seconds) {
  const std::uint64_t last = container.region.last_kernel_time;
  if (last == 0) return std::nullopt;
  const auto now = static_cast<std::uint64_t>(std::max<std::int64_t>(0, unix_seconds));
  return now > last ? now - last : 0;
}

void RenderHami(const std::vector<LabelledDevice>& devices, std::int64_t now, base::Exposition& page) {
  const auto each = [&](std::string_view name, std::string_view help, std::uint64_t DeviceUse::*field) {
    page.Family(name, kGauge, help);
    for (const LabelledDevice& device : devices) page.Sample(device.labels, device.use->*field);
  };
  each("hami_vgpu_memory_used_bytes", "vGPU device memory usage", &DeviceUse::used);
  each("hami_vgpu_memory_limit_bytes", "vGPU device memory limit", &DeviceUse::limit);
  each("hami_container_device_memory_bytes", "Container device memory usage", &DeviceUse::used);
  page.Family("hami_container_device_utilization_ratio", kGauge, "Container device utilization, 100 for a whole GPU");
  for (const LabelledDevice& device : devices) {
    if (device.use->UtilizationKnown()) page.Sample(device.labels, device.use->sm_percent);
  }
  each("hami_vgpu_memory_context_bytes", "Memory of contexts", &DeviceUse::context);
  each("hami_vgpu_memory_module_bytes", "Memory of modules", &DeviceUse::module);
  each("hami_vgpu_memory_buffer_bytes", "Memory of buffers", &DeviceUse::data);
  page.Family("hami_container_last_kernel_elapsed_seconds", kGauge,
              "Seconds since the container last launched a kernel");
  for (const LabelledDevice& device : devices) {
    if (const auto elapsed = Elapsed(*device.container, now)) page.Sample(device.labels, *elapsed);
  }
}

void RenderLegacy(const std::vector<LabelledDevice>& devices, std::int64_t now, bool compat, base::Exposition& page) {
  const auto each = [&](std::string_view name, std::string_view help, std::uint64_t DeviceUse::*field) {
    page.Family(name, kGauge, help);
    for (const LabelledDevice& device : devices) page.Sample(device.legacy, device.use->*field);
  };
  each("vGPU_device_memory_usage_in_bytes", "vGPU device usage", &DeviceUse::used);
  each("vGPU_device_memory_limit_in_bytes", "vGPU device limit", &DeviceUse::limit);
  page.Family("Device_utilization_desc_of_container", kGauge, "Container device utilization description");
  for (const LabelledDevice& device : devices) {
    if (device.use->UtilizationKnown()) page.Sample(device.legacy, device.use->sm_percent);
  }
  page.Family("Device_memory_desc_of_container", kGauge, "Container device memory description");
  for (const LabelledDevice& device : devices) {
    base::LabelText labels = device.legacy;
    const DeviceUse& use = *device.use;
    // HAMi puts figures into labels here, so each change begins a new series.
    if (compat) {
      labels.Add("context", std::to_string(use.context)).Add("module", std::to_string(use.module));
      labels.Add("data", std::to_string(use.data)).Add("offset", std::to_string(use.offset));
    }
    page.Sample(labels, use.used);
  }
  page.Family("Device_last_kernel_of_container", kGauge, "Container device last kernel description");
  for (const LabelledDevice& device : devices) {
    if (const auto elapsed = Elapsed(*device.container, now)) page.Sample(device.legacy, *elapsed);
  }
}

void RenderMig(const Picture& picture, bool legacy, base::Exposition& page) {
  const auto render = [&](bool old) {
    page.Family(old ? "MigInfo" : "hami_mig_device_info", kGauge, "MIG device of a container");
    for (const MigPicture& mig : picture.migs) {
      const device::MigReservation& is = mig.reservation;
      const std::string index = std::to_string(is.device);
      const std::string gpu_instance = std::to_string(is.gpu_instance);
      const std::string compute_instance = std::to_string(is.compute_instance);
      base::LabelText labels;
      if (old) {
        labels = {{"podnamespace", mig.ns}, {"podname", mig.pod},        {"ctrname", mig.container},
                  {"vdeviceid", index},     {"deviceuuid", is.gpu_uuid}, {"instanceid", gpu_instance}};
      } else {
        labels = {{"namespace", mig.ns},
                  {"pod", mig.pod},
                  {"container", mig.container},
                  {"vdevice_index", index},
                  {"device_uuid", is.gpu_uuid}};
        labels.Add("mig_uuid", is.mig_uuid).Add("profile", is.profile);
        labels.Add("gpu_instance_id", gpu_instance).Add("compute_instance_id", compute_instance);
      }
      page.Sample(labels.Add("zone", kZone), std::uint64_t{1});
    }
  };
  render(false);
  if (legacy) render(true);
}

void RenderOurDevices(const std::vector<LabelledDevice>& devices, base::Exposition& page) {
  const auto each = [&](std::string_view name, base::Exposition::Type type, std::string_view help, auto value) {
    page.Family(name, type, help);
    for (const LabelledDevice& device : devices) {
      if (device.container->region.ours) page.Sample(device.labels, value(*device.use));
    }
  };
  const auto seconds = [](std::uint64_t nanos) { return static_cast<double>(nanos) * 1e-9; };
  each("hami_vgpu_memory_peak_bytes", kGauge, "The most that was ever set aside at once",
       [](const DeviceUse& use) { return use.peak; });
  each("hami_vgpu_memory_refusals_total", kCounter, "Allocations refused because they did not fit under the limit",
       [](const DeviceUse& use) { return use.refusals; });
  each("hami_vgpu_memory_spilled_bytes_total", kCounter, "Bytes handed out as host memory because the GPU was full",
       [](const DeviceUse& use) { return use.spilled_bytes; });
  each("hami_vgpu_gpu_seconds_total", kCounter, "GPU time charged; only under a limit of GPU time",
       [&](const DeviceUse& use) { return seconds(use.gpu_ns); });
  each("hami_vgpu_throttled_seconds_total", kCounter, "How long threads waited for GPU time, summed over threads",
       [&](const DeviceUse& use) { return seconds(use.throttled_ns); });
  each("hami_vgpu_processes_without_pid", kGauge,
       "Living processes whose pid on the host is not known, so that the utilization is not, either",
       [](const DeviceUse& use) { return use.nameless; });
  page.Family("hami_vgpu_core_limit_ratio", kGauge, "Limit of GPU time, 1 to 100; 100: none");
  for (const LabelledDevice& device : devices) {
    const std::uint64_t limit = device.use->sm_limit;
    page.Sample(device.labels, limit == 0 || limit > 100 ? std::uint64_t{100} : limit);
  }
}

std::vector<LabelledContainer> LabelContainers(const Picture& picture) {
  std::vector<LabelledContainer> containers;
  for (const ContainerPicture& container : picture.containers) {
    containers.push_back(
        {&container,
         {{"namespace", container.ns}, {"pod", container.pod}, {"container", container.container}, {"zone", kZone}}});
  }
  return containers;
}

void RenderOurContainers(const Picture& picture, base::Exposition& page) {
  const std::vector<LabelledContainer> containers = LabelContainers(picture);
  const auto each = [&](std::string_view name, base::Exposition::Type type, std::string_view help, auto value) {
    page.Family(name, type, help);
    for (const LabelledContainer& one : containers) {
      const bool has_region = one.container->problem.empty() && !one.container->awaited;
      if (has_region) page.Sample(one.labels, value(*one.container));
    }
  };
  each("hami_container_processes", kGauge, "Processes of the container that use GPUs",
       [](const ContainerPicture& container) {
         return static_cast<std::uint64_t>(container.region.living) +
                static_cast<std::uint64_t>(container.region.possible);
       });
  each("hami_container_priority", kGauge, "Smaller is more important",
       [](const ContainerPicture& container) { return static_cast<double>(container.region.priority); });
  each("hami_container_blocked", kGauge, "1 while launches are stopped for a more important container",
       [](const ContainerPicture& container) { return std::uint64_t{container.blocked ? 1U : 0U}; });
  each("hami_container_blocked_seconds_total", kCounter, "How long launches were stopped for more important containers",
       [](const ContainerPicture& container) { return container.blocked_seconds; });
  page.Family("hami_container_resize_state", kGauge, "What became of the annotation hami-cpp/resize");
  for (const LabelledContainer& one : containers) {
    if (one.container->resize.empty()) continue;
    base::LabelText labels = one.labels;
    page.Sample(labels.Add("state", one.container->resize), std::uint64_t{1});
  }
  page.Family("hami_container_region_problem", kGauge, "1: the container's region can not be read");
  for (const LabelledContainer& one : containers) {
    if (one.container->problem.empty()) continue;
    base::LabelText labels = one.labels;
    page.Sample(labels.Add("problem", one.container->problem), std::uint64_t{1});
  }
}

}  // namespace

void RenderContainers(const Picture& picture, const MetricsStyle& style, std::int64_t unix_seconds,
                      base::Exposition& page) {
  const std::vector<LabelledDevice> devices = LabelDevices(picture, style.legacy);
  RenderHami(devices, unix_seconds, page);
  if (style.legacy) RenderLegacy(devices, unix_seconds, style.compat_labels, page);
  RenderMig(picture, style.legacy, page);
  RenderOurDevices(devices, page);
  RenderOurContainers(picture, page);
}

}  // namespace hami::monitor
