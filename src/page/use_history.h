// SPDX-License-Identifier: Apache-2.0
//
// What each share used over the last hour, one sample a minute, as the nodes' monitors said it; and of each monitor,
// when it answered last and what is wrong since. Time is an argument. Bounded: older samples go, with the shares that
// have none left; beyond kMostShares a further share is not kept, and is counted. Thread-safe.

#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "device/use_report.h"
#include "device/vendor.h"

namespace hami::page {

class UseHistory {
 public:
  static constexpr device::UnixSeconds kSlot = 60;  // of two samples in one the later stays
  static constexpr device::UnixSeconds kSpan = 3600;
  static constexpr std::size_t kMostShares = 50'000;
  static constexpr std::size_t kMostProblem = 300;  // bytes

  // A monitor's report for the node that it stands on.
  void Answered(std::string_view node, const device::UseReport& report, device::UnixSeconds now);
  // NODE's monitor could not be asked, or has no good answer.
  void Silent(std::string_view node, std::string_view problem, device::UnixSeconds now);
  // The list of monitors itself cannot be had; empty: it can.
  void ListProblem(std::string_view problem);
  // NODES, sorted, are all that have a monitor. What the others said is kept until it is old.
  void Listed(const std::vector<std::string>& nodes, device::UnixSeconds now);

  // The document of GET /v1/use (docs/operate/page.md).
  std::string Render(std::string_view node, device::UnixSeconds now) const;
  std::size_t shares() const;

 private:
  struct Sample {
    std::int64_t time = 0;
    std::int32_t used = 0;  // MiB
    std::int32_t limit = 0;
    std::int16_t core_percent = -1;  // -1: not known
    std::int16_t core_limit = 100;
  };
  using Key = std::tuple<std::string, std::string, std::string, std::string>;  // namespace, pod, container, UUID
  struct NodeUse {
    std::map<Key, std::vector<Sample>> shares;  // oldest sample first
    device::UnixSeconds answered = 0;           // 0: never
    std::string problem;
    std::size_t left_out = 0;  // shares of the last report for which there was no room
  };
  void Add(std::vector<Sample>& samples, const device::ShareUse& share, device::UnixSeconds now);
  // False: nothing is left of it.
  bool Trim(NodeUse& node, device::UnixSeconds now);

  mutable std::mutex mutex_;
  std::map<std::string, NodeUse, std::less<>> nodes_;
  std::size_t shares_ = 0;
  std::string list_problem_ = "no monitor has been looked for yet";
};

}  // namespace hami::page
