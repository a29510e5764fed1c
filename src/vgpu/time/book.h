// SPDX-License-Identifier: Apache-2.0
//
// What each kind of launch is expected to cost. It decides when launches are held, never what is paid in the end.
// Readers take no lock; whoever teaches holds the gate's. A kind that is not known costs what its kernel or graph cost
// last, in whatever grid; one of which nothing is known is left to the gate. Where all places that a kind may have are
// taken, it takes one of them in turn: two that only ever took each other's would never be known.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <algorithm>

#include "vgpu/time/constants.h"

namespace hami::vgpu::time {

class CostBook {
 public:
  static constexpr size_t kKinds = 8192;

  // ns; 0: not known, or not at one of so many places.
  int64_t Price(uint64_t id, size_t ways = kWays) const {
    const Kind* const kind = Find(id, ways);
    return kind == nullptr ? 0 : __atomic_load_n(&kind->price, __ATOMIC_RELAXED);
  }
  int64_t Expected(uint64_t id, uint64_t handle) const {
    const int64_t price = Price(id);
    return price != 0 ? price : Price(OfHandle(handle));
  }

  // Launches of a kind, or of several (0) of one kernel or graph, or of several (0). `alone`: launched when it was
  // doubted.
  void Teach(uint64_t id, uint64_t handle, int64_t measured, bool alone = false) {
    const int64_t cost = measured > 0 ? measured : 1;
    if (id != 0) Move(id, cost);
    if (handle == 0) return;
    const bool far = cost > 2 * Price(OfHandle(handle));
    if (Kind* const kind = Find(OfHandle(handle)); kind != nullptr && (alone || far)) {
      kind->steady = far ? int16_t{0} : std::min(kBelieved, static_cast<int16_t>(kind->steady + 1));
      if (alone && id != 0) kind->doubted = false;  // of before the last change it has no kind any more
    }
    Move(OfHandle(handle), cost);
  }
  // A kind was measured, but not surely. True where it has no price and that came more than kSmooth times: then what
  // was measured is better than a guess.
  bool Unsure(uint64_t id) {
    Kind* const kind = Take(id);
    return kind->price == 0 && ++kind->measured > kSmooth;
  }
  // A graph does something else from now on. The last cost is still the best guess, and believed where what was
  // measured after the last few changes was near it.
  void Changed(uint64_t id, uint64_t handle) {
    Forget(id);
    Kind* const kind = Find(OfHandle(handle));
    if (kind != nullptr) kind->doubted = kind->steady < kBelieved;
  }
  bool Doubted(uint64_t handle) const {
    const Kind* const kind = Find(OfHandle(handle));
    return kind != nullptr && kind->doubted;
  }
  void Forget(uint64_t id) {
    if (Kind* const kind = Find(id); kind != nullptr) __atomic_store_n(&kind->price, int64_t{0}, __ATOMIC_RELAXED);
  }
  void ForgetHandle(uint64_t handle) { Forget(OfHandle(handle)); }
  void Reset() {
    for (Kind& kind : kinds_) kind = {};
    evicted_ = 0;
  }

 private:
  struct alignas(32) Kind {  // in one cache line
    uint64_t id = 0;
    int64_t price = 0;
    int16_t measured = 0;
    int16_t steady = 0;  // measurements in a row that were less than twice what was expected, after a change
    bool doubted = false;
  };
  static constexpr int16_t kBelieved = 3;
  static uint64_t OfHandle(uint64_t handle) { return handle * 0x9e37'79b9'7f4a'7c15 | 2; }

  // The first kSmooth measurements have equal weight, so that none of them counts for more than what comes later.
  void Move(uint64_t id, int64_t cost) {
    Kind* const kind = Take(id);
    const int64_t known = kind->price;
    kind->measured =
        known == 0 ? int16_t{1} : std::min(static_cast<int16_t>(kSmooth), static_cast<int16_t>(kind->measured + 1));
    const int64_t part = (cost - known) / kind->measured;
    const int64_t price = known + (part != 0 ? part : (cost > known) - (cost < known));
    __atomic_store_n(&kind->price, price, __ATOMIC_RELAXED);
  }
  Kind* Find(uint64_t id, size_t ways = kWays) const {
    for (size_t way = 0; way < ways; ++way) {
      const Kind* const kind = &kinds_[Place(id, way)];
      if (__atomic_load_n(&kind->id, __ATOMIC_RELAXED) == id) return const_cast<Kind*>(kind);
    }
    return nullptr;
  }
  Kind* Take(uint64_t id) {
    if (Kind* const kind = Find(id); kind != nullptr) return kind;
    Kind* const kind = FreeFor(id);
    __atomic_store_n(&kind->price, int64_t{0}, __ATOMIC_RELAXED);
    __atomic_store_n(&kind->id, id, __ATOMIC_RELAXED);
    kind->measured = kind->steady = 0;
    kind->doubted = false;
    return kind;
  }
  Kind* FreeFor(uint64_t id) {
    for (size_t way = 0; way < kWays; ++way) {
      if (kinds_[Place(id, way)].price == 0) return &kinds_[Place(id, way)];
    }
    return &kinds_[Place(id, ++evicted_ % kWays)];
  }
  // The ways of a kind lie side by side.
  static constexpr size_t kWays = 8;
  static size_t Place(uint64_t id, size_t way) { return (id >> 3) % kKinds ^ way; }

  Kind kinds_[kKinds] = {};
  uint32_t evicted_ = 0;
};

}  // namespace hami::vgpu::time
