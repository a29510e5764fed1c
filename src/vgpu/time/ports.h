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
  // The host's clock when the GPU was seen to have come to it; 0: not yet, -1: it is lost. `since`: ns of the device's
  // clock from `reference`, which was reached before or after it; kUnknownTime: the driver does not say. Without a
  // reference (nullptr) it is left alone.
  int64_t (*reached)(void* self, Event event, Event reference, int64_t* since);
  void (*release)(void* self, Event event);
  // Something that was launched on the stream of the context has not ended. Of another thread's default stream nothing
  // is known: false.
  bool (*busy)(void* self, const void* context, const StreamRef& stream);
};

}  // namespace hami::vgpu::time
