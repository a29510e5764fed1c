// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/vmm.h"

#include <atomic>

#include "vgpu/policy/charge.h"
#include "vgpu/policy/device_map.h"
#include "vgpu/policy/lock.h"
#include "vgpu/policy/pages.h"
#include "vgpu/policy/sharing.h"

namespace hami::vgpu {
namespace {

// A piece of physical memory. Numbered from 1; a number is never reused, a handle's value may be.
struct Physical {
  uint64_t id;
  uint64_t bytes;  // 0 where it is not known: another container's
  int device;
  uint32_t references;
  uint32_t mappings;
  bool imported;
  bool shared;  // with others of the container, and charged once for all; see sharing.h

  bool ended() const { return references == 0 && mappings == 0; }
  // Somebody else's, whom this process knows nothing of: its mappings are charged.
  bool foreign() const { return imported && !shared; }
};

// No mapping or binding is smaller.
constexpr uint64_t kGranule = uint64_t{2} << 20;

constinit Lock g_lock{};
// Handles, mapped addresses and the physical memory behind them. Apart from the process's table because an entry here
// is a name and not a charge.
constinit Table g_names{};
constinit uint64_t g_next_id = 1;
constinit uint32_t g_next_owner = 1;  // of sparse arrays and multicast objects
// Imported pieces that this process holds; of these, the ones without a use, and those shared within the container.
constinit std::atomic<uint32_t> g_imports{0};
constinit std::atomic<uint32_t> g_unused_imports{0};
constinit std::atomic<uint32_t> g_shared_imports{0};

// Owners are arrays, by their handle, and multicast objects, by their number. Handles are addresses of user space.
constexpr uint64_t MulticastOwner(uint64_t id) { return id | uint64_t{1} << 63; }

// A Physical is stored as an Entry: key = id, bytes, extra = references << 32 | mappings, flags = kImported and kJoint.
bool LoadPhysical(uint64_t id, Physical* out) {
  Entry entry;
  if (!g_names.Find(Space::kVmmPhysical, id, &entry)) return false;
  *out = {id,
          entry.bytes,
          entry.device,
          static_cast<uint32_t>(entry.extra >> 32),
          static_cast<uint32_t>(entry.extra),
          (entry.flags & kImported) != 0,
          (entry.flags & kJoint) != 0};
  return true;
}

void EndOwnerLocked(uint64_t owner);

void CountImports(const Physical& p, uint32_t change) {
  if (!p.imported || p.ended()) return;
  g_imports.fetch_add(change, std::memory_order_relaxed);
  if (p.shared) {
    g_shared_imports.fetch_add(change, std::memory_order_relaxed);
  } else if (p.mappings == 0) {
    g_unused_imports.fetch_add(change, std::memory_order_relaxed);
  }
}

void EndPhysicalLocked(const Physical& p) {
  Entry entry;
  g_names.Take(Space::kVmmPhysical, p.id, &entry);
  // A region that knows nothing of it any more has not given it back either.
  const bool left = p.shared && g_names.Take(Space::kVmmShared, p.id, &entry) && LeaveMemory(entry.extra);
  if (!p.imported && !left) Refund(p.device, p.bytes, Kind::kData);
  if (p.device == kUnlimited && p.bytes == 0) EndOwnerLocked(MulticastOwner(p.id));
}

void StorePhysical(const Physical& p) {
  Physical before;
  if (LoadPhysical(p.id, &before)) CountImports(before, static_cast<uint32_t>(-1));
  CountImports(p, 1);
  if (p.ended()) {
    EndPhysicalLocked(p);
    return;
  }
  Entry entry;
  entry.key = p.id;
  entry.bytes = p.bytes;
  entry.extra = static_cast<uint64_t>(p.references) << 32 | p.mappings;
  entry.space = Space::kVmmPhysical;
  entry.device = static_cast<int8_t>(p.device);
  entry.flags = static_cast<uint16_t>((p.imported ? kImported : 0) | (p.shared ? kJoint : 0));
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

uint64_t AddPhysicalLocked(CUmemGenericAllocationHandle handle, uint64_t bytes, int device, bool imported,
                           bool shared = false) {
  const uint64_t id = g_next_id++;
  StorePhysical({id, bytes, device, 1, 0, imported, shared});
  StoreName(Space::kVmmHandle, handle, id, 0);
  return id;
}

void AddPhysical(CUmemGenericAllocationHandle handle, uint64_t bytes, int device) {
  const Locked locked(g_lock);
  AddPhysicalLocked(handle, bytes, device, false);
}

void DropUseLocked(uint64_t id) {
  Physical physical;
  if (!LoadPhysical(id, &physical)) return;
  if (physical.mappings != 0) --physical.mappings;
  StorePhysical(physical);
}

// The number of an owner, given when it first needs one; 0 = it has none.
uint32_t OwnerNumberLocked(uint64_t owner, bool give) {
  Entry entry;
  if (g_names.Find(Space::kVmmOwner, owner, &entry)) return static_cast<uint32_t>(entry.extra);
  if (!give) return 0;
  StoreName(Space::kVmmOwner, owner, g_next_owner, 0);
  return g_next_owner++;
}

// Two parts of one owner that fall on the same key would end each other early: 64 bits, well mixed.
uint64_t BindingKey(uint32_t number, uint64_t part) {
  uint64_t key = part ^ (uint64_t{number} << 40 | number);
  key *= 0x9e37'79b9'7f4a'7c15;
  return key ^ key >> 29;
}

// Each device binds its own memory at the same place.
constexpr uint64_t MulticastPart(uint64_t offset, int device) { return offset << 8 | static_cast<uint8_t>(device); }

void UnbindLocked(uint64_t owner, uint64_t part) {
  Entry binding;
  const uint32_t number = OwnerNumberLocked(owner, false);
  if (number != 0 && g_names.Take(Space::kVmmBinding, BindingKey(number, part), &binding)) DropUseLocked(binding.extra);
}

void BindLocked(uint64_t owner, uint64_t part, const Physical& physical) {
  // First the new use: the part may have held the same memory.
  Physical used = physical;
  ++used.mappings;
  StorePhysical(used);
  UnbindLocked(owner, part);
  Entry binding;
  const uint32_t number = OwnerNumberLocked(owner, true);
  binding.key = BindingKey(number, part);
  binding.extra = physical.id;
  binding.context = number;
  binding.space = Space::kVmmBinding;
  g_names.Insert(binding);
}

void BindMulticastLocked(const MulticastRange& at, const Physical& physical) {
  Physical object;
  // One that was made or imported past us has its first use now.
  if (!ByHandle(at.multicast, &object)) object.id = AddPhysicalLocked(at.multicast, 0, kUnlimited, false);
  BindLocked(MulticastOwner(object.id), MulticastPart(at.offset, physical.device), physical);
}

void EndOwnerLocked(uint64_t owner) {
  Entry entry;
  if (!g_names.Take(Space::kVmmOwner, owner, &entry)) return;
  const auto number = static_cast<uint32_t>(entry.extra);
  while (g_names.TakeOfContext(number, &entry)) DropUseLocked(entry.extra);
}

// The mapping that `address` lies in. Addresses inside are rarely named; only then is every mapping looked at.
bool FindMappingLocked(CUdeviceptr address, Entry* out) {
  if (g_names.Find(Space::kVmmMapping, address, out)) return true;
  return g_names.FindIf(
      [address](const Entry& entry) {
        return entry.space == Space::kVmmMapping && address >= entry.key && address - entry.key < entry.bytes;
      },
      out);
}

// Ends the mapping at `address`; its size, 0 when there is none.
uint64_t EndMappingLocked(CUdeviceptr address) {
  Entry mapping;
  if (!g_names.Take(Space::kVmmMapping, address, &mapping)) return 0;
  Physical physical;
  if (LoadPhysical(mapping.extra, &physical)) {
    if (physical.foreign()) Refund(physical.device, mapping.bytes, Kind::kData);
    --physical.mappings;
    StorePhysical(physical);
  }
  return mapping.bytes;
}

}  // namespace

int DeviceOfProperties(const CUmemAllocationProp& prop) {
  return prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? DeviceOfOrdinal(prop.location.id) : kUnlimited;
}

void VmmCreated(CUmemGenericAllocationHandle handle, uint64_t bytes, int device) { AddPhysical(handle, bytes, device); }

void VmmExported(CUmemGenericAllocationHandle handle, int fd) {
  const Locked locked(g_lock);
  Physical physical;
  if (!ByHandle(handle, &physical) || physical.foreign()) return;
  Entry shared;
  if (physical.shared) {
    if (!g_names.Find(Space::kVmmShared, physical.id, &shared)) return;
  } else {
    shared.extra = physical.bytes == 0 ? 0 : ShareMemory(physical.device, physical.bytes);
    if (shared.extra == 0) return;
    StoreName(Space::kVmmShared, physical.id, shared.extra, 0);
    physical.shared = true;
    StorePhysical(physical);
  }
  TagMemory(fd, {shared.extra, physical.bytes, physical.device});
}

bool VmmImporting(int fd, VmmImport* import) {
  const SharedMemory memory = ReadMemoryTag(fd);
  *import = {memory.object, memory.bytes, memory.device};
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
  const Locked locked(g_lock);
  Physical known;
  // Importing what this process holds may give the very same handle: one more reference, and no more uses of the
  // object.
  if (ByHandle(handle, &known) && known.references != 0) {
    ++known.references;
    StorePhysical(known);
    VmmImportFailed(import);
    return;
  }
  // What is no device's has nothing to be charged: multicast objects, and memory of the host.
  const bool counts = import.device != kUnlimited;
  const uint64_t id = AddPhysicalLocked(handle, import.bytes, import.device, counts, import.object != 0);
  if (import.object != 0) StoreName(Space::kVmmShared, id, import.object, 0);
}

void VmmRetained(CUmemGenericAllocationHandle handle, CUdeviceptr address) {
  const Locked locked(g_lock);
  Entry mapping;
  Physical physical;
  if (ByHandle(handle, &physical)) {
    ++physical.references;
    StorePhysical(physical);
  } else if (FindMappingLocked(address, &mapping) && LoadPhysical(mapping.extra, &physical)) {
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

bool VmmMapping(CUmemGenericAllocationHandle handle, uint64_t bytes, VmmMap* map) {
  *map = {};
  g_lock.Acquire();
  Physical physical;
  const bool known = ByHandle(handle, &physical);
  if (known) {  // held until it is known whether the mapping came about
    ++physical.mappings;
    StorePhysical(physical);
  }
  g_lock.Release();
  if (!known) return true;
  *map = {physical.id, bytes};
  if (!physical.foreign() || Reserve(physical.device, bytes, Kind::kData)) return true;
  const Locked locked(g_lock);
  DropUseLocked(physical.id);
  return false;
}

void VmmMapped(const VmmMap& map, CUdeviceptr address, bool mapped) {
  if (map.id == 0) return;
  const Locked locked(g_lock);
  if (mapped) {
    StoreName(Space::kVmmMapping, address, map.id, map.bytes);
    return;
  }
  Physical physical;
  if (LoadPhysical(map.id, &physical) && physical.foreign()) Refund(physical.device, map.bytes, Kind::kData);
  DropUseLocked(map.id);
}

void VmmUnmapped(CUdeviceptr address, uint64_t bytes) {
  const Locked locked(g_lock);
  // One call may end several mappings that lie side by side.
  for (const CUdeviceptr end = address + bytes; address < end;) {
    const uint64_t ended = EndMappingLocked(address);
    address += ended != 0 ? ended : kGranule;
  }
}

void VmmBound(uint64_t owner, uint64_t part, CUmemGenericAllocationHandle handle) {
  const Locked locked(g_lock);
  Physical physical;
  if (ByHandle(handle, &physical)) BindLocked(owner, part, physical);
}

void VmmUnbound(uint64_t owner, uint64_t part) {
  const Locked locked(g_lock);
  UnbindLocked(owner, part);
}

void VmmOwnerGone(uint64_t owner) {
  const Locked locked(g_lock);
  EndOwnerLocked(owner);
}

void VmmMulticastCreated(CUmemGenericAllocationHandle handle) { AddPhysical(handle, 0, kUnlimited); }

void VmmMulticastBound(const MulticastRange& at, CUmemGenericAllocationHandle handle) {
  const Locked locked(g_lock);
  Physical physical;
  if (ByHandle(handle, &physical)) BindMulticastLocked(at, physical);
}

void VmmMulticastBoundAddress(const MulticastRange& at, CUdeviceptr address) {
  const Locked locked(g_lock);
  Entry mapping;
  // The range may lie in several mappings, side by side.
  for (uint64_t done = 0; done < at.bytes && FindMappingLocked(address + done, &mapping);) {
    Physical physical;
    if (LoadPhysical(mapping.extra, &physical)) {
      BindMulticastLocked({at.multicast, at.offset + done, at.bytes - done}, physical);
    }
    done = mapping.key + mapping.bytes - address;
  }
}

void VmmMulticastUnbound(const MulticastRange& at, int device) {
  const Locked locked(g_lock);
  Physical object;
  if (!ByHandle(at.multicast, &object)) return;
  // One call may end several bindings that lie side by side.
  for (uint64_t done = 0; done < at.bytes; done += kGranule) {
    UnbindLocked(MulticastOwner(object.id), MulticastPart(at.offset + done, device));
  }
}

bool VmmHoldsImports() { return g_imports.load(std::memory_order_relaxed) != 0; }

bool VmmHoldsUnusedImports() { return g_unused_imports.load(std::memory_order_relaxed) != 0; }

bool VmmHoldsSharedImports() { return g_shared_imports.load(std::memory_order_relaxed) != 0; }

void ResetVmm() {
  g_lock.Reset();
  g_names.Reset();
  g_imports.store(0, std::memory_order_relaxed);
  g_unused_imports.store(0, std::memory_order_relaxed);
  g_shared_imports.store(0, std::memory_order_relaxed);
}

}  // namespace hami::vgpu
