// SPDX-License-Identifier: Apache-2.0
//
// The time that the GPU was busy with a context: stretches on several streams are added in any order, and what two of
// them cover counts once. A few disjoint stretches are remembered; before the first of them everything counts as added,
// so that a late one is paid once at most.
#pragma once

#include <stdint.h>

namespace hami::vgpu::time {

class BusyUnion {
 public:
  static constexpr int kStretches = 32;

  // Adds [begin, end), in ns of the device's clock; returns how much of it was not there before.
  int64_t Add(int64_t begin, int64_t end) {
    if (begin < floor_) begin = floor_;
    if (begin >= end) return 0;
    int64_t covered = 0;  // the remembered ones are disjoint, so what each covers adds up
    Stretch grown{begin, end};
    int kept = 0;
    for (int i = 0; i < count_; ++i) {
      const Stretch s = seen_[i];
      if (s.end < begin || s.begin > end) {
        seen_[kept++] = s;
        continue;
      }
      covered += (s.end < end ? s.end : end) - (s.begin > begin ? s.begin : begin);
      if (s.begin < grown.begin) grown.begin = s.begin;
      if (s.end > grown.end) grown.end = s.end;
    }
    count_ = kept;
    Insert(grown);
    return end - begin - covered;
  }

 private:
  struct Stretch {
    int64_t begin, end;
  };

  void Insert(const Stretch& s) {
    if (count_ == kStretches) {
      floor_ = seen_[0].end;
      for (int i = 1; i < count_; ++i) seen_[i - 1] = seen_[i];
      --count_;
    }
    int at = count_++;
    for (; at > 0 && seen_[at - 1].begin > s.begin; --at) seen_[at] = seen_[at - 1];
    seen_[at] = s;
  }

  Stretch seen_[kStretches] = {};  // by time
  int count_ = 0;
  int64_t floor_ = INT64_MIN;
};

}  // namespace hami::vgpu::time
