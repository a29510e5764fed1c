// SPDX-License-Identifier: Apache-2.0

#include <array>
#include <utility>

#include "base/strings.h"
#include "monitor/metrics_parts.h"

namespace hami::monitor {
namespace {

constexpr auto kGauge = base::Exposition::Type::kGauge;
constexpr auto kCounter = base::Exposition::Type::kCounter;

struct LabelledGpu {
  const GpuPicture* gpu;
  base::LabelText labels;        // ours, and HAMi's of most metrics
  base::LabelText without_node;  // HAMi's of one
  base::LabelText legacy;
};

std::string TypeOf(const std::string& name, bool compat) {
  return !compat && base::ToLower(name).starts_with("nvidia") ? name : "NVIDIA-" + name;
}

std::vector<LabelledGpu> Label(const std::string& node, const GpusPicture& gpus, bool compat) {
  std::vector<LabelledGpu> labelled;
  for (const GpuPicture& gpu : gpus.gpus) {
    const std::string index = std::to_string(gpu.device.index);
    const std::string type = TypeOf(gpu.device.name, compat);
    const std::string& uuid = gpu.device.uuid;
    LabelledGpu one{&gpu, {}, {}, {}};
    one.without_node = {{"device_index", index}, {"device_uuid", uuid}, {"device_type", type}, {"zone", kZone}};
    one.labels = {
        {"node", node}, {"device_index", index}, {"device_uuid", uuid}, {"device_type", type}, {"zone", kZone}};
    one.legacy = {{"nodeid", node}, {"deviceidx", index}, {"deviceuuid", uuid}, {"devicetype", type}, {"zone", kZone}};
    labelled.push_back(std::move(one));
  }
  return labelled;
}

class Renderer {
 public:
  Renderer(const std::vector<LabelledGpu>& gpus, base::Exposition& page) : gpus_(gpus), page_(page) {}

  // VALUE(gpu) is an optional number; nothing is no sample.
  template <typename Value>
  void Each(std::string_view name, base::Exposition::Type type, std::string_view help, Value value,
            base::LabelText LabelledGpu::*labels = &LabelledGpu::labels) {
    page_.Family(name, type, help);
    for (const LabelledGpu& one : gpus_) {
      if (const auto number = value(*one.gpu)) page_.Sample(one.*labels, Number(*number));
    }
  }

 private:
  static double Number(double value) { return value; }
  static std::uint64_t Number(std::uint64_t value) { return value; }
  static std::uint64_t Number(unsigned value) { return value; }
  static std::uint64_t Number(bool value) { return value ? 1 : 0; }

