// SPDX-License-Identifier: Apache-2.0
//
// Cubins: ELF64 files of machine 190, in the two generations that toolkits up to 12 and from 13 on write. Only what
// describes kernels and globals is read (symbols, section sizes, .nv.info records, initial bytes), never code.
// Refuses other ELF files and tables that leave the file.
#pragma once

#include "simgpu/image/image.h"

namespace simgpu {

inline constexpr std::uint32_t kElfMagic = 0x464c457f;

// How far the tables and the sections that are read reach. Empty: not a 64-bit ELF file.
std::optional<std::size_t> CubinBytes(ByteSource& source);

ParseStatus ParseCubin(Bytes file, Image* out);

// Whether a device of capability `device` runs code built for `built_for`: same major, and not a newer minor.
constexpr bool CubinRunsOn(int built_for, int device) {
  return device == 0 || (built_for / 10 == device / 10 && built_for <= device);
}

}  // namespace simgpu
