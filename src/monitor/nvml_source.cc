// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/log.h"
#include "monitor/gpus.h"

namespace hami::monitor {
namespace {

// What seldom changes is asked for once in so many looks.
constexpr int kSeldom = 15;
constexpr int kMostEvents = 100;  // taken in one look

class NvmlSource : public GpuSource {
 public:
  NvmlSource(nvml::LoadOptions load, std::string proc_gpus, XidCounts& heard)
      : load_(std::move(load)), proc_gpus_(std::move(proc_gpus)), heard_(heard) {}

  // Begins a session, after the end of the one there was.
  base::Status Begin() {
    xids_.reset();
    library_.reset();
    kernel_gpus_ = nvml::KernelGpus(proc_gpus_);
    auto library = nvml::Library::Load(load_);
    if (!library) return tl::unexpected(library.error());
    library_ = *std::move(library);
    trouble_ = true;
    return {};
  }

  base::Result<std::vector<GpuPicture>> Look() override {
    if (nvml::KernelGpus(proc_gpus_) != kernel_gpus_) {
      base::LogInfo("the machine's GPUs changed; asking the driver anew");
      HAMI_TRY(Begin());
    }
    TakeEvents();
    const bool trouble = std::exchange(trouble_, false);
    const bool divided = std::exchange(divided_anew_, false);
    if (looks_++ % kSeldom == 0 || trouble || divided) HAMI_TRY(LookAround());
    for (GpuPicture& gpu : gpus_) {
      LookAt(gpu);
      LookAtInstances(gpu);
      if (const auto heard = heard_.find(gpu.device.uuid); heard != heard_.end()) gpu.xids = heard->second;
    }
    MeasureOne();
    return gpus_;
  }

 private:
  base::Status LookAround() {
    auto devices = library_->ReadDevices();
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
        if (before.device.uuid == device.uuid) gpu.pcie = before.pcie;
      }
      gpu.device = std::move(device);
      if (!gpu.device.uuid.empty()) gpu.links = library_->ReadNvLinks(gpu.device.uuid);
      gpus.push_back(std::move(gpu));
    }
    gpus_ = std::move(gpus);
    WatchXids();
    return {};
  }

  void WatchXids() {
    if (!xids_) {
      registered_.clear();
      failed_ = false;
      auto watch = library_->WatchXids();
      if (!watch) return;
      xids_ = *std::move(watch);
    }
    for (const GpuPicture& gpu : gpus_) {
      const std::string& uuid = gpu.device.uuid;
      if (uuid.empty() || registered_.contains(uuid)) continue;
      const auto registered = xids_->Register(uuid);
      // One that is lost is asked again when it is back.
      if (!registered && gpu.device.condition != nvml::Condition::kAnswers) continue;
      registered_.insert(uuid);
      if (!registered) base::LogWarning("no reports of errors of " + uuid + ": " + registered.error().message);
    }
  }

  void LookAt(GpuPicture& gpu) {
    if (gpu.device.uuid.empty()) return;
    gpu.telemetry = library_->Sample(gpu.device.uuid);
    if (gpu.telemetry.condition != nvml::Condition::kAnswers) trouble_ = true;
    gpu.held = library_->ReadProcesses(gpu.device.uuid);
    gpu.processes.reset();
    std::uint64_t& since = since_[gpu.device.uuid];
    auto processes = library_->ReadProcessUtilization(gpu.device.uuid, since);
    if (!processes) return;
    gpu.processes.emplace();
    for (const nvml::ProcessUtilization& process : *processes) {
      since = std::max(since, process.microseconds);
      if (process.sm_percent > 0) gpu.processes->push_back(process);
    }
  }

  // MIG devices come and go without a word. One that is gone tells no memory, a new one that is used has processes.
  void LookAtInstances(GpuPicture& gpu) {
    for (nvml::MigDevice& mig : gpu.device.mig_devices) {
      const bool told = mig.memory.has_value();
      mig.memory = library_->ReadMemory(mig.uuid);
      divided_anew_ = divided_anew_ || (told && !mig.memory);
      if (const auto heard = heard_.find(mig.uuid); heard != heard_.end()) gpu.mig_xids[mig.uuid] = heard->second;
    }
    if (!gpu.held) return;
    for (const nvml::Process& process : *gpu.held) {
      const bool known = !process.gpu_instance ||
                         std::any_of(gpu.device.mig_devices.begin(), gpu.device.mig_devices.end(),
                                     [&](const auto& mig) { return mig.gpu_instance == *process.gpu_instance; });
      divided_anew_ = divided_anew_ || !known;
    }
  }

  void Count(const nvml::XidEvent& event) {
    for (const GpuPicture& gpu : gpus_) {
      if (gpu.device.uuid != event.uuid) continue;
      ++heard_[event.uuid][event.code];
      for (const nvml::MigDevice& mig : gpu.device.mig_devices) {
        const bool compute =
            event.compute_instance == nvml::kAnyInstance || event.compute_instance == mig.compute_instance;
        if (mig.gpu_instance == event.gpu_instance && compute) ++heard_[mig.uuid][event.code];
      }
    }
  }

  // The driver takes 40 ms for it, so it is one GPU's turn at a time.
  void MeasureOne() {
    if (gpus_.empty()) return;
    GpuPicture& gpu = gpus_[static_cast<std::size_t>(looks_) % gpus_.size()];
    gpu.pcie = {};
    if (!gpu.device.uuid.empty() && !trouble_) gpu.pcie = library_->MeasurePcie(gpu.device.uuid);
  }

  void TakeEvents() {
    if (gpus_.empty()) return;  // before the first look around there is nobody to hear of
    if (!xids_) WatchXids();
    for (int i = 0; xids_ && i < kMostEvents; ++i) {
      auto event = xids_->Wait(0);
      if (!event) {
        const std::string why = event.error().message;
        if (std::exchange(deaf_, why) != why) base::LogWarning("errors of the GPUs are not reported: " + why);
        // It may have heard some that it tells the next time. Two watches at once would count those twice.
        if (std::exchange(failed_, true)) {
          xids_.reset();
          WatchXids();
        }
        return;
      }
      failed_ = false;
      deaf_.clear();
      if (!event->has_value()) return;
      trouble_ = true;
      Count(**event);
    }
  }

  const nvml::LoadOptions load_;
  const std::string proc_gpus_;
  XidCounts& heard_;
  std::optional<nvml::Library> library_;              // before the first Begin, and when one failed, there is none
  std::optional<std::set<std::string>> kernel_gpus_;  // when the session began
  std::unique_ptr<nvml::XidWatch> xids_;
  std::unordered_set<std::string> registered_;  // UUIDs whose XIDs are heard, or never will be
  std::vector<GpuPicture> gpus_;
  std::unordered_map<std::string, std::uint64_t> since_;
  int looks_ = 0;
  bool trouble_ = false;
  bool divided_anew_ = false;  // some GPU has other MIG devices than it had
  bool failed_ = false;        // the last wait of xids_
  std::string deaf_;           // why, as was told
};

}  // namespace

base::Result<std::unique_ptr<GpuSource>> MakeNvmlSource(const nvml::LoadOptions& load, const std::string& proc_gpus,
                                                        XidCounts& heard) {
  auto source = std::make_unique<NvmlSource>(load, proc_gpus, heard);
  if (auto begun = source->Begin(); !begun) return tl::unexpected(begun.error());
  return source;
}

}  // namespace hami::monitor