  const std::vector<LabelledGpu>& gpus_;
  base::Exposition& page_;
};

std::optional<std::uint64_t> UsedBytes(const GpuPicture& gpu) {
  return gpu.telemetry.memory ? std::optional(gpu.telemetry.memory->used) : std::nullopt;
}
std::optional<unsigned> Utilization(const GpuPicture& gpu) { return gpu.telemetry.gpu_percent; }

template <typename T>
std::optional<double> Scaled(const std::optional<T>& value, double factor) {
  return value ? std::optional(static_cast<double>(*value) * factor) : std::nullopt;
}

bool IsHealthy(const GpuPicture& gpu) {
  const nvml::HealthSigns& health = gpu.telemetry.health;
  return gpu.device.condition == nvml::Condition::kAnswers && gpu.telemetry.condition == nvml::Condition::kAnswers &&
         health.condition == nvml::Condition::kAnswers && !(health.remapped && health.remapped->failed);
}

void RenderHami(Renderer& render, const MetricsStyle& style) {
  const auto memory_percent = [](const GpuPicture& gpu) { return gpu.telemetry.memory_percent; };
  render.Each("hami_host_gpu_memory_used_bytes", kGauge, "GPU device memory usage", UsedBytes);
  render.Each("hami_host_gpu_utilization_ratio", kGauge, "GPU core utilization, 0 to 100", Utilization);
  render.Each("hami_host_gpu_memory_controller_utilization_ratio", kGauge,
              "GPU memory controller utilization, 0 to 100", memory_percent,
              style.compat_labels ? &LabelledGpu::without_node : &LabelledGpu::labels);
  if (!style.legacy) return;
  render.Each("HostGPUMemoryUsage", kGauge, "GPU device memory usage", UsedBytes, &LabelledGpu::legacy);
  render.Each("HostCoreUtilization", kGauge, "GPU core utilization", Utilization, &LabelledGpu::legacy);
}

void RenderGauges(Renderer& render) {
  using Gpu = GpuPicture;
  render.Each(
      "hami_host_gpu_memory_total_bytes", kGauge, "Memory of the GPU, the driver's reserve included",
      [](const Gpu& gpu) { return gpu.telemetry.memory ? std::optional(gpu.telemetry.memory->total) : std::nullopt; });
  render.Each("hami_host_gpu_temperature_celsius", kGauge, "Temperature of the chip",
              [](const Gpu& gpu) { return gpu.telemetry.temperature_celsius; });
  render.Each("hami_host_gpu_memory_temperature_celsius", kGauge, "Temperature of the memory",
              [](const Gpu& gpu) { return gpu.telemetry.memory_temperature_celsius; });
  render.Each("hami_host_gpu_power_watts", kGauge, "Power drawn by the board",
              [](const Gpu& gpu) { return Scaled(gpu.telemetry.power_milliwatts, 1e-3); });
  render.Each("hami_host_gpu_power_limit_watts", kGauge, "Power limit in force",
              [](const Gpu& gpu) { return Scaled(gpu.telemetry.power_limit_milliwatts, 1e-3); });
  render.Each("hami_host_gpu_energy_joules_total", kCounter, "Energy since the driver was loaded",
              [](const Gpu& gpu) { return Scaled(gpu.telemetry.energy_millijoules, 1e-3); });
  render.Each("hami_host_gpu_fan_ratio", kGauge, "Fan speed, 0 to 100",
              [](const Gpu& gpu) { return gpu.telemetry.fan_percent; });
  render.Each("hami_host_gpu_encoder_utilization_ratio", kGauge, "Video encoder, 0 to 100",
              [](const Gpu& gpu) { return gpu.telemetry.encoder_percent; });
  render.Each("hami_host_gpu_decoder_utilization_ratio", kGauge, "Video decoder, 0 to 100",
              [](const Gpu& gpu) { return gpu.telemetry.decoder_percent; });
  render.Each("hami_host_gpu_sm_clock_hertz", kGauge, "Clock of the multiprocessors",
              [](const Gpu& gpu) { return Scaled(gpu.telemetry.sm_clock_mhz, 1e6); });
  render.Each("hami_host_gpu_memory_clock_hertz", kGauge, "Clock of the memory",
              [](const Gpu& gpu) { return Scaled(gpu.telemetry.memory_clock_mhz, 1e6); });
  render.Each("hami_host_gpu_performance_state", kGauge, "0 is fastest",
              [](const Gpu& gpu) { return gpu.telemetry.performance_state; });
  render.Each("hami_host_gpu_clock_event_reasons", kGauge, "Why clocks are held down: NVML's bit mask",
              [](const Gpu& gpu) { return gpu.telemetry.throttle_reasons; });
}

void RenderHealth(Renderer& render) {
  using Gpu = GpuPicture;
  const auto remapped = [](const Gpu& gpu, auto pick) {
    return gpu.telemetry.health.remapped ? std::optional(pick(*gpu.telemetry.health.remapped)) : std::nullopt;
  };
  render.Each("hami_host_gpu_healthy", kGauge, "1 while the GPU answers and its memory can be repaired",
              [](const Gpu& gpu) { return std::optional(IsHealthy(gpu)); });
  render.Each("hami_host_gpu_ecc_corrected_total", kCounter,
              "Memory errors that were corrected since the driver was loaded",
              [](const Gpu& gpu) { return gpu.telemetry.health.ecc.corrected_volatile; });
  render.Each("hami_host_gpu_ecc_uncorrected_total", kCounter,
              "Memory errors that were not, since the driver was loaded",
              [](const Gpu& gpu) { return gpu.telemetry.health.ecc.uncorrected_volatile; });
  render.Each("hami_host_gpu_remapped_rows_correctable", kGauge, "Memory rows replaced after corrected errors",
              [&](const Gpu& gpu) { return remapped(gpu, [](const auto& rows) { return rows.correctable; }); });
  render.Each("hami_host_gpu_remapped_rows_uncorrectable", kGauge,
              "Memory rows replaced after errors that were not corrected",
              [&](const Gpu& gpu) { return remapped(gpu, [](const auto& rows) { return rows.uncorrectable; }); });
  render.Each("hami_host_gpu_row_remap_pending", kGauge, "1 when a reset will replace rows",
              [&](const Gpu& gpu) { return remapped(gpu, [](const auto& rows) { return rows.pending; }); });
  render.Each("hami_host_gpu_row_remap_failed", kGauge, "1 when there was no row left to replace with",
              [&](const Gpu& gpu) { return remapped(gpu, [](const auto& rows) { return rows.failed; }); });
  render.Each("hami_host_gpu_retired_pages", kGauge, "Memory pages taken out of use",
              [](const Gpu& gpu) { return gpu.telemetry.health.retired_pages; });
  render.Each("hami_host_gpu_pcie_generation", kGauge, "Generation of the PCIe link now",
              [](const Gpu& gpu) { return gpu.telemetry.pcie.generation; });
  render.Each("hami_host_gpu_pcie_width", kGauge, "Lanes of the PCIe link now",
              [](const Gpu& gpu) { return gpu.telemetry.pcie.width; });
  render.Each("hami_host_gpu_pcie_replays_total", kCounter, "PCIe packets that had to be repeated",
              [](const Gpu& gpu) { return gpu.telemetry.pcie.replays; });
  render.Each("hami_host_gpu_pcie_transmit_bytes_per_second", kGauge, "From the GPU over PCIe, when last measured",
              [](const Gpu& gpu) { return Scaled(gpu.pcie.transmit_kib_per_second, 1024); });
  render.Each("hami_host_gpu_pcie_receive_bytes_per_second", kGauge, "To the GPU over PCIe, when last measured",
              [](const Gpu& gpu) { return Scaled(gpu.pcie.receive_kib_per_second, 1024); });
}

// Processes of one kind on one GPU. Not one series a process: those come and go without end.
void RenderProcesses(const std::vector<LabelledGpu>& gpus, base::Exposition& page) {
  constexpr std::array<std::pair<nvml::ProcessKind, const char*>, 3> kKinds = {
      {{nvml::ProcessKind::kCompute, "compute"},
       {nvml::ProcessKind::kGraphics, "graphics"},
       {nvml::ProcessKind::kMps, "mps"}}};
  const auto each = [&](const auto& value) {
    for (const LabelledGpu& one : gpus) {
      if (!one.gpu->held) continue;
      for (const auto& [kind, name] : kKinds) {
        std::uint64_t sum = 0;
        for (const nvml::Process& process : *one.gpu->held) sum += process.kind == kind ? value(process) : 0;
        base::LabelText labels = one.labels;
        page.Sample(labels.Add("kind", name), sum);
      }
    }
  };
  page.Family("hami_host_gpu_processes", kGauge, "Processes with a context, of containers or not");
  each([](const nvml::Process&) { return std::uint64_t{1}; });
  page.Family("hami_host_gpu_process_memory_bytes", kGauge, "Memory that they hold, as the driver counts it");
  each([](const nvml::Process& process) { return process.bytes.value_or(0); });
}

void RenderLists(const std::vector<LabelledGpu>& gpus, base::Exposition& page) {
  page.Family("hami_host_gpu_xid_errors_total", kCounter, "Errors the driver reported since this program runs, by XID");
  for (const LabelledGpu& one : gpus) {
    for (const auto& [code, count] : one.gpu->xids) {
      base::LabelText labels = one.labels;
      page.Sample(labels.Add("xid", std::to_string(code)), count);
    }
  }
  page.Family("hami_host_gpu_nvlink_up", kGauge, "1 when the NVLink is up");
  for (const LabelledGpu& one : gpus) {
    for (const nvml::NvLink& link : one.gpu->links) {
      base::LabelText labels = one.labels;
      labels.Add("link", std::to_string(link.number)).Add("peer", link.peer_bus_id);
      page.Sample(labels, std::uint64_t{link.up ? 1U : 0U});
    }
  }
}

}  // namespace

void RenderGpus(const std::string& node, const GpusPicture& gpus, const MetricsStyle& style, base::Exposition& page) {
  const std::vector<LabelledGpu> labelled = Label(node, gpus, style.compat_labels);
  Renderer render(labelled, page);
  RenderHami(render, style);
  RenderGauges(render);
  RenderHealth(render);
  RenderProcesses(labelled, page);
  RenderLists(labelled, page);
}

}  // namespace hami::monitor
