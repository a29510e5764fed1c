// SPDX-License-Identifier: Apache-2.0
//
// Lists of nodes and pods as text: CSV with a header that names the columns, in any order, as in Alibaba's public trace
// cluster-trace-gpu-v2023. Unknown columns are passed over. A line that cannot be read is an error that names it: a
// replay of half a list would answer another question.
//
//   nodes: sn, cpu_milli, memory_mib, gpu, model; optional: gpu_memory_mib, fails_at, back_at (seconds)
//   pods:  name, cpu_milli, memory_mib, num_gpu, gpu_milli; optional: gpu_spec (models divided by `|`),
//          creation_time, deletion_time (seconds; a pod without an end stays)

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/types.h"
#include "sched/host_books.h"

namespace hami::simcluster {

using Seconds = std::int64_t;
inline constexpr Seconds kNever = INT64_MAX;

struct TraceNode {
  std::string name;
  sched::HostAmounts host;
  int cards = 0;
  std::string model;
  device::MiB card_memory = 0;
  Seconds fails_at = kNever;
  Seconds back_at = kNever;
  bool operator==(const TraceNode&) const = default;
};

struct TracePod {
  std::string name;
  sched::HostAmounts host;
  int cards = 0;
  int milli = 0;                    // thousandths of each card; 1000: a whole one
  std::vector<std::string> models;  // empty: any
  Seconds arrives = 0;
  Seconds ends = kNever;
  bool operator==(const TracePod&) const = default;

  std::int64_t demand() const { return std::int64_t{cards} * milli; }  // thousandths of a card in all
};

// FILE is the name for messages. Errors: `FILE:LINE: what`, with what to do.
base::Result<std::vector<TraceNode>> ReadNodes(std::string_view text, const std::string& file);
base::Result<std::vector<TracePod>> ReadPods(std::string_view text, const std::string& file);

// The same the other way round: what the readers read again.
std::string WriteNodes(const std::vector<TraceNode>& nodes);
std::string WritePods(const std::vector<TracePod>& pods);

}  // namespace hami::simcluster
