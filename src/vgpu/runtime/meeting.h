// SPDX-License-Identifier: Apache-2.0
//
// Where processes that share a GPU meet: the lines of a common area (region/common_area.h), or without one those of the
// container's own region. Found anew when they change. A UUID is a name, never a path.
#pragma once

#include <stdint.h>

#include "region/common_area.h"

namespace hami::vgpu {

// Of one device.
struct Meeting {
  region::CommonFile file;
  uint64_t gpu = 0, process = 0;
  int64_t looked_at = 0;
  uint32_t opened = 0;

  // There is a common area, so other containers are met.
  bool in_area() const { return file.area != nullptr; }
};

// None (nullptr) while the device is not known.
region::CommonLines LinesOf(Meeting* meeting, int index, int64_t now);
// The area may have come to be another, or is broken: then it is looked for again.
void CheckMeeting(Meeting* meeting, int index, int64_t now);

}  // namespace hami::vgpu
