// SPDX-License-Identifier: Apache-2.0
//
// How a few bytes become a region file of two megabytes: a first byte that chooses the base (a valid region, a HAMi
// one, v0, zeroes, or the bytes themselves), three bytes for the file's length, then patches of offset and value. So a
// fuzzer's inputs stay small and its mutations land on words that matter.

#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "region/layout.h"

namespace hami::region {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  size_t left() const { return size_; }
  uint64_t Take(size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes && size_ > 0; ++i, ++data_, --size_) value |= uint64_t{*data_} << (8 * i);
    return value;
  }
  const uint8_t* data() const { return data_; }

 private:
  const uint8_t* data_;
  size_t size_;
};

// `valid` is a freshly created region.
inline std::vector<uint8_t> ExpandRegion(const std::vector<uint8_t>& valid, const uint8_t* data, size_t size) {
  FuzzInput input(data, size);
  const uint64_t base = input.Take(1);
  const uint64_t length = input.Take(3);
  if (base % 8 == 7) return {input.data(), input.data() + input.left()};
  constexpr size_t kLengths[] = {kFileBytes,        kRegionFileBytes,   kRegionBytes,   kRegionV0Bytes + 1,
                                 kInterimFileBytes, kPrivateOffset + 8, kFileBytes + 1, 0};
  std::vector<uint8_t> bytes = valid;
  bytes.resize(length < 8 ? kLengths[length] : length % (kFileBytes + 4096));
  if (base % 8 == 6) std::fill(bytes.begin(), bytes.end(), uint8_t{0});
  // Four bytes of place: a slot's word, one of the header's or tail's words, one of the private area's, or anywhere.
  while (input.left() > 0) {
    const uint64_t place = input.Take(1);
    size_t offset = static_cast<size_t>(input.Take(3));
    switch (place % 4) {
      case 0:
        offset = offsetof(Region, slots) + (offset % 32) * sizeof(Slot) + (offset / 32 * 8) % sizeof(Slot);
        break;
      case 1:
        offset = offset % 2 == 0 ? offset / 2 % 232 * 8 : offsetof(Region, slot_count) + offset / 2 % 14 * 4;
        break;
      case 2:
        // Its records of slots are many and alike; the holds begin behind them.
        offset = kPrivateOffset + (offset % 2 == 0 ? offset / 2 * 8 % offsetof(PrivateArea, gpu_time)
                                                   : offsetof(PrivateArea, holds) + offset / 2 * 8 % 1024);
        break;
      default:
        break;
    }
    const uint64_t value = input.Take(8);
    if (offset + sizeof value <= bytes.size()) std::memcpy(&bytes[offset], &value, sizeof value);
  }
  return bytes;
}

}  // namespace hami::region
