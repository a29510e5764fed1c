// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/device_map.h"

#include <stdlib.h>
#include <string.h>

#include <initializer_list>

#include "vgpu/loader/driver.h"
#include "vgpu/runtime/log.h"
#include "vgpu/runtime/nvml_probe.h"
#include "vgpu/runtime/process.h"
#include "vgpu/runtime/runtime.h"

namespace hami::vgpu {
namespace {

constexpr int kUnknown = -100;
constexpr int kEncode = 1000;  // stored values are never 0, so that zeroed memory means "not known"

DeviceMap& Map() { return g_runtime.devices; }

void FormatUuid(const char* prefix, const CUuuid& uuid, char (&out)[region::kUuidBytes]) {
  constexpr char kDigits[] = "0123456789abcdef";
  size_t at = strlen(prefix);
  memcpy(out, prefix, at);
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out[at++] = '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    out[at++] = kDigits[byte >> 4];
    out[at++] = kDigits[byte & 15];
  }
  out[at] = '\0';
}

// A GPU that did not answer when the others were listed has a place without a name, until somebody meets it again.
bool NamesAreMissing(const region::Attachment& a) {
  const uint32_t count = region::DeviceCount(a);
  if (count == 0) return !Map().listed;
  if (DevicesAreFixed()) return false;
  for (uint32_t i = 0; i < count; ++i) {
    if (region::Unnamed(a, i)) return true;
  }
  return false;
}

bool UuidAt(unsigned index, char (&uuid)[region::kUuidBytes], region::Attachment* a) {
  nvmlDevice_t handle = nullptr;
  if (real::nvmlDeviceGetHandleByIndex_v2(index, &handle) != NVML_SUCCESS ||
      real::nvmlDeviceGetUUID(handle, uuid, sizeof uuid) != NVML_SUCCESS) {
    return false;
  }
  nvmlMemory_t memory{};
  if (real::nvmlDeviceGetMemoryInfo(handle, &memory) == NVML_SUCCESS) region::SetPhysicalBytes(a, index, memory.total);
  return true;
}

// Writes the devices into a region that does not name them yet, in NVML's order, which is the order of the limits. What
// others may be writing just now is not looked at: they write the same.
void ListDevices(region::Attachment* a) {
  if (!NamesAreMissing(*a)) return;
  Map().listed = true;
  char uuids[region::kMaxDevices][region::kUuidBytes] = {};
  unsigned count = 0;
  const NvmlUse nvml;
  if (!nvml || real::nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS || count == 0) return;
  if (count > region::kMaxDevices) {
    LogLine(Level::kError).Number(count).Text(" devices: those above 16 are not limited");
    count = region::kMaxDevices;
  }
  const uint32_t listed = region::DeviceCount(*a);
  for (unsigned i = 0; i < count; ++i) {
    if (listed == 0) {
      UuidAt(i, uuids[i], a);
    } else if (i < listed && region::Unnamed(*a, i) && UuidAt(i, uuids[i], a)) {
      region::NameDevice(a, i, uuids[i]);
    }
  }
  if (listed == 0) region::SetDevices(a, count, uuids);
}

// The place of the device of this name, in the region or, without one, among those that the settings name.
int FindByName(const char* uuid) {
  if (const region::Attachment* const a = attachment(); a != nullptr) return region::FindDevice(*a, uuid);
  for (uint32_t i = 0; i < settings().device_count; ++i) {
    if (strcmp(settings().uuids[i], uuid) == 0) return static_cast<int>(i);
  }
  return -1;
}

// The GPU that a MIG instance is a part of, by NVML.
int ParentOfMig(const char* mig_uuid) {
  nvmlDevice_t instance = nullptr;
  nvmlDevice_t gpu = nullptr;
  char uuid[region::kUuidBytes];
  const NvmlUse nvml;
  if (!nvml || real::nvmlDeviceGetHandleByUUID(mig_uuid, &instance) != NVML_SUCCESS ||
      real::nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance, &gpu) != NVML_SUCCESS ||
      real::nvmlDeviceGetUUID(gpu, uuid, sizeof uuid) != NVML_SUCCESS) {
    return -1;
  }
  return FindByName(uuid);
}

