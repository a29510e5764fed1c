// SPDX-License-Identifier: Apache-2.0
//
// Fatbins: a row of entries, each one program for one architecture, raw, LZ4 or zstd. Chooses the entry that the
// driver would (a cubin of the same major and the greatest minor not above the device, else the newest PTX that is not
// newer than the device) and reads that. Refuses entries that leave the file and unpacked sizes above kMaxUnpacked.
#pragma once

#include "simgpu/image/image.h"

namespace simgpu {

inline constexpr std::uint32_t kFatbinMagic = 0xba55ed50;
inline constexpr std::uint32_t kFatbinWrapperMagic = 0x466243b1;
inline constexpr std::uint64_t kMaxUnpacked = std::uint64_t{256} << 20;

// What the runtime's registration and `-fatbin` objects hold: two pointers in the program's own memory.
struct FatbinWrapper {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t data;   // version 1: the fatbin; version 2: the linked one
  std::uint64_t extra;  // version 2: a null-terminated array of fatbins, one for each object file
};
static_assert(sizeof(FatbinWrapper) == 24);

std::optional<std::size_t> FatbinBytes(ByteSource& source);

ParseStatus ParseFatbin(Bytes file, const Target& target, Image* out, std::string* log);

}  // namespace simgpu
