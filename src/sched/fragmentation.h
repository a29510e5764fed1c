// SPDX-License-Identifier: Apache-2.0
//
// The fragmentation of a node: the free share of its cards, in cards, that a request of the workload could not use on
// average (Weng et al., "Beware of Fragmentation", USENIX ATC 2023). A card's free share is the smaller of its free
// memory and free cores, as parts of the card's; 0 where no further share may live on it.
//
//   F(node) = sum over classes of weight × free share of the cards that requests of the class cannot use:
//             all of them where the node cannot take the class at all (too few cards, CPU or memory), and
//             never less than what is left once the node's CPU or memory has been used up by such pods.
//
// The last clause is ours. Without it a node with eight free cards and CPU for one pod counts as unfragmented until
// that pod is there.
//
// What a placement costs is the growth of F. Cards in MIG mode are left out: their instances are no shares of a card.
// Looks at nothing but its arguments.

#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <span>

#include "device/vendor.h"
#include "sched/host_books.h"
#include "sched/node.h"
#include "sched/workload.h"

namespace hami::sched {

// What the policy goes by besides the node: shared by all nodes of a decision.
struct FragmentView {
  const Workload* workload = nullptr;
  const HostBooks* hosts = nullptr;
  std::size_t most_cards = 1;  // that any node has
};

// A node's cards and host at one moment.
class Fragments {
 public:
  // HOST: what is left of the node's CPU and memory; nothing where it is not known.
  Fragments(const Node& node, std::span<const device::CardView> cards, const device::Vendors& vendors,
            const HostRoom& host, const Workload& workload);

  // The same cards with other CPU and memory left.
  void SetHost(const HostRoom& host);
  // CARD holds MEMORY and CORES (of the vendor's equal parts) and one share more: what follows for it is worked out
  // anew, and for no other.
  void Take(std::size_t card, device::MiB memory, std::int64_t cores);

  // In cards.
  double Total() const;
  // The total if CARD held MEMORY and CORES and one share more.
  double With(std::size_t card, device::MiB memory, std::int64_t cores) const;
  double free_share(std::size_t card) const { return free_[card]; }
  double free_share() const { return all_free_; }

 private:
  struct Unit {
    std::int64_t cores = 0;  // equal parts of the card's
    int shares = 0;          // of it, where they are given by number alone
  };
  struct Cards {
    int cards = 0;     // that the class could use
    double share = 0;  // their free share
  };
  struct Uses {
    bool host_fits = true;
    double most = 0;  // the share that such pods could have, by the node's CPU and memory
    Cards cards;      // as far as the cards themselves go
  };
  double MostByHost(const RequestClass& one, const HostRoom& host) const;
  double FreeShare(std::size_t card, const device::CardState& state) const;
  bool CanUse(const RequestClass& one, std::size_t card, const device::CardState& state) const;
  static device::CardState Plus(device::CardState state, device::MiB memory, std::int64_t cores);
  // What the class can use when CARD goes from one state, with so much free, to another.
  Cards Changed(const RequestClass& one, Cards cards, std::size_t card, const device::CardState& after,
                double free_after) const;
  static double Part(const RequestClass& one, const Uses& uses, const Cards& cards, double all_free);

  const Node& node_;
  std::span<const device::CardView> cards_;
  const device::Vendors& vendors_;
  const Workload& workload_;
  boost::container::small_vector<Unit, 16> units_;                // of each card
  boost::container::small_vector<device::CardState, 16> states_;  // with cores in equal parts
  boost::container::small_vector<double, 16> free_;
  boost::container::small_vector<Uses, 48> uses_;
  double all_free_ = 0;
};

struct NodeFragments {
  double free_share = 0;  // of all cards, in cards
  double fragmented = 0;  // F
};
NodeFragments FragmentsOf(const Node& node, const device::Vendors& vendors, const HostRoom& host,
                          const Workload& workload);

// What one share of REQUEST is of CARD, of 1; 0 where the card has no such share. Each vendor counts memory and cores
// in a unit of its own, or shares alone.
double PartOfCard(const device::Vendor& vendor, const device::Device& card, const device::Request& request,
                  const device::CardRules& rules);

// Higher is better: the growth that is spared, and a tenth of how full the node is afterwards. The second part decides
// between placements that cost the same, and keeps whole nodes free; as a tenth it lost least in any workload of
// docs/results/placement.md.
float PlacementScore(double growth, double free_share_after, const HostRoom& host_after, const FragmentView& view);

// HOST after a pod that requests AMOUNTS.
HostRoom After(HostRoom host, const HostAmounts& amounts);

}  // namespace hami::sched
