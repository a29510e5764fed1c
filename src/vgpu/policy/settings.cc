// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/settings.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <initializer_list>

#include "region/keep_errno.h"
#include "vgpu/policy/log.h"

namespace hami::vgpu {
namespace {

constexpr char kDefaultRegion[] = "/tmp/cudevshr.cache";
constexpr int kLowestPriority = 1'000'000;

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

// The power of 1024 that a unit stands for; -1 = not a unit. Sets `warn` for spellings of more than one letter.
int UnitPower(const char* unit, bool* warn) {
  int power = 0;
  switch (*unit | 0x20) {
    case 'k':
      power = 1;
      break;
    case 'm':
      power = 2;
      break;
    case 'g':
      power = 3;
      break;
    case 't':
      power = 4;
      *warn = true;  // HAMi knows no t
      break;
    case 'b':
      *warn = true;
      return unit[1] == '\0' ? 0 : -1;
    default:
      return -1;
  }
  ++unit;
  if (*unit == '\0') return power;
  *warn = true;
  if (*unit == 'i' || *unit == 'I') ++unit;
  if (*unit == 'b' || *unit == 'B') ++unit;
  return *unit == '\0' ? power : -1;
}

// What was asked for is not what is done: worth a line at any level.
void Ignored(const char* name, const char* text, const char* why) {
  LogLine(Level::kError).Text(name).Text("=").Text(text).Text(": ").Text(why);
}

// The number of `name`, 0 when unset or not understood.
uint64_t SizeOf(const char* name, char* (*get)(const char*)) {
  const char* text = get(name);
  if (text == nullptr) return 0;
  const ParsedSize size = ParseSize(text);
  if (size.invalid) {
    Ignored(name, text, "not a size, ignored");
  } else if (size.warn) {
    LogLine(Level::kWarn)
        .Text(name)
        .Text("=")
        .Text(text)
        .Text(": taken as ")
        .Number(size.bytes)
        .Text(" bytes; HAMi reads this spelling differently");
  }
  return size.bytes;
}

// Whether `name` says yes.
bool SaysYes(const char* name, char* (*get)(const char*)) {
  const char* const text = get(name);
  if (text == nullptr || *text == '\0') return false;
  const bool yes = ParseBool(text, false);
  if (yes != ParseBool(text, true)) Ignored(name, text, "neither yes nor no, ignored");
  return yes;
}

// The percentage of `name`, 0 when unset or not understood. More than 100 is no limit, as HAMi has it.
uint64_t PercentOf(const char* name, char* (*get)(const char*)) {
  const char* const text = get(name);
  if (text == nullptr) return 0;
  const ParsedSize number = ParseSize(text);
  const bool hexadecimal = strncasecmp(text, "0x", 2) == 0;
  const bool has_unit = !hexadecimal && text[strspn(text, " \t+0123456789")] != '\0';
  if (number.invalid || has_unit) {
    Ignored(name, text, "not a percentage, ignored");
    return 0;
  }
  if (number.bytes <= 100) return number.bytes;
  Ignored(name, text, "more than 100 percent, taken as no limit");
  return 100;
}

// A whole number from 0 to `most` and nothing else; -1 for anything else.
int NumberUpTo(int most, const char* text) {
  while (*text == ' ' || *text == '\t') ++text;
  if (*text == '+') ++text;
  if (DigitOf(*text) > 9) return -1;
  int number = 0;
  for (; DigitOf(*text) <= 9; ++text) {
    number = number * 10 + DigitOf(*text);
    if (number > most) return -1;
  }
  while (*text == ' ' || *text == '\t') ++text;
  return *text == '\0' ? number : -1;
}

// Value for device i: the numbered name beats the global one, and 0 falls through to it.
void ReadPerDevice(const char* name, uint64_t (&values)[region::kMaxDevices], char* (*get)(const char*),
                   uint64_t (*value_of)(const char*, char* (*)(const char*))) {
  const uint64_t global = value_of(name, get);
  for (uint32_t i = 0; i < region::kMaxDevices; ++i) {
    char numbered[64];
    size_t n = strlen(name);
    memcpy(numbered, name, n);
    numbered[n++] = '_';
    if (i >= 10) numbered[n++] = '1';
    numbered[n++] = static_cast<char>('0' + i % 10);
    numbered[n] = '\0';
    const uint64_t own = value_of(numbered, get);
    values[i] = own != 0 ? own : global;
  }
}

void ReadPriority(Settings* out, char* (*get)(const char*)) {
  constexpr const char* kName = "CUDA_TASK_PRIORITY";
  const char* const text = get(kName);
  if (text == nullptr || *text == '\0') return;
  const int priority = NumberUpTo(kLowestPriority, text);
  if (priority < 0) return Ignored(kName, text, "not a priority (0 high, 1 low), taken as 1");
  out->priority = priority;
  out->says_priority = true;
}

void ReadPolicy(Settings* out, char* (*get)(const char*)) {
  constexpr const char* kName = "GPU_CORE_UTILIZATION_POLICY";
  const char* const text = get(kName);
  if (text == nullptr || *text == '\0' || strcasecmp(text, "default") == 0) return;
  if (strcasecmp(text, "force") == 0) {
    out->policy = UtilizationPolicy::kForce;
  } else if (strcasecmp(text, "disable") == 0) {
    out->policy = UtilizationPolicy::kDisable;
  } else {
    Ignored(kName, text, "none of default, force and disable, taken as default");
  }
}

void ReadBurst(Settings* out, char* (*get)(const char*)) {
  constexpr const char* kName = "HAMI_CORES_BURST";
  const char* const text = get(kName);
  if (text == nullptr || *text == '\0') return;
  const int percent = NumberUpTo(100, text);
  if (percent < 0) return Ignored(kName, text, "not a percentage from 0 to 100, ignored");
  out->cores_burst = static_cast<uint32_t>(percent);
}

}  // namespace

ParsedSize ParseSize(const char* text) {
  ParsedSize out;
  while (*text == ' ' || *text == '\t') ++text;
  if (*text == '+') ++text;
  int base = 10;
  if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X') && DigitOf(text[2]) < 16) {
    base = 16;
    text += 2;
  } else if (text[0] == '0' && DigitOf(text[1]) < 10) {
    out.warn = true;  // HAMi reads octal; nobody means it
  }
  const char* first = text;
  uint64_t value = 0;
  for (; DigitOf(*text) < base; ++text) {
    if (__builtin_mul_overflow(value, static_cast<uint64_t>(base), &value) ||
        __builtin_add_overflow(value, static_cast<uint64_t>(DigitOf(*text)), &value)) {
      return {0, false, true};
    }
  }
  if (text == first) return {0, false, *text != '\0'};
  while (*text == ' ') ++text;
  const int power = *text == '\0' ? 0 : UnitPower(text, &out.warn);
  if (power < 0) return {0, false, true};
  if (value > (UINT64_MAX >> (10 * power))) return {0, false, true};
  out.bytes = value << (10 * power);
  return out;
}

