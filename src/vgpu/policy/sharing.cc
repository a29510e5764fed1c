// SPDX-License-Identifier: Apache-2.0
#include "vgpu/policy/sharing.h"

#include <errno.h>

#include "region/holds.h"
#include "region/tag.h"
#include "vgpu/policy/process.h"

namespace hami::vgpu {
namespace {

// A descriptor is the program's, and so is what the program sees when we have looked at it.
class KeepErrno {
 public:
  KeepErrno() : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  const int saved_;
};

}  // namespace

uint64_t ShareMemory(int device, uint64_t bytes) {
  region::Attachment* const a = attachment();
  return a == nullptr || device < 0 ? 0 : region::Share(a, static_cast<uint32_t>(device), bytes);
}

void TagMemory(int fd, uint64_t object) {
  const KeepErrno keep;
  region::Attachment* const a = attachment();
  if (a != nullptr) region::TagDescriptor(fd, region::RegionMark(a), object);
}

uint64_t JoinMemory(int fd, int* device) {
  const KeepErrno keep;
  region::Attachment* const a = attachment();
  if (a == nullptr) return 0;
  const uint64_t object = region::TaggedObject(fd, region::RegionMark(a));
  uint32_t index = 0;
  if (!region::Join(a, object, &index)) return 0;
  *device = static_cast<int>(index);
  return object;
}

bool LeaveMemory(uint64_t object) {
  region::Attachment* const a = attachment();
  return a != nullptr && region::Leave(a, object);
}

void ClaimMemory() {
  region::Attachment* const a = attachment();
  if (a == nullptr) return;
  region::Sweep(a);
  region::ClaimHeritage(a);
}

}  // namespace hami::vgpu
