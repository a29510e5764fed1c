// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/identity.h"

#include <unistd.h>

#include "region/process.h"
#include "vgpu/loader/driver.h"
#include "vgpu/runtime/capture.h"
#include "vgpu/runtime/mapped_vector.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {
namespace {

constexpr int kMostRounds = 8;
// The kernel's number for the first pid namespace, in which pids are the host's own.
constexpr uint64_t kFirstPidNamespace = 0xEFFF'FFFC;

uint64_t MemoryOf(const ProcessList& list, unsigned pid) {
  for (unsigned i = 0; i < list.count; ++i) {
    if (list.items[i].pid == pid) return list.items[i].usedGpuMemory;
  }
  return 0;
}

bool MovedBy(uint64_t before, uint64_t after, uint64_t bytes) {
  return after - before >= bytes && after - before < bytes + kProbeUnit;  // modulo 2^64: a loss is huge
}

// Memory that is held for a moment, and counted for as long where it is not already. A container that has no room for
// it has none to give.
class Probe {
 public:
  Probe(int device, uint64_t bytes, uint64_t spare) : device_(device), bytes_(bytes), counts_(bytes > spare) {
    if (counts_ && !TryReserve(device_, bytes_, Kind::kContext)) return;
    taken_ = real::cuMemAlloc_v2(&block_, bytes_) == CUDA_SUCCESS;
    if (!taken_) Uncount();
  }
  ~Probe() { GiveBack(); }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  explicit operator bool() const { return taken_; }
  void GiveBack() {
    if (!taken_) return;
    real::cuMemFree_v2(block_);
    Uncount();
    taken_ = false;
  }

 private:
  void Uncount() {
    if (counts_) Refund(device_, bytes_, Kind::kContext);
  }

  const int device_;
  const uint64_t bytes_;
  const bool counts_;
  CUdeviceptr block_ = 0;
  bool taken_ = false;
};

struct Lists {
  ProcessList base, up, down;
};

unsigned Search(int device, nvmlDevice_t handle, uint64_t spare, Lists* lists) {
  Suspects suspects;
  Measure(handle, &lists->base);
  for (int round = 0; round < kMostRounds && !suspects.Hopeless(); ++round) {
    const uint64_t bytes = (1 + region::RandomNumber() % kProbeUnits) * kProbeUnit;
    Probe probe(device, bytes, spare);
    if (!probe) return 0;
    Measure(handle, &lists->up);
    probe.GiveBack();
    Measure(handle, &lists->down);
    suspects.Round(lists->base, lists->up, lists->down, bytes);
    if (suspects.Found() != 0) return suspects.Found();
    lists->base = lists->down;
  }
  return 0;
}

}  // namespace

void Suspects::Round(const ProcessList& base, const ProcessList& up, const ProcessList& down, uint64_t bytes) {
  const unsigned known = streak_ == 0 ? 0 : count_;
  unsigned matched[kMost];
  unsigned kept[kMost];
  unsigned matches = 0;
  unsigned keeps = 0;
  for (unsigned i = 0; i < up.count && matches < kMost; ++i) {
    const unsigned pid = up.items[i].pid;
    const uint64_t held = up.items[i].usedGpuMemory;
    if (!MovedBy(MemoryOf(base, pid), held, bytes) || !MovedBy(MemoryOf(down, pid), held, bytes)) continue;
    matched[matches++] = pid;
    for (unsigned j = 0; j < known; ++j) {
      if (pids_[j] == pid) kept[keeps++] = pid;
    }
  }
  empty_ = matches == 0 ? empty_ + 1 : 0;
  // Nobody followed twice: this process itself was disturbed in one of the rounds, and the search begins anew.
  streak_ = keeps != 0 ? streak_ + 1 : matches != 0 ? 1 : 0;
  count_ = keeps != 0 ? keeps : matches;
  for (unsigned i = 0; i < count_; ++i) pids_[i] = keeps != 0 ? kept[i] : matched[i];
}

bool IdentifyByPid(const ProcessList& listed) {
  if (NvmlPid() != 0) return true;
  const auto self = static_cast<unsigned>(getpid());
  if (region::OwnPidNamespace() != kFirstPidNamespace) return false;
  for (unsigned i = 0; i < listed.count; ++i) {
    if (listed.items[i].pid != self) continue;
    SetNvmlPid(self);
    return true;
  }
  return false;
}

bool IdentifyByProbe(int device, nvmlDevice_t handle, CUcontext context, uint64_t spare) {
  auto* const lists = static_cast<Lists*>(MapPages(sizeof(Lists)));
  if (lists == nullptr) return false;
  unsigned found = 0;
  const RelaxedCapture relaxed;
  if (real::cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {
    found = Search(device, handle, spare, lists);
    CUcontext popped = nullptr;
    real::cuCtxPopCurrent_v2(&popped);
  }
  UnmapPages(lists, sizeof(Lists));
  if (found != 0) SetNvmlPid(found);
  return found != 0;
}

}  // namespace hami::vgpu