bool ParseBool(const char* text, bool otherwise) {
  if (text == nullptr) return otherwise;
  for (const char* yes : {"true", "1", "t", "yes", "on"}) {
    if (strcasecmp(text, yes) == 0) return true;
  }
  for (const char* no : {"false", "0", "f", "no", "off"}) {
    if (strcasecmp(text, no) == 0) return false;
  }
  return otherwise;
}

void ReadSettings(Settings* out, char* (*get)(const char*)) {
  ReadPerDevice("CUDA_DEVICE_MEMORY_LIMIT", out->memory_limit, get, &SizeOf);
  ReadPerDevice("CUDA_DEVICE_SM_LIMIT", out->sm_limit, get, &PercentOf);
  for (uint64_t& limit : out->sm_limit) limit = limit == 0 ? 100 : limit;
  ReadPriority(out, get);
  ReadPolicy(out, get);
  out->oversubscribe = SaysYes("CUDA_OVERSUBSCRIBE", get);
  out->kill_on_refusal = SaysYes("ACTIVE_OOM_KILLER", get);
  out->fail_open = SaysYes("HAMI_FAIL_OPEN", get);
  ReadBurst(out, get);
  if (const char* common = get("HAMI_COMMON_AREA"); common != nullptr) {
    if (const size_t n = strlen(common); n < sizeof out->common_path) memcpy(out->common_path, common, n);
  }
  const char* path = get("CUDA_DEVICE_MEMORY_SHARED_CACHE");
  if (path == nullptr || *path == '\0') path = kDefaultRegion;
  const size_t length = strlen(path);
  if (length < sizeof out->region_path) memcpy(out->region_path, path, length);  // too long: stays empty, refused later
}

bool ControlDisabled(char* (*get)(const char*), const char* sign) {
  if (!SaysYes("CUDA_DISABLE_CONTROL", get)) return false;
  const region::KeepErrno keep;
  return access(sign, F_OK) != 0;
}

bool ControlDisabled() {
  static constinit int state = -1;  // racing readers find the same
  int disabled = __atomic_load_n(&state, __ATOMIC_RELAXED);
  if (disabled < 0) {
    disabled = ControlDisabled(&getenv, region::kControlSign) ? 1 : 0;
    __atomic_store_n(&state, disabled, __ATOMIC_RELAXED);
  }
  return disabled != 0;
}

}  // namespace hami::vgpu
