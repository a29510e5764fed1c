// SPDX-License-Identifier: Apache-2.0
//
// What the core asks of the driver. In the library these are calls of the driver; in the tests a GPU made of a list.
#pragma once

#include <stdint.h>

namespace hami::vgpu::time {

// The default stream of a thread is another one for each thread.
struct StreamRef {
  const void* stream = nullptr;
  const void* thread = nullptr;
  bool operator==(const StreamRef&) const = default;
};

using Event = void*;
inline constexpr int64_t kUnknownTime = INT64_MIN;

struct DriverPort {
  void* self;
  // The host's clock when the GPU was seen to have come to it; 0: not yet, -1: it is lost.
  int64_t (*reached)(void* self, Event event);
  // ns of the device's clock from one to the other, both reached, in any order; kUnknownTime: the driver does not say.
  int64_t (*between)(void* self, Event from, Event to);
  void (*release)(void* self, Event event);
  // Something that was launched on the stream has not ended.
  bool (*busy)(void* self, const StreamRef& stream);
};

}  // namespace hami::vgpu::time
