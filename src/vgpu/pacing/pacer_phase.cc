// SPDX-License-Identifier: Apache-2.0
#include "vgpu/pacing/pacer_phase.h"

#include "vgpu/loader/driver.h"

namespace hami::vgpu {
namespace {

// When the last stream is through with all its work: behind its mark it goes on at `pace`, ns for each ns of cost.
int64_t LastEnd(const Marks& marks, const int64_t* ends, double pace) {
  int64_t last = INT64_MIN;
  for (int i = 0; i < marks.count; ++i) {
    const Mark& mark = marks.first[i];
    if (mark.event == nullptr) continue;
    const int64_t end = ends[i] + static_cast<int64_t>(static_cast<double>(mark.cost - mark.marked) * pace);
    if (end > last) last = end;
  }
  return last;
}

// Where streams go on, none of them leaves the GPU to the last one.
int64_t MeanEnd(const Marks& marks, const int64_t* ends, double pace) {
  double sum = 0;
  int marked = 0;
  for (int i = 0; i < marks.count; ++i) {
    const Mark& mark = marks.first[i];
    if (mark.event == nullptr) continue;
    sum += static_cast<double>(ends[i]) + static_cast<double>(mark.cost - mark.marked) * pace;
    ++marked;
  }
  return marked == 0 ? 0 : static_cast<int64_t>(sum / marked);
}

}  // namespace

bool Ends(const Marks& marks, CUevent start, int64_t* ends, bool* failed) {
  for (int i = 0; i < marks.count; ++i) {
    const CUevent event = marks.first[i].event;
    if (event == nullptr) continue;
    const CUresult result = real::cuEventQuery(event);
    if (result == CUDA_ERROR_NOT_READY) return false;
    float milliseconds = 0;
    if (result != CUDA_SUCCESS || real::cuEventElapsedTime(&milliseconds, start, event) != CUDA_SUCCESS) {
      *failed = true;
      return true;
    }
    ends[i] = static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
  }
  return true;
}

int64_t MarkedWork(const Marks& marks) {
  int64_t marked = 0;
  for (int i = 0; i < marks.count; ++i) marked += marks.first[i].marked;
  return marked;
}

Span BusyOf(const Marks& one, const int64_t* before, const Marks& two, const int64_t* after, bool cut) {
  const int64_t through = LastEnd(one, before, 0);
  const int64_t begin = through > 0 ? through : 0;
  int64_t took = 0;
  for (int i = 0; i < two.count; ++i) took += after[i] > begin ? after[i] - begin : 0;
  const int64_t marked = MarkedWork(two);
  const double pace = marked > 0 ? static_cast<double>(took) / static_cast<double>(marked) : 0;
  const int64_t really = LastEnd(one, before, pace);
  const int64_t end = cut ? MeanEnd(two, after, pace) : LastEnd(two, after, pace);
  return {.begin = really > 0 ? really : 0, .end = end};
}

}  // namespace hami::vgpu
