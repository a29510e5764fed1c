// SPDX-License-Identifier: Apache-2.0
// Plain, pitched, managed, pooled and host memory, arrays, external memory, and nonsense.
#include <sys/mman.h>
#include <unistd.h>

#include "test/stress/actor.h"

namespace stress {
void Actor::MakePlain() {
  const uint64_t bytes = random_.Size(options_.largest);
  if (!Afford(Up(bytes, 512))) return;
  CUdeviceptr pointer = 0;
  if (Done("cuMemAlloc", cuMemAlloc_v2(&pointer, bytes), 0, bytes)) Add({What::kPlain, pointer, Up(bytes, 512)});
}

void Actor::MakePitched() {
  const uint64_t width = random_.Size(64 * 1024);
  const uint64_t height = random_.Size(options_.largest / Up(width, 512));
  if (!Afford(Up(width, 512) * height)) return;
  CUdeviceptr pointer = 0;
  size_t pitch = 0;
  const unsigned element = 4u << random_.Below(3);
  if (Done("cuMemAllocPitch", cuMemAllocPitch_v2(&pointer, &pitch, width, height, element), width, height)) {
    Add({What::kPlain, pointer, Up(pitch * height, 512)});
  }
}

void Actor::MakeManaged() {
  const uint64_t bytes = random_.Size(options_.largest);
  if (!Afford(Up(bytes, 512))) return;
  CUdeviceptr pointer = 0;
  if (Done("cuMemAllocManaged", cuMemAllocManaged(&pointer, bytes, CU_MEM_ATTACH_GLOBAL), 0, bytes)) {
    Add({What::kManaged, pointer, Up(bytes, 512)});
  }
}

void Actor::MakePool() {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr;
  if (!Done("cuMemPoolCreate", cuMemPoolCreate(&pool, &props), 0, 0)) return;
  cuuint64_t keep = random_.OneIn(2) ? 0 : UINT64_MAX;
  Done("cuMemPoolSetAttribute", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep), 0, keep);
  Add({What::kPool, reinterpret_cast<uintptr_t>(pool)});
}

void Actor::MakePooled() {
  const uint64_t bytes = random_.Size(options_.largest);
  if (!Afford(Up(bytes, kGranule))) return;
  const Object* const explicit_pool = Pick(What::kPool);
  const uint64_t pool = explicit_pool != nullptr && random_.OneIn(2) ? explicit_pool->handle : 0;
  const auto handle = reinterpret_cast<CUmemoryPool>(pool);
  const bool per_thread = random_.OneIn(3);
  const CUstream stream = per_thread ? nullptr : AnyStream();
  CUdeviceptr pointer = 0;
  CUresult result = CUDA_SUCCESS;
  if (pool != 0) {
    result = per_thread ? cuMemAllocFromPoolAsync_ptsz(&pointer, bytes, handle, stream)
                        : cuMemAllocFromPoolAsync(&pointer, bytes, handle, stream);
  } else {
    result = per_thread ? cuMemAllocAsync_ptsz(&pointer, bytes, stream) : cuMemAllocAsync(&pointer, bytes, stream);
  }
  if (Done(pool != 0 ? "cuMemAllocFromPoolAsync" : "cuMemAllocAsync", result, pool, bytes)) {
    Add({What::kPooled, pointer, Up(bytes, kGranule), pool});
  }
}

void Actor::MakeHost() {
  void* pointer = nullptr;
  const uint64_t bytes = random_.Size(kMiB);
  want_ = 0;
  if (Done("cuMemHostAlloc", cuMemHostAlloc(&pointer, bytes, 0), 0, bytes)) {
    Add({What::kHost, reinterpret_cast<uintptr_t>(pointer)});
  }
}

