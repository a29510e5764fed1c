// SPDX-License-Identifier: Apache-2.0
//
// Virtual memory management: physical memory that a handle names and mappings use. Invariant: a physical allocation is
// charged once, to the device it lies on, from its creation until the last reference to its handle is released *and*
// its last use is gone, in whatever order. Uses are mappings into the address space, into sparse arrays and bindings to
// multicast objects. Memory that processes of this container share counts once for all of them, for as long as one
// holds it (sharing.h). Memory imported from elsewhere is charged while it is mapped here, because its maker may let go
// of it while we hold it: nothing that a driver exports says reliably that two handles are one memory, and where that
// is unknown, it counts.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "abi/cuda_abi.h"

namespace hami::vgpu {

// The device whose memory `prop` asks for; kUnlimited for host memory.
int DeviceOfProperties(const CUmemAllocationProp& prop);

void VmmCreated(CUmemGenericAllocationHandle handle, uint64_t bytes, int device);
// `fd` is what the driver made of it: a name under which others may find out whose memory it is.
void VmmExported(CUmemGenericAllocationHandle handle, int fd);
// Around the driver's import. First this process becomes a holder, because another one may let go meanwhile; false when
// it is the only one, and the memory does not fit. Then what came of it is remembered, with the device where nothing
// else is known; kUnlimited for what is no device's, as multicast objects are.
struct VmmImport {
  uint64_t object = 0;  // that the container shares; 0 = somebody else's
  uint64_t bytes = 0;
  int device = -1;
};
bool VmmImporting(int fd, VmmImport* import);
void VmmImported(CUmemGenericAllocationHandle handle, const VmmImport& import);
void VmmImportFailed(const VmmImport& import);
void VmmRetained(CUmemGenericAllocationHandle handle, CUdeviceptr address);
// Around the driver's release: the name goes first, because the driver may hand out the same value again at once; the
// charge goes afterwards. `id` is what VmmReleasing answered.
uint64_t VmmReleasing(CUmemGenericAllocationHandle handle);
void VmmReleased(CUmemGenericAllocationHandle handle, uint64_t id, bool released);
// Around a mapping; false when imported memory does not fit. Nothing is known by the address before the driver has
// agreed: what is mapped there already stays what it is.
struct VmmMap {
  uint64_t id = 0;  // of the physical memory; 0 = not ours
  uint64_t bytes = 0;
};
bool VmmMapping(CUmemGenericAllocationHandle handle, uint64_t bytes, VmmMap* map);
void VmmMapped(const VmmMap& map, CUdeviceptr address, bool mapped);
void VmmUnmapped(CUdeviceptr address, uint64_t bytes);

// What keeps memory in use without an address: a part of a sparse array, or of a multicast object. A part that is bound
// again loses what it had; parts are told apart by where they begin.
void VmmBound(uint64_t owner, uint64_t part, CUmemGenericAllocationHandle handle);
void VmmUnbound(uint64_t owner, uint64_t part);
// The array is gone.
void VmmOwnerGone(uint64_t owner);

// A multicast object has a handle like memory, but no memory of its own; what is bound to it ends with it.
void VmmMulticastCreated(CUmemGenericAllocationHandle handle);
struct MulticastRange {
  CUmemGenericAllocationHandle multicast;
  uint64_t offset;
  uint64_t bytes;
};
void VmmMulticastBound(const MulticastRange& at, CUmemGenericAllocationHandle handle);
void VmmMulticastBoundAddress(const MulticastRange& at, CUdeviceptr address);
void VmmMulticastUnbound(const MulticastRange& at, int device);

// Whether this process holds imported memory, and such that it does not use and therefore does not count. The driver
// may show imported memory as this process's or as another holder's, and may change its mind when that one lets go.
// Shared imports are counted, perhaps by another process.
bool VmmHoldsImports();
bool VmmHoldsUnusedImports();
bool VmmHoldsSharedImports();

void ResetVmm();

}  // namespace hami::vgpu
