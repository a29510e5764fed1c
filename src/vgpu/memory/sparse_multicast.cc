// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/sparse_multicast.h"

#include "vgpu/memory/account.h"
#include "vgpu/memory/memory.h"
#include "vgpu/memory/vmm_handles.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {

namespace {

// No binding to a multicast object is smaller.
constexpr uint64_t kGranule = uint64_t{2} << 20;
// Bits of a tile's place in one dimension: no array is larger.
constexpr unsigned kPlaceBits = 14;
constexpr uint64_t kPlaceMask = (1u << kPlaceBits) - 1;

using Ending = VmmEndingUse;

// Owners are arrays, by their handle, and multicast objects, by their number. Handles are addresses of user space.
constexpr uint64_t MulticastOwner(uint64_t id) { return id | uint64_t{1} << 63; }

// The number of an owner, given when it first needs one; 0 = it has none.
uint32_t OwnerNumber(uint64_t owner, bool give) {
  Entry entry;
  if (g_memory.vmm.names.Find(HandleKind::kVmmOwner, owner, &entry)) return static_cast<uint32_t>(entry.extra);
  if (!give) return 0;
  StoreName(HandleKind::kVmmOwner, owner, ++g_memory.vmm.last_owner, 0);
  return g_memory.vmm.last_owner;
}

// Two parts of one owner that fall on the same key would end each other early: 64 bits, well mixed.
uint64_t BindingKey(uint32_t number, uint64_t part) {
  uint64_t key = part ^ (uint64_t{number} << 40 | number);
  key *= 0x9e37'79b9'7f4a'7c15;
  return key ^ key >> 29;
}

// A tile's level, layer and place in one number.
uint64_t PlaceOf(unsigned level, unsigned layer, unsigned x, unsigned y, unsigned z) {
  return uint64_t{level} << 58 | uint64_t{layer & 0xffff} << 42 | (z & kPlaceMask) << 28 | (y & kPlaceMask) << 14 |
         (x & kPlaceMask);
}

// The place of all of an array is its size.
constexpr uint64_t kSizeMask = (uint64_t{1} << 42) - 1;
uint64_t PlaceOfWhole(const TileBox& box) { return uint64_t{kWholeLevel} << 58 | (box.whole / kTileBytes & kSizeMask); }

bool Contains(const TileBox& box, uint64_t place) {
  if (box.level == kWholeLevel) return place == PlaceOfWhole(box);
  if (place >> 58 != box.level || (place >> 42 & 0xffff) != box.layer) return false;
  for (unsigned i = 0; i < 3; ++i) {
    const uint64_t at = place >> (i * kPlaceBits) & kPlaceMask;
    if (at < box.first[i] || at - box.first[i] >= box.count[i]) return false;
  }
  return true;
}

template <typename Visit>
void ForEachPlace(const TileBox& box, Visit visit) {
  if (box.level == kWholeLevel) return visit(PlaceOfWhole(box));
  for (unsigned z = 0; z < box.count[2]; ++z) {
    for (unsigned y = 0; y < box.count[1]; ++y) {
      for (unsigned x = 0; x < box.count[0]; ++x) {
        visit(PlaceOf(box.level, box.layer, box.first[0] + x, box.first[1] + y, box.first[2] + z));
      }
    }
  }
}

// What a tile (whose `bytes` are its place) or a part of a multicast object was charged, if its memory is foreign.
uint64_t ChargedFor(const Entry& binding) {
  if (binding.kind == HandleKind::kVmmBinding) return binding.bytes;
  return binding.bytes >> 58 == kWholeLevel ? (binding.bytes & kSizeMask) * kTileBytes : kTileBytes;
}

// Uses that end together, summed up by memory, because one piece often has thousands of tiles.
class Tally {
 public:
  // False when there is no room for another piece of memory.
  bool Add(const Entry& binding) {
    int at = 0;
    while (at < count_ && sums_[at].id != binding.extra) ++at;
    if (at == kPieces) return false;
    if (at == count_) sums_[count_++] = {binding.extra, 0, 0};
    ++sums_[at].uses;
    sums_[at].bytes += ChargedFor(binding);
    return true;
  }
  // `end` gets the memory's number, how many uses, and what they were charged.
  template <typename End>
  void Finish(End end) {
    for (int i = 0; i < count_; ++i) end(sums_[i].id, sums_[i].uses, sums_[i].bytes);
    count_ = 0;
  }

