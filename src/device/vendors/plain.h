// SPDX-License-Identifier: Apache-2.0
//
// What most vendors have in common, once: a request is a count with memory and cores, cards are told by an annotation,
// a card is refused with the first reason that applies, and the grant is written as everywhere. A vendor states how it
// is called, as data, and overrides what it does otherwise. Amounts that cannot be taken are errors, as for NVIDIA.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "device/vendor.h"

namespace hami::device {

inline constexpr int kWholeCard = 100;  // percent
inline constexpr std::string_view kHamiDomain = "hami.io/";

struct PlainSpec {
  std::string key;  // also the type of cards that are told by capacity
  std::string count_resource;
  std::string memory_resource{};  // empty: none
  std::string core_resource{};
  std::int64_t memory_unit = 1;  // MiB that one of the memory resource is
  int default_cores = 0;
  int least_cores = 0;       // of what is asked
  int most_cores = 0;        // 0: what is more than a card is a card
  bool exclusive = true;     // who asks for all cores of a card of 100 wants it idle
  bool limits_only = false;  // what requests say counts nothing
  bool count_only = false;   // memory and cores of its cards are nobody's

  std::string to_allocate{};  // empty: its plugin reads none
  std::string allocated{};
  std::string registered{};  // empty: cards are told by capacity
  bool legacy_register = false;
  bool needs_capacity = false;  // the register annotation counts while the node has the count resource
  std::string handshake{};
  bool clears_handshake = true;
  bool takes_lock = true;
  std::string own_lock{};
  bool keeps_type = false;  // the grant names the card's type, and not the key

  Reason unhealthy = Reason::kCardNotHealth;
  std::string use_type{}, avoid_type{};
  std::vector<std::string> use_uuid{}, avoid_uuid{};
  std::vector<std::string> words{};  // other annotations of a pod that it goes by

  // `hami.io/WORD-devices-…`.
  void GrantAs(std::string_view word);
  // `DOMAIN/use-gpuuuid` and the other one.
  void ListUuids(std::string_view domain);
};

class PlainVendor : public Vendor {
 public:
  explicit PlainVendor(PlainSpec spec) : spec_(std::move(spec)) {}

  std::string_view key() const override { return spec_.key; }
  std::string_view to_allocate_annotation() const override { return spec_.to_allocate; }
  std::string_view allocated_annotation() const override { return spec_.allocated; }
  std::string_view register_annotation() const override { return spec_.registered; }
  std::string_view handshake_annotation() const override { return spec_.handshake; }
  bool clears_handshake() const override { return spec_.clears_handshake; }
  std::string_view count_resource() const override { return spec_.count_resource; }
  QuotaResources quota_resources() const override;
  bool takes_node_lock() const override { return spec_.takes_lock; }
  std::string_view own_lock_annotation() const override { return spec_.own_lock; }
  std::vector<std::string_view> resources() const override;

  base::Result<std::optional<Request>> ParseRequest(const Container& container) const override;
  std::optional<Request> MostOf(const Container& container) const override;
  CardRules ParseRules(const StringMap& annotations) const override;
  bool Registers(const NodeFacts& node) const override;
  base::Result<NodeCards> ReadNode(const NodeFacts& node) const override;
  FitResult Fit(const FitInput& input) const override;
  int SharesOf(const Device& card) const override { return spec_.count_only ? card.count : 0; }
  std::string_view GrantType(const Device& device) const override;
  base::Result<bool> Mutate(base::json::object& container, PodDraft& pod, Warnings& warnings) const override;

 protected:
  const PlainSpec& spec() const { return spec_; }

  // Of what RESOURCE asks, nothing where it does not.
  base::Result<std::optional<std::int64_t>> Amount(const Container& container, const std::string& resource) const;
  // Makes MiB of the amount.
  base::Result<std::optional<MiB>> Memory(const Container& container, const std::string& resource) const;
  base::Error Refusal(const Container& container, const std::string& resource, const base::Error& error) const;
  const std::string* TextOf(const Container& container, const std::string& resource) const;

  // A card as its register annotation tells it, before anything else sees it.
  virtual void Adopt(Device& /*device*/, const NodeFacts& /*node*/) const {}
  // The cards of a node that tells them by capacity.
  virtual base::Result<NodeCards> CountCards(const NodeFacts& node) const;

  // Why CARD is not for the pod: before its UUID is looked at, and after everything else.
  virtual std::optional<Reason> Early(const FitInput& /*input*/, const CardView& /*card*/) const { return {}; }
  virtual std::optional<Reason> Late(const FitInput& /*input*/, const CardView& /*card*/,
                                     const Picks& /*so_far*/) const {
    return {};
  }
  // Whether cores are looked at.
  virtual bool JudgesCores(const FitInput& /*input*/) const { return true; }
  // Whether all cards that fit are collected, to choose among them.
  virtual bool Chooses(const FitInput& /*input*/) const { return false; }
  // As many of PICKS, in walk order, as are requested; fewer: the node does not fit.
  virtual Picks Choose(const FitInput& /*input*/, Picks picks) const { return picks; }

 private:
  friend class PlainWalk;
  PlainSpec spec_;
};

// Whole, not negative, at most 32 bits; else 0.
std::int64_t CapacityOf(const NodeFacts& node, const std::string& resource);
// COUNT healthy cards `NODE-WORD-0`, … like MODEL.
std::vector<Device> CardsLike(const Device& model, const NodeFacts& node, std::string_view word, std::int64_t count);

// The cards of PICKS, ordered by their index on the node.
Picks ByIndex(const FitInput& input, Picks picks);
// PICKS in groups of one Device::group each, largest first; equal ones in the order of their number.
std::vector<Picks> ByGroup(std::span<const CardView> cards, const Picks& picks);
const Device& CardAt(std::span<const CardView> cards, const Pick& pick);

// `custominfo` of a register annotation.
base::json::object CustomInfo(const Device& device);
std::int64_t NumberIn(const base::json::object& object, std::string_view key, std::int64_t otherwise);

// The shares of each container, with their cards.
using ShareAndCard = std::pair<const Share*, const Device*>;
std::vector<std::vector<ShareAndCard>> WithCards(const GrantInfo& grant);

// The indexes of a row's cards, with commas.
std::string IndexesOf(const std::vector<ShareAndCard>& row);
// For vendors whose pods stay on one card: why CARD is not the one that the pod's other containers got.
std::optional<Reason> OffTheFirstCard(const FitInput& input, const CardView& card);

std::string Nanoseconds(UnixSeconds now);

}  // namespace hami::device
