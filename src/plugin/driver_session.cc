// SPDX-License-Identifier: Apache-2.0

#include "plugin/driver_session.h"

#include <thread>
#include <utility>

#include "base/log.h"

namespace hami::plugin {

using base::Result;

DriverSession::DriverSession(nvml::LoadOptions load, std::string proc_gpus)
    : load_(std::move(load)), proc_gpus_(std::move(proc_gpus)) {}

void DriverSession::End() {
  std::weak_ptr<nvml::XidWatch> waiting;
  std::weak_ptr<nvml::XidWatch> failed;
  {
    const std::scoped_lock lock(mutex_);
    waiting = std::exchange(xids_, nullptr);
    failed = std::exchange(failed_, nullptr);
    gap_ = true;
  }
  watched_.clear();
  deaf_.clear();
  library_.reset();
  // The session ends with its last user, and only a session that begins anew sees the GPUs of today. Whoever waits for
  // XIDs lets go at the end of its slice.
  for (int i = 0; i < 100 && !(waiting.expired() && failed.expired()); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Result<DriverReading> DriverSession::Read(bool with_topology) {
  auto kernel = nvml::KernelGpus(proc_gpus_);
  if (library_ && kernel != kernel_gpus_) {
    base::LogInfo("the machine's GPUs changed; asking the driver anew");
    End();
  }
  if (!library_) {
    auto library = nvml::Library::Load(load_);
    if (!library) return tl::unexpected(library.error());
    library_ = *std::move(library);
    kernel_gpus_ = std::move(kernel);
  }
  auto devices = library_->ReadDevices();
  if (!devices) {
    End();
    return tl::unexpected(devices.error());
  }
  DriverReading reading;
  reading.devices = *std::move(devices);
  // First: what happens from here on is heard, what happened before is read.
  WatchXidsOf(reading.devices);
  reading.unheard = TakeUnheard(reading.devices);
  for (nvml::Device& device : reading.devices) {
    if (!device.mig_mode || !device.mig_mode->current) continue;
    auto layout = library_->ReadMigLayout(device.uuid);
    if (layout) device.mig_layout = *std::move(layout);
  }
  for (const nvml::Device& device : reading.devices) {
    if (!device.uuid.empty()) reading.health[device.uuid] = library_->ReadHealth(device.uuid);
  }
  if (with_topology) reading.topology = library_->ReadTopology(reading.devices);
  return reading;
}

void DriverSession::WatchXidsOf(const std::vector<nvml::Device>& devices) {
  std::shared_ptr<nvml::XidWatch> watch = xids();
  if (watch == nullptr) {
    watched_.clear();
    auto made = library_->WatchXids();
    if (!made) return base::LogDebug(made.error().message);
    watch = *std::move(made);
  }
  for (const nvml::Device& device : devices) {
    if (device.uuid.empty() || watched_.contains(device.uuid)) continue;
    const auto registered = watch->Register(device.uuid);
    if (registered) {
      watched_[device.uuid] = *registered;
      if (deaf_.erase(device.uuid) > 0) base::LogInfo(device.uuid + ": its XID events are heard from now on");
      continue;
    }
    // At each look once more; meanwhile its counters are read. The same trouble is said once.
    std::string& said = deaf_[device.uuid];
    if (said != registered.error().message) base::LogWarning(registered.error().message + "; trying again");
    said = registered.error().message;
  }
  const std::scoped_lock lock(mutex_);
  xids_ = std::move(watch);
}

std::shared_ptr<nvml::XidWatch> DriverSession::xids() const {
  const std::scoped_lock lock(mutex_);
  return xids_;
}

std::set<std::string> DriverSession::TakeUnheard(const std::vector<nvml::Device>& devices) {
  bool gap = false;
  {
    const std::scoped_lock lock(mutex_);
    gap = std::exchange(gap_, false);
  }
  std::set<std::string> unheard;
  for (const nvml::Device& device : devices) {
    const auto watched = watched_.find(device.uuid);
    if (gap || watched == watched_.end() || !watched->second) unheard.insert(device.uuid);
  }
  return unheard;
}

Result<std::optional<nvml::XidEvent>> DriverSession::NextXid(unsigned milliseconds) {
  std::shared_ptr<nvml::XidWatch> watch;
  std::shared_ptr<nvml::XidWatch> failed;
  {
    const std::scoped_lock lock(mutex_);
    watch = xids_;
    failed = failed_;
  }
  if (watch == nullptr) return std::nullopt;
  auto event = watch->Wait(milliseconds);
  if (event && *event) return event;
  if (event && failed != nullptr) {
    // The driver listens to waits again: what did the one that failed hear?
    if (auto late = failed->Wait(0); late && *late) return late;
  }
  const std::scoped_lock lock(mutex_);
  if (event) {
    if (failed_ == failed) failed_.reset();
  } else if (xids_ == watch) {
    if (failed_ == nullptr) failed_ = watch;
    xids_.reset();
    gap_ = true;
  }
  return event;
}

}  // namespace hami::plugin
