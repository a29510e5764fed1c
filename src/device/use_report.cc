// SPDX-License-Identifier: Apache-2.0

#include "device/use_report.h"

#include <algorithm>

#include "base/json.h"
#include "base/strings.h"

namespace hami::device {
namespace {

namespace json = base::json;

constexpr std::size_t kMostName = 253;  // of any Kubernetes object
constexpr int kMostPercent = 10'000;    // sums over processes are more than 100 at times

std::optional<std::string> Name(const json::object& object, std::string_view key, bool may_be_empty = false) {
  auto text = base::GetString(object, key);
  if (!text || text->size() > kMostName || (text->empty() && !may_be_empty)) return std::nullopt;
  return base::Printable(*text);
}

std::optional<ShareUse> ReadShare(const json::value& value) {
  const json::object* object = value.if_object();
  if (object == nullptr) return std::nullopt;
  const auto ns = Name(*object, "namespace");
  const auto pod = Name(*object, "pod");
  const auto container = Name(*object, "container");
  const auto uuid = Name(*object, "uuid");
  const auto used = base::GetUint(*object, "used_mib");
  const auto limit = base::GetUint(*object, "limit_mib");
  const auto core_limit = base::GetUint(*object, "core_limit");
  const json::value* percent = object->if_contains("core_percent");
  if (!ns || !pod || !container || !uuid || !used || !limit || !core_limit || percent == nullptr) return std::nullopt;
  const auto amount = [](std::uint64_t mib) {
    return static_cast<MiB>(std::min<std::uint64_t>(mib, static_cast<std::uint64_t>(kMostUseMiB)));
  };
  ShareUse share{*ns, *pod, *container, *uuid, amount(*used), amount(*limit), 100, std::nullopt};
  if (*core_limit >= 1 && *core_limit < 100) share.core_limit = static_cast<int>(*core_limit);
  if (percent->is_null()) return share;
  const auto known = base::GetUint(*object, "core_percent");
  if (!known) return std::nullopt;
  share.core_percent = static_cast<int>(std::min<std::uint64_t>(*known, kMostPercent));
  return share;
}

}  // namespace

std::string WriteUse(const UseReport& report) {
  json::array shares;
  for (const ShareUse& share : report.shares) {
    json::object one{
        {"namespace", share.ns},  {"pod", share.pod},         {"container", share.container},  {"uuid", share.uuid},
        {"used_mib", share.used}, {"limit_mib", share.limit}, {"core_limit", share.core_limit}};
    one["core_percent"] = share.core_percent ? json::value(*share.core_percent) : json::value(nullptr);
    shares.push_back(std::move(one));
  }
  return base::Compact(json::object{{"schema", 1}, {"node", report.node}, {"shares", std::move(shares)}});
}

base::Result<UseReport> ReadUse(std::string_view text) {
  if (text.size() > kMostUseBytes) return base::Fail("the answer has more than 1 MiB");
  const auto value = base::ParseJson(text);
  if (!value) return base::Fail("the answer is no JSON: " + value.error().message);
  const json::object* object = value->if_object();
  if (object == nullptr || base::GetUint(*object, "schema") != 1)
    return base::Fail("the answer is no report of schema 1");
  auto node = Name(*object, "node", true);
  const json::array* shares = base::GetArray(*object, "shares");
  if (!node || shares == nullptr) return base::Fail("the report has no node, or no list of shares");
  if (shares->size() > kMostUseShares) {
    return base::Fail("the report has more than " + std::to_string(kMostUseShares) + " shares");
  }
  UseReport report{*std::move(node), {}};
  report.shares.reserve(shares->size());
  for (std::size_t i = 0; i < shares->size(); ++i) {
    auto share = ReadShare((*shares)[i]);
    if (!share) return base::Fail("share " + std::to_string(i) + " of the report cannot be read");
    report.shares.push_back(*std::move(share));
  }
  return report;
}

}  // namespace hami::device
