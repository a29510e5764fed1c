// SPDX-License-Identifier: Apache-2.0
//
// What a pod costs. Init containers run one after the other before the app containers, sidecars run beside both: on
// each card a pod costs its sidecars plus the larger of its largest init container and the sum of its app containers.
// Once the init containers have ended it costs sidecars plus app containers.

#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <span>
#include <vector>

#include "device/pod.h"
#include "device/types.h"

namespace hami::sched {

enum class Role : std::uint8_t { kInit, kSidecar, kApp };

// One per container, init containers first: the order of every grant.
std::vector<Role> Roles(const device::Pod& pod);

// One share. CARD is any number that names the card within the pod.
struct Entry {
  int card = 0;
  int container = 0;
  Role role = Role::kApp;
  device::MiB memory = 0;
  std::int64_t cores = 0;
};

struct CardCharge {
  int card = 0;
  device::MiB memory = 0;
  std::int64_t cores = 0;
  int slots = 0;
  bool operator==(const CardCharge&) const = default;
};
using CardCharges = boost::container::small_vector<CardCharge, 8>;

// One charge per card, in order of first appearance.
CardCharges Collapse(std::span<const Entry> entries, bool init_done);

}  // namespace hami::sched
