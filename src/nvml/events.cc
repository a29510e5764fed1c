// SPDX-License-Identifier: Apache-2.0

#include "nvml/functions.h"

namespace hami::nvml {

using base::Fail;
using base::Result;

XidWatch::XidWatch(std::shared_ptr<const Functions> functions, void* set)
    : functions_(std::move(functions)), set_(set) {}

XidWatch::~XidWatch() {
  if (functions_->nvmlEventSetFree != nullptr) {
    static_cast<void>(functions_->nvmlEventSetFree(static_cast<nvmlEventSet_t>(set_)));
  }
}

Result<bool> XidWatch::Register(const std::string& uuid) {
  const Functions& f = *functions_;
  const Found found = Find(f, uuid);
  if (found.code != NVML_SUCCESS) return Fail(uuid + ": " + f.Explain(found.code));
  const auto types = Get<unsigned long long>(f.nvmlDeviceGetSupportedEventTypes, found.device);
  constexpr unsigned long long kXid = nvmlEventTypeXidCriticalError;
  if (!types || (*types & kXid) == 0) return false;
  const nvmlReturn_t code = f.nvmlDeviceRegisterEvents(found.device, kXid, static_cast<nvmlEventSet_t>(set_));
  if (code == NVML_ERROR_NOT_SUPPORTED) return false;
  if (code != NVML_SUCCESS) return Fail(uuid + ": its XID events can not be had: " + f.Explain(code));
  const std::scoped_lock lock(mutex_);
  uuids_[found.device] = uuid;
  return true;
}

Result<std::optional<XidEvent>> XidWatch::Wait(unsigned milliseconds) {
  const Functions& f = *functions_;
  nvmlEventData_t data{};
  const nvmlReturn_t code = f.nvmlEventSetWait_v2(static_cast<nvmlEventSet_t>(set_), &data, milliseconds);
  if (code == NVML_ERROR_TIMEOUT) return std::optional<XidEvent>();
  if (code != NVML_SUCCESS) return Fail("waiting for XID events: " + f.Explain(code));
  if (data.eventType != nvmlEventTypeXidCriticalError) return std::optional<XidEvent>();
  XidEvent event;
  event.code = data.eventData;
  event.gpu_instance = data.gpuInstanceId;
  event.compute_instance = data.computeInstanceId;
  const std::scoped_lock lock(mutex_);
  // By the handle it was registered with: a GPU that is gone does not say its name any more.
  if (const auto known = uuids_.find(data.device); known != uuids_.end()) event.uuid = known->second;
  return std::optional<XidEvent>(std::move(event));
}

Result<std::unique_ptr<XidWatch>> Library::WatchXids() const {
  const Functions& f = *functions_;
  if (f.nvmlEventSetCreate == nullptr || f.nvmlEventSetWait_v2 == nullptr || f.nvmlDeviceRegisterEvents == nullptr) {
    return Fail("this driver's NVML is too old to report XID events");
  }
  nvmlEventSet_t set{};
  if (const nvmlReturn_t code = f.nvmlEventSetCreate(&set); code != NVML_SUCCESS) {
    return Fail("no XID events: " + f.Explain(code));
  }
  return std::make_unique<XidWatch>(functions_, set);
}

}  // namespace hami::nvml
