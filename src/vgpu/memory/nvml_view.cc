// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/nvml_view.h"

#include <unistd.h>

#include <algorithm>

#include "vgpu/loader/driver.h"
#include "vgpu/memory/account.h"
#include "vgpu/runtime/nvml_probe.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {
namespace {

constexpr unsigned kMostSamples = 1024;
constexpr uint64_t kWindowMicros = 1'000'000;

struct PidSearch {
  int32_t nvml_pid;
  int32_t pid;
};

struct ListFill {
  int device;
  OwnProcess* out;
  unsigned room;
  unsigned count;
};

}  // namespace

unsigned ContainerPid(unsigned nvml_pid) {
  const region::Attachment* const a = attachment();
  if (a == nullptr) {
    const unsigned known = NvmlPid() != 0 ? NvmlPid() : static_cast<unsigned>(getpid());
    return nvml_pid == known ? static_cast<unsigned>(getpid()) : 0;
  }
  PidSearch search{static_cast<int32_t>(nvml_pid), 0};
  region::ForEachProcess(
      *a,
      [](const region::ProcessUsage& process, void* context) {
        auto* const s = static_cast<PidSearch*>(context);
        if (s->nvml_pid != (process.host_pid != 0 ? process.host_pid : process.pid)) return true;
        s->pid = process.pid;
        return false;
      },
      &search);
  return static_cast<unsigned>(search.pid);
}

unsigned PidInNvml(unsigned pid) {
  const region::Attachment* const a = attachment();
  if (a == nullptr) return pid != static_cast<unsigned>(getpid()) ? 0 : NvmlPid() != 0 ? NvmlPid() : pid;
  PidSearch search{0, static_cast<int32_t>(pid)};
  region::ForEachProcess(
      *a,
      [](const region::ProcessUsage& process, void* context) {
        auto* const s = static_cast<PidSearch*>(context);
        if (s->pid != process.pid) return true;
        s->nvml_pid = process.host_pid != 0 ? process.host_pid : process.pid;
        return false;
      },
      &search);
  return static_cast<unsigned>(search.nvml_pid);
}

unsigned RecordedUtilization(int device) {
  const region::Attachment* const a = attachment();
  if (a == nullptr || device < 0) return 0;
  uint64_t sum = 0;
  for (const region::Slot& slot : a->region->slots) {
    if (region::Load(slot.status) == region::kStatusFree) continue;
    sum += region::Load(slot.utilization[device].sm);
    if (sum >= 100) return 100;
  }
  return static_cast<unsigned>(sum);
}

unsigned OwnProcesses(int device, OwnProcess* out, unsigned room) {
  const region::Attachment* const a = attachment();
  if (a == nullptr) {
    const uint64_t bytes = OwnBytes(device);
    if (bytes == 0) return 0;
    if (room != 0) out[0] = {static_cast<unsigned>(getpid()), bytes};
    return 1;
  }
  ListFill fill{device, out, room, 0};
  region::ForEachProcess(
      *a,
      [](const region::ProcessUsage& process, void* context) {
        auto* const f = static_cast<ListFill*>(context);
        const uint64_t bytes = process.total[f->device];
        if (bytes == 0) return true;
        if (f->count < f->room) f->out[f->count] = {static_cast<unsigned>(process.pid), bytes};
        ++f->count;
        return true;
      },
      &fill);
  return fill.count;
}

bool OwnUtilization(nvmlDevice_t handle, nvmlUtilization_t* out) {
  nvmlProcessUtilizationSample_t samples[kMostSamples];
  unsigned count = kMostSamples;
  const uint64_t now = WallMicros();
  const uint64_t since = now - kWindowMicros;
  const nvmlReturn_t result = real::nvmlDeviceGetProcessUtilization(handle, samples, &count, since);
  if (result == NVML_ERROR_NOT_FOUND) {  // nobody ran anything
    *out = {0, 0};
    return true;
  }
  if (result != NVML_SUCCESS) return false;
  count = KeepOurs(samples, KeepNewest(samples, std::min(count, kMostSamples), since, now));
  unsigned sm = 0;
  unsigned memory = 0;
  for (unsigned i = 0; i < count; ++i) {
    sm += samples[i].smUtil;
    memory += samples[i].memUtil;
  }
  *out = {sm < 100 ? sm : 100, memory < 100 ? memory : 100};
  return true;
}

}  // namespace hami::vgpu
