// SPDX-License-Identifier: Apache-2.0
//
// AWS Neuron: whole devices, or one or two cores of one. The cores of a card are bits: what is granted of a card is a
// mask, the masks of its pods are disjoint, and their sum is what is taken. Devices of one container are neighbours.

#include <algorithm>
#include <bit>
#include <limits>

#include "base/strings.h"
#include "device/json_edit.h"
#include "device/quantity.h"
#include "device/vendors/plain.h"
#include "device/vendors/sections.h"

namespace hami::device {
namespace {

constexpr std::int64_t kMostDevices = std::numeric_limits<std::int32_t>::max();
constexpr int kMostCoresOfCard = 16;
constexpr int kMostOfOneCard = 2;  // cores of a share that is no whole card

int CoresOf(std::int64_t mask) { return std::popcount(static_cast<std::uint64_t>(std::max<std::int64_t>(mask, 0))); }
std::int64_t FreeOf(const CardView& card) { return card.device->cores & ~card.state.cores; }

// The lowest COUNT bits of FREE.
int Lowest(std::int64_t free, int count) {
  int mask = 0;
  for (int bit = 0; bit < kMostCoresOfCard && count > 0; ++bit) {
    if ((free >> bit & 1) == 0) continue;
    mask |= 1 << bit;
    --count;
  }
  return mask;
}

class NeuronVendor final : public PlainVendor {
 public:
  using PlainVendor::PlainVendor;

  // Cores of the card tell whether a request for cores is whole cards, and how many: a card decides.
  base::Result<std::optional<Request>> ParseRequest(const Container& container) const override {
    const auto devices = Amount(container, spec().count_resource);
    HAMI_TRY(devices);
    const auto cores = Amount(container, spec().core_resource);
    HAMI_TRY(cores);
    Request request;
    request.count = static_cast<int>(devices->value_or(0));
    if (request.count > 0) return std::optional<Request>(request);
    request.count = 1;
    request.cores = static_cast<int>(cores->value_or(0));
    return request.cores == 0 ? std::optional<Request>() : std::optional<Request>(request);
  }

  std::optional<Request> MostOf(const Container& container) const override {
    const auto asked = ParseRequest(container);
    if (!asked || !*asked) return std::nullopt;
    Request most = **asked;
    most.count = std::max(most.count, most.cores);
    most.cores = kWholeCard;
    return most;
  }
  int MostCores(const Device& card, int) const override { return card.cores; }
  std::int64_t CorePercent(const Device& card, std::int64_t mask) const override {
    return CoresOf(card.cores) == 0 ? 0 : std::int64_t{CoresOf(mask)} * kWholeCard / CoresOf(card.cores);
  }
  std::int64_t CoreParts(std::int64_t mask) const override { return CoresOf(mask); }
  // Where whole cards are asked for by their cores, that of one of them.
  std::optional<Want> WantOf(const Device& card, const Request& request, const CardRules&) const override {
    const int all = CoresOf(card.cores);
    return Want{0, request.cores == 0 ? all : std::min(request.cores, all), all};
  }
  QuotaResources quota_resources() const override { return {}; }

  base::Result<bool> Mutate(base::json::object& object, PodDraft&, Warnings&) const override {
    const Container container = ReadContainer(object);
    const auto devices = Judge(container, spec().count_resource, kMostDevices);
    HAMI_TRY(devices);
    const auto cores = Judge(container, spec().core_resource, 2 * kMostDevices);
    HAMI_TRY(cores);
    if (*devices == 0 && *cores > 1 && *cores % kMostOfOneCard != 0) {
      return base::Fail(base::Concat({spec().core_resource, " must be 1 or a multiple of ",
                                      std::to_string(kMostOfOneCard), ", got ", std::to_string(*cores)}));
    }
    return *devices > 0 || *cores > 0;
  }

  FitResult Fit(const FitInput& input) const override {
    const int cores = input.walk.empty() ? 0 : CoresOf(CardOf(input, input.walk.front()).device->cores);
    const Request& request = input.request;
    if (request.cores == 0) return request.count == 1 ? OneCard(input, cores) : Neighbours(input, request.count);
    if (request.cores <= std::min(cores, kMostOfOneCard)) return OneCard(input, request.cores);
    if (cores > 0 && request.cores == cores) return OneCard(input, cores);
    if (cores > 0 && request.cores % cores == 0) return Neighbours(input, request.cores / cores);
    FitResult result;
    result.reasons.Add(Reason::kCardInsufficientCore, static_cast<int>(input.walk.size()));
    return result;
  }

  void Annotate(const GrantInfo& grant, StringMap& out) const override {
    const auto rows = WithCards(grant);
    std::vector<std::string> ids;
    const bool by_cores = CountsCores(grant, rows);
    for (const auto& row : rows) {
      for (const auto& [share, card] : row) {
        const int each = CoresOf(card->cores);
        if (!by_cores) ids.push_back(std::to_string(card->index));
        for (int bit = 0; by_cores && bit < each; ++bit) {
          if ((share->cores >> bit & 1) != 0) ids.push_back(std::to_string(each * card->index + bit));
        }
      }
    }
    out["AWS_NEURON_IDS"] = base::Join(ids, ",");
    if (by_cores) out["NEURON_RESOURCE_TYPE"] = spec().core_resource;
    out["NEURON_ALLOC_TIME"] = Nanoseconds(grant.now);
    out["NEURON_ALLOCATED"] = "false";
    out["aws.amazon.com/predicate-node"] = grant.node;
  }

