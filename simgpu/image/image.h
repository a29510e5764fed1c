// SPDX-License-Identifier: Apache-2.0
//
// What a device image (cubin, fatbin, PTX, or simgpu's own text form) says about its kernels and globals, and the one
// entry point that reads any of them. The parsers are pure and total: every byte string has an answer, no read leaves
// the bytes given, and what an image can make them allocate is bounded by its size (kMaxImageBytes for compressed
// ones). They refuse what they do not understand with a ParseStatus; they never run anything.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "simgpu/image/bytes.h"

namespace simgpu {

// The largest image, and the largest text or cubin that a compressed entry may unpack to.
inline constexpr std::size_t kMaxImageBytes = std::size_t{1} << 30;
// The largest variable an image may declare: more than any GPU holds is a broken image.
inline constexpr std::uint64_t kMaxGlobalBytes = std::uint64_t{1} << 40;

enum class ParseStatus {
  kOk,
  kInvalidImage,    // not an image, truncated, or contradicts itself
  kInvalidPtx,      // PTX or simgpu text with a syntax error
  kNoBinaryForGpu,  // well formed, but holds nothing that this GPU runs
};

enum class ImageKind { kUnknown, kFatbinWrapper, kFatbin, kElf, kPtx, kSimgpuText };

struct ParamInfo {
  std::uint32_t offset = 0;
  std::uint32_t size = 0;
};

// How long a kernel keeps one SM busy, in SM-nanoseconds for the whole grid.
struct CostModel {
  enum class Kind {
    kMachineDefault,  // the machine's default cost
    kTotal,           // `sm_nanos`, whatever the grid
    kPerBlock,        // `sm_nanos` for each block
    kParamTotal,      // the u64 parameter number `param`
    kParamPerBlock,   // the u64 parameter number `param`, for each block
  };
  Kind kind = Kind::kMachineDefault;
  std::uint64_t sm_nanos = 0;
  std::uint32_t param = 0;
};

// What a kernel does to memory. Only simgpu's own images declare anything but kNone.
enum class HostAction {
  kNone,
  kFill,  // parameters: u64 destination, u64 bytes, u8 value
  kCopy,  // parameters: u64 destination, u64 source, u64 bytes
  kAdd,   // parameters: u64 destination (of u32), u64 count, u32 addend
};

struct KernelInfo {
  std::string name;
  std::vector<ParamInfo> params;  // in order; never overlapping, offsets ascending
  std::uint32_t param_bytes = 0;  // end of the last one
  std::uint32_t registers = 0;    // 0: the image does not say
  std::uint32_t static_shared = 0;
  std::uint32_t local_bytes = 0;                    // per thread
  std::uint32_t max_threads = 0;                    // 0: no bound of its own
  std::array<std::uint32_t, 3> required_cluster{};  // 0: the launch chooses
  bool allocates = false;                           // device memory, by itself
  CostModel cost;
  HostAction action = HostAction::kNone;
};

struct GlobalInfo {
  enum class Space { kDevice, kConstant, kManaged };
  std::string name;
  std::uint64_t size = 0;
  Space space = Space::kDevice;
  std::vector<std::byte> init;  // initial bytes; what is missing of `size` is zero
};

struct Image {
  std::vector<KernelInfo> kernels;
  std::vector<GlobalInfo> globals;
  ImageKind kind = ImageKind::kUnknown;  // of the part that was chosen
  int compute_capability = 0;            // major * 10 + minor that it was built for; 0: any
  int ptx_version = 0;                   // major * 10 + minor of the PTX ISA
  std::uint64_t code_bytes = 0;          // what the code itself takes on the device

  const KernelInfo* FindKernel(std::string_view name) const;
  const GlobalInfo* FindGlobal(std::string_view name) const;
};

// What to choose among the parts of a fatbin. compute_capability 0 takes the first part of any architecture.
struct Target {
  int compute_capability = 0;
};

ImageKind DetectKind(Bytes image);

// Bytes that are read piece by piece, because nobody knows yet how many there are.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `out` from `offset` and tells how many bytes there were, fewer than asked at the end.
  virtual std::size_t Read(std::uint64_t offset, std::span<std::byte> out) = 0;
};

// How many bytes an image declares to have: what a pointer without a length (cuModuleLoadData) needs. Text ends at its
// NUL, which is not counted. Empty: not an image, larger than kMaxImageBytes, or its header can not be read.
std::optional<std::size_t> DeclaredBytes(ByteSource& source);

// Reads an image of any kind but the fatbin wrapper, whose pointers have no meaning here. `log`, when given, is told
// what is wrong, in the manner of a compiler's message.
ParseStatus ParseImage(Bytes image, const Target& target, Image* out, std::string* log = nullptr);

// The parts that a link or a wrapper of version 2 put together. Names in `from` that `into` has already are skipped.
void MergeImage(Image&& from, Image* into);

}  // namespace simgpu
