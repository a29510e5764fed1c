// SPDX-License-Identifier: Apache-2.0
//
// Images for tests, put together record by record: cubins of both generations as NVIDIA's tools lay them out, and
// fatbins with raw, LZ4 and zstd entries. Independent of the library's own writer, so that a mistake in the format is
// not made twice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simgpu/image/image.h"

namespace simgpu::test {

using Blob = std::vector<std::byte>;

Blob BlobOf(std::string_view text);

struct CubinKernel {
  std::string name;
  std::vector<ParamInfo> params;
  std::uint32_t registers = 16;
  std::uint32_t frame = 0;
  std::uint32_t shared = 0;  // the section's size, with whatever is reserved in it
  std::uint32_t max_threads[3] = {0, 0, 0};
};

struct CubinVariable {
  std::string name;
  std::string section;  // .nv.global, .nv.global.init, .nv.constant3
  std::uint64_t size = 0;
  Blob init;
  bool managed = false;
};

struct CubinSpec {
  int sm = 90;
  bool old_generation = false;  // as toolkits up to 12 wrote them
  bool relocatable = false;
  bool wide_params = false;  // KPARAM_INFO records of the second form
  bool one_name = false;     // every symbol points at the name of the first
  std::vector<CubinKernel> kernels;
  std::vector<CubinVariable> variables;
};

Blob BuildCubin(const CubinSpec& spec);

enum class Packing { kRaw, kLz4, kZstd };

struct FatbinEntry {
  bool cubin = true;
  int sm = 90;
  Packing packing = Packing::kRaw;
  std::uint32_t header_bytes = 64;
  Blob payload;
};

Blob BuildFatbin(const std::vector<FatbinEntry>& entries);

// Reads from a blob as the driver reads from memory that ends there.
class BlobSource final : public ByteSource {
 public:
  explicit BlobSource(const Blob& blob) : blob_(blob) {}
  std::size_t Read(std::uint64_t offset, std::span<std::byte> out) override;

 private:
  const Blob& blob_;
};

}  // namespace simgpu::test
