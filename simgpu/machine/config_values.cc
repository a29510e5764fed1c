// SPDX-License-Identifier: Apache-2.0
#include "simgpu/machine/config_values.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

namespace simgpu {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kMillion = 1'000'000;
constexpr std::uint64_t kBillion = 1'000'000'000;

// A key whose value is a whole number, scaled on its way into a member.
template <typename T>
struct NumberKey {
  const char* name;
  std::uint64_t low, high, scale;
  void (*store)(T*, std::uint64_t);
};

constexpr NumberKey<Options> kOptions[] = {
    {"seed", 0, std::numeric_limits<std::uint32_t>::max(), 1, [](Options* o, std::uint64_t v) { o->seed = v; }},
    {"kernel_ns", 0, 100 * kBillion, 1, [](Options* o, std::uint64_t v) { o->kernel_ns = v; }},
    {"nvml_lag_ms", 0, 60'000, kMillion, [](Options* o, std::uint64_t v) { o->nvml_lag_ns = v; }},
    {"nvml_period_ms", 1, 10'000, kMillion, [](Options* o, std::uint64_t v) { o->nvml_period_ns = v; }},
    {"virtual_step_ns", 0, kBillion, 1, [](Options* o, std::uint64_t v) { o->virtual_step_ns = v; }},
    {"strict_capture", 0, 1, 1, [](Options* o, std::uint64_t v) { o->strict_capture = static_cast<std::uint32_t>(v); }},
    {"pid_offset", 0, 1'000'000'000, 1,
     [](Options* o, std::uint64_t v) { o->pid_offset = static_cast<std::int32_t>(v); }},
    {"driver_version", 11000, 99990, 1,
     [](Options* o, std::uint64_t v) { o->cuda_version = static_cast<std::uint32_t>(v); }},
};

std::uint32_t U32(std::uint64_t v) { return static_cast<std::uint32_t>(v); }

constexpr NumberKey<Profile> kProfileNumbers[] = {
    {"quantum_us", 1, 10 * kMillion, 1000, [](Profile* p, std::uint64_t v) { p->turn_ns = v; }},
    {"switch_us", 0, kMillion, 1000, [](Profile* p, std::uint64_t v) { p->switch_ns = v; }},
    {"idle_switch_us", 0, kMillion, 1000, [](Profile* p, std::uint64_t v) { p->idle_switch_ns = v; }},
    {"resume_us", 0, kMillion, 1000, [](Profile* p, std::uint64_t v) { p->resume_ns = v; }},
    {"turn_jitter_permille", 0, 900, 1, [](Profile* p, std::uint64_t v) { p->turn_jitter_permille = U32(v); }},
    {"kernel_jitter_permille", 0, 900, 1, [](Profile* p, std::uint64_t v) { p->kernel_jitter_permille = U32(v); }},
    {"boost_percent", 0, 100, 1, [](Profile* p, std::uint64_t v) { p->boost_percent = U32(v); }},
    {"host_percent", 0, 1000, 1, [](Profile* p, std::uint64_t v) { p->host_percent = U32(v); }},
    {"nvml_percent", 0, 100'000, 1, [](Profile* p, std::uint64_t v) { p->nvml_percent = U32(v); }},
    {"launch_ns", 0, kBillion, 1, [](Profile* p, std::uint64_t v) { p->launch_ns = v; }},
    {"gap_ns", 0, kMillion, 1, [](Profile* p, std::uint64_t v) { p->gap_ns = v; }},
    {"graph_gap_ns", 0, kMillion, 1, [](Profile* p, std::uint64_t v) { p->graph_gap_ns = v; }},
    {"event_ns", 0, kMillion, 1, [](Profile* p, std::uint64_t v) { p->event_ns = v; }},
    {"context_mib", 0, 1 << 20, kMiB, [](Profile* p, std::uint64_t v) { p->context_bytes = v; }},
    {"stream_kib", 0, 1 << 20, 1024, [](Profile* p, std::uint64_t v) { p->stream_bytes = v; }},
    {"device_heap_mib", 0, 1 << 20, kMiB, [](Profile* p, std::uint64_t v) { p->device_heap_bytes = v; }},
    {"graph_node_kib", 0, 1 << 20, 1024, [](Profile* p, std::uint64_t v) { p->graph_node_bytes = v; }},
    {"pool_step_mib", 2, 512, kMiB, [](Profile* p, std::uint64_t v) { p->pool_step_bytes = v; }},
    {"blocks", 0, 1, 1, [](Profile* p, std::uint64_t v) { p->blocks = U32(v); }},
};

constexpr NumberKey<DeviceSpec> kDeviceNumbers[] = {
    {"memory_mib", 1, 1 << 24, kMiB, [](DeviceSpec* s, std::uint64_t v) { s->total_bytes = v; }},
    {"reserved_mib", 0, 1 << 20, kMiB, [](DeviceSpec* s, std::uint64_t v) { s->reserved_bytes = v; }},
    {"bar1_mib", 1, 1 << 24, kMiB, [](DeviceSpec* s, std::uint64_t v) { s->bar1_bytes = v; }},
    {"sms", 1, 1024, 1, [](DeviceSpec* s, std::uint64_t v) { s->sm_count = U32(v); }},
    {"threads_per_sm", 32, 4096, 1, [](DeviceSpec* s, std::uint64_t v) { s->max_threads_per_sm = U32(v); }},
    {"blocks_per_sm", 1, 64, 1, [](DeviceSpec* s, std::uint64_t v) { s->max_blocks_per_sm = U32(v); }},
    {"copy_engines", 1, 10, 1, [](DeviceSpec* s, std::uint64_t v) { s->copy_engines = U32(v); }},
    {"sm_clock_mhz", 1, 10'000, 1, [](DeviceSpec* s, std::uint64_t v) { s->sm_clock_mhz = U32(v); }},
    {"mem_clock_mhz", 1, 100'000, 1, [](DeviceSpec* s, std::uint64_t v) { s->mem_clock_mhz = U32(v); }},
    {"memory_gbs", 1, 100'000, kBillion, [](DeviceSpec* s, std::uint64_t v) { s->memory_bytes_per_s = v; }},
    {"pcie_gbs", 1, 10'000, kBillion, [](DeviceSpec* s, std::uint64_t v) { s->pcie_bytes_per_s = v; }},
    {"nvlink_gbs", 1, 10'000, kBillion, [](DeviceSpec* s, std::uint64_t v) { s->nvlink_bytes_per_s = v; }},
    {"pcie_gen", 1, 7, 1, [](DeviceSpec* s, std::uint64_t v) { s->pcie_gen = U32(v); }},
    {"pcie_width", 1, 16, 1, [](DeviceSpec* s, std::uint64_t v) { s->pcie_width = U32(v); }},
    {"power_limit_w", 1, 10'000, 1, [](DeviceSpec* s, std::uint64_t v) { s->power_limit_w = U32(v); }},
    {"power_idle_w", 0, 10'000, 1, [](DeviceSpec* s, std::uint64_t v) { s->power_idle_w = U32(v); }},
    {"temperature_idle_c", 0, 200, 1, [](DeviceSpec* s, std::uint64_t v) { s->temperature_idle_c = U32(v); }},
    {"temperature_busy_c", 0, 200, 1, [](DeviceSpec* s, std::uint64_t v) { s->temperature_busy_c = U32(v); }},
    {"fans", 0, 8, 1, [](DeviceSpec* s, std::uint64_t v) { s->fan_count = U32(v); }},
    {"ecc", 0, 1, 1, [](DeviceSpec* s, std::uint64_t v) { s->ecc = U32(v); }},
    {"minor", 0, 255, 1, [](DeviceSpec* s, std::uint64_t v) { s->minor = U32(v); }},
    {"numa", 0, 255, 1, [](DeviceSpec* s, std::uint64_t v) { s->numa_node = static_cast<std::int32_t>(v); }},
    {"nvlinks", 0, kMaxNvLinks, 1,
     [](DeviceSpec* s, std::uint64_t v) {
       s->nvlink_count = U32(v);
       for (std::uint64_t i = v; i < kMaxNvLinks; ++i) s->nvlink[i] = {LinkPeer::kNone, 0};
     }},
};

template <std::size_t N>
bool StoreText(std::string_view key, std::string_view value, char (&to)[N], std::string* why) {
  if (value.empty() || value.size() >= N) {
    *why = Bad(key, value, Text({"write a text of 1 to ", std::to_string(N - 1), " characters"}));
    return false;
  }
  std::memset(to, 0, N);
  std::memcpy(to, value.data(), value.size());
  return true;
}

// Whether the key is in the table; then *ok tells whether its value was good.
template <typename T, std::size_t N>
bool StoreNumber(const NumberKey<T> (&table)[N], std::string_view key, std::string_view value, T* to, bool* ok,
                 std::string* why) {
  for (const NumberKey<T>& row : table) {
    if (key != row.name) continue;
    std::uint64_t v = 0;
    *ok = ParseUnsigned(value, row.low, row.high, &v);
    if (*ok) {
      row.store(to, v * row.scale);
    } else {
      *why = Bad(key, value, Range(row.low, row.high));
    }
    return true;
  }
  return false;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool StoreUuid(std::string_view value, std::uint8_t (&uuid)[16]) {
  if (value.substr(0, 4) == "GPU-") value.remove_prefix(4);
  std::uint8_t bytes[16] = {};
  std::size_t digits = 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value[i] == '-' && (i == 8 || i == 13 || i == 18 || i == 23)) continue;
    const int digit = HexDigit(value[i]);
    if (digit < 0 || digits == 32) return false;
    bytes[digits / 2] = static_cast<std::uint8_t>(bytes[digits / 2] << 4 | digit);
    ++digits;
  }
  if (digits != 32 || value.size() != 36) return false;
  std::memcpy(uuid, bytes, sizeof uuid);
  return true;
}

// "0000:3b:00.0" or "3b:00.0"
bool StorePci(std::string_view value, DeviceSpec* spec) {
  std::uint64_t domain = 0, bus = 0, device = 0;
  const auto hex = [](std::string_view text, std::uint64_t high, std::uint64_t* out) {
    return !text.empty() && text.size() <= 8 && ParseUnsigned(Text({"0x", text}), 0, high, out);
  };
  const std::size_t colons = value.rfind(':');
  if (colons == std::string_view::npos) return false;
  std::string_view front = value.substr(0, colons), back = value.substr(colons + 1);
  const std::size_t colon = front.find(':');
  if (colon != std::string_view::npos) {
    if (!hex(front.substr(0, colon), 0xffff'ffff, &domain)) return false;
    front.remove_prefix(colon + 1);
  }
  if (back.size() < 2 || back.substr(back.size() - 2) != ".0") return false;
  back.remove_suffix(2);
  if (!hex(front, 0xff, &bus) || !hex(back, 0x1f, &device)) return false;
  spec->pci_domain = U32(domain);
  spec->pci_bus = U32(bus);
  spec->pci_device = U32(device);
  return true;
}

bool StoreCapability(std::string_view value, DeviceSpec* spec) {
  const std::size_t dot = value.find('.');
  std::uint64_t major = 0, minor = 0;
  if (dot == std::string_view::npos || !ParseUnsigned(value.substr(0, dot), 3, 20, &major) ||
      !ParseUnsigned(value.substr(dot + 1), 0, 9, &minor)) {
    return false;
  }
  spec->cc_major = U32(major);
  spec->cc_minor = U32(minor);
  return true;
}

}  // namespace

bool ParseUnsigned(std::string_view text, std::uint64_t low, std::uint64_t high, std::uint64_t* out) {
  std::uint64_t base = 10;
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
    base = 16;
    text.remove_prefix(2);
  }
  if (text.empty() || text.size() > 20) return false;
  std::uint64_t value = 0;
  for (const char c : text) {
    const int digit = HexDigit(c);
    if (digit < 0 || static_cast<std::uint64_t>(digit) >= base) return false;
    if (__builtin_mul_overflow(value, base, &value)) return false;
    if (__builtin_add_overflow(value, static_cast<std::uint64_t>(digit), &value)) return false;
  }
  if (value < low || value > high) return false;
  *out = value;
  return true;
}

bool SetOption(std::string_view key, std::string_view value, Options* options, std::string* why) {
  bool ok = false;
  if (StoreNumber(kOptions, key, value, options, &ok, why)) return ok;
  if (key == "clock") {
    if (value != "real" && value != "virtual") {
      *why = Bad(key, value, "write real or virtual");
      return false;
    }
    options->virtual_clock = value == "virtual" ? 1 : 0;
    return true;
  }
  if (key == "driver_text") return StoreText(key, value, options->driver_version, why);
  *why = Text({"'", key.empty() ? value : key, "' is no option; known: clock, driver_text, profile, ", Names(kOptions),
               ", ", Names(kProfileNumbers)});
  return false;
}

bool IsProfileKey(std::string_view key) {
  return key == "profile" || std::any_of(std::begin(kProfileNumbers), std::end(kProfileNumbers),
                                         [key](const NumberKey<Profile>& row) { return key == row.name; });
}

bool SetProfileField(std::string_view key, std::string_view value, Profile* profile, std::string* why) {
  bool ok = false;
  if (StoreNumber(kProfileNumbers, key, value, profile, &ok, why)) return ok;
  const Profile* const named = FindProfile(value);
  if (named == nullptr) {
    *why = Bad(key, value, Text({"write one of: ", ProfileNames()}));
    return false;
  }
  *profile = *named;
  return true;
}

bool SetDeviceField(std::string_view key, std::string_view value, DeviceSpec* spec, std::string* why) {
  bool ok = false;
  if (StoreNumber(kDeviceNumbers, key, value, spec, &ok, why)) return ok;
  if (IsProfileKey(key)) return SetProfileField(key, value, &spec->profile, why);
  if (key == "name") return StoreText(key, value, spec->name, why);
  if (key == "serial") return StoreText(key, value, spec->serial, why);
  if (key == "uuid") {
    ok = StoreUuid(value, spec->uuid);
    if (!ok) *why = Bad(key, value, "write GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx with hexadecimal digits");
    return ok;
  }
  if (key == "pci") {
    ok = StorePci(value, spec);
    if (!ok) *why = Bad(key, value, "write domain:bus:device.0 in hexadecimal, e.g. 0000:3b:00.0");
    return ok;
  }
  if (key == "cc") {
    ok = StoreCapability(value, spec);
    if (!ok) *why = Bad(key, value, "write a compute capability, e.g. 9.0");
    return ok;
  }
  *why =
      Text({"'", key.empty() ? value : key, "' is no field of a device; known: name, serial, uuid, pci, cc, profile, ",
            Names(kDeviceNumbers), ", ", Names(kProfileNumbers)});
  return false;
}

}  // namespace simgpu