// The uuids that may name this device, most specific first.
int FindByUuid(CUdevice ordinal) {
  CUuuid uuid{};
  char name[region::kUuidBytes];
  if (real::cuDeviceGetUuid_v2(&uuid, ordinal) == CUDA_SUCCESS) {
    for (const char* prefix : {"GPU-", "MIG-"}) {
      FormatUuid(prefix, uuid, name);
      if (const int device = FindByName(name); device >= 0) return device;
    }
    if (const int device = ParentOfMig(name); device >= 0) return device;
  }
  if (real::cuDeviceGetUuid(&uuid, ordinal) != CUDA_SUCCESS) return -1;
  FormatUuid("GPU-", uuid, name);
  return FindByName(name);
}

// A limit that was meant never becomes none: where the environment has none for this device, the least of the file's,
// which were meant for other GPUs.
uint64_t LimitFor(uint64_t of_environment, const uint64_t (&of_file)[region::kMaxDevices], uint64_t none) {
  if (of_environment != 0 && of_environment != none) return of_environment;
  uint64_t least = of_environment;
  for (const uint64_t& word : of_file) {
    const uint64_t limit = region::Load(word);
    if (limit != 0 && (least == 0 || limit < least)) least = limit;
  }
  return least;
}
uint64_t MemoryLimitFor(const region::Attachment& a, unsigned index) {
  return LimitFor(settings().memory_limit[index], a.region->limit, 0);
}
uint64_t SmLimitFor(const region::Attachment& a, unsigned index) {
  constexpr uint64_t kAll = 100;
  return LimitFor(settings().sm_limit[index], a.region->sm_limit, kAll);
}

// Whether the driver knows none of the file's names. What it does not answer may be a GPU of this machine.
bool NamesAreForeign(const char (&names)[region::kMaxDevices][region::kUuidBytes], uint32_t count) {
  bool any = false;
  for (uint32_t i = 0; i < count; ++i) {
    if (names[i][0] == '\0') continue;
    char name[region::kUuidBytes];
    memcpy(name, names[i], sizeof name);
    name[sizeof name - 1] = '\0';
    nvmlDevice_t handle = nullptr;
    const nvmlReturn_t result = real::nvmlDeviceGetHandleByUUID(name, &handle);
    if (result != NVML_ERROR_NOT_FOUND && result != NVML_ERROR_INVALID_ARGUMENT) return false;
    any = true;
  }
  return any;
}

// A file that came here from another machine, or stayed when the GPUs were changed, is made this machine's.
void ReplaceForeignNames(region::Attachment* a) {
  if (Map().replaced || DevicesAreFixed()) return;
  Map().replaced = true;
  char names[region::kMaxDevices][region::kUuidBytes];
  memcpy(names, a->region->uuids, sizeof names);
  region::DeviceList& list = Map().found;
  unsigned count = 0;
  const NvmlUse nvml;
  if (!nvml || !NamesAreForeign(names, region::DeviceCount(*a)) ||
      real::nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS || count == 0) {
    return;
  }
  list.count = count < region::kMaxDevices ? count : region::kMaxDevices;
  for (unsigned i = 0; i < list.count; ++i) {
    list.uuids[i][0] = '\0';
    UuidAt(i, list.uuids[i], a);
    list.memory_limit[i] = MemoryLimitFor(*a, i);
    list.sm_limit[i] = SmLimitFor(*a, i);
  }
  if (!region::ReplaceDevices(a, names, list)) return;
  LogLine(Level::kError)
      .Text("region ")
      .Text(a->path)
      .Text(": names other GPUs than this machine's; it has the limits of the environment now");
}

