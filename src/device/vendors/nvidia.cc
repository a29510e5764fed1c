// SPDX-License-Identifier: Apache-2.0

#include "device/vendors/nvidia.h"

#include <algorithm>
#include <limits>

#include "base/strings.h"
#include "device/amount.h"
#include "device/annotations.h"
#include "device/register_codec.h"

namespace hami::device {
namespace {

using base::Result;
using base::Status;

constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
constexpr int kWholeCard = 100;  // percent
constexpr const char* kScore = "hami.io/node-nvidia-score";

// ERROR with the place that it is of.
tl::unexpected<base::Error> Refuse(const Container& container, const std::string& resource, const std::string& text,
                                   const base::Error& error) {
  return base::Fail(
      base::Concat({"container ", base::Printable(container.name), ": ", resource, " ", base::Printable(text), " ",
                    error.message, error.hint.empty() ? "" : ": ", error.hint}));
}

// Nothing where it is not asked.
Result<std::optional<std::int64_t>> Amount(const Container& container, const std::string& resource) {
  const std::string* text = container.Resource(resource);
  if (text == nullptr) return std::optional<std::int64_t>();
  const Result<std::int64_t> amount = ReadCount(*text, kInt32Max);
  if (!amount) return Refuse(container, resource, *text, amount.error());
  return std::optional<std::int64_t>(*amount);
}

// Absent pairs, and cards that the annotation does not name, score 0; where all do, there is no table.
Status ReadPairScores(std::string_view text, NodeCards& cards) {
  const Result<PairScores> scores = DecodePairScores(text);
  HAMI_TRY(scores);
  const std::size_t n = cards.devices.size();
  for (std::size_t a = 0; a < n; ++a) {
    const auto row = scores->find(cards.devices[a].uuid);
    if (row == scores->end()) continue;
    for (std::size_t b = 0; b < n; ++b) {
      const auto cell = row->second.find(cards.devices[b].uuid);
      if (cell != row->second.end() && scores->contains(cards.devices[b].uuid)) {
        cards.pair_scores.resize(n * n);
        cards.pair_scores[a * n + b] = cell->second;
      }
    }
  }
  return {};
}

}  // namespace

QuotaResources NvidiaVendor::quota_resources() const {
  return {config_.memory_resource, config_.core_resource, std::max<std::int64_t>(config_.memory_factor, 1)};
}

Result<std::optional<Request>> NvidiaVendor::ParseRequest(const Container& container) const {
  Request request;
  const auto count = Amount(container, config_.count_resource);
  HAMI_TRY(count);
  if (count->value_or(0) == 0) return std::optional<Request>();
  request.count = static_cast<int>(**count);

  if (const std::string* text = container.Resource(config_.memory_resource)) {
    const auto memory = ReadMemory(*text, config_.memory_factor, kMostOfCard);
    if (!memory) return Refuse(container, config_.memory_resource, *text, memory.error());
    request.memory = memory->mib;
  }
  const auto percent = Amount(container, config_.memory_percent_resource);
  HAMI_TRY(percent);
  if (percent->value_or(0) > 0) {
    request.memory_percent = static_cast<int>(std::min<std::int64_t>(**percent, kWholeCard));
  }
  if (request.memory == 0 && request.memory_percent == kPercentUnset) {
    request.memory = config_.default_memory;
    if (request.memory == 0) request.memory_percent = kWholeCard;
  }
  const auto cores = Amount(container, config_.core_resource);
  HAMI_TRY(cores);
  request.cores = static_cast<int>(std::clamp<std::int64_t>(cores->value_or(config_.default_cores), 0, kWholeCard));
  return std::optional<Request>(request);
}

std::vector<std::string_view> NvidiaVendor::resources() const {
  return {config_.count_resource, config_.memory_resource, config_.memory_percent_resource, config_.core_resource};
}

std::optional<Request> NvidiaVendor::MostOf(const Container& container) const {
  const auto count = Amount(container, config_.count_resource);
  if (!count || count->value_or(0) == 0) return std::nullopt;
  Request request;
  request.count = static_cast<int>(**count);
  request.memory_percent = kWholeCard;
  request.cores = kWholeCard;
  const auto asked = ParseRequest(container);
  if (!asked) return request;
  const auto says = [&](const std::string& resource) {
    const auto amount = Amount(container, resource);
    return amount && amount->value_or(0) > 0;
  };
  const std::string* memory = container.Resource(config_.memory_resource);
  if ((memory != nullptr && (*asked)->memory > 0) || says(config_.memory_percent_resource)) {
    request.memory = (*asked)->memory;
    request.memory_percent = (*asked)->memory_percent;
  }
  // Where it is 0, too, a whole card is given with all its cores.
  if (says(config_.core_resource)) request.cores = (*asked)->cores;
  return request;
}

CardRules NvidiaVendor::ParseRules(const StringMap& annotations) const {
  const auto list = [&](const char* key) {
    const std::string* text = Find(annotations, key);
    return text == nullptr ? std::vector<std::string>{} : SplitList(*text);
  };
  const auto lower = [](std::vector<std::string> names) {
    for (std::string& name : names) name = base::ToLower(name);
    return names;
  };
  CardRules rules;
  rules.use_types = lower(list(kUseType));
  rules.avoid_types = lower(list(kAvoidType));
  rules.use_uuids = list(kUseUuid);
  rules.avoid_uuids = list(kAvoidUuid);
  if (const std::string* bind = Find(annotations, kNumaBind)) {
    rules.numa_bind = ParseBool(*bind).value_or(false);
  }
  if (const std::string* mode = Find(annotations, kMode)) rules.mode = *mode;
  return rules;
}

Result<NodeCards> NvidiaVendor::ReadNode(const NodeFacts& node) const {
  const StringMap& annotations = node.annotations;
  NodeCards cards;
  const std::string* text = Find(annotations, register_annotation());
  if (text == nullptr || base::Trim(*text).empty()) return cards;
  Result<std::vector<Device>> devices = DecodeRegisterJson(*text);
  HAMI_TRY(devices);
  std::vector<std::string> cordoned;
  if (const std::string* cordon = Find(annotations, kDeviceCordon)) cordoned = SplitList(*cordon);
  for (Device& device : *devices) {
    const auto same = [&](const Device& other) { return other.uuid == device.uuid; };
    // Two cards of one name could not be told apart in any grant.
    if (std::any_of(cards.devices.begin(), cards.devices.end(), same)) continue;
    device.cordoned = std::find(cordoned.begin(), cordoned.end(), device.uuid) != cordoned.end();
    cards.devices.push_back(std::move(device));
  }
  if (const std::string* score = Find(annotations, kScore)) {
    const Status read = ReadPairScores(*score, cards);
    // The cards are there, and how sick or full they are counts; only how close they are is not known.
    if (!read) cards.complaint = base::Concat({"annotation ", kScore, " can not be read: ", read.error().message});
  }
  return cards;
}

NvidiaConfig HamisNames() {
  NvidiaConfig names;
  names.count_resource = "nvidia.com/gpu";
  names.memory_resource = "nvidia.com/gpumem";
  names.memory_percent_resource = "nvidia.com/gpumem-percentage";
  names.core_resource = "nvidia.com/gpucores";
  return names;
}

}  // namespace hami::device
