// SPDX-License-Identifier: Apache-2.0
// From the API's descriptions of two- and three-dimensional copies to boxes of bytes.
#include "simgpu/driver/array.h"
#include "simgpu/driver/copy.h"

namespace simgpu {
namespace {

// One end of a copy, as the API describes it.
struct End {
  std::size_t x, y, z, lod;
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  std::size_t pitch, height;
};

struct Box {
  std::size_t width, height, depth;  // bytes, rows, slices; none is zero
};

struct Place {
  std::byte* first = nullptr;
  std::size_t pitch = 0, slice = 0;
  FlatMemory memory;
};

bool Within(std::size_t offset, std::size_t size, std::size_t limit) {
  return offset <= limit && size <= limit - offset;
}

CUresult PlaceInArray(const End& end, const Box& box, Place* out) {
  ArrayView array;
  if (!FindArray(end.array, &array)) return CUDA_ERROR_INVALID_HANDLE;
  const ArrayLayout& layout = array.layout;
  if (!Within(end.x, box.width, layout.row_bytes) || !Within(end.y, box.height, layout.rows) ||
      !Within(end.z, box.depth, layout.slices)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  out->pitch = layout.pitch;
  out->slice = layout.slice_bytes;
  out->first = array.storage + end.z * out->slice + end.y * out->pitch + end.x;
  out->memory = {array.machine, false};
  return CUDA_SUCCESS;
}

// Saturates: an overflowing description never fits.
std::size_t Times(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX / 4 : product;
}

CUresult PlaceFlat(const End& end, const Box& box, CUdeviceptr address, bool must_be_known, Place* out) {
  if (end.x > SIZE_MAX / 4 || box.width > SIZE_MAX / 4) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t row = end.x + box.width;
  out->pitch = end.pitch != 0 ? end.pitch : row;
  const bool many_rows = box.height > 1 || box.depth > 1 || end.y > 0 || end.z > 0;
  if (many_rows && out->pitch < row) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t rows = end.height != 0 ? end.height : end.y + box.height;
  if (box.depth > 1 && rows < end.y + box.height) return CUDA_ERROR_INVALID_VALUE;
  out->slice = Times(out->pitch, rows);
  const std::size_t before = Times(end.z, out->slice) + Times(end.y, out->pitch) + end.x;
  const std::size_t extent = Times(box.depth - 1, out->slice) + Times(box.height - 1, out->pitch) + box.width;
  if (before >= SIZE_MAX / 4 || extent >= SIZE_MAX / 4 || address == 0) return CUDA_ERROR_INVALID_VALUE;
  SIMGPU_TRY(ResolveFlat(address + before, extent, must_be_known, &out->memory));
  out->first = reinterpret_cast<std::byte*>(address + before);
  return CUDA_SUCCESS;
}

CUresult Resolve(const End& end, const Box& box, Place* out) {
  if (end.lod != 0) return CUDA_ERROR_INVALID_VALUE;
  switch (end.type) {
    case CU_MEMORYTYPE_HOST:
      return PlaceFlat(end, box, reinterpret_cast<CUdeviceptr>(end.host), false, out);
    case CU_MEMORYTYPE_DEVICE:
      return PlaceFlat(end, box, end.device, true, out);
    case CU_MEMORYTYPE_UNIFIED:
      return PlaceFlat(end, box, end.device, false, out);
    case CU_MEMORYTYPE_ARRAY:
      return PlaceInArray(end, box, out);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult Combine(const End& dst, const End& src, const Box& box, CopyOp* out) {
  *out = CopyOp{};
  if (box.width == 0 || box.height == 0 || box.depth == 0) return CUDA_SUCCESS;
  Place to;
  Place from;
  SIMGPU_TRY(Resolve(dst, box, &to));
  SIMGPU_TRY(Resolve(src, box, &from));
  out->dst = to.first;
  out->src = from.first;
  out->width = box.width;
  out->height = box.height;
  out->depth = box.depth;
  out->dst_pitch = to.pitch;
  out->dst_slice = to.slice;
  out->src_pitch = from.pitch;
  out->src_slice = from.slice;
  out->dst_machine = static_cast<std::int16_t>(to.memory.machine);
  out->src_machine = static_cast<std::int16_t>(from.memory.machine);
  out->route = RouteOf(to.memory.machine, from.memory.machine);
  out->pageable = to.memory.pageable || from.memory.pageable;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult MakeCopy(const CUDA_MEMCPY3D& copy, CopyOp* out) {
  const End dst{copy.dstXInBytes, copy.dstY,      copy.dstZ,     copy.dstLOD,   copy.dstMemoryType,
                copy.dstHost,     copy.dstDevice, copy.dstArray, copy.dstPitch, copy.dstHeight};
  const End src{copy.srcXInBytes, copy.srcY,      copy.srcZ,     copy.srcLOD,   copy.srcMemoryType,
                copy.srcHost,     copy.srcDevice, copy.srcArray, copy.srcPitch, copy.srcHeight};
  return Combine(dst, src, {copy.WidthInBytes, copy.Height, copy.Depth}, out);
}

CUresult MakeCopy2D(const CUDA_MEMCPY2D& copy, CopyOp* out) {
  const End dst{copy.dstXInBytes, copy.dstY,     0, 0, copy.dstMemoryType, copy.dstHost, copy.dstDevice,
                copy.dstArray,    copy.dstPitch, 0};
  const End src{copy.srcXInBytes, copy.srcY,     0, 0, copy.srcMemoryType, copy.srcHost, copy.srcDevice,
                copy.srcArray,    copy.srcPitch, 0};
  return Combine(dst, src, {copy.WidthInBytes, copy.Height, 1}, out);
}

}  // namespace simgpu