 private:
  static constexpr int kPieces = 64;
  struct Sum {
    uint64_t id, uses, bytes;
  };
  Sum sums_[kPieces];
  int count_ = 0;
};

// Takes all bindings out that `which` picks, whatever their number.
template <typename Which, typename End>
void TakeBindings(Which which, End end) {
  for (bool all = false; !all;) {
    all = true;
    Tally tally;
    g_memory.vmm.names.TakeIf([&](const Entry& entry) {
      if (!which(entry)) return false;
      const bool taken = tally.Add(entry);
      all = all && taken;
      return taken;
    });
    tally.Finish(end);
  }
}

void EndOwner(uint64_t owner) {
  Entry entry;
  if (!g_memory.vmm.names.Take(HandleKind::kVmmOwner, owner, &entry)) return;
  const auto number = static_cast<uint32_t>(entry.extra);
  TakeBindings([number](const Entry& binding) { return binding.context == number; }, EndUses);
}

// Without memory to remember it in, the uses last for ever: too careful is not wrong.
void EndLater(uint64_t id, uint64_t uses, uint64_t bytes, const StreamId& on, uint64_t number) {
  Ending* at = nullptr;
  for (Ending& ending : g_memory.vmm.ending) {
    if (ending.id == id && ending.on.number == on.number && ending.on.context == on.context) at = &ending;
  }
  if (at == nullptr) at = g_memory.vmm.ending.Add();
  if (at == nullptr) return;
  *at = {id, at->uses + uses, at->bytes + bytes, number, on};
  g_memory_flags.uses_end_later.store(true, std::memory_order_relaxed);
}

template <typename Which>
void FinishEnding(Which which) {
  for (size_t i = g_memory.vmm.ending.size(); i-- > 0;) {
    const Ending ending = g_memory.vmm.ending[i];
    if (!which(ending)) continue;
    g_memory.vmm.ending.Remove(&g_memory.vmm.ending[i]);
    EndUses(ending.id, ending.uses, ending.bytes);
  }
  g_memory_flags.uses_end_later.store(g_memory.vmm.ending.size() != 0, std::memory_order_relaxed);
}

// Each device binds its own memory at the same place.
constexpr uint64_t MulticastPart(uint64_t offset, int device) { return offset << 8 | static_cast<uint8_t>(device); }

void Unbind(uint32_t number, uint64_t part) {
  Entry binding;
  if (g_memory.vmm.names.Take(HandleKind::kVmmBinding, BindingKey(number, part), &binding)) {
    EndUses(binding.extra, 1, ChargedFor(binding));
  }
}

// A use that has begun becomes the object's.
void Bind(const MulticastRange& at, const Physical& physical) {
  Physical object;
  // One that was made or imported past us has its first use now.
  if (!ByHandle(at.multicast, &object)) object.id = AddPhysical(at.multicast, 0, kUnlimited, false, false);
  const uint32_t number = OwnerNumber(MulticastOwner(object.id), true);
  const uint64_t part = MulticastPart(at.offset, physical.device);
  Unbind(number, part);
  Entry binding;
  binding.key = BindingKey(number, part);
  binding.bytes = at.bytes;
  binding.extra = physical.id;
  binding.context = number;
  binding.kind = HandleKind::kVmmBinding;
  g_memory.vmm.names.Insert(binding);
}

}  // namespace

uint64_t TileBox::bytes() const { return level == kWholeLevel ? whole : tiles() * kTileBytes; }

TileBox BoxOf(const CUarrayMapInfo& map, const CUDA_ARRAY_SPARSE_PROPERTIES::Extent& tile, uint64_t whole) {
  if (tile.width == 0 || tile.height == 0 || tile.depth == 0) {
    return {kWholeLevel, 0, {0, 0, 0}, {1, 1, 1}, (whole + kTileBytes - 1) / kTileBytes * kTileBytes};
  }
  if (map.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
    const auto& tail = map.subresource.miptail;
    const uint64_t first = tail.offset / kTileBytes;
    const uint64_t end = (tail.offset + tail.size + kTileBytes - 1) / kTileBytes;
    return {kTailLevel, tail.layer, {static_cast<unsigned>(first), 0, 0}, {static_cast<unsigned>(end - first), 1, 1}};
  }
  const auto& part = map.subresource.sparseLevel;
  TileBox box{part.level, part.layer, {part.offsetX, part.offsetY, part.offsetZ}, {}};
  const unsigned extent[3] = {part.extentWidth, part.extentHeight, part.extentDepth};
  const unsigned of_tile[3] = {tile.width, tile.height, tile.depth};
  for (unsigned i = 0; i < 3; ++i) {
    box.first[i] /= of_tile[i];
    box.count[i] = extent[i] / of_tile[i] + (extent[i] % of_tile[i] != 0 ? 1 : 0);  // the last may be at the edge
  }
  return box;
}