 protected:
  base::Result<NodeCards> CountCards(const NodeFacts& node) const override {
    const std::int64_t count = CapacityOf(node, spec().count_resource);
    const std::int64_t cores = CapacityOf(node, spec().core_resource) / std::max<std::int64_t>(count, 1);
    Device card;
    card.type = key();
    card.count = static_cast<int>(std::min<std::int64_t>(cores, kMostCoresOfCard));
    card.cores = (1 << card.count) - 1;
    card.custom_info = node.instance_type;
    NodeCards cards;
    cards.devices = CardsLike(card, node, key(), count);
    return cards;
  }

 private:
  static const CardView& CardOf(const FitInput& input, int card) { return input.cards[static_cast<std::size_t>(card)]; }

  base::Result<std::int64_t> Judge(const Container& container, const std::string& resource, std::int64_t most) const {
    const std::string* text = TextOf(container, resource);
    if (text == nullptr) return 0;
    const auto quantity = ParseQuantity(*text);
    if (!quantity || !quantity->whole) return base::Fail(resource + " must be an integer");
    if (quantity->value <= 0) return base::Fail(resource + " must be greater than 0");
    if (quantity->value > most) return base::Fail(resource + " must not exceed " + std::to_string(most));
    return quantity->value;
  }

  // One core list for the pod: some container asked for cores.
  bool CountsCores(const GrantInfo& grant, const std::vector<std::vector<ShareAndCard>>& rows) const {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Container* container = ContainerAt(grant.pod, i);
      if (!rows[i].empty() && container != nullptr && TextOf(*container, spec().count_resource) == nullptr) return true;
    }
    return false;
  }

  static FitResult OneCard(const FitInput& input, int cores) {
    FitResult result;
    for (const int index : input.walk) {
      const CardView& card = CardOf(input, index);
      std::optional<Reason> reason;
      if (!card.usable) {
        reason = Reason::kCardNotHealth;
      } else if (!input.rules.AcceptsUuid(card.device->uuid)) {
        reason = Reason::kCardUuidMismatch;
      } else if (card.state.slots >= card.device->count) {
        reason = Reason::kCardTimeSlicingExhausted;
      } else if (input.mutex && card.state.slots > 0) {
        reason = Reason::kExclusiveDeviceAllocateConflict;
      } else if (CoresOf(FreeOf(card)) < cores) {
        reason = Reason::kCardInsufficientCore;
      }
      if (reason) {
        result.reasons.Add(*reason);
        continue;
      }
      Pick pick;
      pick.card = index;
      pick.cores = Lowest(FreeOf(card), cores);
      result.picks.push_back(pick);
      result.fits = true;
      return result;
    }
    return result;
  }

  // Idle cards next to each other, by index. Trainium links them in groups that begin at multiples of their size.
  static FitResult Neighbours(const FitInput& input, int count) {
    Picks order;
    for (const int card : input.walk) {
      Pick pick;
      pick.card = card;
      pick.cores = CardOf(input, card).device->cores;
      order.push_back(pick);
    }
    order = ByIndex(input, std::move(order));
    const auto wanted = static_cast<std::size_t>(count);
    const bool anywhere = !order.empty() && CardAt(input.cards, order.front()).custom_info.starts_with("inf");
    const bool linked = count == 1 || count == 4 || count == 8 || count == 16;
    FitResult result;
    for (std::size_t first = 0; (anywhere || linked) && first + wanted <= order.size();
         first += anywhere ? 1 : wanted) {
      const auto idle = [&](const Pick& pick) {
        const CardView& card = CardOf(input, pick.card);
        return card.usable && card.state.slots == 0 && card.device->count > 0;  // cores of a node may be untold
      };
      const auto begin = order.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end = begin + count;
      if (!std::all_of(begin, end, idle)) continue;
      result.picks.assign(begin, end);
      result.fits = true;
      return result;
    }
    result.reasons.Add(Reason::kNumaNotFit);
    return result;
  }
};

}  // namespace

void AddNeuron(const OtherSections& config, Vendors& out) {
  const Section section(config, "awsneuron");
  PlainSpec spec{.key = "AWSNeuron",
                 .count_resource = section.Text("resourceCountName"),
                 .core_resource = section.Text("resourceCoreName"),
                 .takes_lock = false,
                 .use_uuid = {"aws.amazon.com/use-neuron-uuid"},
                 .avoid_uuid = {"aws.amazon.com/nouse-neuron-uuid"}};
  spec.GrantAs("aws-neuron");
  spec.to_allocate.clear();
  AddNamed(std::make_unique<NeuronVendor>(std::move(spec)), out);
}

}  // namespace hami::device
