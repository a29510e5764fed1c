// SPDX-License-Identifier: Apache-2.0
//
// CPU and memory of the nodes themselves: what each has for pods, and what the pods on it request. Only the
// fragmentation policy looks at it, as a card behind a full CPU is a card that no pod can use. A node of which nothing
// is known has room for everything. Every pod with a node counts, whether or not it asks for a device.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "device/pod.h"
#include "device/types.h"

namespace hami::sched {

// Thousandths of a CPU, and MiB.
struct HostAmounts {
  std::int64_t cpu = 0;
  device::MiB memory = 0;
  bool operator==(const HostAmounts&) const = default;
};

// What POD requests of its node, as kube-scheduler counts it: sidecars + the larger of (app containers together, any
// ordinary init container). Amounts that cannot be read count 0.
HostAmounts HostRequest(const device::Pod& pod);
// Of one map of resources, `cpu` and `memory`.
HostAmounts ReadHostAmounts(const device::StringMap& resources);

// What is left of a node, and how much it has in all.
struct HostRoom {
  HostAmounts free;
  HostAmounts all;
  bool known = false;
};

class HostBooks {
 public:
  // Both: whether the node's room changed.
  bool SetNode(std::string_view node, const HostAmounts& all);
  void RemoveNode(std::string_view node);
  // The pod UID runs on NODE, or is placed there. Once per pod: an earlier node gets its amounts back.
  bool Use(std::string_view uid, std::string_view node, const HostAmounts& amounts);
  // Returns the node that the pod was on; empty: none.
  std::string Drop(std::string_view uid);

  // Empty: none.
  std::string NodeOf(std::string_view uid) const;
  HostRoom Room(std::string_view node) const;
  // The most that any node had so far.
  const HostAmounts& largest() const { return largest_; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  template <typename T>
  using ByText = std::unordered_map<std::string, T, Hash, std::equal_to<>>;
  struct HostNode {
    HostAmounts all;
    HostAmounts used;
    bool known = false;
    std::size_t pods = 0;
  };
  struct HostPod {
    HostNode* node = nullptr;  // of nodes_, whose elements stay where they are
    const std::string* name = nullptr;
    HostAmounts amounts;
  };

  ByText<HostNode> nodes_;
  ByText<HostPod> pods_;
  HostAmounts largest_;
};

}  // namespace hami::sched
