// SPDX-License-Identifier: Apache-2.0

#include "device/register_codec.h"

#include <charconv>
#include <limits>
#include <optional>

#include "base/strings.h"
#include "device/json_fields.h"
#include "device/lists.h"

namespace hami::device {
namespace {

using base::Fail;
using base::Result;
using base::Status;
namespace json = base::json;

std::string Quoted(std::string_view text) { return base::Concat({"\"", base::Printable(text), "\""}); }

Status MayHaveOneMore(const std::vector<Device>& devices) {
  if (devices.size() < kMostCards) return {};
  return Fail(base::Concat({"register annotation: more than ", std::to_string(kMostCards), " cards"}));
}

Result<MigPlacement> ReadPlacement(const json::object& object) {
  MigPlacement placement;
  const JsonFields fields(object, "placement");
  HAMI_TRY(fields.Number("start", placement.start));
  HAMI_TRY(fields.Number("size", placement.size));
  return placement;
}

Result<MigProfile> ReadProfile(const json::object& object) {
  MigProfile profile;
  const JsonFields fields(object, "migProfiles");
  HAMI_TRY(fields.Text("name", profile.name));
  HAMI_TRY(fields.Number("memoryMB", profile.memory));
  HAMI_TRY(fields.Number("core", profile.cores));
  HAMI_TRY(fields.Number("sliceCount", profile.slices));
  const auto read = [&](const json::object& item) -> Status {
    const Result<MigPlacement> placement = ReadPlacement(item);
    HAMI_TRY(placement);
    profile.placements.push_back(*placement);
    return {};
  };
  HAMI_TRY(fields.List("placements", read));
  return profile;
}

Result<Device> ReadDevice(const json::object& object) {
  Device device;
  const JsonFields fields(object, "device");
  HAMI_TRY(fields.Text("id", device.uuid));
  HAMI_TRY(fields.Number("index", device.index));
  HAMI_TRY(fields.Number("count", device.count));
  HAMI_TRY(fields.Number("devmem", device.memory));
  HAMI_TRY(fields.Number("devcore", device.cores));
  HAMI_TRY(fields.Text("type", device.type));
  HAMI_TRY(fields.Number("numa", device.numa, std::numeric_limits<std::int32_t>::min()));
  HAMI_TRY(fields.Text("mode", device.mode));
  HAMI_TRY(fields.Bool("health", device.healthy));
  HAMI_TRY(fields.Text("devicevendor", device.vendor));
  const auto read = [&](const json::object& item) -> Status {
    Result<MigProfile> profile = ReadProfile(item);
    HAMI_TRY(profile);
    device.mig_profiles.push_back(std::move(*profile));
    return {};
  };
  HAMI_TRY(fields.List("migProfiles", read));
  if (const json::value* info = fields.Get("custominfo")) {
    if (!info->is_object()) return tl::unexpected(fields.Bad("custominfo", "an object").error());
    if (!info->get_object().empty()) device.custom_info = json::serialize(*info);
  }
  if (device.uuid.empty()) return Fail("device: id is missing");
  // A grant names cards by their ids, apart by these.
  if (device.uuid.find_first_of(",:;") != std::string::npos) {
    return Fail("device: id " + Quoted(device.uuid) + " has a comma, colon or semicolon in it");
  }
  return device;
}

// Adds KEY unless VALUE is what an absent key means.
template <typename T>
void Put(json::object& object, const char* key, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    if (!value.empty()) object.emplace(key, value);
  } else {
    if (value != T{}) object.emplace(key, value);
  }
}

json::object WriteProfile(const MigProfile& profile) {
  json::object object;
  Put(object, "name", profile.name);
  Put(object, "memoryMB", profile.memory);
  Put(object, "core", profile.cores);
  Put(object, "sliceCount", profile.slices);
  json::array placements;
  for (const MigPlacement& placement : profile.placements) {
    json::object item;
    Put(item, "start", placement.start);
    Put(item, "size", placement.size);
    placements.push_back(std::move(item));
  }
  if (!placements.empty()) object.emplace("placements", std::move(placements));
  return object;
}

json::object WriteDevice(const Device& device) {
  json::object object;
  Put(object, "id", device.uuid);
  Put(object, "index", device.index);
  Put(object, "count", device.count);
  Put(object, "devmem", device.memory);
  Put(object, "devcore", device.cores);
  Put(object, "type", device.type);
  Put(object, "numa", device.numa);
  Put(object, "mode", device.mode);
  json::array profiles;
  for (const MigProfile& profile : device.mig_profiles) profiles.push_back(WriteProfile(profile));
  if (!profiles.empty()) object.emplace("migProfiles", std::move(profiles));
  Put(object, "health", device.healthy);
  if (!device.custom_info.empty()) {
    if (Result<json::value> info = base::ParseJson(device.custom_info)) object.emplace("custominfo", std::move(*info));
  }
  Put(object, "devicevendor", device.vendor);
  return object;
}

Status ReadInt(std::string_view field, const char* name, int minimum, int& out) {
  int number = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  if (error != std::errc() || end != field.data() + field.size()) {
    return Fail(base::Concat({"invalid ", name, " field: ", Quoted(field), " is not a number"}));
  }
  if (number < minimum) return Fail(base::Concat({"invalid ", name, " field: ", Quoted(field), " is negative"}));
  out = number;
  return {};
}

Result<Device> ReadSegment(std::string_view segment) {
  const std::vector<std::string> fields = base::Split(segment, ',');
  if (fields.size() < 2) return Fail(base::Concat({"malformed node annotation segment: ", Quoted(segment)}));
  if (fields.size() != 7 && fields.size() != 9) {
    return Fail(base::Concat({"unexpected field count ", std::to_string(fields.size()), " in node annotation"}));
  }
  Device device;
  int memory = 0;
  device.uuid = fields[0];
  HAMI_TRY(ReadInt(fields[1], "count", 0, device.count));
  HAMI_TRY(ReadInt(fields[2], "memory", 0, memory));
  HAMI_TRY(ReadInt(fields[3], "core", 0, device.cores));
  device.memory = memory;
  device.type = fields[4];
  HAMI_TRY(ReadInt(fields[5], "numa", std::numeric_limits<int>::min(), device.numa));
  const std::optional<bool> healthy = ParseBool(fields[6]);
  if (!healthy) return Fail(base::Concat({"invalid health field: ", Quoted(fields[6]), " is not a boolean"}));
  device.healthy = *healthy;
  device.mode = kModeHamiCore;
  if (fields.size() == 9) {
    HAMI_TRY(ReadInt(fields[7], "index", std::numeric_limits<int>::min(), device.index));
    if (device.index < 0) return Fail("index field must not be negative: " + std::to_string(device.index));
    device.mode = fields[8];
  }
  return device;
}

}  // namespace

