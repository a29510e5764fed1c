// SPDX-License-Identifier: Apache-2.0
//
// The metrics of MIG instances: what each has, what is free of it, its processes and errors.
#include "monitor/metrics_parts.h"

namespace hami::monitor {
namespace {

constexpr auto kGauge = base::Exposition::Type::kGauge;
constexpr auto kCounter = base::Exposition::Type::kCounter;
constexpr std::string_view kProfile = "MIG ";  // what is before it in the driver's name of the device

struct LabelledMig {
  const GpuPicture* gpu;
  const nvml::MigDevice* mig;
  base::LabelText labels;
};

std::string ProfileOf(const std::string& name) {
  const std::size_t at = name.rfind(kProfile);
  return at == std::string::npos ? std::string() : name.substr(at + kProfile.size());
}

std::vector<LabelledMig> LabelMigs(const std::string& node, const GpusPicture& gpus) {
  std::vector<LabelledMig> migs;
  for (const GpuPicture& gpu : gpus.gpus) {
    for (const nvml::MigDevice& mig : gpu.device.mig_devices) {
      LabelledMig one{&gpu, &mig, {{"node", node}, {"device_index", std::to_string(gpu.device.index)}}};
      one.labels.Add("device_uuid", gpu.device.uuid).Add("mig_uuid", mig.uuid).Add("profile", ProfileOf(mig.name));
      one.labels.Add("gpu_instance_id", std::to_string(mig.gpu_instance));
      one.labels.Add("compute_instance_id", std::to_string(mig.compute_instance)).Add("zone", kZone);
      migs.push_back(std::move(one));
    }
  }
  return migs;
}

bool IsIn(const nvml::Process& process, const nvml::MigDevice& mig) {
  return process.gpu_instance == mig.gpu_instance &&
         process.compute_instance.value_or(mig.compute_instance) == mig.compute_instance;
}

void RenderProcesses(const std::vector<LabelledMig>& migs, base::Exposition& page) {
  const auto each = [&](std::string_view name, std::string_view help, const auto& value) {
    page.Family(name, kGauge, help);
    for (const LabelledMig& one : migs) {
      if (!one.gpu->held) continue;
      std::uint64_t sum = 0;
      for (const nvml::Process& process : *one.gpu->held) sum += IsIn(process, *one.mig) ? value(process) : 0;
      page.Sample(one.labels, sum);
    }
  };
  each("hami_host_mig_processes", "Processes in the MIG device, of containers or not",
       [](const nvml::Process&) { return std::uint64_t{1}; });
  each("hami_host_mig_process_memory_bytes", "Memory that processes in the MIG device hold, as the driver counts it",
       [](const nvml::Process& process) { return process.bytes.value_or(0); });
}

const nvml::MigDevice* FindMig(const GpusPicture& gpus, const std::string& uuid) {
  for (const GpuPicture& gpu : gpus.gpus) {
    for (const nvml::MigDevice& mig : gpu.device.mig_devices) {
      if (mig.uuid == uuid) return &mig;
    }
  }
  return nullptr;
}

void RenderByContainer(const Picture& picture, const GpusPicture& gpus, base::Exposition& page) {
  const auto each = [&](std::string_view name, std::string_view help, std::uint64_t nvml::Memory::*field) {
    page.Family(name, kGauge, help);
    for (const MigPicture& one : picture.migs) {
      const nvml::MigDevice* const mig = FindMig(gpus, one.reservation.mig_uuid);
      if (mig == nullptr || !mig->memory) continue;
      base::LabelText labels = {{"namespace", one.ns}, {"pod", one.pod}, {"container", one.container}};
      labels.Add("vdevice_index", std::to_string(one.reservation.device));
      labels.Add("device_uuid", one.reservation.gpu_uuid).Add("mig_uuid", mig->uuid).Add("zone", kZone);
      page.Sample(labels, (*mig->memory).*field);
    }
  };
  each("hami_container_mig_memory_used_bytes", "Memory in use of the container's MIG device, with or without libvgpu",
       &nvml::Memory::used);
  each("hami_container_mig_memory_total_bytes", "Memory of the container's MIG device", &nvml::Memory::total);
}

}  // namespace

void RenderMigDevices(const Picture& picture, const GpusPicture& gpus, base::Exposition& page) {
  const std::vector<LabelledMig> migs = LabelMigs(picture.node, gpus);
  const auto memory = [&](std::string_view name, std::string_view help, std::uint64_t nvml::Memory::*field) {
    page.Family(name, kGauge, help);
    for (const LabelledMig& one : migs) {
      if (one.mig->memory) page.Sample(one.labels, (*one.mig->memory).*field);
    }
  };
  memory("hami_host_mig_memory_used_bytes", "Memory in use of the MIG device's GPU instance", &nvml::Memory::used);
  memory("hami_host_mig_memory_total_bytes", "Memory of the MIG device's GPU instance", &nvml::Memory::total);
  RenderProcesses(migs, page);
  page.Family("hami_host_mig_xid_errors_total", kCounter,
              "Errors the driver reported of the MIG device since this program runs, by XID");
  for (const LabelledMig& one : migs) {
    const auto xids = one.gpu->mig_xids.find(one.mig->uuid);
    if (xids == one.gpu->mig_xids.end()) continue;
    for (const auto& [code, count] : xids->second) {
      base::LabelText labels = one.labels;
      page.Sample(labels.Add("xid", std::to_string(code)), count);
    }
  }
  RenderByContainer(picture, gpus, page);
}

}  // namespace hami::monitor
