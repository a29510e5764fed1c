// SPDX-License-Identifier: Apache-2.0

#include "plugin/mig_journal.h"

#include <algorithm>
#include <limits>

#include "base/json.h"
#include "base/strings.h"

namespace hami::plugin {
namespace {

using base::Fail;
using base::Result;
namespace json = base::json;

constexpr std::uint64_t kVersion = 1;
// A machine has a few dozen; a text with more is no journal of ours.
constexpr std::size_t kMostEntries = 4096;

json::object ToObject(const MigEntry& entry) {
  json::object object{{"namespace", entry.owner.ns},  {"pod", entry.owner.name},        {"uid", entry.owner.uid},
                      {"container", entry.container}, {"device", entry.device},         {"gpu", entry.gpu_uuid},
                      {"profile", entry.profile},     {"start", entry.placement.start}, {"size", entry.placement.size}};
  if (entry.Made()) {
    object["mig"] = entry.mig_uuid;
    object["gpuInstance"] = entry.gpu_instance;
    object["computeInstance"] = entry.compute_instance;
  }
  return object;
}

Result<MigEntry> ReadEntry(const json::value& value) {
  const json::object* object = value.if_object();
  if (object == nullptr) return Fail("an entry is not a JSON object");
  MigEntry entry;
  bool whole = true;
  const auto text = [&](const char* key, std::string& out) {
    const auto found = base::GetString(*object, key);
    whole = whole && found;
    out = found.value_or("");
  };
  const auto number = [&](const char* key, int& out) {
    const auto found = base::GetUint(*object, key);
    whole = whole && found && *found <= static_cast<std::uint64_t>(std::numeric_limits<int>::max());
    if (whole) out = static_cast<int>(*found);
  };
  text("namespace", entry.owner.ns);
  text("pod", entry.owner.name);
  text("uid", entry.owner.uid);
  text("gpu", entry.gpu_uuid);
  text("profile", entry.profile);
  number("container", entry.container);
  number("device", entry.device);
  number("start", entry.placement.start);
  number("size", entry.placement.size);
  if (object->contains("mig")) {
    text("mig", entry.mig_uuid);
    number("gpuInstance", entry.gpu_instance);
    number("computeInstance", entry.compute_instance);
    whole = whole && entry.Made();
  }
  whole = whole && !entry.gpu_uuid.empty() && !entry.profile.empty() && entry.placement.size > 0;
  if (!whole) return Fail("an entry is incomplete");
  return entry;
}

bool SameInstance(const MigEntry& a, const MigEntry& b) {
  return a.gpu_uuid == b.gpu_uuid && device::Overlap(a.placement, b.placement);
}

}  // namespace

std::string Describe(const MigEntry& entry) {
  return base::Concat({entry.profile, " at slice ", std::to_string(entry.placement.start), " of ", entry.gpu_uuid});
}

std::string EncodeMigJournal(const MigEntries& entries) {
  json::array array;
  for (const MigEntry& entry : entries) array.emplace_back(ToObject(entry));
  return base::Compact(json::object{{"version", kVersion}, {"instances", std::move(array)}});
}

Result<MigEntries> DecodeMigJournal(std::string_view text) {
  const auto value = base::ParseJson(text);
  if (!value) return tl::unexpected(value.error());
  const json::object* object = value->if_object();
  if (object == nullptr || base::GetUint(*object, "version") != kVersion) {
    return Fail("the journal is not of version 1");
  }
  const json::array* array = base::GetArray(*object, "instances");
  if (array == nullptr) return Fail("the instances are missing");
  if (array->size() > kMostEntries) return Fail("more instances than a machine can have");
  MigEntries entries;
  for (const json::value& item : *array) {
    auto entry = ReadEntry(item);
    if (!entry) return tl::unexpected(entry.error());
    const bool twice =
        std::any_of(entries.begin(), entries.end(), [&](const MigEntry& other) { return SameInstance(other, *entry); });
    if (twice) return Fail("two instances at one place");
    entries.push_back(*std::move(entry));
  }
  return entries;
}

}  // namespace hami::plugin
