// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/vmm.h"

#include "vgpu/policy/charge.h"
#include "vgpu/policy/device_map.h"
#include "vgpu/policy/lock.h"
#include "vgpu/policy/pages.h"

namespace hami::vgpu {
namespace {

// A piece of physical memory. Numbered from 1; a number is never reused, a handle's value may be.
struct Physical {
  uint64_t id;
  uint64_t bytes;  // 0 for imported memory that was never mapped
  int device;
  uint32_t references;
  uint32_t mappings;
  bool imported;
};

constinit Lock g_lock{};
// Handles, mapped addresses and the physical memory behind them. Apart from the process's table because an entry here
// is a name and not a charge.
constinit Table g_names{};
constinit uint64_t g_next_id = 1;

// A Physical is stored as an Entry: key = id, bytes, extra = references << 32 | mappings, flags = kImported.
bool LoadPhysical(uint64_t id, Physical* out) {
  Entry entry;
  if (!g_names.Find(Space::kVmmPhysical, id, &entry)) return false;
  *out = {id,
          entry.bytes,
          entry.device,
          static_cast<uint32_t>(entry.extra >> 32),
          static_cast<uint32_t>(entry.extra),
          (entry.flags & kImported) != 0};
  return true;
}

void StorePhysical(const Physical& p) {
  Entry entry;
  if (p.references == 0 && p.mappings == 0) {
    g_names.Take(Space::kVmmPhysical, p.id, &entry);
    if (!p.imported) Refund(p.device, p.bytes, Kind::kData);
    return;
  }
  entry.key = p.id;
  entry.bytes = p.bytes;
  entry.extra = static_cast<uint64_t>(p.references) << 32 | p.mappings;
  entry.space = Space::kVmmPhysical;
  entry.device = static_cast<int8_t>(p.device);
  entry.flags = p.imported ? kImported : uint16_t{0};
  g_names.Insert(entry);
}

void StoreName(Space space, uint64_t key, uint64_t id, uint64_t bytes) {
  Entry entry;
  entry.key = key;
  entry.bytes = bytes;
  entry.extra = id;
  entry.space = space;
  g_names.Insert(entry);
}

bool ByHandle(CUmemGenericAllocationHandle handle, Physical* out) {
  Entry entry;
  return g_names.Find(Space::kVmmHandle, handle, &entry) && LoadPhysical(entry.extra, out);
}

void AddPhysical(CUmemGenericAllocationHandle handle, uint64_t bytes, int device, bool imported) {
  const Locked locked(g_lock);
  Physical known;
  // Importing what this process exported may give the very same handle: one more reference.
  if (imported && ByHandle(handle, &known) && known.references != 0) {
    ++known.references;
    StorePhysical(known);
    return;
  }
  const uint64_t id = g_next_id++;
  StorePhysical({id, bytes, device, 1, 0, imported});
  StoreName(Space::kVmmHandle, handle, id, 0);
}

// Ends the mapping at `address`; its size, 0 when there is none.
uint64_t EndMappingLocked(CUdeviceptr address) {
  Entry mapping;
  if (!g_names.Take(Space::kVmmMapping, address, &mapping)) return 0;
  Physical physical;
  if (LoadPhysical(mapping.extra, &physical)) {
    if (physical.imported) Refund(physical.device, mapping.bytes, Kind::kData);
    --physical.mappings;
    StorePhysical(physical);
  }
  return mapping.bytes;
}

}  // namespace

int DeviceOfProperties(const CUmemAllocationProp& prop) {
  return prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? DeviceOfOrdinal(prop.location.id) : kUnlimited;
}

void VmmCreated(CUmemGenericAllocationHandle handle, uint64_t bytes, int device) {
  AddPhysical(handle, bytes, device, false);
}

void VmmImported(CUmemGenericAllocationHandle handle, int device) { AddPhysical(handle, 0, device, true); }

void VmmRetained(CUmemGenericAllocationHandle handle, CUdeviceptr address) {
  const Locked locked(g_lock);
  Entry mapping;
  Physical physical;
  if (ByHandle(handle, &physical)) {
    ++physical.references;
    StorePhysical(physical);
  } else if (g_names.Find(Space::kVmmMapping, address, &mapping) && LoadPhysical(mapping.extra, &physical)) {
    // The handle was released and comes back, perhaps with another value.
    ++physical.references;
    StorePhysical(physical);
    StoreName(Space::kVmmHandle, handle, physical.id, 0);
  }
}

uint64_t VmmReleasing(CUmemGenericAllocationHandle handle) {
  const Locked locked(g_lock);
  Physical physical;
  if (!ByHandle(handle, &physical)) return 0;
  Entry name;
  if (physical.references == 1) g_names.Take(Space::kVmmHandle, handle, &name);
  return physical.id;
}

void VmmReleased(CUmemGenericAllocationHandle handle, uint64_t id, bool released) {
  const Locked locked(g_lock);
  Physical physical;
  if (id == 0 || !LoadPhysical(id, &physical)) return;
  if (!released) {
    StoreName(Space::kVmmHandle, handle, id, 0);
    return;
  }
  if (physical.references != 0) --physical.references;
  StorePhysical(physical);
}

bool VmmMapping(CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle handle) {
  g_lock.Acquire();
  Physical physical;
  const bool known = ByHandle(handle, &physical);
  g_lock.Release();
  if (!known) return true;
  if (physical.imported && !Reserve(physical.device, bytes, Kind::kData)) return false;
  const Locked locked(g_lock);
  if (ByHandle(handle, &physical)) {
    ++physical.mappings;
    StorePhysical(physical);
    StoreName(Space::kVmmMapping, address, physical.id, bytes);
  }
  return true;
}

void VmmMapFailed(CUdeviceptr address) {
  const Locked locked(g_lock);
  EndMappingLocked(address);
}

void VmmUnmapped(CUdeviceptr address, uint64_t bytes) {
  constexpr uint64_t kGranule = uint64_t{2} << 20;
  const Locked locked(g_lock);
  // One call may end several mappings that lie side by side.
  for (const CUdeviceptr end = address + bytes; address < end;) {
    const uint64_t ended = EndMappingLocked(address);
    address += ended != 0 ? ended : kGranule;
  }
}

void ResetVmm() {
  g_lock.Reset();
  g_names.Reset();
}

}  // namespace hami::vgpu
