// SPDX-License-Identifier: Apache-2.0
//
// What the driver's calls cost the thread that makes them, as measured on an H200 (Profile::host_percent of it). A call
// lasts as long as there, simgpu's own work included; what it submits reaches the GPU near its end. On the virtual
// clock calls cost nothing: its time is everybody's. Refuses: nothing. What is not in the table costs what simgpu takes
// for it.
#pragma once

#include <cstdint>
#include <string_view>

#include "simgpu/machine/real_clock.h"

namespace simgpu {

struct HostNanos {
  std::int64_t total = 0;
  std::int64_t before = 0;  // of it, before the call does anything: what it submits reaches the GPU late in it
};

struct HostCost {
  std::string_view function;  // without _v2, _ptsz and the like
  HostNanos nanos;
};

// Medians, in ns; a pair of calls that was measured as one is split as simgpu's own work is. What is not here takes
// simgpu as long as the driver, or longer.
inline constexpr HostCost kHostCosts[] = {
    {"cuLaunchKernel", {2900, 2600}}, {"cuLaunchKernelEx", {2900, 2300}}, {"cuLaunchCooperativeKernel", {2900, 2300}},
    {"cuGraphLaunch", {1100, 0}},     {"cuEventElapsedTime", {300, 0}},   {"cuEventQuery", {165, 0}},
    {"cuStreamQuery", {175, 0}},      {"cuMemAlloc", {850, 0}},           {"cuMemFree", {850, 0}},
    {"cuMemAllocAsync", {220, 0}},    {"cuMemFreeAsync", {350, 0}},       {"cuMemGetInfo", {3800, 0}},
    {"cuMemcpyHtoDAsync", {1700, 0}}, {"cuMemcpyDtoHAsync", {1700, 0}},   {"cuMemcpyDtoDAsync", {1700, 0}},
    {"cuMemcpyAsync", {1700, 0}},
};
inline constexpr HostNanos kEventRecordTimed = {800, 500};
inline constexpr HostNanos kEventRecordUntimed = {150, 0};
inline constexpr std::int64_t kWakeNanos = 2450;         // of a wait, from the end of the work to the caller
inline constexpr std::int64_t kAllocNanosPerMiB = 1285;  // beyond what small blocks cost
inline constexpr std::int64_t kInitNanos = 100'000'000;
inline constexpr std::int64_t kContextNanos = 100'000'000;

constexpr HostNanos HostNanosOf(std::string_view function) {
  for (const std::string_view suffix : {"_ptsz", "_ptds", "_v2", "_v3"}) {
    if (function.ends_with(suffix)) function.remove_suffix(suffix.size());
  }
  for (const HostCost& row : kHostCosts) {
    if (row.function == function) return row.nanos;
  }
  return {};
}

// Percent of the table that calls cost in this process; 0 before cuInit.
extern std::int32_t g_host_percent;

// Reads what calls cost on machine device `dev`.
void ReadHostCosts(int dev);
// Keeps the thread for `nanos` of the table's time, from now or from `begin` on.
void SpendHost(std::int64_t nanos, Nanos begin = RealNow());
// What a thread takes to wake that waited for work until `ended`, which may lie ahead: it ended sooner then.
void SpendWake(Nanos ended);

// A call of `nanos` on the table: lasts until its scope ends, and no shorter than that.
class CallTime {
 public:
  explicit CallTime(const HostNanos& nanos) {
    if (g_host_percent != 0 && nanos.total != 0) [[unlikely]]
      Begin(nanos);
  }
  ~CallTime() {
    if (end_ != 0) [[unlikely]]
      WaitOut(end_);
  }
  CallTime(const CallTime&) = delete;
  CallTime& operator=(const CallTime&) = delete;

 private:
  void Begin(const HostNanos& nanos);

  std::int64_t end_ = 0;
};

}  // namespace simgpu
