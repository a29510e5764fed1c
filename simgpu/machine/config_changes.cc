// SPDX-License-Identifier: Apache-2.0
//
// Changes of a running machine: faults, XID errors, values that NVML shows, links.
#include "simgpu/machine/config_values.h"
#include "simgpu/machine/machine.h"

namespace simgpu {
namespace {

constexpr std::uint64_t kMillion = 1'000'000;
constexpr std::uint64_t kBillion = 1'000'000'000;
constexpr std::uint64_t kDayMs = 86'400'000;

std::uint32_t U32(std::uint64_t v) { return static_cast<std::uint32_t>(v); }

struct ValueKey {
  const char* name;
  std::uint64_t high;
  std::uint64_t scale;
  Machine::Value value;
};
using V = Machine::Value;
constexpr ValueKey kValues[] = {
    {"temperature_c", 200, 1, V::kTemperature},
    {"power_w", 10'000, 1000, V::kPowerMilliwatt},
    {"power_limit_w", 10'000, 1000, V::kPowerLimitMilliwatt},
    {"fan_percent", 100, 1, V::kFanPercent},
    {"sm_clock_mhz", 10'000, 1, V::kSmClock},
    {"mem_clock_mhz", 100'000, 1, V::kMemClock},
    {"encoder_util", 100, 1, V::kEncoderUtil},
    {"decoder_util", 100, 1, V::kDecoderUtil},
    {"persistence", 1, 1, V::kPersistence},
    {"compute_mode", 3, 1, V::kComputeMode},
    {"ecc_corrected", kBillion, 1, V::kEccCorrected},
    {"ecc_uncorrected", kBillion, 1, V::kEccUncorrected},
    {"remapped_correctable", 100'000, 1, V::kRemappedCorrectable},
    {"remapped_uncorrectable", 100'000, 1, V::kRemappedUncorrectable},
    {"remapped_pending", 1, 1, V::kRemappedPending},
    {"remapped_failure", 1, 1, V::kRemappedFailure},
    {"clock_reasons", 0xffff'ffff, 1, V::kClockReasons},
    {"pcie_gen", 7, 1, V::kPcieGen},
    {"pcie_width", 16, 1, V::kPcieWidth},
    {"pcie_replays", kBillion, 1, V::kPcieReplays},
};

// Error codes by name, for CUDA (first) and NVML (second).
struct ErrorName {
  const char* name;
  int cuda, nvml;
};
constexpr ErrorName kErrors[] = {
    {"invalid_value", 1, 2},       {"out_of_memory", 2, 20},  {"not_initialized", 3, 1}, {"no_device", 100, 6},
    {"not_supported", 801, 3},     {"no_permission", 800, 4}, {"timeout", 702, 10},      {"launch_failed", 719, 999},
    {"illegal_address", 700, 999}, {"lost", 46, 15},          {"unknown", 999, 999},
};

// Whether some function of the driver API or of NVML could be meant; the functions themselves are not known here.
bool CanBeAFunction(std::string_view call) {
  const std::string_view start = call.substr(0, call.find('*'));
  if (start.substr(0, 4) == "cuda") return false;  // the runtime's
  for (const std::string_view prefix : {"cu", "nvml"}) {
    const std::size_t n = start.size() < prefix.size() ? start.size() : prefix.size();
    if (start.substr(0, n) == prefix.substr(0, n) && (n == prefix.size() || n < call.size())) return true;
  }
  return false;
}

bool SetFault(std::string_view key, std::string_view value, Change* change, std::string* why) {
  std::uint64_t v = 0;
  if (key == "call") {
    change->call = value;
    if (value.size() < 64 && CanBeAFunction(value)) return true;
    *why =
        Bad(key, value,
            "write a function of the driver API or of NVML, up to 63 characters, * stands for any text: cuMemAlloc*, "
            "nvmlDeviceGetName");
    return false;
  }
  if (key == "error") {
    for (const ErrorName& row : kErrors) {
      if (value != row.name) continue;
      change->error = change->call.substr(0, 4) == "nvml" ? row.nvml : row.cuda;
      if (change->call.empty()) *why = "put call= before error=: the code of a name depends on the library";
      return !change->call.empty();
    }
    if (ParseUnsigned(value, 0, 1023, &v)) {
      change->error = static_cast<int>(v);
      return true;
    }
    *why = Bad(key, value, Text({"write the number of the error, or one of: ", Names(kErrors)}));
    return false;
  }
  struct Key {
    const char* name;
    std::uint64_t low, high, scale;
    std::uint64_t Change::*member;
  };
  constexpr Key kKeys[] = {{"delay_us", 0, 600 * kMillion, 1000, &Change::delay_ns},
                           {"delay_ms", 0, 600'000, kMillion, &Change::delay_ns},
                           {"nth", 1, kBillion, 1, &Change::nth},
                           {"count", 1, kBillion, 1, &Change::count}};
  for (const Key& row : kKeys) {
    if (key != row.name) continue;
    if (ParseUnsigned(value, row.low, row.high, &v)) {
      change->*row.member = v * row.scale;
      return true;
    }
    *why = Bad(key, value, Range(row.low, row.high));
    return false;
  }
  if (key == "percent") {
    if (ParseUnsigned(value, 0, 100, &v)) {
      change->per_million = U32(v * 10'000);
      return true;
    }
    *why = Bad(key, value, Range(0, 100));
    return false;
  }
  *why = Text({"'", key.empty() ? value : key,
               "' is no key of fault; known: call, error, device, delay_us, delay_ms, nth, count, percent"});
  return false;
}

bool SetXid(std::string_view key, std::string_view value, Change* change, std::string* why) {
  std::uint64_t v = 0;
  const auto number = [&](std::uint64_t low, std::uint64_t high) {
    if (ParseUnsigned(value, low, high, &v)) return true;
    *why = Bad(key, value, Range(low, high));
    return false;
  };
  if (key == "code") {
    if (!number(1, 9999)) return false;
    change->code = v;
  } else if (key == "after_ms") {
    if (!number(0, kDayMs)) return false;
    change->after_ns = v * kMillion;
  } else if (key == "gi") {
    if (!number(0, 255)) return false;
    change->gpu_instance = U32(v);
  } else if (key == "ci") {
    if (!number(0, 255)) return false;
    change->compute_instance = U32(v);
  } else {
    *why = Text({"'", key.empty() ? value : key, "' is no key of xid; known: device, code, after_ms, gi, ci"});
    return false;
  }
  return true;
}

bool SetValueKey(std::string_view key, std::string_view value, Change* change, std::string* why) {
  for (const ValueKey& row : kValues) {
    if (key != row.name) continue;
    std::uint64_t v = 0;
    if (!ParseUnsigned(value, 0, row.high, &v)) {
      *why = Bad(key, value, Range(0, row.high));
      return false;
    }
    if (change->value != kValueUnset) {
      *why = Text({"one value a line; write a second set line for ", key});
      return false;
    }
    change->value = static_cast<std::uint32_t>(row.value);
    change->number = v * row.scale;
    return true;
  }
  *why = Text({"'", key.empty() ? value : key, "' can not be set; known: ", Names(kValues)});
  return false;
}

bool SetLinkKey(std::string_view key, std::string_view value, Change* change, std::string* why) {
  std::uint64_t v = 0;
  if (key == "link") {
    if (ParseUnsigned(value, 0, kMaxNvLinks - 1, &v)) {
      change->value = U32(v);
      return true;
    }
    *why = Bad(key, value, Range(0, kMaxNvLinks - 1));
    return false;
  }
  if (key == "state") {
    if (value == "up" || value == "down") {
      change->number = value == "up" ? 1 : 0;
      return true;
    }
    *why = Bad(key, value, "write up or down");
    return false;
  }
  *why = Text({"'", key.empty() ? value : key, "' is no key of link; known: device, link, state"});
  return false;
}

}  // namespace

bool StartChange(std::string_view verb, Change* change) {
  struct Verb {
    const char* name;
    Change::Kind kind;
  };
  constexpr Verb kVerbs[] = {
      {"fault", Change::Kind::kFault}, {"clear", Change::Kind::kClear},     {"xid", Change::Kind::kXid},
      {"lost", Change::Kind::kLost},   {"recover", Change::Kind::kRecover}, {"set", Change::Kind::kSet},
      {"link", Change::Kind::kLink},
  };
  for (const Verb& row : kVerbs) {
    if (verb != row.name) continue;
    *change = Change();
    change->kind = row.kind;
    if (row.kind == Change::Kind::kSet) change->value = U32(kValueUnset);
    if (row.kind == Change::Kind::kLink) change->value = U32(kValueUnset);
    return true;
  }
  return false;
}

bool SetChangeField(std::string_view key, std::string_view value, Change* change, std::string* why) {
  switch (change->kind) {
    case Change::Kind::kFault:
      return SetFault(key, value, change, why);
    case Change::Kind::kXid:
      return SetXid(key, value, change, why);
    case Change::Kind::kSet:
      return SetValueKey(key, value, change, why);
    case Change::Kind::kLink:
      return SetLinkKey(key, value, change, why);
    default:
      *why = Text({"'", key.empty() ? value : key, "' is not understood here; only device= may follow"});
      return false;
  }
}

bool FinishChange(const Change& change, std::string* why) {
  switch (change.kind) {
    case Change::Kind::kFault:
      if (change.call.empty()) *why = "which calls? add call=, e.g. fault call=cuMemAlloc* error=2";
      if (!change.call.empty() && change.error == 0 && change.delay_ns == 0)
        *why = "what happens? add error= or delay_us=";
      break;
    case Change::Kind::kXid:
      if (change.code == 0) *why = "which XID? add code=, e.g. xid device=0 code=79";
      break;
    case Change::Kind::kSet:
      if (change.value == kValueUnset) *why = "set what? e.g. set device=0 temperature_c=80";
      break;
    case Change::Kind::kLink:
      if (change.value == kValueUnset) *why = "which link? write: link device=0 link=3 state=down";
      break;
    default:
      break;
  }
  return why->empty();
}

}  // namespace simgpu
