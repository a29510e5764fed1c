// SPDX-License-Identifier: Apache-2.0

#include <unordered_map>

#include "base/log.h"
#include "monitor/gpus.h"

namespace hami::monitor {
namespace {

// What seldom changes is asked for once in so many looks.
constexpr int kSeldom = 15;
constexpr int kMostEvents = 100;  // taken in one look

class NvmlSource : public GpuSource {
 public:
  explicit NvmlSource(nvml::Library library) : library_(std::move(library)) {
    auto watch = library_.WatchXids();
    if (watch) xids_ = *std::move(watch);
  }

  base::Result<std::vector<GpuPicture>> Look() override {
    if (looks_++ % kSeldom == 0 || trouble_) HAMI_TRY(LookAround());
    TakeEvents();
    trouble_ = false;
    for (GpuPicture& gpu : gpus_) LookAt(gpu);
    MeasureOne();
    return gpus_;
  }

 private:
  base::Status LookAround() {
    auto devices = library_.ReadDevices();
    if (!devices) return tl::unexpected(devices.error());
    std::vector<GpuPicture> gpus;
    for (nvml::Device& device : *devices) {
      GpuPicture gpu;
      for (const GpuPicture& before : gpus_) {
        // One that is lost may not even say who it was.
        if (device.uuid.empty() && before.device.index == device.index) {
          device.uuid = before.device.uuid;
          device.name = before.device.name;
        }
        if (before.device.uuid == device.uuid) {
          gpu.xids = before.xids;
          gpu.pcie = before.pcie;
        }
      }
      gpu.device = std::move(device);
      if (!gpu.device.uuid.empty()) gpu.links = library_.ReadNvLinks(gpu.device.uuid);
      if (xids_ && !gpu.device.uuid.empty() && registered_.emplace(gpu.device.uuid, true).second) {
        const auto registered = xids_->Register(gpu.device.uuid);
        if (!registered)
          base::LogWarning("no reports of errors of " + gpu.device.uuid + ": " + registered.error().message);
      }
      gpus.push_back(std::move(gpu));
    }
    gpus_ = std::move(gpus);
    return {};
  }

  void LookAt(GpuPicture& gpu) {
    if (gpu.device.uuid.empty()) return;
    gpu.telemetry = library_.Sample(gpu.device.uuid);
    if (gpu.telemetry.condition != nvml::Condition::kAnswers) trouble_ = true;
    gpu.held = library_.ReadProcesses(gpu.device.uuid);
    gpu.processes.clear();
    std::uint64_t& since = since_[gpu.device.uuid];
    auto processes = library_.ReadProcessUtilization(gpu.device.uuid, since);
    if (!processes) return;
    for (const nvml::ProcessUtilization& process : *processes) {
      since = std::max(since, process.microseconds);
      if (process.sm_percent > 0) gpu.processes.push_back(process);
    }
  }

  // The driver takes 40 ms for it, so it is one GPU's turn at a time.
  void MeasureOne() {
    if (gpus_.empty()) return;
    GpuPicture& gpu = gpus_[static_cast<std::size_t>(looks_) % gpus_.size()];
    gpu.pcie = {};
    if (!gpu.device.uuid.empty() && !trouble_) gpu.pcie = library_.MeasurePcie(gpu.device.uuid);
  }

  void TakeEvents() {
    for (int i = 0; xids_ && i < kMostEvents; ++i) {
      auto event = xids_->Wait(0);
      if (!event) {
        xids_.reset();
        base::LogWarning("errors of the GPUs are no longer reported: " + event.error().message);
        return;
      }
      if (!event->has_value()) return;
      trouble_ = true;
      for (GpuPicture& gpu : gpus_) {
        if (gpu.device.uuid == (*event)->uuid) ++gpu.xids[(*event)->code];
      }
    }
  }

  nvml::Library library_;
  std::unique_ptr<nvml::XidWatch> xids_;
  std::unordered_map<std::string, bool> registered_;
  std::vector<GpuPicture> gpus_;
  std::unordered_map<std::string, std::uint64_t> since_;
  int looks_ = 0;
  bool trouble_ = false;
};

}  // namespace

base::Result<std::unique_ptr<GpuSource>> MakeNvmlSource() {
  auto library = nvml::Library::Load();
  if (!library) return tl::unexpected(library.error());
  return std::make_unique<NvmlSource>(*std::move(library));
}

}  // namespace hami::monitor