Result<std::vector<Device>> DecodeRegisterJson(std::string_view text) {
  std::vector<Device> devices;
  const auto read = [&](const json::object& item) -> Status {
    HAMI_TRY(MayHaveOneMore(devices));
    Result<Device> device = ReadDevice(item);
    HAMI_TRY(device);
    devices.push_back(std::move(*device));
    return {};
  };
  HAMI_TRY(ForEachObject(text, "register annotation", read));
  return devices;
}

std::string EncodeRegisterJson(const std::vector<Device>& devices) {
  json::array list;
  for (const Device& device : devices) list.push_back(WriteDevice(device));
  return json::serialize(list);
}

Result<std::vector<Device>> DecodeRegisterLegacy(std::string_view text) {
  if (text.find(':') == std::string_view::npos) return Fail("node annotation missing device separator");
  std::vector<Device> devices;
  for (const std::string& segment : base::Split(text, ':')) {
    if (segment.empty()) continue;
    HAMI_TRY(MayHaveOneMore(devices));
    Result<Device> device = ReadSegment(segment);
    HAMI_TRY(device);
    devices.push_back(std::move(*device));
  }
  return devices;
}

std::string EncodeRegisterLegacy(const std::vector<Device>& devices) {
  std::string out;
  for (const Device& device : devices) {
    out += base::Concat({device.uuid, ",", std::to_string(device.count), ",", std::to_string(device.memory), ",",
                         std::to_string(device.cores), ",", device.type, ",", std::to_string(device.numa), ",",
                         device.healthy ? "true" : "false", ",", std::to_string(device.index), ",", device.mode, ":"});
  }
  return out;
}

Result<PairScores> DecodePairScores(std::string_view text) {
  PairScores scores;
  const auto read = [&](const json::object& item) -> Status {
    const JsonFields fields(item, "score");
    std::string uuid;
    HAMI_TRY(fields.Text("uuid", uuid));
    auto& peers = scores[uuid];
    const json::value* score = fields.Get("score");
    if (score == nullptr) return {};
    if (!score->is_object()) return fields.Bad("score", "an object");
    const JsonFields of(score->get_object(), "score");
    for (const json::key_value_pair& pair : score->get_object()) {
      const std::string peer(pair.key().data(), pair.key().size());
      HAMI_TRY(of.Number(peer, peers[peer], std::numeric_limits<std::int32_t>::min()));
    }
    return {};
  };
  HAMI_TRY(ForEachObject(text, "score annotation", read));
  return scores;
}

std::string EncodePairScores(const PairScores& scores) {
  json::array list;
  for (const auto& [uuid, peers] : scores) {
    json::object score;
    for (const auto& [peer, value] : peers) score.emplace(peer, value);
    list.push_back({{"uuid", uuid}, {"score", std::move(score)}});
  }
  return json::serialize(list);
}

}  // namespace hami::device