void Actor::MakeArray() {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = random_.Below(1024) + 1;
  shape.Height = random_.Below(512);
  shape.Depth = shape.Height == 0 || random_.OneIn(2) ? 0 : random_.Below(8) + 1;
  shape.Format = random_.OneIn(2) ? CU_AD_FORMAT_FLOAT : CU_AD_FORMAT_UNSIGNED_INT8;
  shape.NumChannels = 1u << random_.Below(3);
  const uint64_t row = Up(shape.Width * 16, 512);
  if (!Afford(row * Up(shape.Height + 1, 8) * (shape.Depth + 1))) return;  // whole blocks of 8 rows
  CUarray array = nullptr;
  CUresult result = CUDA_SUCCESS;
  if (shape.Depth == 0) {
    CUDA_ARRAY_DESCRIPTOR flat{};
    flat.Width = shape.Width;
    flat.Height = shape.Height;
    flat.Format = shape.Format;
    flat.NumChannels = shape.NumChannels;
    result = cuArrayCreate_v2(&array, &flat);
  } else {
    result = cuArray3DCreate_v2(&array, &shape);
  }
  if (!Done("cuArrayCreate", result, shape.Width, shape.Height)) return;
  Add({What::kArray, reinterpret_cast<uintptr_t>(array), options_.exact ? Unexplained() : want_});
}

void Actor::MakeMipmap() {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = random_.Below(512) + 1;
  shape.Height = random_.Below(512) + 1;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 1;
  if (!Afford(Up(shape.Width * 4, 512) * shape.Height * 2 + 64 * 1024)) return;
  CUmipmappedArray array = nullptr;
  const auto levels = static_cast<unsigned>(random_.Below(4) + 1);
  if (!Done("cuMipmappedArrayCreate", cuMipmappedArrayCreate(&array, &shape, levels), shape.Width, levels)) return;
  Add({What::kMipmap, reinterpret_cast<uintptr_t>(array), options_.exact ? Unexplained() : want_});
}

void Actor::MakeExternal() {
  const uint64_t bytes = random_.Size(8 * kMiB);
  if (!Afford(Up(bytes, 512))) return;
  const int fd = memfd_create("stress-external", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) Fail("memfd", 0, 1);
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC what{};
  what.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  what.handle.fd = fd;  // the driver's, once it is imported
  what.size = bytes;
  CUexternalMemory memory = nullptr;
  if (Done("cuImportExternalMemory", cuImportExternalMemory(&memory, &what), 0, bytes)) {
    Add({What::kExternal, reinterpret_cast<uintptr_t>(memory), Up(bytes, 512)});
  } else {
    close(fd);
  }
}

// What no program should ask for. Each must be declined, by the driver's own error, and change nothing.
void Actor::Nonsense() {
  CUdeviceptr pointer = 0;
  size_t pitch = 0;
  switch (random_.Below(8)) {
    case 0:
      return Declined("cuMemFree(bad)", cuMemFree_v2(0x1234));
    case 1:
      return Declined("cuMemAlloc(0)", cuMemAlloc_v2(&pointer, 0));
    case 2:
      return Declined("cuMemAllocPitch(element 0)", cuMemAllocPitch_v2(&pointer, &pitch, 100, 100, 0));
    case 3:
      return Declined("cuMemRelease(bad)", cuMemRelease(0xdead));
    case 4:
      return Declined("cuMemUnmap(bad)", cuMemUnmap(0x1000, kGranule));
    case 5:
      return Declined("cuMemFreeAsync(bad)", cuMemFreeAsync(0x1234, nullptr));
    case 6:
      return Declined("cuMemAlloc(null)", cuMemAlloc_v2(nullptr, kMiB));
    default:
      return Declined("cuArrayDestroy(bad)", cuArrayDestroy(reinterpret_cast<CUarray>(uintptr_t{8})));
  }
}

void Actor::TooMuch() {
  want_ = options_.limit + 1;
  CUdeviceptr pointer = 77;
  CUresult result = CUDA_SUCCESS;
  switch (random_.Below(4)) {
    case 0:
      result = cuMemAlloc_v2(&pointer, options_.limit + 1);
      break;
    case 1:
      result = cuMemAllocManaged(&pointer, options_.limit * 2, CU_MEM_ATTACH_GLOBAL);
      break;
    case 2:
      result = cuMemAllocAsync(&pointer, options_.limit + 1, AnyStream());
      break;
    default:
      result = cuMemAlloc_v2(&pointer, UINT64_MAX / 2);
  }
  log_.push_back({"more than the limit", want_, 0, static_cast<int>(result)});
  if (result != CUDA_ERROR_OUT_OF_MEMORY) Fail("more than the limit: answer", static_cast<uint64_t>(result), 2);
  if (pointer != 77) Fail("a refusal wrote the pointer", pointer, 77);
}

}  // namespace stress
