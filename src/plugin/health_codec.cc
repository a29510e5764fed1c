// SPDX-License-Identifier: Apache-2.0

#include <optional>

#include "base/json.h"
#include "base/strings.h"
#include "plugin/health.h"

namespace hami::plugin {
namespace {

using base::Fail;
using base::Result;
namespace json = base::json;

// The states that are ever written.
std::optional<HealthState> WrittenState(const std::string& name) {
  for (const HealthState state : {HealthState::kHealthy, HealthState::kUnhealthy, HealthState::kOut}) {
    if (name == HealthStateName(state)) return state;
  }
  return std::nullopt;
}

std::optional<UnixSeconds> Seconds(const json::value& value) {
  if (!value.is_int64() || value.get_int64() < 0) return std::nullopt;
  return value.get_int64();
}

Result<HealthEntry> DecodeEntry(const json::value& value) {
  if (!value.is_object()) return Fail("an entry is not an object");
  const json::object& object = value.get_object();
  HealthEntry entry;
  const auto state = WrittenState(base::GetString(object, "state").value_or(""));
  if (!state) return Fail("an entry has no state that is known");
  entry.state = *state;
  entry.reason = base::Printable(base::GetString(object, "reason").value_or(""));
  const json::value* const since = object.if_contains("since");
  if (since != nullptr) entry.since = Seconds(*since).value_or(0);
  if (const json::array* troubles = base::GetArray(object, "troubles")) {
    constexpr std::size_t kMost = 16;
    for (const json::value& item : *troubles) {
      const auto when = Seconds(item);
      if (!when || entry.troubles.size() == kMost) return Fail("an entry's list of troubles is not understood");
      entry.troubles.push_back(*when);
    }
  }
  return entry;
}

}  // namespace

std::string EncodeJournal(const HealthJournal& journal) {
  if (journal.empty()) return {};
  json::object out;
  for (const auto& [uuid, entry] : journal) {
    json::object item{{"state", HealthStateName(entry.state)}};
    if (!entry.reason.empty()) item.emplace("reason", entry.reason);
    item.emplace("since", entry.since);
    item.emplace("troubles", json::value_from(entry.troubles));
    out.emplace(uuid, std::move(item));
  }
  return json::serialize(out);
}

Result<HealthJournal> DecodeJournal(std::string_view text) {
  HealthJournal journal;
  if (text.empty()) return journal;
  const auto value = base::ParseJson(text);
  if (!value) return tl::unexpected(value.error());
  if (!value->is_object()) return Fail("the journal is not an object");
  for (const auto& pair : value->get_object()) {
    auto entry = DecodeEntry(pair.value());
    if (!entry) return tl::unexpected(entry.error());
    journal[std::string(pair.key())] = *std::move(entry);
  }
  return journal;
}

}  // namespace hami::plugin