// The name by which NVML knows a device of CUDA, and its place there.
bool NameOfOrdinal(CUdevice ordinal, char (&name)[region::kUuidBytes], unsigned* index) {
  CUuuid uuid{};
  if (real::cuDeviceGetUuid_v2(&uuid, ordinal) != CUDA_SUCCESS) return false;
  *index = static_cast<unsigned>(ordinal) % region::kMaxDevices;
  const NvmlUse nvml;
  nvmlDevice_t handle = nullptr;
  for (const char* prefix : {"MIG-", "GPU-"}) {
    memset(name, 0, sizeof name);
    FormatUuid(prefix, uuid, name);
    unsigned place = 0;
    if (!nvml || real::nvmlDeviceGetHandleByUUID(name, &handle) != NVML_SUCCESS) continue;
    if (real::nvmlDeviceGetIndex(handle, &place) == NVML_SUCCESS && place < region::kMaxDevices) *index = place;
    break;
  }
  return true;
}

// A device that the file does not name gets a place in it, so that all processes of the container share its limit.
int Admit(region::Attachment* a, CUdevice ordinal) {
  char name[region::kUuidBytes];
  unsigned index = 0;
  int device = -1;
  if (NameOfOrdinal(ordinal, name, &index)) {
    device = region::AddDevice(a, name, MemoryLimitFor(*a, index), SmLimitFor(*a, index));
  }
  LogLine(Level::kError)
      .Text("CUDA device ")
      .Signed(ordinal)
      .Text(" is not in the region: ")
      .Text(device < 0 ? "not limited" : "added, with the limit of the environment");
  return device < 0 ? kUnlimited : device;
}

// Without uuids (no NVML) the ordinals are all there is: CUDA_VISIBLE_DEVICES may have renumbered them.
int DeviceByPosition(CUdevice ordinal) {
  const char* list = getenv("CUDA_VISIBLE_DEVICES");
  int index = ordinal;
  if (list != nullptr && *list >= '0' && *list <= '9') {
    for (int i = 0; i < ordinal && list != nullptr; ++i) {
      list = strchr(list, ',');
      if (list != nullptr) ++list;
    }
    if (list != nullptr && *list >= '0' && *list <= '9') index = atoi(list);
  }
  return index < static_cast<int>(region::kMaxDevices) ? index : kUnlimited;
}

int Determine(CUdevice ordinal) {
  region::Attachment* const a = attachment();
  if (a != nullptr) ListDevices(a);
  int count = 0;
  if (real::cuDeviceGetCount(&count) != CUDA_SUCCESS) return kUnknown;  // not initialised: ask again later
  if (ordinal < 0 || ordinal >= count) return kUnlimited;               // the driver's own error follows
  if (!DevicesAreFixed() && (a == nullptr || region::DeviceCount(*a) == 0)) return DeviceByPosition(ordinal);
  if (const int device = FindByUuid(ordinal); device >= 0) return device;
  if (DevicesAreFixed()) return kForbidden;
  ReplaceForeignNames(a);
  if (const int device = FindByUuid(ordinal); device >= 0) return device;
  return Admit(a, ordinal);
}

}  // namespace

int DeviceOfOrdinal(CUdevice ordinal) {
  if (ordinal < 0 || ordinal >= DeviceMap::kOrdinals) return kUnlimited;
  std::atomic<int>& known = Map().by_ordinal[ordinal];
  if (const int stored = known.load(std::memory_order_acquire); stored != 0) return stored - kEncode;
  const Locked locked(Map().lock);
  if (const int stored = known.load(std::memory_order_relaxed); stored != 0) return stored - kEncode;
  const int device = Determine(ordinal);
  if (device == kUnknown) return kUnlimited;
  known.store(device + kEncode, std::memory_order_release);
  return device;
}

