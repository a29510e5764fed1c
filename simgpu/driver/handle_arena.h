// SPDX-License-Identifier: Apache-2.0
//
// Memory for objects that the API names by pointer. An arena is one reserved range of addresses that is never given
// back, so any value an application passes can be judged without reading it: inside the range, on an object's boundary,
// and marked live, or it is no handle. Objects are reused oldest first, which keeps a stale handle wrong for a while.
// The arena's owner serialises Take and Give; Find may run concurrently with them. Refuses: more than kCount objects.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

namespace simgpu {

// T has `std::atomic<bool> live` and `T* next_free`.
template <typename T, std::size_t kCount>
class HandleArena {
 public:
  // A live object, constructed when its place is used for the first time and otherwise as Give left it. Null when full.
  T* Take() {
    T* object = nullptr;
    const std::size_t used = used_.load(std::memory_order_relaxed);
    if (first_free_ != nullptr && (free_count_ >= kKeepFree || used == kCount)) {
      object = first_free_;
      first_free_ = object->next_free;
      --free_count_;
      if (first_free_ == nullptr) {
        last_free_ = nullptr;
      }
    } else {
      if (used == kCount || !Reserve()) {
        return nullptr;
      }
      object = new (base_.load(std::memory_order_relaxed) + used) T();
      used_.store(used + 1, std::memory_order_release);
    }
    object->next_free = nullptr;
    object->live.store(true, std::memory_order_release);
    return object;
  }

  void Give(T* object) {
    object->live.store(false, std::memory_order_release);
    object->next_free = nullptr;
    (last_free_ != nullptr ? last_free_->next_free : first_free_) = object;
    last_free_ = object;
    ++free_count_;
  }

  // The live object that a handle names; null when it names none.
  T* Find(const void* handle) const {
    T* base = base_.load(std::memory_order_acquire);
    const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(handle) - reinterpret_cast<std::uintptr_t>(base);
    if (base == nullptr || offset % sizeof(T) != 0 || offset / sizeof(T) >= used_.load(std::memory_order_acquire)) {
      return nullptr;
    }
    T* object = base + offset / sizeof(T);
    return object->live.load(std::memory_order_acquire) ? object : nullptr;
  }

  // Calls visit(T&) for every live object.
  template <typename Visit>
  void ForEach(Visit visit) {
    T* base = base_.load(std::memory_order_acquire);
    for (std::size_t i = 0, used = used_.load(std::memory_order_acquire); i < used; ++i) {
      if (base[i].live.load(std::memory_order_acquire)) {
        visit(base[i]);
      }
    }
  }

 private:
  static constexpr std::size_t kKeepFree = 16;  // a place rests until this many others are free

  bool Reserve() {
    if (base_.load(std::memory_order_relaxed) != nullptr) {
      return true;
    }
    void* range =
        mmap(nullptr, kCount * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) {
      return false;
    }
    base_.store(static_cast<T*>(range), std::memory_order_release);
    return true;
  }

  std::atomic<T*> base_{nullptr};
  std::atomic<std::size_t> used_{0};
  T* first_free_ = nullptr;
  T* last_free_ = nullptr;
  std::size_t free_count_ = 0;
};

}  // namespace simgpu
