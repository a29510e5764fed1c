// SPDX-License-Identifier: Apache-2.0
// Physical memory that something other than a mapping uses: tiles of sparse arrays, multicast objects. It counts until
// the last use is gone, whatever became of its handle (A3).
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "test/preload/guest_kernels.h"

namespace guest {
namespace {

constexpr size_t kPiece = 400 * kMiB;

CUmemAllocationProp OnDevice(int ordinal, unsigned short usage = 0,
                             CUmemAllocationHandleType types = CU_MEM_HANDLE_TYPE_NONE) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = ordinal;
  prop.allocFlags.usage = usage;
  prop.requestedHandleTypes = types;
  return prop;
}

CUmemGenericAllocationHandle NewMemory(size_t bytes, const CUmemAllocationProp& prop) {
  CUmemGenericAllocationHandle handle = 0;
  OK(cuMemCreate(&handle, bytes, &prop, 0));
  return handle;
}

CUmemGenericAllocationHandle NewPool(size_t bytes) {
  return NewMemory(bytes, OnDevice(0, CU_MEM_CREATE_USAGE_TILE_POOL));
}

// Nothing of that size is to be had, and asking costs nothing.
void Refused(size_t bytes, int ordinal = 0) {
  CUmemGenericAllocationHandle handle = 99;
  const CUmemAllocationProp prop = OnDevice(ordinal);
  OOM(cuMemCreate(&handle, bytes, &prop, 0));
  EXPECT_SAME(handle, 99);
}

// --- sparse arrays

CUarray NewArray(size_t side, unsigned flags = CUDA_ARRAY3D_SPARSE) {
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  desc.Width = desc.Height = side;
  desc.Format = CU_AD_FORMAT_FLOAT;
  desc.NumChannels = 1;
  desc.Flags = flags;
  CUarray array = nullptr;
  OK(cuArray3DCreate_v2(&array, &desc));
  return array;
}

// Tiles are 128x128; `pool` 0 unmaps.
void MapTiles(CUarray array, unsigned x, unsigned width, CUmemGenericAllocationHandle pool, CUstream stream = nullptr) {
  CUarrayMapInfo entry{};
  entry.resourceType = CU_RESOURCE_TYPE_ARRAY;
  entry.resource.array = array;
  entry.subresource.sparseLevel = {0, 0, x * 128, 0, 0, width * 128, 128, 1};
  entry.memOperationType = pool != 0 ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
  entry.memHandle.memHandle = pool;
  entry.deviceBitMask = 1;
  OK(cuMemMapArrayAsync(&entry, 1, stream));
  if (stream == nullptr) OK(cuStreamSynchronize(stream));
}

SCENARIO(sparse_tiles) {
  Begin();
  const size_t before = Room();
  const CUarray array = NewArray(4096);
  EXPECT_SAME(Room(), before);  // it brings no memory
  const CUmemGenericAllocationHandle pool = NewPool(kPiece);
  MapTiles(array, 0, 2, pool);
  MapTiles(array, 2, 2, pool);
  OK(cuMemRelease(pool));
  EXPECT_SAME(before - Room(), kPiece);
  Balanced();
  Refused(kPiece);
  MapTiles(array, 0, 2, 0);
  EXPECT_SAME(before - Room(), kPiece);
  Balanced();
  MapTiles(array, 2, 2, 0);
  EXPECT_SAME(Room(), before);
  Balanced();
  OK(cuArrayDestroy(array));
  EXPECT_SAME(Room(), before);
}

SCENARIO(sparse_tiles_replaced) {
  Begin();
  const size_t before = Room();
  const CUarray array = NewArray(1024);
  const CUmemGenericAllocationHandle first = NewPool(kPiece);
  MapTiles(array, 0, 2, first);
  OK(cuMemRelease(first));
  const CUmemGenericAllocationHandle second = NewPool(20 * kMiB);
  MapTiles(array, 0, 2, second);
  OK(cuMemRelease(second));
  EXPECT_SAME(before - Room(), 20 * kMiB);
  Balanced();
  OK(cuArrayDestroy(array));
  EXPECT_SAME(Room(), before);
  Balanced();
}

SCENARIO(sparse_array_gone) {
  Begin();
  const size_t before = Room();
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  desc.Width = desc.Height = 256;
  desc.Format = CU_AD_FORMAT_FLOAT;
  desc.NumChannels = 1;
  desc.Flags = CUDA_ARRAY3D_SPARSE;
  CUmipmappedArray mipmap = nullptr;
  OK(cuMipmappedArrayCreate(&mipmap, &desc, 9));
  const CUarray array = NewArray(1024);
  const CUmemGenericAllocationHandle of_array = NewPool(kPiece);
  const CUmemGenericAllocationHandle of_tail = NewPool(20 * kMiB);
  MapTiles(array, 0, 1, of_array);
  CUarrayMapInfo tail{};
  tail.resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  tail.resource.mipmap = mipmap;
  tail.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
  tail.subresource.miptail.size = 64 << 10;
  tail.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
  tail.memHandle.memHandle = of_tail;
  tail.deviceBitMask = 1;
  OK(cuMemMapArrayAsync(&tail, 1, nullptr));
  OK(cuMemRelease(of_array));
  OK(cuMemRelease(of_tail));
  EXPECT_SAME(before - Room(), kPiece + 20 * kMiB);
  Balanced();
  OK(cuArrayDestroy(array));
  EXPECT_SAME(before - Room(), 20 * kMiB);
  OK(cuMipmappedArrayDestroy(mipmap));
  EXPECT_SAME(Room(), before);
  Balanced();
}

SCENARIO(sparse_list_refused) {
  Begin();
  const size_t before = Room();
  const CUarray array = NewArray(1024);
  const CUmemGenericAllocationHandle pool = NewPool(kPiece);
  CUarrayMapInfo list[2] = {};
  for (CUarrayMapInfo& entry : list) {
    entry.resource.array = array;
    entry.subresource.sparseLevel = {0, 0, 0, 0, 0, 128, 128, 1};
    entry.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    entry.memHandle.memHandle = pool;
    entry.deviceBitMask = 1;
  }
  list[1].subresource.sparseLevel.offsetX = 7;
  EXPECT(cuMemMapArrayAsync(list, 2, nullptr) != CUDA_SUCCESS);
  OK(cuMemRelease(pool));
  EXPECT_SAME(Room(), before);
  Balanced();
}

SCENARIO(deferred_mapping) {
  Begin();
  const size_t before = Room();
  const CUarray array = NewArray(8192, CUDA_ARRAY3D_DEFERRED_MAPPING);
  EXPECT_SAME(Room(), before);
  CUDA_ARRAY_MEMORY_REQUIREMENTS needs{};
  OK(cuArrayGetMemoryRequirements(&needs, array, 0));
  EXPECT_SAME(needs.size, 256 * kMiB);
  const CUmemGenericAllocationHandle pool = NewPool(needs.size);
  MapTiles(array, 0, 0, pool);
  OK(cuMemRelease(pool));
  EXPECT_SAME(before - Room(), needs.size);
  Balanced();
  OK(cuArrayDestroy(array));
  EXPECT_SAME(Room(), before);
  Balanced();
}

// --- multicast objects

// Both devices have a context; the first one's is current again.
void BeginBoth() {
  Begin(1);
  Begin(0);
}

size_t RoomOn(int ordinal) {
  CUcontext ctx = nullptr;
  OK(cuDevicePrimaryCtxRetain(&ctx, ordinal));
  OK(cuCtxPushCurrent_v2(ctx));
  const size_t room = Room();
  EXPECT_SAME(MemInfo().used(), Truth(ordinal));
  OK(cuCtxPopCurrent_v2(nullptr));
  OK(cuDevicePrimaryCtxRelease_v2(ordinal));
  return room;
}

CUmemGenericAllocationHandle NewTeam(size_t bytes, unsigned long long types = 0) {
  CUmulticastObjectProp prop{};
  prop.numDevices = 2;
  prop.size = bytes;
  prop.handleTypes = types;
  CUmemGenericAllocationHandle object = 0;
  OK(cuMulticastCreate(&object, &prop));
  OK(cuMulticastAddDevice(object, 0));
  OK(cuMulticastAddDevice(object, 1));
  return object;
}

SCENARIO(multicast_bound) {
  BeginBoth();
  const size_t before[2] = {RoomOn(0), RoomOn(1)};
  const CUmemGenericAllocationHandle object = NewTeam(2 * kPiece);
  EXPECT_SAME(RoomOn(0), before[0]);  // it has no memory of its own
  const CUmemGenericAllocationHandle memory[2] = {NewMemory(kPiece, OnDevice(0)), NewMemory(kPiece, OnDevice(1))};
  OK(cuMulticastBindMem(object, 0, memory[0], 0, kPiece, 0));
  OK(cuMulticastBindMem_v2(object, 1, 0, memory[1], 0, kPiece, 0));
  for (const CUmemGenericAllocationHandle handle : memory) OK(cuMemRelease(handle));
  for (int device = 0; device < 2; ++device) {
    EXPECT_SAME(before[device] - RoomOn(device), kPiece);
    Refused(kPiece, device);
  }
  OK(cuMulticastUnbind(object, 1, 0, kPiece));
  EXPECT_SAME(before[0] - RoomOn(0), kPiece);
  EXPECT_SAME(RoomOn(1), before[1]);
  OK(cuMulticastUnbind(object, 0, 0, kPiece));
  EXPECT_SAME(RoomOn(0), before[0]);
  OK(cuMemRelease(object));
}

SCENARIO(multicast_object_gone) {
  BeginBoth();
  const size_t before[2] = {RoomOn(0), RoomOn(1)};
  const CUmemGenericAllocationHandle object = NewTeam(kPiece);
  const CUmemGenericAllocationHandle memory[2] = {NewMemory(kPiece, OnDevice(0)), NewMemory(kPiece, OnDevice(1))};
  CUdeviceptr range = 0;
  CUdeviceptr own = 0;
  OK(cuMemAddressReserve(&range, kPiece, 0, 0, 0));
  OK(cuMemAddressReserve(&own, kPiece, 0, 0, 0));
  OK(cuMemMap(own, kPiece, 0, memory[1], 0));
  OK(cuMulticastBindMem(object, 0, memory[0], 0, kPiece, 0));
  OK(cuMulticastBindAddr(object, 0, own, kPiece, 0));
  OK(cuMemMap(range, kPiece, 0, object, 0));
  OK(cuMemUnmap(own, kPiece));
  for (const CUmemGenericAllocationHandle handle : memory) OK(cuMemRelease(handle));
  OK(cuMemRelease(object));
  // The object's mapping keeps it, and it what is bound to it.
  for (int device = 0; device < 2; ++device) EXPECT_SAME(before[device] - RoomOn(device), kPiece);
  OK(cuMemUnmap(range, kPiece));
  for (int device = 0; device < 2; ++device) EXPECT_SAME(RoomOn(device), before[device]);
}

SCENARIO(multicast_failures) {
  BeginBoth();
  const size_t before = RoomOn(0);
  const CUmemGenericAllocationHandle object = NewTeam(kPiece);
  const CUmemGenericAllocationHandle memory = NewMemory(20 * kMiB, OnDevice(0));
  EXPECT(cuMulticastBindMem(object, 1, memory, 0, 20 * kMiB, 0) != CUDA_SUCCESS);
  EXPECT(cuMulticastBindMem_v2(object, 1, 0, memory, 0, 20 * kMiB, 0) != CUDA_SUCCESS);
  OK(cuMulticastBindMem(object, 0, memory, 0, 20 * kMiB, 0));
  EXPECT(cuMulticastBindMem(object, 0, memory, 0, 20 * kMiB, 0) != CUDA_SUCCESS);  // taken
  EXPECT(cuMulticastUnbind(object, 1, 0, 20 * kMiB) != CUDA_SUCCESS);
  OK(cuMemRelease(memory));
  EXPECT_SAME(before - RoomOn(0), 20 * kMiB);
  OK(cuMemRelease(object));
  EXPECT_SAME(RoomOn(0), before);
}

// The other process of the team: it has the second device, and what it binds is its own.
void JoinTeam(int maker_pid, int exported) {
  Begin(1);
  const size_t before = RoomOn(1);
  const std::string path = "/proc/" + std::to_string(maker_pid) + "/fd/" + std::to_string(exported);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  CUmemGenericAllocationHandle object = 0;
  OK(cuMemImportFromShareableHandle(&object, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  OK(cuMulticastAddDevice(object, 1));
  const CUmemAllocationProp prop = OnDevice(1, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  for (const bool unbind : {true, false}) {
    const CUmemGenericAllocationHandle memory = NewMemory(kPiece, prop);
    OK(cuMulticastBindMem(object, 0, memory, 0, kPiece, 0));
    OK(cuMemRelease(memory));
    EXPECT_SAME(before - RoomOn(1), kPiece);
    Refused(kPiece, 1);
    if (unbind) {
      OK(cuMulticastUnbind(object, 1, 0, kPiece));
    } else {
      OK(cuMemRelease(object));
    }
    EXPECT_SAME(RoomOn(1), before);
  }
}

SCENARIO(multicast_of_two_processes) {
  int told[2] = {-1, -1};
  EXPECT_SAME(pipe2(told, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    int exported = -1;
    EXPECT_SAME(read(told[0], &exported, sizeof exported), static_cast<ssize_t>(sizeof exported));
    JoinTeam(getppid(), exported);
    _exit(0);
  }
  Begin(0);
  const size_t before = RoomOn(0);
  CUmulticastObjectProp prop{};
  prop.numDevices = 2;
  prop.size = kPiece;
  prop.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle object = 0;
  OK(cuMulticastCreate(&object, &prop));
  OK(cuMulticastAddDevice(object, 0));
  int exported = -1;
  OK(cuMemExportToShareableHandle(&exported, object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  EXPECT_SAME(write(told[1], &exported, sizeof exported), static_cast<ssize_t>(sizeof exported));
  const CUmemAllocationProp own = OnDevice(0, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  const CUmemGenericAllocationHandle memory = NewMemory(kPiece, own);
  OK(cuMulticastBindMem(object, 0, memory, 0, kPiece, 0));  // when the other one has added its device
  OK(cuMemRelease(memory));
  int status = -1;
  EXPECT_SAME(waitpid(child, &status, 0), child);
  EXPECT_SAME(status, 0);
  EXPECT_SAME(before - RoomOn(0), kPiece);
  OK(cuMemRelease(object));
  EXPECT_SAME(RoomOn(0), before);
}

// --- uses that are counted only if they are looked at closely

SCENARIO(sparse_tiles_in_part) {
  Begin();
  const size_t before = Room();
  const CUarray array = NewArray(1024);
  const CUmemGenericAllocationHandle pool = NewPool(kPiece);
  MapTiles(array, 0, 4, pool);
  OK(cuMemRelease(pool));
  MapTiles(array, 0, 1, 0);
  EXPECT_SAME(before - Room(), kPiece);  // three tiles are left
  Balanced();
  MapTiles(array, 0, 8, 0);
  EXPECT_SAME(Room(), before);
  Balanced();
}

SCENARIO(sparse_unmapped_behind_work) {
  Begin();
  CUdeviceptr gate = 0;
  const CUstream stream = NewStream();
  OK(cuMemAlloc_v2(&gate, 512));
  OK(cuMemsetD32_v2(gate, 0, 1));
  const size_t before = Room();
  const CUarray array = NewArray(1024);
  const CUmemGenericAllocationHandle pool = NewPool(kPiece);
  MapTiles(array, 0, 1, pool);
  OK(cuMemRelease(pool));
  OK(cuStreamWaitValue32_v2(stream, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
  MapTiles(array, 0, 1, 0, stream);
  EXPECT_SAME(before - Room(), kPiece);  // the driver holds it until the stream gets there
  Balanced();
  OK(cuMemsetD32_v2(gate, 1, 1));
  OK(cuStreamSynchronize(stream));
  EXPECT_SAME(Room(), before);
  Balanced();
}

SCENARIO(multicast_inside_a_mapping) {
  BeginBoth();
  const size_t before = RoomOn(0);
  const CUmemGenericAllocationHandle object = NewTeam(kPiece);
  const CUmemGenericAllocationHandle memory = NewMemory(kPiece, OnDevice(0));
  CUdeviceptr range = 0;
  OK(cuMemAddressReserve(&range, kPiece, 0, 0, 0));
  OK(cuMemMap(range, kPiece, 0, memory, 0));
  OK(cuMulticastBindAddr(object, 0, range + 2 * kMiB, 2 * kMiB, 0));
  OK(cuMemUnmap(range, kPiece));
  OK(cuMemRelease(memory));
  EXPECT_SAME(before - RoomOn(0), kPiece);
  OK(cuMemRelease(object));
  EXPECT_SAME(RoomOn(0), before);
}

SCENARIO(retained_inside_a_mapping) {
  Begin();
  const size_t before = Room();
  const CUmemGenericAllocationHandle memory = NewMemory(kPiece, OnDevice(0));
  CUdeviceptr range = 0;
  OK(cuMemAddressReserve(&range, kPiece, 0, 0, 0));
  OK(cuMemMap(range, kPiece, 0, memory, 0));
  OK(cuMemRelease(memory));
  CUmemGenericAllocationHandle again = 0;
  OK(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(range + 2 * kMiB)));
  OK(cuMemUnmap(range, kPiece));
  EXPECT_SAME(before - Room(), kPiece);
  Balanced();
  OK(cuMemRelease(again));
  EXPECT_SAME(Room(), before);
}

SCENARIO(multicast_imported_twice) {
  BeginBoth();
  const size_t before = RoomOn(0);
  const CUmemGenericAllocationHandle object = NewTeam(kPiece, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  int fd = -1;
  OK(cuMemExportToShareableHandle(&fd, object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CUmemGenericAllocationHandle again = 0;
  OK(cuMemImportFromShareableHandle(&again, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  const CUmemGenericAllocationHandle memory =
      NewMemory(kPiece, OnDevice(0, 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  OK(cuMulticastBindMem(object, 0, memory, 0, kPiece, 0));
  OK(cuMemRelease(memory));
  OK(cuMemRelease(object));
  EXPECT_SAME(before - RoomOn(0), kPiece);  // the imported handle keeps it
  OK(cuMemRelease(again));
  EXPECT_SAME(RoomOn(0), before);
}

}  // namespace
}  // namespace guest
