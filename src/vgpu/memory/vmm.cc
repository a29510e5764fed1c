// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/vmm.h"

#include "vgpu/memory/charge.h"
#include "vgpu/memory/memory.h"
#include "vgpu/memory/shared_memory.h"
#include "vgpu/memory/sparse_multicast.h"
#include "vgpu/memory/vmm_handles.h"
#include "vgpu/runtime/device_map.h"

namespace hami::vgpu {
namespace {

// No mapping is smaller.
constexpr uint64_t kGranule = uint64_t{2} << 20;

// So many descriptors are looked at in passing.
constexpr size_t kInPassing = 4;

// Ends the mapping at `address`; its size, 0 when there is none.
uint64_t EndMapping(CUdeviceptr address) {
  Entry mapping;
  if (!g_memory.vmm.names.Take(HandleKind::kVmmMapping, address, &mapping)) return 0;
  EndUses(mapping.extra, 1, mapping.bytes);
  return mapping.bytes;
}

}  // namespace

int DeviceOfProperties(const CUmemAllocationProp& prop) {
  return prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? DeviceOfOrdinal(prop.location.id) : kUnlimited;
}

void VmmCreated(CUmemGenericAllocationHandle handle, uint64_t bytes, int device) {
  const Locked locked(g_memory.vmm.lock);
  AddPhysical(handle, bytes, device, false, false);
  SweepDescriptors(kInPassing);
}

void VmmExported(CUmemGenericAllocationHandle handle, int fd) {
  const Locked locked(g_memory.vmm.lock);
  Physical physical;
  if (!ByHandle(handle, &physical) || physical.foreign() || physical.bytes == 0) return;
  Entry shared;
  if (physical.shared) {
    g_memory.vmm.names.Find(HandleKind::kVmmShared, physical.id, &shared);
  } else if (shared.extra = ShareMemory(physical.device, physical.bytes); shared.extra != 0) {
    StoreName(HandleKind::kVmmShared, physical.id, shared.extra, 0);
    physical.shared = true;
    StorePhysical(physical);
  }
  if (shared.extra != 0) TagMemory(fd, {shared.extra, physical.bytes, physical.device});
  NoteDescriptor(physical.id, fd);
  SweepDescriptors(kInPassing);
}

bool VmmImporting(int fd, VmmImport* import) {
  const SharedMemory memory = ReadMemoryTag(fd);
  *import = {memory.object, memory.bytes, memory.device, fd};
  if (memory.object == 0 || JoinMemory(memory.object)) return true;
  // Nobody holds it but the descriptor: who brings it back pays.
  if (!Reserve(memory.device, memory.bytes, Kind::kData)) return false;
  if (ShareMemory(memory.device, memory.bytes, memory.object) != 0) return true;
  Refund(memory.device, memory.bytes, Kind::kData);
  if (!JoinMemory(memory.object)) *import = {};  // no room to remember it in
  return true;
}

void VmmImportFailed(const VmmImport& import) {
  if (import.object != 0) LeaveMemory(import.object);
}

void VmmImported(CUmemGenericAllocationHandle handle, const VmmImport& import) {
  const Locked locked(g_memory.vmm.lock);
  Physical known;
  // Importing what this process holds may give the very same handle: one more reference, and no more uses of the
  // object.
  if (ByHandle(handle, &known) && known.references != 0) {
    ++known.references;
    StorePhysical(known);
    if (import.object != 0) NoteDescriptor(known.id, import.fd);
    VmmImportFailed(import);
    return;
  }
  // What is no device's has nothing to be charged: multicast objects, and memory of the host.
  const bool counts = import.device != kUnlimited;
  const uint64_t id = AddPhysical(handle, import.bytes, import.device, counts, import.object != 0);
  if (import.object == 0) return;
  StoreName(HandleKind::kVmmShared, id, import.object, 0);
  NoteDescriptor(id, import.fd);
  SweepDescriptors(kInPassing);
}

void VmmRetained(CUmemGenericAllocationHandle handle, CUdeviceptr address) {
  const Locked locked(g_memory.vmm.lock);
  Entry mapping;
  Physical physical;
  if (ByHandle(handle, &physical)) {
    ++physical.references;
    StorePhysical(physical);
  } else if (ByAddress(address, &mapping) && LoadPhysical(mapping.extra, &physical)) {
    // The handle was released and comes back, perhaps with another value.
    ++physical.references;
    StorePhysical(physical);
    StoreName(HandleKind::kVmmHandle, handle, physical.id, 0);
  }
}

uint64_t VmmReleasing(CUmemGenericAllocationHandle handle) {
  const Locked locked(g_memory.vmm.lock);
  Physical physical;
  if (!ByHandle(handle, &physical)) return 0;
  Entry name;
  if (physical.references == 1) g_memory.vmm.names.Take(HandleKind::kVmmHandle, handle, &name);
  return physical.id;
}

void VmmReleased(CUmemGenericAllocationHandle handle, uint64_t id, bool released) {
  const Locked locked(g_memory.vmm.lock);
  Physical physical;
  if (id == 0 || !LoadPhysical(id, &physical)) return;
  if (!released) {
    StoreName(HandleKind::kVmmHandle, handle, id, 0);
    return;
  }
  if (physical.references != 0) --physical.references;
  StorePhysical(physical);
  SweepDescriptors(kInPassing);
}

bool VmmUsing(CUmemGenericAllocationHandle handle, uint64_t bytes, VmmUse* use) {
  *use = {};
  g_memory.vmm.lock.Acquire();
  Physical physical;
  const bool known = ByHandle(handle, &physical);
  if (known) {
    ++physical.uses;
    StorePhysical(physical);
  }
  g_memory.vmm.lock.Release();
  if (!known) return true;
  *use = {physical.id, bytes};
  if (!physical.foreign() || Reserve(physical.device, bytes, Kind::kData)) return true;
  *use = {};
  const Locked locked(g_memory.vmm.lock);
  EndUses(physical.id, 1, 0);
  return false;
}

void VmmUnused(const VmmUse& use) {
  if (use.id == 0) return;
  const Locked locked(g_memory.vmm.lock);
  EndUses(use.id, 1, use.bytes);
}

void VmmMapped(const VmmUse& use, CUdeviceptr address, bool mapped) {
  if (!mapped) VmmUnused(use);
  if (!mapped || use.id == 0) return;
  const Locked locked(g_memory.vmm.lock);
  StoreName(HandleKind::kVmmMapping, address, use.id, use.bytes);
}

void VmmUnmapped(CUdeviceptr address, uint64_t bytes) {
  const Locked locked(g_memory.vmm.lock);
  // One call may end several mappings that lie side by side.
  for (const CUdeviceptr end = address + bytes; address < end;) {
    const uint64_t ended = EndMapping(address);
    address += ended != 0 ? ended : kGranule;
  }
  SweepDescriptors(kInPassing);
}

void VmmSettleDescriptors() {
  if (!DescriptorsKeepMemory()) return;
  const Locked locked(g_memory.vmm.lock);
  SweepDescriptors(SIZE_MAX);
}

bool VmmHoldsImports() { return HeldImports().all != 0; }

bool VmmHoldsUnusedImports() { return HeldImports().unused != 0; }

bool VmmHoldsSharedImports() { return HeldImports().shared != 0; }

}  // namespace hami::vgpu
