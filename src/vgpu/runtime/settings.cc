// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/settings.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <initializer_list>

#include "region/keep_errno.h"
#include "vgpu/runtime/amounts.h"
#include "vgpu/runtime/log.h"

namespace hami::vgpu {
namespace {

constexpr char kDefaultRegion[] = "/tmp/cudevshr.cache";
constexpr int kLowestPriority = 1'000'000;
constexpr size_t kMostShown = 60;  // of a value that means nothing
constexpr size_t kWholeUuid = 40;  // "GPU-" and 36 characters

// What was asked for is not what is done: worth a line at any level.
void Ignored(const char* name, const char* text, const char* why) {
  LogLine(Level::kError).Text(name).Text("=").Text(text).Text(": ").Text(why);
}

// A limit that was meant and cannot be read.
void Unread(const char* name, const char* text, const char* remedy) {
  LogLine(Level::kError)
      .Text(name)
      .Text("=")
      .Cut(text, kMostShown)
      .Text(": ")
      .Text(remedy)
      .Text("; correct or unset it: until then nothing is granted where no other limit holds");
}

struct Limit {
  uint64_t value = 0;   // 0 = unset, or none
  bool unread = false;  // set, and not understood
};

Limit SizeOf(const char* name, char* (*get)(const char*)) {
  const char* text = get(name);
  if (text == nullptr) return {};
  const ParsedSize size = ParseSize(text);
  if (size.invalid) {
    Unread(name, text, "not a size, as 512m, 3g and 1.5g are");
  } else if (size.warn) {
    LogLine(Level::kWarn)
        .Text(name)
        .Text("=")
        .Text(text)
        .Text(": taken as ")
        .Number(size.bytes)
        .Text(" bytes; HAMi reads this spelling differently");
  }
  return {size.bytes, size.invalid};
}

// Whether `name` says yes; `says` gets the bit when it says anything.
bool SaysYes(const char* name, char* (*get)(const char*), uint32_t* says = nullptr, Says bit = {}) {
  const char* const text = get(name);
  if (text == nullptr || *text == '\0') return false;
  if (says != nullptr) *says |= bit;
  const bool yes = ParseBool(text, false);
  if (yes != ParseBool(text, true)) Ignored(name, text, "neither yes nor no, ignored");
  return yes;
}

// A percentage. More than 100 is no limit, as HAMi has it.
Limit PercentOf(const char* name, char* (*get)(const char*)) {
  const char* const text = get(name);
  if (text == nullptr) return {};
  const ParsedPercent percent = ParsePercent(text);
  if (percent.invalid) {
    Unread(name, text, "not a percentage, as 30 and 30% are");
    return {0, true};
  }
  if (percent.value <= 100) return {percent.value, false};
  Ignored(name, text, "more than 100 percent, taken as no limit");
  return {100, false};
}

// NAME_<i>
struct Numbered {
  char text[64];
  Numbered(const char* name, uint32_t i) {
    size_t n = strlen(name);
    memcpy(text, name, n);
    text[n++] = '_';
    if (i >= 10) text[n++] = '1';
    text[n++] = static_cast<char>('0' + i % 10);
    text[n] = '\0';
  }
};

// Value for device i: the numbered name beats the global one, and 0 falls through to it.
void ReadPerDevice(const char* name, uint64_t (&values)[region::kMaxDevices], uint32_t* unread,
                   char* (*get)(const char*), Limit (*read)(const char*, char* (*)(const char*))) {
  const Limit global = read(name, get);
  for (uint32_t i = 0; i < region::kMaxDevices; ++i) {
    const Limit own = read(Numbered(name, i).text, get);
    const Limit& said = own.value != 0 || own.unread ? own : global;
    values[i] = said.value;
    if (said.unread) *unread |= uint32_t{1} << i;
  }
}

const char* EndOfEntry(const char* entry) {
  while (*entry != ',' && *entry != '\0') ++entry;
  return entry;
}

// "UUID=3072m:30,UUID=…": of each device its name, its memory and its percentage. False: not that.
bool ReadName(Settings* out, const char* entry, const char* end) {
  if (out->device_count == region::kMaxDevices) return false;
  char text[256];
  const auto length = static_cast<size_t>(end - entry);
  if (length >= sizeof text) return false;
  memcpy(text, entry, length);
  text[length] = '\0';
  char* const memory = strchr(text, '=');
  char* const cores = memory == nullptr ? nullptr : strchr(memory, ':');
  if (cores == nullptr || memory == text || static_cast<size_t>(memory - text) >= region::kUuidBytes) return false;
  *memory = *cores = '\0';
  const ParsedSize size = ParseSize(memory + 1);
  const ParsedPercent percent = ParsePercent(cores + 1);
  if (size.invalid || percent.invalid) return false;
  const uint32_t i = out->device_count++;
  memcpy(out->uuids[i], text, static_cast<size_t>(memory - text) + 1);
  out->memory_limit[i] = LowerLimit(out->memory_limit[i], size.bytes);
  out->sm_limit[i] = LowerLimit(out->sm_limit[i], percent.value < 100 ? percent.value : 0);
  return true;
}

void ReadNames(Settings* out, char* (*get)(const char*)) {
  constexpr const char* kName = "HAMI_DEVICE_LIMITS";
  const char* const text = get(kName);
  if (text == nullptr || *text == '\0') return;
  const char* entry = text;
  for (;;) {
    const char* const end = EndOfEntry(entry);
    if (!ReadName(out, entry, end)) break;
    if (*end == '\0') return;
    entry = end + 1;
  }
  Unread(kName, text, "not a list of UUID=3072m:30");
  out->device_count = 0;
  out->unread_memory_limits = ~uint32_t{0};
}

// Where the limits go by number and NVML lists more devices than were granted, as in a privileged container, NVIDIA's
// variable tells which were. It does not tell their order, so they are taken from there where that makes no difference.
void ReadNamesOfRuntime(Settings* out, char* (*get)(const char*)) {
  uint32_t limits = 0;
  while (limits < region::kMaxDevices && get(Numbered("CUDA_DEVICE_MEMORY_LIMIT", limits).text) != nullptr) ++limits;
  const char* entry = get("NVIDIA_VISIBLE_DEVICES");
  if (out->device_count != 0 || limits == 0 || entry == nullptr) return;
  for (uint32_t i = 1; i < limits; ++i) {
    if (out->memory_limit[i] != out->memory_limit[0] || out->sm_limit[i] != out->sm_limit[0]) return;
  }
  uint32_t names = 0;
  for (;; ++names) {
    const char* const end = EndOfEntry(entry);
    const auto length = static_cast<size_t>(end - entry);
    const bool whole = length == kWholeUuid && (strncmp(entry, "GPU-", 4) == 0 || strncmp(entry, "MIG-", 4) == 0);
    if (!whole || names == limits) return;
    memcpy(out->uuids[names], entry, length);
    out->uuids[names][length] = '\0';
    if (*end == '\0') break;
    entry = end + 1;
  }
  if (names + 1 == limits) out->device_count = limits;
}

void ReadPriority(Settings* out, char* (*get)(const char*)) {
  constexpr const char* kName = "CUDA_TASK_PRIORITY";
  const char* const text = get(kName);
  out->priority = 1;
  if (text == nullptr || *text == '\0') return;
  const int priority = NumberUpTo(kLowestPriority, text);
  if (priority < 0) return Ignored(kName, text, "not a priority (0 high, 1 low), taken as 1");
  out->priority = priority;
  out->says_priority = true;
}

void ReadPolicy(Settings* out, char* (*get)(const char*)) {
  constexpr const char* kName = "GPU_CORE_UTILIZATION_POLICY";
  const char* const text = get(kName);
  if (text == nullptr || *text == '\0') return;
  out->says |= kSaysPolicy;
  if (strcasecmp(text, "default") == 0) return;
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
  out->says |= kSaysBurst;
}

// A path that is too long stays empty, and is refused later.
void ReadPath(char (&out)[1024], uint32_t* says, Says bit, const char* path, const char* otherwise) {
  const bool said = path != nullptr && *path != '\0';
  if (said) *says |= bit;
  if (!said) path = otherwise;
  if (const size_t n = strlen(path); n < sizeof out) memcpy(out, path, n + 1);
}

}  // namespace

void ReadSettings(Settings* out, char* (*get)(const char*)) {
  ReadPerDevice("CUDA_DEVICE_MEMORY_LIMIT", out->memory_limit, &out->unread_memory_limits, get, &SizeOf);
  ReadPerDevice("CUDA_DEVICE_SM_LIMIT", out->sm_limit, &out->unread_sm_limits, get, &PercentOf);
  ReadNames(out, get);
  ReadNamesOfRuntime(out, get);
  for (uint64_t& limit : out->sm_limit) limit = limit == 0 ? 100 : limit;
  ReadPriority(out, get);
  ReadPolicy(out, get);
  out->oversubscribe = SaysYes("CUDA_OVERSUBSCRIBE", get, &out->says, kSaysOversubscribe);
  out->kill_on_refusal = SaysYes("ACTIVE_OOM_KILLER", get);
  out->fail_open = SaysYes("HAMI_FAIL_OPEN", get, &out->says, kSaysFailOpen);
  ReadBurst(out, get);
  ReadPath(out->common_path, &out->says, kSaysCommon, get("HAMI_COMMON_AREA"), "");
  ReadPath(out->region_path, &out->says, kSaysRegion, get("CUDA_DEVICE_MEMORY_SHARED_CACHE"), kDefaultRegion);
}

void KeepToShare(Settings* environment, const Settings& share) {
  Settings& e = *environment;
  for (uint32_t i = 0; i < region::kMaxDevices; ++i) {
    const uint32_t bit = uint32_t{1} << i;
    if (share.memory_limit[i] != 0) e.unread_memory_limits &= ~bit;
    if (share.sm_limit[i] < 100) e.unread_sm_limits &= ~bit;
    if (e.memory_limit[i] != 0 && e.memory_limit[i] < share.memory_limit[i]) e.own_memory_limit[i] = e.memory_limit[i];
    if (share.memory_limit[i] != 0) e.memory_limit[i] = share.memory_limit[i];
    if (e.sm_limit[i] < share.sm_limit[i]) e.own_sm_limit[i] = e.sm_limit[i];
    e.sm_limit[i] = share.sm_limit[i];
  }
  e.unread_memory_limits |= share.unread_memory_limits;
  e.unread_sm_limits |= share.unread_sm_limits;
  if (share.device_count != 0) {
    e.device_count = share.device_count;
    memcpy(e.uuids, share.uuids, sizeof e.uuids);
  }
  if ((share.says & kSaysRegion) != 0) {
    if ((e.says & kSaysRegion) != 0 && strcmp(e.region_path, share.region_path) != 0) {
      Ignored("CUDA_DEVICE_MEMORY_SHARED_CACHE", e.region_path, "not this share's, ignored");
    }
    memcpy(e.region_path, share.region_path, sizeof e.region_path);
  }
  if ((share.says & kSaysCommon) != 0) memcpy(e.common_path, share.common_path, sizeof e.common_path);
  // A higher number is a lower priority. That the share has one is not the program's saying it aloud.
  if (share.says_priority && e.priority < share.priority) e.priority = share.priority;
  if ((share.says & kSaysPolicy) != 0) e.policy = share.policy;
  if ((share.says & kSaysOversubscribe) != 0) e.oversubscribe = share.oversubscribe;
  if ((share.says & kSaysFailOpen) != 0) e.fail_open = share.fail_open;
  if ((share.says & kSaysBurst) != 0 && ((e.says & kSaysBurst) == 0 || e.cores_burst > share.cores_burst)) {
    e.cores_burst = share.cores_burst;
  }
  e.says |= share.says;
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
