// SPDX-License-Identifier: Apache-2.0
// What copies and fills do and cost, and how flat addresses are resolved.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "simgpu/driver/copy.h"
#include "simgpu/driver/mem_internal.h"

namespace simgpu {
namespace {

constexpr std::uint64_t kHostBytesPerSecond = 10'000'000'000;
constexpr std::size_t kSparseFill = std::size_t{1} << 20;

// No transfer takes less than its set-up.
constexpr std::int64_t kSetUpNanos = 1000;

std::int64_t Nanos64(std::uint64_t bytes, std::uint64_t bytes_per_second) {
  if (bytes_per_second == 0) return kSetUpNanos;
  const double nanos = static_cast<double>(bytes) * 1e9 / static_cast<double>(bytes_per_second);
  return kSetUpNanos + static_cast<std::int64_t>(nanos);
}

template <typename Element>
void FillRow(std::byte* row, Element value, std::size_t count) {
  auto* first = reinterpret_cast<Element*>(row);
  std::fill_n(first, count, value);
}

// Zeroes whole pages of device memory without touching them: a large sparse mapping stays sparse. False when the memory
// behind them is of another kind.
bool DropPages(std::byte* first, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<std::uintptr_t>(first);
  const std::uintptr_t begin = RoundUp(start, page);
  const std::uintptr_t end = (start + bytes) / page * page;
  if (begin >= end || madvise(reinterpret_cast<void*>(begin), end - begin, MADV_REMOVE) != 0) return false;
  std::memset(first, 0, begin - start);
  std::memset(reinterpret_cast<void*>(end), 0, start + bytes - end);
  return true;
}

void FillBytes(std::byte* row, const FillOp& op) {
  switch (op.element) {
    case 1:
      std::memset(row, static_cast<int>(op.value & 0xff), op.width);
      break;
    case 2:
      FillRow(row, static_cast<std::uint16_t>(op.value), op.width);
      break;
    default:
      FillRow(row, op.value, op.width);
      break;
  }
}

std::uint64_t PeerBandwidth(const DeviceSpec& spec, int peer) {
  const std::uint32_t count = std::min<std::uint32_t>(spec.nvlink_count, kMaxNvLinks);
  std::uint64_t links = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const NvLink& link = spec.nvlink[i];
    const bool reaches = link.peer == LinkPeer::kSwitch ||
                         (link.peer == LinkPeer::kGpu && link.peer_index == static_cast<std::uint32_t>(peer));
    links += reaches ? 1 : 0;
  }
  return links > 0 ? links * spec.nvlink_bytes_per_s : spec.pcie_bytes_per_s;
}

}  // namespace

void CopyNow(const CopyOp& op) {
  if (op.bytes() == 0) return;
  for (std::size_t z = 0; z < op.depth; ++z) {
    for (std::size_t y = 0; y < op.height; ++y) {
      std::memmove(op.dst + z * op.dst_slice + y * op.dst_pitch, op.src + z * op.src_slice + y * op.src_pitch,
                   op.width);
    }
  }
}

void FillNow(const FillOp& op) {
  const std::size_t row = op.width * op.element;
  if (op.value == 0 && op.machine >= 0 && op.height == 1 && row >= kSparseFill && DropPages(op.dst, row)) return;
  for (std::size_t y = 0; y < op.height; ++y) FillBytes(op.dst + y * op.pitch, op);
}

std::int64_t CopyNanos(const CopyOp& op) {
  const Machine& machine = Machine::Get();
  const std::uint64_t bytes = op.bytes();
  const int device = op.dst_machine >= 0 ? op.dst_machine : op.src_machine;
  if (device < 0) return Nanos64(bytes, kHostBytesPerSecond);
  const DeviceSpec& spec = machine.spec(device);
  switch (op.route) {
    case Route::kOnDevice:
      return Nanos64(2 * bytes, spec.memory_bytes_per_s);
    case Route::kPeer:
      return Nanos64(bytes, PeerBandwidth(spec, op.src_machine));
    default:
      return Nanos64(bytes, op.pageable ? spec.pcie_bytes_per_s / 2 : spec.pcie_bytes_per_s);
  }
}

std::int64_t FillNanos(const FillOp& op) {
  if (op.machine < 0) return Nanos64(op.bytes(), kHostBytesPerSecond);
  return Nanos64(op.bytes(), Machine::Get().spec(op.machine).memory_bytes_per_s);
}

Route RouteOf(int dst_machine, int src_machine) {
  if (dst_machine < 0) return src_machine < 0 ? Route::kHostToHost : Route::kDeviceToHost;
  if (src_machine < 0) return Route::kHostToDevice;
  return dst_machine == src_machine ? Route::kOnDevice : Route::kPeer;
}

CUresult ResolveFlat(CUdeviceptr address, std::size_t size, bool must_be_known, FlatMemory* out) {
  if (address == 0) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  if (!FindRange(address, &range)) {
    *out = {-1, true};
    return must_be_known ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
  if (!IsDeviceRange(address, size)) return CUDA_ERROR_INVALID_VALUE;
  *out = {range.machine, false};
  return CUDA_SUCCESS;
}

CUresult MakeFlatCopy(CUdeviceptr dst, bool dst_known, CUdeviceptr src, bool src_known, std::size_t size, CopyOp* out) {
  *out = CopyOp{};
  if (size == 0) return CUDA_SUCCESS;
  FlatMemory to;
  FlatMemory from;
  SIMGPU_TRY(ResolveFlat(dst, size, dst_known, &to));
  SIMGPU_TRY(ResolveFlat(src, size, src_known, &from));
  out->dst = reinterpret_cast<std::byte*>(dst);
  out->src = reinterpret_cast<const std::byte*>(src);
  out->width = out->dst_pitch = out->dst_slice = out->src_pitch = out->src_slice = size;
  out->dst_machine = static_cast<std::int16_t>(to.machine);
  out->src_machine = static_cast<std::int16_t>(from.machine);
  out->route = RouteOf(to.machine, from.machine);
  out->pageable = to.pageable || from.pageable;
  return CUDA_SUCCESS;
}

CUresult MakeCopy(CUdeviceptr dst, CUdeviceptr src, std::size_t size, CopyOp* out) {
  return MakeFlatCopy(dst, false, src, false, size, out);
}

CUresult MakeFill(CUdeviceptr dst, std::size_t pitch, std::uint32_t value, unsigned element, std::size_t width,
                  std::size_t height, FillOp* out) {
  *out = FillOp{};
  out->element = static_cast<std::uint8_t>(element);
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  std::size_t row = 0;
  std::size_t before_last = 0;
  if (__builtin_mul_overflow(width, element, &row) || __builtin_mul_overflow(height - 1, pitch, &before_last) ||
      row > SIZE_MAX - before_last || dst % element != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (height > 1 && (pitch < row || pitch % element != 0)) return CUDA_ERROR_INVALID_VALUE;
  FlatMemory to;
  SIMGPU_TRY(ResolveFlat(dst, before_last + row, true, &to));
  out->dst = reinterpret_cast<std::byte*>(dst);
  out->value = value;
  out->machine = static_cast<std::int16_t>(to.machine);
  out->width = width;
  out->height = height;
  out->pitch = height > 1 ? pitch : row;
  // Rows without gaps are one row.
  if (out->pitch == row) {
    out->width *= height;
    out->height = 1;
    out->pitch = row * height;
  }
  return CUDA_SUCCESS;
}

}  // namespace simgpu