int DeviceOfHandle(nvmlDevice_t handle) {
  for (DeviceMap::Handle& entry : Map().by_handle) {
    const nvmlDevice_t known = entry.handle.load(std::memory_order_acquire);
    if (known == handle) return entry.device.load(std::memory_order_relaxed) - kEncode;
    if (known == nullptr) break;
  }
  char uuid[region::kUuidBytes];
  if (real::nvmlDeviceGetUUID(handle, uuid, sizeof uuid) != NVML_SUCCESS) return kUnlimited;
  region::Attachment* const a = attachment();
  unsigned index = 0;
  int device = kUnlimited;
  const Locked locked(Map().lock);
  if (a != nullptr) ListDevices(a);
  if (a != nullptr || DevicesAreFixed()) {
    device = FindByName(uuid);
    if (device < 0 && strncmp(uuid, "MIG-", 4) == 0) device = ParentOfMig(uuid);
    if (device < 0 && a != nullptr) {
      ReplaceForeignNames(a);
      device = FindByName(uuid);
    }
    if (device < 0 && DevicesAreFixed()) device = kForbidden;
    if (device < 0 && !DevicesAreFixed() && region::DeviceCount(*a) < region::kMaxDevices) {
      return kUnlimited;  // until a context on it gives it a place
    }
    if (device == -1) device = kUnlimited;
  } else if (real::nvmlDeviceGetIndex(handle, &index) == NVML_SUCCESS && index < region::kMaxDevices) {
    device = static_cast<int>(index);
  }
  for (DeviceMap::Handle& entry : Map().by_handle) {
    if (entry.handle.load(std::memory_order_relaxed) != nullptr) continue;
    entry.device.store(device + kEncode, std::memory_order_relaxed);
    entry.handle.store(handle, std::memory_order_release);
    break;
  }
  return device;
}

bool HandleOfOrdinal(CUdevice ordinal, nvmlDevice_t* out) {
  CUuuid uuid{};
  if (real::cuDeviceGetUuid_v2(&uuid, ordinal) != CUDA_SUCCESS) return false;
  char name[region::kUuidBytes];
  for (const char* prefix : {"GPU-", "MIG-"}) {
    FormatUuid(prefix, uuid, name);
    if (real::nvmlDeviceGetHandleByUUID(name, out) == NVML_SUCCESS) return true;
  }
  return false;
}

bool DevicesAreFixed() {
  const region::Attachment* const a = attachment();
  if (a == nullptr) return settings().device_count != 0;
  return (region::Flags(*a) & region::kFlagFixedDevices) != 0 && region::DeviceCount(*a) != 0;
}

unsigned FixedDeviceCount() {
  const region::Attachment* const a = attachment();
  return a == nullptr ? settings().device_count : region::DeviceCount(*a);
}

// The last byte of a name that is in its place is never written: a name ends.
const char* FixedDeviceName(unsigned index) {
  const region::Attachment* const a = attachment();
  return a == nullptr ? settings().uuids[index] : a->region->uuids[index];
}

bool IsPartOfFixedDevice(const char* mig_uuid) { return ParentOfMig(mig_uuid) >= 0; }

nvmlReturn_t FixedDeviceHandle(unsigned index, nvmlDevice_t* out) {
  if (index >= FixedDeviceCount() || out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  char uuid[region::kUuidBytes];
  memcpy(uuid, FixedDeviceName(index), sizeof uuid);
  uuid[sizeof uuid - 1] = '\0';
  return real::nvmlDeviceGetHandleByUUID(uuid, out);
}

void ResetDeviceMap() {
  // Handles and ordinals mean the same in the child; only a lock held by a thread that is gone must not stay.
  Map().lock.Reset();
  Map().listed = false;
  Map().replaced = false;
  for (auto& known : Map().by_ordinal) known.store(0, std::memory_order_relaxed);
  for (auto& entry : Map().by_handle) entry.handle.store(nullptr, std::memory_order_relaxed);
}

}  // namespace hami::vgpu
