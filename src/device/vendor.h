// SPDX-License-Identifier: Apache-2.0
//
// What a vendor has to answer to take part: which resources it owns, what a container asks of it, which cards a node
// has, which of them fit, and what else its plugin expects on a pod. One file per vendor under vendors/. A vendor holds
// configuration and no state: the same question always gets the same answer. Hooks with a default are those that only
// some vendors need.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "device/lists.h"
#include "device/pod.h"
#include "device/reasons.h"
#include "device/types.h"

namespace hami::device {

// Bits, each with the meaning that a vendor gives it.
using Marks = std::uint8_t;
inline constexpr std::size_t kMarks = 5;

// What is in use on one card.
struct CardState {
  MiB memory = 0;
  int slots = 0;
  std::int64_t cores = 0;  // annotations may say anything, and their sum must not look like nothing
  std::array<std::int32_t, kMarks> marked = {};  // shares of pods with each mark
  bool operator==(const CardState&) const = default;
};

struct MigInstance {
  int card = 0;
  MigPlacement placement;
  bool operator==(const MigInstance&) const = default;
};

// What a node says of itself, as far as its cards go.
struct NodeFacts {
  std::string_view name;
  const StringMap& annotations;
  const StringMap& capacity;       // of the vendors' resources
  std::string_view instance_type;  // its label node.kubernetes.io/instance-type
};

// What one vendor read from a node.
struct NodeCards {
  std::vector<Device> devices;
  // devices × devices, row by row: how close two cards are. Empty: nothing is known.
  std::vector<std::int32_t> pair_scores;
  std::string complaint;  // of what else the node says of its cards and can not be read
  bool operator==(const NodeCards&) const = default;
};

// One share that is about to be given. PROFILE ≥ 0 for a MIG instance.
struct Pick {
  int card = 0;
  MiB memory = 0;
  int cores = 0;
  int profile = -1;
  MigPlacement placement;
};
using Picks = std::vector<Pick>;

// Whether the namespace's quota has room for one more share besides everything already chosen for the pod.
class QuotaGate {
 public:
  virtual ~QuotaGate() = default;
  virtual bool Admits(std::span<const Pick> chosen, const Pick& next) const = 0;
};

// A card as Fit sees it, usage of earlier containers of the pod included.
struct CardView {
  const Device* device = nullptr;
  std::string_view lower_type;
  CardState state;
  bool usable = false;  // healthy, and the books agree with what it is
};

struct FitInput {
  std::span<const CardView> cards;            // every card of the node
  std::span<const int> walk;                  // the candidates, in the order in which they are tried
  std::span<const MigInstance> instances;     // taken placements; card as in CARDS
  std::span<const std::int32_t> pair_scores;  // cards × cards, or empty
  std::span<const Picks> earlier;             // what this vendor gave the pod's other containers, in this decision
  const Request& request;
  const CardRules& rules;
  bool mutex = false;
  bool topology = false;
  const QuotaGate* quota = nullptr;
};

struct FitResult {
  bool fits = false;
  Picks picks;  // as many as requested when it fits
  Reasons reasons;
  int judged = 0;  // cards that the reasons are about; 0: all candidates
};

struct QuotaResources {
  std::string memory;  // empty: the vendor has none
  std::string cores;
  std::int64_t memory_factor = 1;
};

using Warnings = std::vector<std::string>;

// What a share takes of a card, and how many cores the card has for such shares: in the card's own unit.
struct Want {
  MiB memory = 0;
  int cores = 0;
  int all_cores = 0;
};

// A placed pod, for a word in the choice of its node.
struct BonusInput {
  std::span<const CardView> cards;  // every card of the node, as before the pod
  std::span<const Picks> picks;     // what the vendor gave, a row per container that got something
  const CardRules& rules;
  bool spread = false;  // the node with the lowest score is taken
};

// A placed pod, for what its plugin reads.
struct GrantInfo {
  const PodGrant& grant;
  const Pod& pod;
  std::string_view node;
  std::span<const Device> cards;  // every card of the node
  const CardRules& rules;
  UnixSeconds now = 0;
};

// A pod at its admission.
struct PodDraft {
  base::json::object& spec;
  StringMap annotations;  // as submitted
  StringMap added = {};   // annotations that it gets
};

class Vendor {
 public:
  virtual ~Vendor() = default;

