// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/vmm_handles.h"

#include "vgpu/memory/account.h"
#include "vgpu/memory/flags.h"
#include "vgpu/memory/memory.h"
#include "vgpu/memory/sparse_multicast.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {

namespace {

// Forgets the closed ones that it meets.
bool KeptByDescriptor(uint64_t id) {
  for (size_t i = g_memory.vmm.descriptors.size(); i-- > 0;) {
    VmmDescriptor& descriptor = g_memory.vmm.descriptors[i];
    if (descriptor.id != id) continue;
    if (IsFile(descriptor.fd, descriptor.file)) return true;
    g_memory.vmm.descriptors.Remove(&descriptor);
  }
  return false;
}

void Count(const Physical& p, uint32_t change) {
  if (p.ended()) g_memory.vmm.kept.fetch_add(change, std::memory_order_relaxed);
  if (!p.imported && !p.ended()) return;
  g_memory.vmm.imports.fetch_add(change, std::memory_order_relaxed);
  if (!p.imported) return;
  if (p.shared) {
    g_memory.vmm.shared_imports.fetch_add(change, std::memory_order_relaxed);
  } else if (p.uses == 0) {
    g_memory.vmm.unused_imports.fetch_add(change, std::memory_order_relaxed);
  }
}

void EndPhysical(const Physical& p) {
  Entry entry;
  g_memory.vmm.names.Take(HandleKind::kVmmPhysical, p.id, &entry);
  // A region that knows nothing of it any more has not given it back either.
  const bool left =
      p.shared && g_memory.vmm.names.Take(HandleKind::kVmmShared, p.id, &entry) && LeaveMemory(entry.extra);
  if (!p.imported && !left) Refund(p.device, p.bytes, Kind::kData);
  if (p.device == kUnlimited && p.bytes == 0) EndMulticastObject(p.id);
}

}  // namespace

void StoreName(HandleKind kind, uint64_t key, uint64_t id, uint64_t bytes) {
  Entry entry;
  entry.key = key;
  entry.bytes = bytes;
  entry.extra = id;
  entry.kind = kind;
  g_memory.vmm.names.Insert(entry);
}

// A Physical is stored as an Entry: key = id, bytes, extra = references << 32 | uses, flags = kImported and kJoint.
bool LoadPhysical(uint64_t id, Physical* out) {
  Entry entry;
  if (!g_memory.vmm.names.Find(HandleKind::kVmmPhysical, id, &entry)) return false;
  *out = {id,
          entry.bytes,
          entry.device,
          static_cast<uint32_t>(entry.extra >> 32),
          static_cast<uint32_t>(entry.extra),
          (entry.flags & kImported) != 0,
          (entry.flags & kJoint) != 0};
  return true;
}

void StorePhysical(const Physical& p) {
  Physical before;
  if (LoadPhysical(p.id, &before)) Count(before, static_cast<uint32_t>(-1));
  if (p.ended() && !KeptByDescriptor(p.id)) {
    EndPhysical(p);
    return;
  }
  Count(p, 1);
  Entry entry;
  entry.key = p.id;
  entry.bytes = p.bytes;
  entry.extra = static_cast<uint64_t>(p.references) << 32 | p.uses;
  entry.kind = HandleKind::kVmmPhysical;
  entry.device = static_cast<int8_t>(p.device);
  entry.flags = static_cast<uint16_t>((p.imported ? kImported : 0) | (p.shared ? kJoint : 0));
  g_memory.vmm.names.Insert(entry);
}

bool ByHandle(CUmemGenericAllocationHandle handle, Physical* out) {
  Entry entry;
  return g_memory.vmm.names.Find(HandleKind::kVmmHandle, handle, &entry) && LoadPhysical(entry.extra, out);
}

// Addresses inside a mapping are rarely named; only then is every mapping looked at.
bool ByAddress(CUdeviceptr address, Entry* mapping) {
  if (g_memory.vmm.names.Find(HandleKind::kVmmMapping, address, mapping)) return true;
  return g_memory.vmm.names.FindIf(
      [address](const Entry& entry) {
        return entry.kind == HandleKind::kVmmMapping && address >= entry.key && address - entry.key < entry.bytes;
      },
      mapping);
}

uint64_t AddPhysical(CUmemGenericAllocationHandle handle, uint64_t bytes, int device, bool imported, bool shared) {
  const uint64_t id = ++g_memory.vmm.last_id;
  StorePhysical({id, bytes, device, 1, 0, imported, shared});
  StoreName(HandleKind::kVmmHandle, handle, id, 0);
  return id;
}

uint64_t AddNameless(uint64_t bytes, int device) {
  const uint64_t id = ++g_memory.vmm.last_id;
  StorePhysical({id, bytes, device, 0, 1, false, false});
  return id;
}

void EndUses(uint64_t id, uint64_t uses, uint64_t bytes) {
  Physical physical;
  if (!LoadPhysical(id, &physical)) return;
  if (physical.foreign()) Refund(physical.device, bytes, Kind::kData);
  physical.uses -= uses < physical.uses ? static_cast<uint32_t>(uses) : physical.uses;
  StorePhysical(physical);
}

void NoteDescriptor(uint64_t id, int fd) {
  Physical kept;
  for (VmmDescriptor& known : g_memory.vmm.descriptors) {
    if (known.fd != fd) continue;
    const uint64_t before = known.id;
    known = {id, NameFile(fd), fd};
    if (LoadPhysical(before, &kept) && kept.ended()) StorePhysical(kept);
    return;
  }
  // Without memory to remember it in, it keeps nothing.
  if (VmmDescriptor* const added = g_memory.vmm.descriptors.Add(); added != nullptr) *added = {id, NameFile(fd), fd};
}

void SweepDescriptors(size_t most) {
  if (!DescriptorsKeepMemory()) return;
  if (most > g_memory.vmm.descriptors.size()) {
    most = g_memory.vmm.descriptors.size();
    g_memory.vmm.looked_down_to = most;
  }
  for (; most > 0 && g_memory.vmm.descriptors.size() != 0; --most) {
    // Downwards, because what is removed is replaced by the last.
    if (g_memory.vmm.looked_down_to == 0 || g_memory.vmm.looked_down_to > g_memory.vmm.descriptors.size()) {
      g_memory.vmm.looked_down_to = g_memory.vmm.descriptors.size();
    }
    const VmmDescriptor descriptor = g_memory.vmm.descriptors[--g_memory.vmm.looked_down_to];
    Physical kept;
    if (!LoadPhysical(descriptor.id, &kept) || !kept.ended()) continue;
    if (!IsFile(descriptor.fd, descriptor.file)) StorePhysical(kept);
  }
}

bool DescriptorsKeepMemory() { return g_memory.vmm.kept.load(std::memory_order_relaxed) != 0; }

Imports HeldImports() {
  return {g_memory.vmm.imports.load(std::memory_order_relaxed),
          g_memory.vmm.unused_imports.load(std::memory_order_relaxed),
          g_memory.vmm.shared_imports.load(std::memory_order_relaxed)};
}

void VmmBook::Reset() {
  lock.Reset();
  names.Reset();
  descriptors.Clear();
  ending.Clear();
  kept.store(0, std::memory_order_relaxed);
  imports.store(0, std::memory_order_relaxed);
  unused_imports.store(0, std::memory_order_relaxed);
  shared_imports.store(0, std::memory_order_relaxed);
  g_memory_flags.uses_end_later.store(false, std::memory_order_relaxed);
}

}  // namespace hami::vgpu
