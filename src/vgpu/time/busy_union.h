// SPDX-License-Identifier: Apache-2.0
//
// The time that the GPU was busy with a context: stretches on several streams are added in any order, and what two of
// them cover counts once. Disjoint stretches are remembered for as long as another may come before their end. Where
// there are more than it keeps, the shortest rest between two counts as busy: so nothing is lost, and what fills that
// rest later is paid already.
#pragma once

#include <stdint.h>

#include <algorithm>

namespace hami::vgpu::time {

class BusyUnion {
 public:
  static constexpr int kStretches = 32;

  // Adds [begin, end), in ns of the device's clock; returns how much of it was not there before.
  int64_t Add(int64_t begin, int64_t end) {
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
      covered += std::min(s.end, end) - std::max(s.begin, begin);
      grown = {std::min(s.begin, grown.begin), std::max(s.end, grown.end)};
    }
    int at = kept;
    for (; at > 0 && seen_[at - 1].begin > grown.begin; --at) seen_[at] = seen_[at - 1];
    seen_[at] = grown;
    count_ = kept + 1;
    return end - begin - covered + (count_ > kStretches ? CloseShortest() : 0);
  }

  // Adds `length` ns where nothing is yet, from `begin` on and before `end`; returns how many found room.
  int64_t Fill(int64_t begin, int64_t end, int64_t length) {
    int64_t at = begin, left = length;
    for (int i = 0; i < count_ && left > 0 && at < end; ++i) {
      if (seen_[i].end <= at) continue;
      const int64_t room = seen_[i].begin < end ? seen_[i].begin - at : end - at;
      if (room >= left) break;
      if (room > 0) left -= room;
      at = seen_[i].end;
    }
    return Add(begin, left < end - at ? at + left : end);
  }

  // Nothing is added before that from now on.
  void Forget(int64_t before) {
    const auto gone = [before](const Stretch& s) { return s.end < before; };
    count_ = static_cast<int>(std::remove_if(seen_, seen_ + count_, gone) - seen_);
  }

 private:
  struct Stretch {
    int64_t begin, end;
  };

  // Returns how long it was.
  int64_t CloseShortest() {
    int shortest = 1;
    const auto rest = [this](int i) { return seen_[i].begin - seen_[i - 1].end; };
    for (int i = 2; i < count_; ++i) shortest = rest(i) < rest(shortest) ? i : shortest;
    const int64_t closed = rest(shortest);
    seen_[shortest - 1].end = seen_[shortest].end;
    std::copy(seen_ + shortest + 1, seen_ + count_--, seen_ + shortest);
    return closed;
  }

  Stretch seen_[kStretches + 1] = {};  // by time
  int count_ = 0;
};

}  // namespace hami::vgpu::time
