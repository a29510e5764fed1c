// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/visible.h"

#include <string.h>
#include <unistd.h>

#include "vgpu/runtime/device_map.h"
#include "vgpu/runtime/mapped_vector.h"
#include "vgpu/runtime/runtime.h"

namespace hami::vgpu {
namespace {

constexpr char kVariable[] = "CUDA_VISIBLE_DEVICES=";
constexpr size_t kVariableLength = sizeof kVariable - 1;
constexpr size_t kNameBytes = 96;

ShownEnvironment& Shown() { return g_runtime.shown; }

struct Entry {
  const char* begin;
  size_t length;
};

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

Entry Trimmed(const char* begin, const char* end) {
  while (begin != end && IsBlank(*begin)) ++begin;
  while (end != begin && IsBlank(end[-1])) --end;
  return {begin, static_cast<size_t>(end - begin)};
}

bool StartsWith(const Entry& entry, const char* prefix) {
  const size_t n = strlen(prefix);
  return entry.length >= n && memcmp(entry.begin, prefix, n) == 0;
}

// The one device of this number; nullptr when there is none.
const char* ByNumber(const Entry& entry, const ShownDevices& shown) {
  uint32_t number = 0;
  for (size_t i = 0; i < entry.length; ++i) {
    const char c = entry.begin[i];
    if (c < '0' || c > '9') return nullptr;
    number = number * 10 + static_cast<uint32_t>(c - '0');
    if (number >= shown.count) return nullptr;
  }
  return entry.length == 0 ? nullptr : shown.name(number);
}

// The one device whose name begins so; nullptr when there is none, or more than one.
const char* ByBeginning(const Entry& entry, const ShownDevices& shown) {
  const char* found = nullptr;
  for (uint32_t i = 0; i < shown.count; ++i) {
    const char* const name = shown.name(i);
    if (strncmp(name, entry.begin, entry.length) != 0) continue;
    if (name[entry.length] == '\0') return name;
    if (found != nullptr) return nullptr;
    found = name;
  }
  return found;
}

// An instance has no short name. `copy` holds the answer where it is not a granted device's own.
const char* ByInstance(const Entry& entry, const ShownDevices& shown, char (&copy)[kNameBytes]) {
  if (entry.length >= sizeof copy) return nullptr;
  memcpy(copy, entry.begin, entry.length);
  copy[entry.length] = '\0';
  for (uint32_t i = 0; i < shown.count; ++i) {
    if (strcmp(shown.name(i), copy) == 0) return copy;
  }
  return shown.has_instance(copy) ? copy : nullptr;
}

const char* NameOfEntry(const Entry& entry, const ShownDevices& shown, char (&copy)[kNameBytes]) {
  if (StartsWith(entry, "MIG-")) return ByInstance(entry, shown, copy);
  if (StartsWith(entry, "GPU-")) return ByBeginning(entry, shown);
  return ByNumber(entry, shown);
}

class List {
 public:
  List(char* out, size_t room) : out_(out), room_(room) { *out_ = '\0'; }
  bool Add(const char* name) {
    const size_t n = strlen(name);
    if (length_ + n + 2 > room_) return false;
    if (length_ != 0) out_[length_++] = ',';
    memcpy(out_ + length_, name, n + 1);
    length_ += n;
    return true;
  }

 private:
  char* out_;
  size_t room_;
  size_t length_ = 0;
};

bool IsVariable(const char* entry) { return strncmp(entry, kVariable, kVariableLength) == 0; }

void Put(char** place, char* entry) { __atomic_store_n(place, entry, __ATOMIC_RELEASE); }

// The environment becomes a copy with room for one entry more. The old array stays as it is, for threads that are
// reading it.
void Append(char* entry) {
  size_t count = 0;
  while (environ != nullptr && environ[count] != nullptr) ++count;
  if (environ == nullptr || environ != Shown().copy || count + 2 > Shown().copy_room) {
    Shown().copy_room = count + 2;
    Shown().copy = static_cast<char**>(MapPages(Shown().copy_room * sizeof(char*)));
    if (Shown().copy == nullptr) return;
    for (size_t i = 0; i < count; ++i) Shown().copy[i] = environ[i];
    __atomic_store_n(&environ, Shown().copy, __ATOMIC_RELEASE);
  }
  Put(Shown().copy + count + 1, nullptr);
  Put(Shown().copy + count, entry);
}

void Show() {
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    if (!IsVariable(*at)) continue;
    Shown().program_entry = *at;
    return Put(at, Shown().text);
  }
  Shown().program_entry = nullptr;
  Append(Shown().text);
}

// The program may have changed its environment meanwhile: what it wrote over ours is its own.
void Hide() {
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    if (*at != Shown().text) continue;
    if (Shown().program_entry != nullptr) return Put(at, Shown().program_entry);
    for (; *at != nullptr; ++at) Put(at, at[1]);
    return;
  }
}

const char* ProgramsList() {
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    if (IsVariable(*at)) return *at + kVariableLength;
  }
  return nullptr;
}

}  // namespace

void WriteVisible(const char* list, const ShownDevices& shown, char* out, size_t room) {
  List names(out, room);
  if (list == nullptr) {
    for (uint32_t i = 0; i < shown.count && names.Add(shown.name(i)); ++i) {
    }
    return;
  }
  for (;;) {
    const char* end = list;
    while (*end != ',' && *end != '\0') ++end;
    char copy[kNameBytes];
    const char* const name = NameOfEntry(Trimmed(list, end), shown, copy);
    if (name == nullptr || !names.Add(name) || *end == '\0') return;
    list = end + 1;
  }
}

VisibleForDriver::VisibleForDriver() : changed_(DevicesAreFixed()) {
  if (!changed_) return;
  const Locked locked(Shown().lock);
  if (Shown().showing++ != 0) return;
  memcpy(Shown().text, kVariable, kVariableLength);
  const ShownDevices shown{FixedDeviceCount(), &FixedDeviceName, &IsPartOfFixedDevice};
  WriteVisible(ProgramsList(), shown, Shown().text + kVariableLength, ShownEnvironment::kTextBytes - kVariableLength);
  Show();
}

VisibleForDriver::~VisibleForDriver() {
  if (!changed_) return;
  const Locked locked(Shown().lock);
  if (--Shown().showing == 0) Hide();
}

void ResetVisible() {
  Shown().lock.Reset();
  if (Shown().showing != 0) Hide();
  Shown().showing = 0;
}

}  // namespace hami::vgpu
