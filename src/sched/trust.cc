// SPDX-License-Identifier: Apache-2.0

#include "sched/trust.h"

#include <algorithm>
#include <iterator>

#include "base/strings.h"
#include "device/annotation_table.h"
#include "sched/json_patch.h"

namespace hami::sched {
namespace {

namespace json = base::json;

struct Place {
  const char* member;  // of the metadata
  const char* word;    // for a person
};
constexpr Place kPlaces[] = {{"annotations", "annotation"}, {"labels", "label"}};

const json::object* Member(const json::object* object, std::string_view key) {
  const json::value* member = object == nullptr ? nullptr : object->if_contains(key);
  return member == nullptr ? nullptr : member->if_object();
}

const json::object* MapOf(const json::value& pod, const Place& place) {
  return Member(Member(pod.if_object(), "metadata"), place.member);
}

std::string_view Text(json::string_view text) { return {text.data(), text.size()}; }

// "annotation hami.io/vgpu-node".
std::string Named(const Place& place, std::string_view key) {
  return base::Concat({place.word, " ", base::Printable(key)});
}

// The guarded ones, for a person.
std::vector<std::string> GuardedOf(const json::value& pod) {
  std::vector<std::string> found;
  for (const Place& place : kPlaces) {
    const json::object* map = MapOf(pod, place);
    if (map == nullptr) continue;
    for (const json::key_value_pair& pair : *map) {
      const std::string_view key = Text(pair.key());
      if (device::IsGuarded(key, device::Carrier::kPod)) found.push_back(Named(place, key));
    }
  }
  return found;
}

json::value WithoutGuarded(json::value pod) {
  for (const Place& place : kPlaces) {
    json::object* object = pod.if_object();
    for (const char* key : {"metadata", place.member}) {
      json::value* member = object == nullptr ? nullptr : object->if_contains(key);
      object = member == nullptr ? nullptr : member->if_object();
    }
    if (object == nullptr) continue;
    std::vector<std::string> keys;
    for (const json::key_value_pair& pair : *object) {
      if (device::IsGuarded(Text(pair.key()), device::Carrier::kPod)) keys.emplace_back(Text(pair.key()));
    }
    for (const std::string& key : keys) object->erase(key);
  }
  return pod;
}

// The first guarded key of which the two do not say the same.
std::string FirstDifference(const json::value& before, const json::value& after) {
  for (const Place& place : kPlaces) {
    const json::object* maps[] = {MapOf(before, place), MapOf(after, place)};
    for (int side = 0; side < 2; ++side) {
      if (maps[side] == nullptr) continue;
      for (const json::key_value_pair& pair : *maps[side]) {
        if (!device::IsGuarded(Text(pair.key()), device::Carrier::kPod)) continue;
        const json::object* other = maps[1 - side];
        const json::value* same = other == nullptr ? nullptr : other->if_contains(pair.key());
        if (same == nullptr || *same != pair.value()) return Named(place, Text(pair.key()));
      }
    }
  }
  return {};
}

// Would our scheduler never see it? It is bound already, or by somebody else.
bool PassesBy(const json::value& pod, const WebhookConfig& config) {
  const json::object* spec = Member(pod.if_object(), "spec");
  if (spec == nullptr) return false;
  const std::string node = base::GetString(*spec, "nodeName").value_or("");
  const std::string name = base::GetString(*spec, "schedulerName").value_or("");
  const bool default_one = name.empty() || (name == "default-scheduler" && config.overwrite_default_scheduler);
  return !node.empty() || (!default_one && name != config.scheduler_name);
}

Admission Refuse(std::string message) {
  Admission refused;
  refused.allowed = false;
  refused.code = 403;
  refused.message = std::move(message);
  return refused;
}

}  // namespace

bool Writers::Has(std::string_view user) const {
  return std::any_of(names_.begin(), names_.end(), [&](std::string_view name) {
    if (name.empty() || name.back() != '*') return !name.empty() && name == user;
    name.remove_suffix(1);
    return user.substr(0, name.size()) == name;
  });
}

Admission AdmitCreation(const json::value& pod, std::string_view user, const Writers& writers,
                        const WebhookConfig& config, const device::Vendors& vendors, const RoomOf& room) {
  if (writers.Has(user)) return Admit(pod, config, vendors, room);
  const std::vector<std::string> forged = GuardedOf(pod);
  if (forged.empty()) return Admit(pod, config, vendors, room);
  if (PassesBy(pod, config) && AsksForDevices(pod, vendors)) {
    return Refuse(base::Concat({forged.front(),
                                " is written by HAMi's own programs alone, and this pod would be served by it past "
                                "hami-scheduler: remove it, and leave schedulerName and nodeName to HAMi"}));
  }
  const json::value clean = WithoutGuarded(pod);
  Admission admission = Admit(clean, config, vendors, room);
  if (admission.allowed) {
    json::array patch = DiffJson(pod, clean);
    std::move(admission.patch.begin(), admission.patch.end(), std::back_inserter(patch));
    admission.patch = std::move(patch);
  }
  for (const std::string& one : forged) {
    admission.warnings.push_back(one + " was taken off: only HAMi's own programs write it");
  }
  return admission;
}

Admission AdmitUpdate(const json::value& before, const json::value& after, std::string_view user,
                      const Writers& writers) {
  if (writers.Has(user)) return {};
  const std::string changed = FirstDifference(before, after);
  if (changed.empty()) return {};
  return Refuse(
      base::Concat({changed, " is changed by HAMi's own programs alone, and the writer is ", base::Printable(user),
                    ": leave hami.io/ and hami-cpp/ keys as they are, or name the writer in hami-scheduler's "
                    "--trusted-writers"}));
}

}  // namespace hami::sched
