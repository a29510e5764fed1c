// SPDX-License-Identifier: Apache-2.0
//
// What a thread has seen to be on the device of its lease, so that it need not ask the driver again: streams, and, for
// launches on those that every context has, contexts. Either is known by its handle, which is another one's some time
// after it ended: what was seen counts until HandleEpoch (contexts.h) moves on. A few are kept; one that is forgotten
// is asked for again. Contexts and streams that are there at the same time have different handles.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace hami::vgpu {

class HandleCache {
 public:
  bool Has(const void* handle, uint32_t epoch) const {
    return epoch == epoch_ && handle != nullptr && seen_[IndexOf(handle)] == handle;
  }
  // `epoch` is from before the driver was asked.
  void Add(const void* handle, uint32_t epoch) {
    if (epoch != epoch_) Clear();
    epoch_ = epoch;
    seen_[IndexOf(handle)] = handle;
  }
  void Clear() {
    for (const void*& seen : seen_) seen = nullptr;
  }

 private:
  static constexpr int kBits = 3;
  static size_t IndexOf(const void* handle) {
    return (reinterpret_cast<uintptr_t>(handle) * 0x9e3779b97f4a7c15u) >> (64 - kBits);
  }

  const void* seen_[size_t{1} << kBits] = {};
  uint32_t epoch_ = 0;
};

}  // namespace hami::vgpu