void VmmTilesMapped(uint64_t array, const TileBox& box, const VmmUse& use, const StreamId& stream) {
  if (use.id == 0) {
    VmmTilesUnmapped(array, box, stream);
    return;
  }
  const Locked locked(g_memory.vmm.lock);
  Physical physical;
  if (!LoadPhysical(use.id, &physical)) return;
  physical.uses += static_cast<uint32_t>(box.tiles());
  StorePhysical(physical);
  const uint64_t call = g_memory.pools.frees.Next();
  Entry tile;
  tile.extra = use.id;
  tile.context = OwnerNumber(array, true);
  tile.kind = HandleKind::kVmmTile;
  ForEachPlace(box, [&](uint64_t place) {
    tile.key = BindingKey(tile.context, place);
    tile.bytes = place;
    Entry replaced;
    g_memory.vmm.names.Insert(tile, &replaced);
    if (replaced.kind != HandleKind::kNone) EndLater(replaced.extra, 1, ChargedFor(replaced), stream, call);
  });
  EndUses(use.id, 1, 0);  // the tiles go on with what it was charged
}

// Costs as much as the box has tiles, or as there are names: a box may be as large as all that an array can address.
void VmmTilesUnmapped(uint64_t array, const TileBox& box, const StreamId& stream) {
  const Locked locked(g_memory.vmm.lock);
  const uint32_t number = OwnerNumber(array, false);
  if (number == 0) return;
  const uint64_t call = g_memory.pools.frees.Next();
  const auto end = [&](uint64_t id, uint64_t uses, uint64_t bytes) { EndLater(id, uses, bytes, stream, call); };
  if (box.tiles() > g_memory.vmm.names.size()) {
    TakeBindings([&](const Entry& entry) { return entry.context == number && Contains(box, entry.bytes); }, end);
    return;
  }
  Tally tally;
  ForEachPlace(box, [&](uint64_t place) {
    Entry tile;
    if (!g_memory.vmm.names.Take(HandleKind::kVmmTile, BindingKey(number, place), &tile) || tally.Add(tile)) return;
    tally.Finish(end);
    tally.Add(tile);
  });
  tally.Finish(end);
}

void VmmFreedLater(int device, uint64_t bytes, const StreamId& stream) {
  const Locked locked(g_memory.vmm.lock);
  EndLater(AddNameless(bytes, device), 1, 0, stream, g_memory.pools.frees.Next());
}

void VmmArrayGone(uint64_t array) {
  const Locked locked(g_memory.vmm.lock);
  EndOwner(array);
}

void VmmReached(const Waited& waited) {
  const Locked locked(g_memory.vmm.lock);
  FinishEnding([&](const Ending& ending) { return Reaches(waited, ending.on, ending.last); });
}

void VmmLostContext(CUcontext context) {
  if (!VmmUsesEndLater()) return;
  const Locked locked(g_memory.vmm.lock);
  FinishEnding([context](const Ending& ending) { return ending.on.context == context; });
}

void VmmMulticastCreated(CUmemGenericAllocationHandle handle) { VmmCreated(handle, 0, kUnlimited); }

void VmmMulticastBound(const MulticastRange& at, const VmmUse& use, bool bound) {
  if (!bound) VmmUnused(use);
  if (!bound || use.id == 0) return;
  const Locked locked(g_memory.vmm.lock);
  Physical physical;
  if (LoadPhysical(use.id, &physical)) Bind(at, physical);
}

void VmmMulticastBoundAddress(const MulticastRange& at, CUdeviceptr address) {
  const Locked locked(g_memory.vmm.lock);
  Entry mapping;
  // The range may lie in several mappings, side by side.
  for (uint64_t done = 0; done < at.bytes && ByAddress(address + done, &mapping);) {
    const uint64_t end = mapping.key + mapping.bytes - address;
    const uint64_t bytes = (end < at.bytes ? end : at.bytes) - done;
    Physical physical;
    if (LoadPhysical(mapping.extra, &physical)) {
      // Not to be refused: it was, or was not, when it was mapped.
      if (physical.foreign()) ChargeAnyway(physical.device, bytes, Kind::kData);
      ++physical.uses;
      StorePhysical(physical);
      Bind({at.multicast, at.offset + done, bytes}, physical);
    }
    done = end;
  }
}

void VmmMulticastUnbound(const MulticastRange& at, int device) {
  const Locked locked(g_memory.vmm.lock);
  Physical object;
  if (!ByHandle(at.multicast, &object)) return;
  const uint32_t number = OwnerNumber(MulticastOwner(object.id), false);
  if (number == 0) return;
  // One call may end several bindings that lie side by side.
  for (uint64_t done = 0; done < at.bytes; done += kGranule) Unbind(number, MulticastPart(at.offset + done, device));
}

void EndMulticastObject(uint64_t id) { EndOwner(MulticastOwner(id)); }

}  // namespace hami::vgpu