  virtual std::string_view key() const = 0;
  // Empty: the plugin reads none.
  virtual std::string_view to_allocate_annotation() const = 0;
  virtual std::string_view allocated_annotation() const = 0;
  // Empty: the cards are known by the node's capacity.
  virtual std::string_view register_annotation() const = 0;
  virtual std::string_view handshake_annotation() const { return {}; }
  // What else of a node's annotations it reads, outside of hami.io/.
  virtual std::vector<std::string_view> node_annotations() const { return {}; }
  // Whether the handshake goes with the cards of a plugin that is gone.
  virtual bool clears_handshake() const { return true; }
  virtual std::string_view count_resource() const = 0;
  virtual QuotaResources quota_resources() const { return {}; }
  virtual bool takes_node_lock() const { return true; }
  // The plugin may say that it needs no lock.
  virtual bool may_do_without_lock() const { return false; }
  // A lock beside the node's, of this vendor alone; empty: none. At most one vendor has one.
  virtual std::string_view own_lock_annotation() const { return {}; }
  // The names of all resources that ParseRequest looks at.
  virtual std::vector<std::string_view> resources() const = 0;

  // What CONTAINER asks; nothing when it asks for no device of this vendor. Errors: an amount that cannot be taken, for
  // which no card is right: neither some nor none.
  virtual base::Result<std::optional<Request>> ParseRequest(const Container& container) const = 0;
  // The most that it may have been given, by whatever configuration: what CONTAINER does not say, or says in a way that
  // cannot be read, may be a whole card.
  virtual std::optional<Request> MostOf(const Container& container) const = 0;
  virtual CardRules ParseRules(const StringMap& annotations) const = 0;
  // Whether the node says anything of cards of this vendor.
  virtual bool Registers(const NodeFacts& node) const;
  // The cards that the node registers. An absent annotation is an empty list.
  virtual base::Result<NodeCards> ReadNode(const NodeFacts& node) const = 0;

  virtual FitResult Fit(const FitInput& input) const = 0;
  // More cards were asked for than there are candidates: may it still fit, several shares on one card?
  virtual bool MaySharePhysicalCards(const FitInput&) const { return false; }
  // The type that goes into the allocation annotation.
  virtual std::string_view GrantType(const Device&) const { return key(); }
  virtual bool has_bonus() const { return false; }
  // Added to the node's score.
  virtual float Bonus(const BonusInput&) const { return 0; }
  // Further annotations that the vendor's plugin reads.
  virtual void Annotate(const GrantInfo&, StringMap&) const {}
  // What one share of REQUEST takes of CARD; nothing: the card has no such share.
  virtual std::optional<Want> WantOf(const Device& card, const Request& request, const CardRules& rules) const;
  // CORES of a card, used or all, as a number of equal parts; and how many of them CARD has for shares.
  virtual std::int64_t CoreParts(std::int64_t cores) const { return cores; }
  virtual std::int64_t AllCoreParts(const Device& card) const { return CoreParts(card.cores); }
  // How many shares CARD has, where they are given by number alone: its memory and cores are nobody's. 0: by these.
  virtual int SharesOf(const Device& /*card*/) const { return 0; }
  // CORES of CARD, used or all, in percent.
  virtual std::int64_t CorePercent(const Device&, std::int64_t cores) const { return cores; }
  // As many as a share of ASKED cores may hold of CARD.
  virtual int MostCores(const Device&, int asked) const { return asked; }
  // What a pod is to others on its cards, by its annotations; and which those are.
  virtual Marks MarksOf(const StringMap&) const { return 0; }
  virtual std::vector<std::string_view> mark_annotations() const { return {}; }

  // Admission: changes CONTAINER (and POD) in place; true when the container uses this vendor. WARNINGS: what
  // is not taken as it is written, a sentence each.
  virtual base::Result<bool> Mutate(base::json::object& container, PodDraft& pod, Warnings& warnings) const = 0;
  // The same of what ANNOTATIONS say of a pod that uses this vendor.
  virtual void Remark(const StringMap& /*annotations*/, Warnings& /*warnings*/) const {}
};

using Vendors = std::vector<std::unique_ptr<const Vendor>>;

}  // namespace hami::device
