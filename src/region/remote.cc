// SPDX-License-Identifier: Apache-2.0
#include "region/remote.h"

#include <errno.h>
#include <unistd.h>

#include "region/gpu_time.h"
#include "region/process.h"

namespace hami::region {
namespace {

bool LayoutStands(const Remote& remote) {
  const FileStatus file = StatFile(remote.fd);
  if (!file.ok || !file.regular || file.size < 0) return false;
  const auto size = static_cast<uint64_t>(file.size);
  if (remote.version == 0) return size >= kRegionV0Bytes && size < kRegionBytes;
  struct {
    int32_t magic;
    uint32_t major_version;
  } header;
  if (pread(remote.fd, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header)) return false;
  const bool interim = size == kInterimRegionBytes || size == kInterimFileBytes;
  return size >= kRegionBytes && !interim && header.magic == kMagic && header.major_version == kMajorVersion;
}

template <typename T>
Status Write(const Remote& remote, size_t offset_v0, size_t offset_v1, T value) {
  if (!LayoutStands(remote)) return Status::kCorrupt;
  const auto offset = static_cast<off_t>(remote.version == 0 ? offset_v0 : offset_v1);
  ssize_t wrote;
  do {
    wrote = pwrite(remote.fd, &value, sizeof value, offset);
  } while (wrote < 0 && errno == EINTR);
  return wrote == static_cast<ssize_t>(sizeof value) ? Status::kOk : Status::kIo;
}

}  // namespace

Status WriteRecentKernel(const Remote& remote, int32_t value) {
  return Write(remote, offsetof(RegionV0, recent_kernel), offsetof(Region, recent_kernel), value);
}

Status WriteUtilizationSwitch(const Remote& remote, int32_t value) {
  return Write(remote, offsetof(RegionV0, utilization_switch), offsetof(Region, utilization_switch), value);
}

Status WritePriority(const Remote& remote, int32_t value) {
  return Write(remote, offsetof(RegionV0, priority), offsetof(Region, priority), value);
}

Status WriteMemoryLimit(const Remote& remote, uint32_t device, uint64_t bytes) {
  if (device >= kMaxDevices) return Status::kBadDevice;
  const size_t place = device * sizeof(uint64_t);
  return Write(remote, offsetof(RegionV0, limit) + place, offsetof(Region, limit) + place, bytes);
}

Status WriteSmLimit(const Remote& remote, uint32_t device, uint64_t percent) {
  if (device >= kMaxDevices) return Status::kBadDevice;
  const size_t place = device * sizeof(uint64_t);
  return Write(remote, offsetof(RegionV0, sm_limit) + place, offsetof(Region, sm_limit) + place, percent);
}

Status WriteBurst(const Remote& remote, uint32_t device, uint32_t percent) {
  if (device >= kMaxDevices) return Status::kBadDevice;
  uint64_t magic = 0;
  const FileStatus file = StatFile(remote.fd);
  if (remote.version == 0 || !file.ok || file.size < static_cast<int64_t>(kFileBytes) ||
      pread(remote.fd, &magic, sizeof magic, kPrivateOffset) != static_cast<ssize_t>(sizeof magic) ||
      magic != kPrivateMagic) {
    return Status::kUnsupported;
  }
  const size_t place = kPrivateOffset + offsetof(PrivateArea, gpu_time) + offsetof(GpuTime, devices) +
                       device * sizeof(GpuTimeDevice) + offsetof(GpuTimeDevice, burst);
  return Write(remote, place, place, percent);
}

}  // namespace hami::region
