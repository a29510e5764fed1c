// SPDX-License-Identifier: Apache-2.0
#include "simgpu/machine/presets.h"

#include <array>
#include <cctype>
#include <cstdio>
#include <cstring>

namespace simgpu {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGB = 1'000'000'000;

// A row of the MIG table: placements are start, start + step, … `places` of them.
struct MigRow {
  const char* name;
  std::uint32_t nvml, id, compute, memory, max, sms, copy, dec, enc, jpeg, ofa;
  std::uint64_t mib;
  std::uint32_t step, places;
};

// NVML_GPU_INSTANCE_PROFILE_* numbers.
enum : std::uint32_t {
  k1Slice = 0,
  k2Slice = 1,
  k3Slice = 2,
  k4Slice = 3,
  k7Slice = 4,
  k1SliceMedia = 7,
  k1SliceBig = 9,
  k1SliceGfx = 10,
  k2SliceGfx = 11,
  k4SliceGfx = 12
};

constexpr MigRow kMigA100_40[] = {
    {"1g.5gb", k1Slice, 19, 1, 1, 7, 14, 1, 0, 0, 0, 0, 4864, 1, 7},
    {"1g.5gb+me", k1SliceMedia, 20, 1, 1, 1, 14, 1, 1, 0, 1, 1, 4864, 1, 7},
    {"1g.10gb", k1SliceBig, 15, 1, 2, 4, 14, 1, 1, 0, 0, 0, 9984, 2, 4},
    {"2g.10gb", k2Slice, 14, 2, 2, 3, 28, 2, 1, 0, 0, 0, 9984, 2, 3},
    {"3g.20gb", k3Slice, 9, 3, 4, 2, 42, 3, 2, 0, 0, 0, 20096, 4, 2},
    {"4g.20gb", k4Slice, 5, 4, 4, 1, 56, 4, 2, 0, 0, 0, 20096, 4, 1},
    {"7g.40gb", k7Slice, 0, 7, 8, 1, 98, 7, 5, 0, 1, 1, 40192, 8, 1},
};
constexpr MigRow kMigA100_80[] = {
    {"1g.10gb", k1Slice, 19, 1, 1, 7, 14, 1, 0, 0, 0, 0, 9728, 1, 7},
    {"1g.10gb+me", k1SliceMedia, 20, 1, 1, 1, 14, 1, 1, 0, 1, 1, 9728, 1, 7},
    {"1g.20gb", k1SliceBig, 15, 1, 2, 4, 14, 1, 1, 0, 0, 0, 19968, 2, 4},
    {"2g.20gb", k2Slice, 14, 2, 2, 3, 28, 2, 1, 0, 0, 0, 19968, 2, 3},
    {"3g.40gb", k3Slice, 9, 3, 4, 2, 42, 3, 2, 0, 0, 0, 40192, 4, 2},
    {"4g.40gb", k4Slice, 5, 4, 4, 1, 56, 4, 2, 0, 0, 0, 40192, 4, 1},
    {"7g.80gb", k7Slice, 0, 7, 8, 1, 98, 7, 5, 0, 1, 1, 80640, 8, 1},
};
constexpr MigRow kMigH100[] = {
    {"1g.10gb", k1Slice, 19, 1, 1, 7, 16, 1, 1, 0, 1, 0, 9984, 1, 7},
    {"1g.10gb+me", k1SliceMedia, 20, 1, 1, 1, 16, 1, 1, 0, 1, 1, 9984, 1, 7},
    {"1g.20gb", k1SliceBig, 15, 1, 2, 4, 26, 1, 1, 0, 1, 0, 20096, 2, 4},
    {"2g.20gb", k2Slice, 14, 2, 2, 3, 32, 2, 2, 0, 2, 0, 20096, 2, 3},
    {"3g.40gb", k3Slice, 9, 3, 4, 2, 60, 3, 3, 0, 3, 0, 40448, 4, 2},
    {"4g.40gb", k4Slice, 5, 4, 4, 1, 64, 4, 4, 0, 4, 0, 40448, 4, 1},
    {"7g.80gb", k7Slice, 0, 7, 8, 1, 132, 8, 7, 0, 7, 1, 80896, 8, 1},
};
constexpr MigRow kMigH200[] = {
    {"1g.18gb", k1Slice, 19, 1, 1, 7, 16, 1, 1, 0, 1, 0, 16384, 1, 7},
    {"1g.18gb+me", k1SliceMedia, 20, 1, 1, 1, 16, 1, 1, 0, 1, 1, 16384, 1, 7},
    {"1g.35gb", k1SliceBig, 15, 1, 2, 4, 26, 1, 1, 0, 1, 0, 33280, 2, 4},
    {"2g.35gb", k2Slice, 14, 2, 2, 3, 32, 2, 2, 0, 2, 0, 33280, 2, 3},
    {"3g.71gb", k3Slice, 9, 3, 4, 2, 60, 3, 3, 0, 3, 0, 71424, 4, 2},
    {"4g.71gb", k4Slice, 5, 4, 4, 1, 64, 4, 4, 0, 4, 0, 71424, 4, 1},
    {"7g.141gb", k7Slice, 0, 7, 8, 1, 132, 8, 7, 0, 7, 1, 142848, 8, 1},
};
constexpr MigRow kMigB200[] = {
    {"1g.23gb", k1Slice, 19, 1, 1, 7, 18, 1, 1, 0, 1, 0, 22016, 1, 7},
    {"1g.23gb+me", k1SliceMedia, 20, 1, 1, 1, 18, 1, 1, 0, 1, 1, 22016, 1, 7},
    {"1g.45gb", k1SliceBig, 15, 1, 2, 4, 30, 1, 1, 0, 1, 0, 44544, 2, 4},
    {"2g.45gb", k2Slice, 14, 2, 2, 3, 36, 2, 2, 0, 2, 0, 44544, 2, 3},
    {"3g.90gb", k3Slice, 9, 3, 4, 2, 70, 3, 3, 0, 3, 0, 91136, 4, 2},
    {"4g.90gb", k4Slice, 5, 4, 4, 1, 72, 4, 4, 0, 4, 0, 91136, 4, 1},
    {"7g.180gb", k7Slice, 0, 7, 8, 1, 148, 8, 7, 0, 7, 1, 182272, 8, 1},
};
constexpr MigRow kMigRtxPro[] = {
    {"1g.24gb", k1Slice, 14, 1, 1, 4, 46, 1, 1, 1, 1, 0, 24192, 1, 4},
    {"1g.24gb+me", k1SliceMedia, 21, 1, 1, 1, 46, 1, 1, 1, 1, 1, 24192, 1, 4},
    {"1g.24gb+gfx", k1SliceGfx, 47, 1, 1, 4, 46, 1, 1, 1, 1, 0, 24192, 1, 4},
    {"2g.48gb", k2Slice, 5, 2, 2, 2, 94, 2, 2, 2, 2, 0, 48512, 2, 2},
    {"2g.48gb+gfx", k2SliceGfx, 35, 2, 2, 2, 94, 2, 2, 2, 2, 0, 48512, 2, 2},
    {"4g.96gb", k4Slice, 0, 4, 4, 1, 188, 4, 4, 4, 4, 1, 97152, 4, 1},
    {"4g.96gb+gfx", k4SliceGfx, 32, 4, 4, 1, 188, 4, 4, 4, 4, 1, 97152, 4, 1},
};

template <std::size_t N>
void SetText(char (&to)[N], std::string_view text) {
  const std::size_t n = text.size() < N - 1 ? text.size() : N - 1;
  std::memcpy(to, text.data(), n);
  std::memset(to + n, 0, N - n);
}

template <std::size_t N>
void SetMig(DeviceSpec* spec, const MigRow (&rows)[N], bool needs_reset) {
  static_assert(N <= kMaxMigProfiles);
  spec->mig_profile_count = N;
  spec->mig_needs_reset = needs_reset ? 1 : 0;
  for (std::size_t i = 0; i < N; ++i) {
    const MigRow& row = rows[i];
    MigProfile& p = spec->mig[i];
    SetText(p.name, row.name);
    p.nvml_profile = row.nvml;
    p.id = row.id;
    p.compute_slices = row.compute;
    p.memory_slices = row.memory;
    p.max_instances = row.max;
    p.sm_count = row.sms;
    p.copy_engines = row.copy;
    p.decoders = row.dec;
    p.encoders = row.enc;
    p.jpegs = row.jpeg;
    p.ofas = row.ofa;
    p.memory_mib = row.mib;
    p.placement_count = row.places;
    for (std::uint32_t k = 0; k < row.places; ++k) p.placement_start[k] = k * row.step;
  }
}

// What all models have in common; the rest is in the table below.
DeviceSpec Base(std::string_view preset, std::string_view name, std::string_view architecture, std::uint32_t cc_major,
                std::uint32_t cc_minor, std::uint64_t shown_mib, std::uint64_t reserved_mib) {
  DeviceSpec s = {};
  SetText(s.preset, preset);
  SetText(s.name, name);
  SetText(s.architecture, architecture);
  s.cc_major = cc_major;
  s.cc_minor = cc_minor;
  s.reserved_bytes = reserved_mib * kMiB;
  s.total_bytes = (shown_mib - reserved_mib) * kMiB;
  s.max_threads_per_block = 1024;
  s.warp_size = 32;
  s.shared_per_block = 48 << 10;
  s.shared_reserved_per_block = 1 << 10;
  s.regs_per_block = s.regs_per_sm = 65536;
  s.copy_engines = 2;
  s.sm_clock_idle_mhz = 345;
  s.pcie_width = 16;
  s.temperature_idle_c = 32;
  s.temperature_busy_c = 66;
  s.temperature_slowdown_c = 92;
  s.temperature_shutdown_c = 95;
  s.ecc = 1;
  s.brand = 14;
  s.numa_node = -1;
  s.profile = *FindProfile("ideal");
  return s;
}

struct Compute {
  std::uint32_t sms, threads, blocks, cores, shared_sm_kib;
  std::uint64_t l2_mib;
};
void SetCompute(DeviceSpec* s, const Compute& c) {
  s->sm_count = c.sms;
  s->max_threads_per_sm = c.threads;
  s->max_blocks_per_sm = c.blocks;
  s->cores_per_sm = c.cores;
  s->shared_per_sm = c.shared_sm_kib << 10;
  s->l2_bytes = c.l2_mib * kMiB;
  // One KiB of each block's share is the system's from Ampere on.
  s->shared_per_block_optin = s->shared_per_sm - (s->cc_major >= 8 ? 1u << 10 : 0u);
  if (s->cc_major < 8) s->shared_reserved_per_block = 0;
}

struct Speed {
  std::uint32_t sm_mhz, mem_mhz, bus_bits;
  std::uint64_t gb_per_s;
  std::uint32_t pcie_gen;
  std::uint64_t pcie_gb_per_s;
};
void SetSpeed(DeviceSpec* s, const Speed& v) {
  s->sm_clock_mhz = v.sm_mhz;
  s->mem_clock_mhz = v.mem_mhz;
  s->memory_bus_bits = v.bus_bits;
  s->memory_bytes_per_s = v.gb_per_s * kGB;
  s->pcie_gen = v.pcie_gen;
  s->pcie_bytes_per_s = v.pcie_gb_per_s * kGB;
}

struct Board {
  std::uint32_t pci_device, pci_subsystem;
  std::uint32_t limit_w, min_w, idle_w;
  std::uint64_t bar1_mib;
};
void SetBoard(DeviceSpec* s, const Board& b) {
  s->pci_device_id = b.pci_device << 16 | 0x10de;
  s->pci_subsystem_id = b.pci_subsystem << 16 | 0x10de;
  s->power_limit_w = b.limit_w;
  s->power_min_w = b.min_w;
  s->power_idle_w = b.idle_w;
  s->bar1_bytes = b.bar1_mib * kMiB;
}

void SetNvLink(DeviceSpec* s, std::uint32_t count, std::uint32_t version, std::uint64_t gb_per_s) {
  s->nvlink_count = count;
  s->nvlink_version = version;
  s->nvlink_bytes_per_s = gb_per_s * kGB;
}

constexpr int kPresetCount = 9;

DeviceSpec MakeT4() {
  DeviceSpec s = Base("T4", "Tesla T4", "turing", 7, 5, 15360, 264);
  SetCompute(&s, {40, 1024, 16, 64, 64, 4});
  SetSpeed(&s, {1590, 5001, 256, 320, 3, 12});
  SetBoard(&s, {0x1eb8, 0x12a2, 70, 60, 10, 256});
  s.sm_clock_idle_mhz = 300;
  s.brand = 2;
  return s;
}
DeviceSpec MakeA10() {
  DeviceSpec s = Base("A10", "NVIDIA A10", "ampere", 8, 6, 23028, 305);
  SetCompute(&s, {72, 1536, 16, 128, 100, 6});
  SetSpeed(&s, {1695, 6251, 384, 600, 4, 24});
  SetBoard(&s, {0x2236, 0x1482, 150, 100, 16, 32768});
  return s;
}
DeviceSpec MakeA100(bool big) {
  DeviceSpec s = big ? Base("A100-80", "NVIDIA A100-SXM4-80GB", "ampere", 8, 0, 81920, 696)
                     : Base("A100-40", "NVIDIA A100-SXM4-40GB", "ampere", 8, 0, 40960, 424);
  SetCompute(&s, {108, 2048, 32, 64, 164, 40});
  SetSpeed(&s, {1410, big ? 1593u : 1215u, 5120, big ? 2039u : 1555u, 4, 24});
  SetBoard(&s, {big ? 0x20b2u : 0x20b0u, big ? 0x1463u : 0x144eu, 400, 100, 52, big ? 131072u : 65536u});
  s.copy_engines = 3;
  SetNvLink(&s, 12, 3, 25);
  if (big) {
    SetMig(&s, kMigA100_80, true);
  } else {
    SetMig(&s, kMigA100_40, true);
  }
  return s;
}
DeviceSpec MakeH100() {
  DeviceSpec s = Base("H100", "NVIDIA H100 80GB HBM3", "hopper", 9, 0, 81559, 561);
  SetCompute(&s, {132, 2048, 32, 128, 228, 50});
  SetSpeed(&s, {1980, 2619, 5120, 3350, 5, 55});
  SetBoard(&s, {0x2330, 0x16c1, 700, 200, 70, 131072});
  s.copy_engines = 3;
  SetNvLink(&s, 18, 4, 25);
  SetMig(&s, kMigH100, false);
  s.profile = *FindProfile("h200");
  return s;
}
DeviceSpec MakeH200() {
  DeviceSpec s = Base("H200", "NVIDIA H200", "hopper", 9, 0, 143771, 604);
  SetCompute(&s, {132, 2048, 32, 128, 228, 50});
  SetSpeed(&s, {1980, 3201, 6144, 4800, 5, 55});
  SetBoard(&s, {0x2335, 0x18be, 700, 200, 75, 262144});
  s.copy_engines = 3;
  SetNvLink(&s, 18, 4, 25);
  SetMig(&s, kMigH200, false);
  s.profile = *FindProfile("h200");
  return s;
}
DeviceSpec MakeB200() {
  DeviceSpec s = Base("B200", "NVIDIA B200", "blackwell", 10, 0, 183359, 726);
  SetCompute(&s, {148, 2048, 32, 128, 228, 126});
  SetSpeed(&s, {1965, 3996, 8192, 8000, 5, 55});
  SetBoard(&s, {0x2901, 0x1999, 1000, 200, 140, 262144});
  s.copy_engines = 3;
  SetNvLink(&s, 18, 5, 50);
  SetMig(&s, kMigB200, false);
  s.profile = *FindProfile("h200");
  return s;
}
DeviceSpec MakeRtx4090() {
  DeviceSpec s = Base("RTX4090", "NVIDIA GeForce RTX 4090", "ada", 8, 9, 24564, 347);
  SetCompute(&s, {128, 1536, 24, 128, 100, 72});
  SetSpeed(&s, {3105, 10501, 384, 1008, 4, 25});
  SetBoard(&s, {0x2684, 0x1657, 450, 150, 18, 32768});
  s.sm_clock_idle_mhz = 210;
  s.fan_count = 2;
  s.ecc = 0;
  s.display = 1;
  s.brand = 5;
  return s;
}
DeviceSpec MakeRtxPro6000() {
  DeviceSpec s = Base("RTXPRO6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "blackwell", 12, 0, 97887, 640);
  SetCompute(&s, {188, 1536, 24, 128, 100, 128});
  SetSpeed(&s, {2430, 12481, 512, 1597, 5, 55});
  SetBoard(&s, {0x2bb5, 0x204e, 600, 300, 32, 131072});
  s.sm_clock_idle_mhz = 180;
  s.brand = 14;
  SetMig(&s, kMigRtxPro, false);
  return s;
}

using Table = std::array<DeviceSpec, kPresetCount>;

const Table& Presets() {
  // Allocated once, never destroyed: calls may come after static destructors.
  static const Table* const table = new Table{MakeT4(),   MakeA10(),  MakeA100(false), MakeA100(true),  MakeH100(),
                                              MakeH200(), MakeB200(), MakeRtx4090(),   MakeRtxPro6000()};
  return *table;
}

std::string Folded(std::string_view name) {
  std::string folded;
  for (const char c : name) {
    if (c != '-' && c != '_' && c != ' ') folded += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return folded;
}

// splitmix64: a stream of well-mixed numbers from any seed.
std::uint64_t Mix(std::uint64_t* state) {
  std::uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

int PresetCount() { return kPresetCount; }
const DeviceSpec& PresetAt(int index) { return Presets()[static_cast<std::size_t>(index)]; }

const DeviceSpec* FindPreset(std::string_view name) {
  const std::string wanted = Folded(name);
  for (const DeviceSpec& spec : Presets()) {
    if (Folded(spec.preset) == wanted) return &spec;
  }
  return nullptr;
}

std::string PresetNames() {
  std::string names;
  for (const DeviceSpec& spec : Presets()) {
    if (!names.empty()) names += ", ";
    names += spec.preset;
  }
  return names;
}

void Identify(std::uint64_t seed, int index, int count, DeviceSpec* spec) {
  std::uint64_t stream = seed * 0x100000001b3u + static_cast<std::uint64_t>(index) + 1;
  for (int half = 0; half < 2; ++half) {
    const std::uint64_t bits = Mix(&stream);
    std::memcpy(spec->uuid + half * 8, &bits, 8);
  }
  spec->uuid[6] = static_cast<std::uint8_t>((spec->uuid[6] & 0x0f) | 0x40);  // version 4, as real ones look
  spec->uuid[8] = static_cast<std::uint8_t>((spec->uuid[8] & 0x3f) | 0x80);
  std::snprintf(spec->serial, sizeof spec->serial, "%013llu",
                static_cast<unsigned long long>(1'650'000'000'000 + Mix(&stream) % 10'000'000'000));
  spec->pci_domain = 0;
  spec->pci_bus = 0x18u + static_cast<std::uint32_t>(index) * 0x0cu;
  spec->pci_device = 0;
  spec->minor = static_cast<std::uint32_t>(index);
  // Two sockets once there is something to spread.
  spec->numa_node = count < 2 ? 0 : index * 2 / count;
  // Boards with NVLink sit on a baseboard with switches; a lone one has nobody to talk to.
  const std::uint32_t switches = spec->nvlink_version == 3 ? 6 : spec->nvlink_version == 4 ? 4 : 2;
  for (std::uint32_t link = 0; link < kMaxNvLinks; ++link) {
    const bool wired = link < spec->nvlink_count && count > 1;
    spec->nvlink[link] = {wired ? LinkPeer::kSwitch : LinkPeer::kNone, wired ? link % switches : 0};
  }
}

}  // namespace simgpu
