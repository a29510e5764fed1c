// SPDX-License-Identifier: Apache-2.0
//
// Virtual memory management: physical memory that a handle names and mappings use. Invariant: a physical allocation is
// charged once, to the device it lies on, from its creation until the last reference to its handle is released *and*
// its last use is gone, in whatever order. Uses are mappings into the address space, and what sparse_multicast.h is
// about. Memory of which this process exported or imported a descriptor counts until that is closed here, too: the
// driver keeps it. Memory that processes of this container share counts once for all of them, for as long as one holds
// it (shared_memory.h). Memory imported from elsewhere is charged while it is used here, because its maker may let go
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
  int fd = -1;
};
bool VmmImporting(int fd, VmmImport* import);
void VmmImported(CUmemGenericAllocationHandle handle, const VmmImport& import);
void VmmImportFailed(const VmmImport& import);
void VmmRetained(CUmemGenericAllocationHandle handle, CUdeviceptr address);
// Around the driver's release: the name goes first, because the driver may hand out the same value again at once; the
// charge goes afterwards. `id` is what VmmReleasing answered.
uint64_t VmmReleasing(CUmemGenericAllocationHandle handle);
void VmmReleased(CUmemGenericAllocationHandle handle, uint64_t id, bool released);
// A use of memory that begins: before the driver's call, so that nobody else lets go of it meanwhile. False when
// imported memory does not fit. Afterwards it becomes a mapping (or a binding, see sparse_multicast.h), or ends.
struct VmmUse {
  uint64_t id = 0;  // of the physical memory; 0 = not ours
  uint64_t bytes = 0;
};
bool VmmUsing(CUmemGenericAllocationHandle handle, uint64_t bytes, VmmUse* use);
void VmmUnused(const VmmUse& use);
// Nothing is known by the address before the driver has agreed: what is mapped there already stays what it is.
void VmmMapped(const VmmUse& use, CUdeviceptr address, bool mapped);
void VmmUnmapped(CUdeviceptr address, uint64_t bytes);

// Ends what only descriptors kept that are closed now. For a caller that needs the count or the room,
// with the measure lock held.
void VmmSettleDescriptors();

// Whether this process holds imported memory (or such that only descriptors keep), and such that it does not use and
// therefore does not count. The driver may show imported memory as this process's or as another holder's, and may
// change its mind when that one lets go. Shared imports are counted, perhaps by another process.
bool VmmHoldsImports();
bool VmmHoldsUnusedImports();
bool VmmHoldsSharedImports();

}  // namespace hami::vgpu
