// SPDX-License-Identifier: Apache-2.0

#include "monitor/resize.h"

#include <algorithm>
#include <set>

#include "base/json.h"
#include "base/strings.h"
#include "base/units.h"
#include "device/amount.h"
#include "device/pod.h"
#include "device/quantity.h"

namespace hami::monitor {
namespace {

using base::Fail;
using base::FormatBytes;
using base::Result;
namespace json = base::json;

constexpr std::size_t kMostText = 64 << 10;
constexpr const char* kExample = R"(it is written like {"train": {"memory": "6Gi", "cores": 40}})";

// By the rule of resources (device/amount.h). What is no quantity of Kubernetes may be a size as people write it, and
// says its unit: `6g`, `6GiB`.
Result<std::uint64_t> ReadMemory(const json::value& value) {
  if (!value.is_int64() && !value.is_string()) return Fail("memory must be a size like \"6Gi\" or a number of MiB");
  const std::string text = device::QuantityText(value);
  if (!device::ParseQuantity(text)) {
    const auto bytes = base::ParseBytes(text);
    if (!bytes) return Fail("memory: " + bytes.error().message, bytes.error().hint);
    if (base::Count(*bytes) < base::kMiB) return Fail("memory must be at least 1 MiB");
    return base::Count(*bytes);
  }
  const auto memory = device::ReadMemory(text, 1, device::kMostOfCard);
  if (!memory) return Fail("memory " + base::Printable(text) + " " + memory.error().message, memory.error().hint);
  if (memory->mib == 0) return Fail("memory must be at least 1 MiB");
  return static_cast<std::uint64_t>(memory->mib) * base::kMiB;
}

Result<unsigned> ReadCores(const json::value& value) {
  if (!value.is_int64() || value.get_int64() < 1 || value.get_int64() > 100)
    return Fail("cores must be a whole number from 1 to 100");
  return static_cast<unsigned>(value.get_int64());
}

Result<Wish> ReadWish(const json::value& value) {
  if (!value.is_object()) return Fail("not an object with memory and cores", kExample);
  Wish wish;
  for (const auto& [key, entry] : value.get_object()) {
    if (key == "memory") {
      const auto bytes = ReadMemory(entry);
      HAMI_TRY(bytes);
      wish.memory_bytes = *bytes;
    } else if (key == "cores") {
      const auto cores = ReadCores(entry);
      HAMI_TRY(cores);
      wish.cores = *cores;
    } else {
      return Fail("'" + base::Printable({key.data(), key.size()}) + "' is neither memory nor cores", kExample);
    }
  }
  return wish;
}

Result<ContainerWish> ReadContainerWish(const json::value& value) {
  ContainerWish wish;
  wish.for_all = !value.is_array();
  if (wish.for_all) {
    const auto one = ReadWish(value);
    HAMI_TRY(one);
    wish.wishes.push_back(*one);
    return wish;
  }
  for (const json::value& item : value.get_array()) {
    const auto one = ReadWish(item);
    HAMI_TRY(one);
    wish.wishes.push_back(*one);
  }
  if (wish.wishes.empty() || wish.wishes.size() > region::kMaxDevices)
    return Fail("a list must have from 1 to 16 entries");
  return wish;
}

ResizePlan Refused(std::string reason) { return {ResizeState::kRefused, std::move(reason), {}}; }
ResizePlan Waiting(std::string reason) { return {ResizeState::kWaiting, std::move(reason), {}}; }

// Which device of the region each share is on. By UUID; by position where that can make no difference, or where the
// region holds no UUIDs because no program has asked for its GPUs yet and all shares are to be the same.
std::optional<std::vector<std::uint32_t>> MatchDevices(const device::ContainerGrant& grant,
                                                       const std::vector<Limit>& wanted, const RegionView& region) {
  std::vector<std::uint32_t> places;
  std::set<std::uint32_t> taken;
  for (const device::Share& share : grant) {
    for (std::uint32_t d = 0; d < region.devices.size(); ++d) {
      if (region.devices[d].uuid == share.uuid && taken.insert(d).second) {
        places.push_back(d);
        break;
      }
    }
  }
  if (places.size() == grant.size()) return places;
  const bool same = std::all_of(wanted.begin(), wanted.end(), [&](const Limit& limit) {
    return limit.memory_bytes == wanted.front().memory_bytes && limit.sm_limit == wanted.front().sm_limit;
  });
  if (!same) return std::nullopt;
  places.clear();
  for (std::uint32_t d = 0; d < grant.size(); ++d) places.push_back(d);
  return places;
}

// What the share gets, or why it can not. A share of 0 cores was granted without a limit.
Result<Limit> LimitOf(const Wish& wish, const device::Share& share) {
  const auto granted = static_cast<std::uint64_t>(share.memory) * base::kMiB;
  const auto cores = static_cast<unsigned>(share.cores);
  Limit limit{0, wish.memory_bytes.value_or(granted), wish.cores.value_or(cores)};
  if (granted != 0 && limit.memory_bytes > granted) {
    return Fail(FormatBytes(limit.memory_bytes) + " are more than the " + FormatBytes(granted) +
                " that were granted of " + share.uuid);
  }
  if (cores != 0 && limit.sm_limit > cores) {
    return Fail(std::to_string(limit.sm_limit) + " % are more than the " + std::to_string(cores) +
                " % that were granted of " + share.uuid);
  }
  return limit;
}

std::string Remark(const std::vector<Limit>& limits, const RegionView& region) {
  for (const Limit& limit : limits) {
    if (limit.device >= region.devices.size() || limit.memory_bytes == 0) continue;
    const std::uint64_t used = region.devices[limit.device].used;
    if (used > limit.memory_bytes)
      return FormatBytes(used) + " are in use: nothing can be allocated until that has come down to " +
             FormatBytes(limit.memory_bytes);
  }
  return {};
}

}  // namespace

const char* ResizeStateName(ResizeState state) {
  switch (state) {
    case ResizeState::kApplied:
      return "applied";
    case ResizeState::kWaiting:
      return "waiting";
    case ResizeState::kRefused:
      break;
  }
  return "refused";
}

base::Result<Wishes> ParseResize(std::string_view text) {
  if (text.size() > kMostText) return Fail("longer than 64 KiB");
  const auto document = base::ParseJson(text);
  if (!document) return Fail(document.error().message, kExample);
  if (!document->is_object()) return Fail("not an object by container", kExample);
  Wishes wishes;
  for (const auto& [name, value] : document->get_object()) {
    const std::string container(name.data(), name.size());
    auto wish = ReadContainerWish(value);
    if (!wish) return Fail(base::Printable(container) + ": " + wish.error().message, wish.error().hint);
    wishes[container] = *std::move(wish);
  }
  return wishes;
}

ResizePlan PlanResize(const std::optional<ContainerWish>& wish, const device::ContainerGrant& grant,
                      const RegionView& region) {
  if (grant.empty()) return Refused("the container was granted no GPU");
  if (grant.size() > region::kMaxDevices) return Refused("the container was granted more than 16 GPUs");
  if (wish && !wish->for_all && wish->wishes.size() != grant.size()) {
    return Refused("there are " + std::to_string(wish->wishes.size()) + " entries for " + std::to_string(grant.size()) +
                   " GPUs");
  }
  ResizePlan plan;
  for (std::size_t i = 0; i < grant.size(); ++i) {
    const Wish own = !wish ? Wish{} : wish->wishes[wish->for_all ? 0 : i];
    const auto limit = LimitOf(own, grant[i]);
    if (!limit) return Refused(limit.error().message);
    plan.limits.push_back(*limit);
  }
  const auto places = MatchDevices(grant, plan.limits, region);
  if (!places) return Waiting("which limit belongs to which GPU shows when the program first asks for its GPUs");
  for (std::size_t i = 0; i < grant.size(); ++i) plan.limits[i].device = (*places)[i];
  plan.reason = Remark(plan.limits, region);
  return plan;
}

}  // namespace hami::monitor
