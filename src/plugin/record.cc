// SPDX-License-Identifier: Apache-2.0

#include "plugin/record.h"

#include <algorithm>
#include <limits>

#include "base/json.h"
#include "base/strings.h"
#include "device/allocation_codec.h"

namespace hami::plugin {
namespace {

using base::Fail;
using base::Result;
namespace json = base::json;

constexpr std::uint64_t kVersion = 1;

json::array ToArray(const std::vector<std::string>& texts) {
  json::array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}

json::object ToObject(const Record& record) {
  json::object object{{"namespace", record.owner.ns},
                      {"pod", record.owner.name},
                      {"uid", record.owner.uid},
                      {"container", record.container},
                      {"containerName", record.container_name},
                      {"grant", device::EncodeGrant({record.grant})},
                      {"owed", record.owed},
                      {"assumed", record.assumed},
                      {"alike", record.alike},
                      {"slots", ToArray(record.slots)},
                      {"folder", record.folder},
                      {"cache", record.cache},
                      {"library", record.library},
                      {"preload", record.preload},
                      {"shareFile", record.share_file},
                      {"givenAt", record.given_at}};
  if (!record.mig.empty()) object["mig"] = device::EncodeReservations(record.mig);
  return object;
}

// A name that is joined to a path of ours.
bool StaysInside(std::string_view path) {
  if (path.empty()) return true;
  const std::vector<std::string> parts = base::Split(path, '/');
  return std::none_of(parts.begin(), parts.end(), [](const auto& part) { return part.empty() || part[0] == '.'; });
}

Result<Record> ReadRecord(const json::value& value) {
  const json::object* object = value.if_object();
  if (object == nullptr) return Fail("a record is not a JSON object");
  Record record;
  bool whole = true;
  const auto text = [&](const char* key, std::string& out) {
    const auto found = base::GetString(*object, key);
    whole = whole && found;
    out = found.value_or("");
  };
  const auto flag = [&](const char* key, bool& out) {
    const auto found = base::GetBool(*object, key);
    whole = whole && found;
    out = found.value_or(false);
  };
  std::string grant;
  text("namespace", record.owner.ns);
  text("pod", record.owner.name);
  text("uid", record.owner.uid);
  text("containerName", record.container_name);
  text("grant", grant);
  text("folder", record.folder);
  text("cache", record.cache);
  text("library", record.library);
  flag("owed", record.owed);
  flag("assumed", record.assumed);
  flag("preload", record.preload);
  // Younger than the others.
  record.alike = base::GetBool(*object, "alike").value_or(false);
  record.share_file = base::GetBool(*object, "shareFile").value_or(false);
  const auto container = base::GetUint(*object, "container");
  const auto given_at = base::GetUint(*object, "givenAt");
  const json::array* slots = base::GetArray(*object, "slots");
  constexpr auto kMostContainer = static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max());
  if (!whole || !container || *container > kMostContainer || !given_at || *given_at >= std::uint64_t{1} << 40 ||
      slots == nullptr || record.owner.uid.empty() || !StaysInside(record.folder) || !StaysInside(record.cache)) {
    return Fail("a record is incomplete");
  }
  record.container = static_cast<int>(*container);
  record.given_at = static_cast<std::int64_t>(*given_at);
  for (const json::value& slot : *slots) {
    if (!slot.is_string()) return Fail("a record's slot is not a text");
    record.slots.emplace_back(slot.get_string().data(), slot.get_string().size());
  }
  std::sort(record.slots.begin(), record.slots.end());
  auto decoded = device::DecodeGrant(grant);
  if (!decoded) return tl::unexpected(decoded.error());
  if (decoded->size() != 1) return Fail("a record's grant is not that of one container");
  record.grant = std::move(decoded->front());
  if (const auto mig = base::GetString(*object, "mig")) {
    auto reservations = device::DecodeReservations(*mig);
    if (!reservations) return tl::unexpected(reservations.error());
    record.mig = *std::move(reservations);
  } else if (object->contains("mig")) {
    return Fail("a record's MIG instances are not a text");
  }
  return record;
}

template <typename Range>
auto Find(Range& records, std::string_view uid, int container) {
  const auto found = std::find_if(records.begin(), records.end(), [&](const Record& record) {
    return record.owner.uid == uid && record.container == container;
  });
  return found == records.end() ? nullptr : &*found;
}

}  // namespace

const Record* FindRecord(const Records& records, std::string_view uid, int container) {
  return Find(records, uid, container);
}

Record* FindRecord(Records& records, std::string_view uid, int container) { return Find(records, uid, container); }

bool HasRecords(const Records& records, std::string_view uid) {
  return std::any_of(records.begin(), records.end(), [&](const Record& record) { return record.owner.uid == uid; });
}

std::string EncodeRecords(const Records& records) {
  json::array array;
  for (const Record& record : records) array.emplace_back(ToObject(record));
  return base::Compact(json::object{{"version", kVersion}, {"records", std::move(array)}});
}

Result<Records> DecodeRecords(std::string_view text) {
  const auto value = base::ParseJson(text);
  if (!value) return tl::unexpected(value.error());
  const json::object* object = value->if_object();
  if (object == nullptr || base::GetUint(*object, "version") != kVersion) {
    return Fail("the records are not of version 1");
  }
  const json::array* array = base::GetArray(*object, "records");
  if (array == nullptr) return Fail("the records are missing");
  Records records;
  for (const json::value& item : *array) {
    auto record = ReadRecord(item);
    if (!record) return tl::unexpected(record.error());
    if (FindRecord(records, record->owner.uid, record->container) != nullptr) {
      return Fail("two records of one container");
    }
    records.push_back(*std::move(record));
  }
  return records;
}

}  // namespace hami::plugin
