// SPDX-License-Identifier: Apache-2.0
//
// What the driver's calls cost the thread that makes them, as measured on an H200 (Profile::host_percent of it). A call
// lasts as long as there, simgpu's own work included; what it submits reaches the GPU near its end. On the virtual
// clock calls cost nothing: its time is everybody's. Refuses: nothing. What is not in the table costs what simgpu takes
// for it.
#pragma once

#include <cstdint>
#include <string_view>

namespace simgpu {

struct HostCost {
  std::string_view function;  // without _v2, _ptsz and the like
  std::int64_t nanos;
};

// The same as the page of facts has it: medians, in ns. A pair of calls that was measured as one is split in halves.
inline constexpr HostCost kHostCosts[] = {
    {"cuLaunchKernel", 2900},    {"cuLaunchKernelEx", 2900},   {"cuLaunchCooperativeKernel", 2900},
    {"cuGraphLaunch", 1100},     {"cuEventQuery", 165},        {"cuEventElapsedTime", 300},
    {"cuStreamQuery", 175},      {"cuStreamSynchronize", 900}, {"cuMemAlloc", 850},
    {"cuMemFree", 850},          {"cuMemAllocAsync", 285},     {"cuMemFreeAsync", 285},
    {"cuMemGetInfo", 3800},      {"cuMemcpyHtoDAsync", 1700},  {"cuMemcpyDtoHAsync", 1700},
    {"cuMemcpyDtoDAsync", 1700}, {"cuMemcpyAsync", 1700},
};
inline constexpr std::int64_t kEventRecordTimed = 800;
inline constexpr std::int64_t kEventRecordUntimed = 150;
inline constexpr std::int64_t kAllocNanosPerMiB = 1285;  // beyond what small blocks cost
inline constexpr std::int64_t kInitNanos = 100'000'000;
inline constexpr std::int64_t kContextNanos = 100'000'000;

constexpr std::int64_t HostNanos(std::string_view function) {
  for (const std::string_view suffix : {"_ptsz", "_ptds", "_v2", "_v3"}) {
    if (function.ends_with(suffix)) function.remove_suffix(suffix.size());
  }
  for (const HostCost& row : kHostCosts) {
    if (row.function == function) return row.nanos;
  }
  return 0;
}

// Percent of the table that calls cost in this process; 0 before cuInit.
extern std::int32_t g_host_percent;

// Reads what calls cost on machine device `dev`.
void ReadHostCosts(int dev);
// Keeps the thread for `nanos` of the table's time.
void SpendHost(std::int64_t nanos);
// Keeps the thread until CLOCK_MONOTONIC is at `end`.
void WaitOut(std::int64_t end);

// A call of `nanos` on the table: lasts until its scope ends, and no shorter than that.
class CallTime {
 public:
  explicit CallTime(std::int64_t nanos) {
    if (g_host_percent != 0 && nanos != 0) [[unlikely]]
      Begin(nanos);
  }
  ~CallTime() {
    if (end_ != 0) [[unlikely]]
      WaitOut(end_);
  }
  CallTime(const CallTime&) = delete;
  CallTime& operator=(const CallTime&) = delete;

 private:
  void Begin(std::int64_t nanos);

  std::int64_t end_ = 0;
};

}  // namespace simgpu
