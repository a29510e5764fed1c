// SPDX-License-Identifier: Apache-2.0
//
// Which pods may be between bind and Allocate on one node at the same time. The kubelet's Allocate names slots and no
// pod; the question whose allocation it is has no wrong answer when the pods' grants are interchangeable, and one
// answer only when their requests differ in size. Pure.

#pragma once

#include <string>
#include <vector>

#include "device/pod.h"
#include "device/types.h"

namespace hami::scheduler {

// What the node's plugin can tell a grant by.
struct GrantShape {
  std::string text;        // equal texts: interchangeable grants
  std::vector<int> sizes;  // shares of every container that has some, in order
  bool operator==(const GrantShape&) const = default;
};

// What POD's containers say of how they use their shares belongs to it: the plugin writes that into the region of the
// container that it takes for the one.
GrantShape ShapeOf(const device::Allocation& allocation, const device::Pod& pod);

// Interchangeable, or every request of one differs in size from every request of the other.
bool MayBeTogether(const GrantShape& a, const GrantShape& b);

// A pod between its way to the node and the end of its Allocate.
struct InFlight {
  std::string ns;
  std::string name;
  GrantShape shape;
  device::UnixSeconds since = 0;  // it was bound, or its bind call came, as far as we know and by our own clock
  enum class Stage {
    kWaiting,   // wants the node
    kTicketed,  // the node's ticket names it; its Binding is not known to have happened
    kBound,     // bound, its plugin has not answered for it yet
  };
  Stage stage = Stage::kWaiting;
  bool own_lock = false;  // it takes the lock of one vendor, too
};

}  // namespace hami::scheduler
