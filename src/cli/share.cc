// SPDX-License-Identifier: Apache-2.0

#include "cli/share.h"

#include <algorithm>

#include "base/json.h"
#include "base/strings.h"

namespace hami::cli {
namespace {

constexpr std::size_t kMostNameBytes = 63;
constexpr std::size_t kMostUuidBytes = 95;
constexpr std::size_t kMostGrants = 16;  // the devices of a region
constexpr std::uint64_t kRecordVersion = 1;

bool IsAlphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }
bool IsNameCharacter(char c) { return IsAlphanumeric(c) || c == '.' || c == '_' || c == '-'; }

auto Invalid(std::string_view what) { return base::Fail(base::Concat({"the share's record has no valid ", what})); }

base::Result<Grant> DecodeGrant(const base::json::value& value) {
  const base::json::object* object = value.if_object();
  if (object == nullptr) return Invalid("grant");
  const auto uuid = base::GetString(*object, "uuid");
  const auto limit = base::GetUint(*object, "limit_bytes");
  const auto reserved = base::GetUint(*object, "reserved_bytes");
  const auto cores = base::GetUint(*object, "cores");
  if (!uuid || uuid->empty() || uuid->size() > kMostUuidBytes) return Invalid("uuid");
  if (!limit || *limit == 0 || !reserved || *reserved > *limit) return Invalid("memory");
  if (!cores || *cores > 100) return Invalid("cores");
  // Records of before there was a burst have none.
  const auto burst = object->contains("burst") ? base::GetUint(*object, "burst") : std::optional<std::uint64_t>(0);
  if (!burst || *burst > 100) return Invalid("burst");
  return Grant{*uuid, *limit, *reserved, static_cast<unsigned>(*cores), static_cast<unsigned>(*burst)};
}

}  // namespace

base::Status CheckShareName(std::string_view name) {
  const bool valid = !name.empty() && name.size() <= kMostNameBytes && IsAlphanumeric(name.front()) &&
                     std::all_of(name.begin(), name.end(), IsNameCharacter);
  if (valid) return {};
  return base::Fail(base::Concat({"'", name, "' can not be the name of a share"}),
                    "use letters, digits, '.', '_' and '-', starting with a letter or a digit, at most 63 of them");
}

std::string ChooseShareName(const std::string& program, const std::vector<std::string>& taken) {
  std::string stem = program.substr(program.rfind('/') + 1).substr(0, 40);
  std::replace_if(
      stem.begin(), stem.end(), [](char c) { return !IsNameCharacter(c); }, '-');
  if (stem.empty() || !IsAlphanumeric(stem.front())) stem.insert(0, "run");
  for (std::uint64_t number = 1;; ++number) {
    std::string name = stem + "-" + std::to_string(number);
    if (std::find(taken.begin(), taken.end(), name) == taken.end()) return name;
  }
}

std::string EncodeRecord(const ShareRecord& record) {
  base::json::object object;
  object["version"] = kRecordVersion;
  object["name"] = record.name;
  base::json::array command;
  // JSON holds text only; arguments may be any bytes. The command is for showing, so nothing is lost that matters.
  for (const std::string& word : record.command) command.emplace_back(base::Printable(word));
  object["command"] = std::move(command);
  base::json::array grants;
  for (const Grant& grant : record.grants) {
    grants.push_back(base::json::object{{"uuid", grant.uuid},
                                        {"limit_bytes", grant.limit_bytes},
                                        {"reserved_bytes", grant.reserved_bytes},
                                        {"cores", grant.cores},
                                        {"burst", grant.burst}});
  }
  object["grants"] = std::move(grants);
  object["oversubscribe"] = record.oversubscribe;
  object["priority"] = record.priority == Priority::kHigh ? "high" : "low";
  object["created_at"] = record.created_at;
  object["mps"] = record.mps;
  return base::Pretty(object);
}

base::Result<ShareRecord> DecodeRecord(std::string_view text) {
  const auto value = base::ParseJson(text);
  if (!value) return tl::unexpected(value.error());
  const base::json::object* object = value->if_object();
  if (object == nullptr || base::GetUint(*object, "version") != kRecordVersion) return Invalid("version");
  ShareRecord record;
  const auto name = base::GetString(*object, "name");
  if (!name || !CheckShareName(*name)) return Invalid("name");
  record.name = *name;
  const base::json::array* command = base::GetArray(*object, "command");
  if (command == nullptr) return Invalid("command");
  for (const base::json::value& word : *command) {
    if (!word.is_string()) return Invalid("command");
    record.command.push_back(base::Printable({word.get_string().data(), word.get_string().size()}));
  }
  const base::json::array* grants = base::GetArray(*object, "grants");
  if (grants == nullptr || grants->empty() || grants->size() > kMostGrants) return Invalid("grants");
  for (const base::json::value& item : *grants) {
    auto grant = DecodeGrant(item);
    if (!grant) return tl::unexpected(grant.error());
    record.grants.push_back(*std::move(grant));
  }
  const auto oversubscribe = base::GetBool(*object, "oversubscribe");
  const auto priority = base::GetString(*object, "priority");
  const auto created_at = base::GetUint(*object, "created_at");
  if (!oversubscribe || !priority || (*priority != "high" && *priority != "low")) return Invalid("priority");
  if (!created_at || *created_at > std::uint64_t{1} << 40) return Invalid("date");
  // Records of before there were modes have none.
  const auto mps = object->contains("mps") ? base::GetBool(*object, "mps") : std::optional(false);
  if (!mps) return Invalid("mode");
  record.mps = *mps;
  record.oversubscribe = *oversubscribe;
  record.priority = *priority == "high" ? Priority::kHigh : Priority::kLow;
  record.created_at = static_cast<std::int64_t>(*created_at);
  return record;
}

}  // namespace hami::cli
