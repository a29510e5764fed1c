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
  {
    const std::scoped_lock lock(mutex_);
    waiting = xids_;
    xids_.reset();
  }
  watched_.clear();
  library_.reset();
  // The session ends with its last user, and only a session that begins anew sees the GPUs of today. Whoever waits for
  // XIDs lets go at the end of its slice.
  for (int i = 0; i < 100 && !waiting.expired(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
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
  for (const nvml::Device& device : reading.devices) {
    if (!device.uuid.empty()) reading.health[device.uuid] = library_->ReadHealth(device.uuid);
  }
  if (with_topology) reading.topology = library_->ReadTopology(reading.devices);
  WatchXidsOf(reading.devices);
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
    if (registered || device.condition == nvml::Condition::kAnswers) watched_.insert(device.uuid);
    if (!registered) base::LogWarning(registered.error().message);
  }
  const std::scoped_lock lock(mutex_);
  xids_ = std::move(watch);
}

std::shared_ptr<nvml::XidWatch> DriverSession::xids() const {
  const std::scoped_lock lock(mutex_);
  return xids_;
}

void DriverSession::DropXids(const std::shared_ptr<nvml::XidWatch>& xids) {
  const std::scoped_lock lock(mutex_);
  if (xids_ == xids) xids_.reset();
}

}  // namespace hami::plugin
