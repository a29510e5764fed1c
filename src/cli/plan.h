// SPDX-License-Identifier: Apache-2.0
//
// Who gets what: a pure function from the GPUs, what is already held and one request to a grant, or to a refusal that
// says for every GPU why not. Invariants: on each GPU the reserved memory of all grants and what runs outside any share
// stay within the card, unless the request allows oversubscription; the cores asked for stay within 100. Equal choices
// are decided by the lowest index. No clock, no I/O.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/units.h"

namespace hami::cli {

// What the planner needs to know of one GPU.
struct Device {
  unsigned index = 0;
  std::string uuid;
  std::uint64_t total_bytes = 0;
  std::uint64_t outside_bytes = 0;  // used by processes that belong to no share
  std::string trouble = {};         // why nothing can be granted on it; empty: it answers
};

// One share's part of one GPU.
struct Grant {
  std::string uuid;
  std::uint64_t limit_bytes = 0;     // what the programs may use
  std::uint64_t reserved_bytes = 0;  // physical memory set aside; less than the limit only when oversubscribed
  unsigned cores = 0;                // percent of the compute time; 0 = no limit, and none set aside
  unsigned burst = 0;                // percent up to which idle compute time may be used; 0: no more than the cores
};

struct Holder {
  std::string share;
  std::vector<Grant> grants;
};

enum class Policy {
  kSpread,   // the GPU with the most free memory
  kBinpack,  // the fullest GPU on which the request still fits
};

struct AnyGpus {
  unsigned count = 1;
};
using GpuChoice = std::variant<AnyGpus, std::vector<std::string>>;  // how many, or which (uuids or unique prefixes)

struct Request {
  GpuChoice gpus = AnyGpus{};
  std::optional<base::Portion> memory;  // of each GPU; absent: all that is free on it
  unsigned cores = 0;                   // 0: no limit
  unsigned burst = 0;                   // 0: no more than the cores
  Policy policy = Policy::kSpread;
  bool oversubscribe = false;
};

// What is free on one GPU, and why the request does not fit there, or none would (empty if it does).
struct Room {
  unsigned index = 0;
  std::string uuid;
  std::uint64_t free_bytes = 0;
  unsigned free_cores = 100;
  std::size_t shares = 0;
  std::string obstacle;
};

struct Plan {
  std::vector<Grant> grants;  // empty: refused
  std::string refusal;        // one sentence; empty when granted
  std::vector<Room> rooms;    // one per device, in the order given
};

Plan MakePlan(const std::vector<Device>& devices, const std::vector<Holder>& holders, const Request& request);

// What MEMORY means on a GPU of TOTAL bytes: percentages are whole MiB, rounded down, so that four of 25 % always fit.
std::uint64_t BytesOf(const base::Portion& memory, std::uint64_t total);

// What is left on each device, without any request.
std::vector<Room> CountRoom(const std::vector<Device>& devices, const std::vector<Holder>& holders);

}  // namespace hami::cli
