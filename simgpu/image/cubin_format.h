// SPDX-License-Identifier: Apache-2.0
//
// The records of a cubin, as its reader and its writer share them: ELF64 structures and the numbers NVIDIA's tools use.
// Layouts were learnt from files; names are those of the public ELF tools.
#pragma once

#include <cstdint>

namespace simgpu::cubin {

struct FileHeader {
  std::uint8_t ident[16];
  std::uint16_t type;
  std::uint16_t machine;
  std::uint32_t version;
  std::uint64_t entry;
  std::uint64_t program_offset;
  std::uint64_t section_offset;
  std::uint32_t flags;
  std::uint16_t header_size;
  std::uint16_t program_entry_size;
  std::uint16_t program_count;
  std::uint16_t section_entry_size;
  std::uint16_t section_count;
  std::uint16_t section_names;
};
static_assert(sizeof(FileHeader) == 64);

struct SectionHeader {
  std::uint32_t name;
  std::uint32_t type;
  std::uint64_t flags;
  std::uint64_t address;
  std::uint64_t offset;
  std::uint64_t size;
  std::uint32_t link;
  std::uint32_t info;
  std::uint64_t alignment;
  std::uint64_t entry_size;
};
static_assert(sizeof(SectionHeader) == 64);

struct Symbol {
  std::uint32_t name;
  std::uint8_t info;
  std::uint8_t other;
  std::uint16_t section;
  std::uint64_t value;
  std::uint64_t size;
};
static_assert(sizeof(Symbol) == 24);

inline constexpr std::uint16_t kMachineCuda = 190;
inline constexpr std::uint16_t kTypeRelocatable = 1;
inline constexpr std::uint16_t kTypeExecutable = 2;
inline constexpr std::uint8_t kOsabiOfToolkit12 = 0x33;
inline constexpr std::uint8_t kAbiOfToolkit12 = 7;  // and earlier
inline constexpr std::uint8_t kOsabiOfToolkit13 = 0x41;
inline constexpr std::uint8_t kAbiOfToolkit13 = 8;

inline constexpr std::uint32_t kProgbits = 1;
inline constexpr std::uint32_t kSymtab = 2;
inline constexpr std::uint32_t kStrtab = 3;
inline constexpr std::uint32_t kNobits = 8;
inline constexpr std::uint32_t kNvInfo = 0x70000000;
inline constexpr std::uint32_t kNvGlobal = 0x70000007;
inline constexpr std::uint32_t kNvGlobalInit = 0x70000008;
inline constexpr std::uint32_t kNvConstantFirst = 0x70000064;
inline constexpr std::uint32_t kNvConstantLast = 0x70000075;
inline constexpr std::uint64_t kAllocated = 2;

inline constexpr std::uint8_t kSymbolObject = 1;
inline constexpr std::uint8_t kSymbolFunction = 2;
inline constexpr std::uint8_t kSymbolNvObject = 13;  // in relocatable cubins
inline constexpr std::uint8_t kOtherEntry = 0x10;
inline constexpr std::uint8_t kOtherManaged = 0x04;

// Records of .nv.info sections.
inline constexpr std::uint8_t kAttrMaxThreads = 0x05;
inline constexpr std::uint8_t kAttrFrameSize = 0x11;
inline constexpr std::uint8_t kAttrKparamInfo = 0x17;
inline constexpr std::uint8_t kAttrCbankParamSize = 0x19;
inline constexpr std::uint8_t kAttrRegcount = 0x2f;
inline constexpr std::uint8_t kAttrClusterDims = 0x3d;
inline constexpr std::uint8_t kAttrKparamInfoV2 = 0x45;  // instead of KPARAM_INFO where parameters exceed 4 KiB
inline constexpr std::uint8_t kFormatHalf = 3;
inline constexpr std::uint8_t kFormatSized = 4;

// From compute capability 8.0 on, linked code carries the driver's own kilobyte in each kernel's shared section.
inline constexpr std::uint64_t kReservedShared = 1024;
inline constexpr int kFirstReservingCapability = 80;

}  // namespace simgpu::cubin
