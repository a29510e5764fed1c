// SPDX-License-Identifier: Apache-2.0
// Virtual memory management, and memory that travels between processes.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "test/handover.h"
#include "test/stress/actor.h"

namespace stress {
namespace {

constexpr CUmemAllocationHandleType kFileDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

bool TryLock(Box& box) {
  int32_t nobody = 0;
  return box.lock.compare_exchange_strong(nobody, getpid());
}

}  // namespace

void Actor::MakePhysical() {
  const uint64_t bytes = Up(random_.Size(options_.largest), kGranule);
  if (!Afford(bytes)) return;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const bool exportable = random_.OneIn(2);
  if (exportable) prop.requestedHandleTypes = kFileDescriptor;
  CUmemGenericAllocationHandle handle = 0;
  if (!Done("cuMemCreate", cuMemCreate(&handle, bytes, &prop, 0), 0, bytes)) return;
  Object object{What::kPhysical, handle, bytes};
  object.range = bytes;
  object.group = next_group_++;
  object.flag = exportable;
  Add(object);
}

void Actor::Map(CUmemGenericAllocationHandle handle, uint64_t bytes, uint64_t group) {
  CUdeviceptr range = 0;
  if (!Done("cuMemAddressReserve", cuMemAddressReserve(&range, bytes, 0, 0, 0), 0, bytes)) return;
  if (!Done("cuMemMap", cuMemMap(range, bytes, 0, handle, 0), range, bytes)) {
    Done("cuMemAddressFree", cuMemAddressFree(range, bytes), range, bytes);
    return;
  }
  // A second mapping at the same place is an error that must leave the first one alone.
  if (random_.OneIn(4)) Declined("cuMemMap(taken)", cuMemMap(range, bytes, 0, handle, 0));
  Object object{What::kMapping, range};
  object.range = bytes;
  object.group = group;
  Add(object);
}

void Actor::MakeMapping() {
  const Object* const physical = Pick(What::kPhysical);
  want_ = 0;
  if (physical != nullptr) Map(physical->handle, physical->range, physical->group);
}

void Actor::Retain() {
  const Object* const mapping = Pick(What::kMapping);
  if (mapping == nullptr) return;
  Object object{What::kPhysical};
  object.range = mapping->range;
  object.group = mapping->group;
  want_ = 0;
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(mapping->handle));
  object.handle = handle;
  if (Done("cuMemRetainAllocationHandle", result, mapping->handle, 0)) Add(object);
}

// Exported and imported again by the same process, and let go of.
void Actor::ImportOwn() {
  const Object* const physical = Pick(What::kPhysical);
  if (physical == nullptr || !physical->flag) return;
  want_ = 0;
  int fd = -1;
  CUmemGenericAllocationHandle imported = 0;
  if (!Done("cuMemExportToShareableHandle", cuMemExportToShareableHandle(&fd, physical->handle, kFileDescriptor, 0),
            physical->handle, 0)) {
    return;
  }
  Done("cuMemImportFromShareableHandle",
       cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), kFileDescriptor),
       static_cast<uint64_t>(fd), 0);
  close(fd);
  Done("cuMemRelease", cuMemRelease(imported), imported, 0);
}

void Actor::Send() {
  const Object* const physical = Pick(What::kPhysical);
  if (physical == nullptr || !physical->flag) return;
  want_ = 0;
  int fd = -1;
  Done("cuMemExportToShareableHandle", cuMemExportToShareableHandle(&fd, physical->handle, kFileDescriptor, 0),
       physical->handle, 0);
  handover::Send(options_.wire, physical->range, fd, MSG_DONTWAIT);  // nobody may be there
  close(fd);
}

void Actor::Receive() {
  uint64_t bytes = 0;
  if (!Afford(options_.largest)) return;
  int fd = -1;
  if (!handover::Receive(options_.wire, &bytes, &fd, MSG_DONTWAIT) || fd < 0) return;
  want_ = bytes;
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result =
      cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), kFileDescriptor);
  close(fd);
  // Its maker may be gone, and the memory with it.
  log_.push_back({"cuMemImportFromShareableHandle", handle, bytes, static_cast<int>(result)});
  if (result != CUDA_SUCCESS) return;
  Object object{What::kPhysical, handle, bytes};
  object.range = bytes;
  object.group = next_group_++ | kImportedGroup;
  object.flag = true;  // it may be handed on
  Add(object);
  if (random_.OneIn(2)) Map(handle, bytes, object.group);
}

// --- IPC
// ---------------------------------------------------------------------------------------------------------------

void Actor::Publish() {
  const uint64_t bytes = random_.Size(kMiB);
  if (!Afford(Up(bytes, 512))) return;
  Box& box = options_.board->boxes[random_.Below(kBoxes)];
  if (!TryLock(box)) return;
  CUdeviceptr pointer = 0;
  CUipcMemHandle handle{};
  if (box.owner == 0 && Done("cuMemAlloc", cuMemAlloc_v2(&pointer, bytes), 0, bytes)) {
    Done("cuIpcGetMemHandle", cuIpcGetMemHandle(&handle, pointer), pointer, 0);
    std::memcpy(box.handle, &handle, sizeof handle);
    box.bytes = bytes;
    box.owner = getpid();
    Add({What::kPublished, pointer, Up(bytes, 512), static_cast<uint64_t>(&box - options_.board->boxes)});
  }
  box.lock = 0;
}

// Open in another process costs that one nothing: the maker pays.
void Actor::OpenPublished() {
  Box& box = options_.board->boxes[random_.Below(kBoxes)];
  if (!TryLock(box)) return;
  if (box.owner != 0 && box.owner != getpid()) {
    CUipcMemHandle handle{};
    std::memcpy(&handle, box.handle, sizeof handle);
    CUdeviceptr pointer = 0;
    const CUresult result = cuIpcOpenMemHandle_v2(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    log_.push_back({"cuIpcOpenMemHandle", pointer, box.bytes, static_cast<int>(result)});
    if (result == CUDA_SUCCESS) Done("cuIpcCloseMemHandle", cuIpcCloseMemHandle(pointer), pointer, 0);
  }
  box.lock = 0;
}

// False while somebody has it open.
bool Actor::FreePublished(const Object& object) {
  Box& box = options_.board->boxes[object.extra];
  if (!TryLock(box)) return false;
  Done("cuMemFree", cuMemFree_v2(object.handle), object.handle, object.bytes);
  box.owner = 0;
  box.lock = 0;
  return true;
}

}  // namespace stress
