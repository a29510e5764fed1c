// SPDX-License-Identifier: Apache-2.0
//
// Memory from the kernel, zeroed, for tables that must not touch the program's malloc (we may be called from inside
// it), and a growing array on top of it. Elements are plain data; nothing is destroyed when the process ends.
#pragma once

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

namespace hami::vgpu {

// nullptr when the kernel has none. errno is preserved.
inline void* MapPages(size_t bytes) {
  const int saved_errno = errno;
  void* const p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  errno = saved_errno;
  return p == MAP_FAILED ? nullptr : p;
}

inline void UnmapPages(void* pages, size_t bytes) {
  if (pages == nullptr) return;
  const int saved_errno = errno;
  munmap(pages, bytes);
  errno = saved_errno;
}

template <typename T>
class MappedVector {
 public:
  size_t size() const { return size_; }
  T* begin() { return items_; }
  T* end() { return items_ + size_; }
  const T* begin() const { return items_; }
  const T* end() const { return items_ + size_; }
  T& operator[](size_t i) { return items_[i]; }

  // The new, zeroed element; nullptr without memory. Invalidates pointers to elements.
  T* Add() {
    if (size_ == capacity_ && !Grow()) return nullptr;
    items_[size_] = T{};
    return &items_[size_++];
  }
  // Order is not kept.
  void Remove(T* item) { *item = items_[--size_]; }
  void Clear() {
    UnmapPages(items_, capacity_ * sizeof(T));
    items_ = nullptr;
    size_ = capacity_ = 0;
  }

 private:
  bool Grow() {
    const size_t bytes = capacity_ == 0 ? 4096 : capacity_ * sizeof(T) * 2;
    const size_t capacity = bytes / sizeof(T);
    auto* const items = static_cast<T*>(MapPages(capacity * sizeof(T)));
    if (items == nullptr) return false;
    if (size_ != 0) memcpy(static_cast<void*>(items), items_, size_ * sizeof(T));
    UnmapPages(items_, capacity_ * sizeof(T));
    items_ = items;
    capacity_ = capacity;
    return true;
  }

  T* items_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace hami::vgpu
