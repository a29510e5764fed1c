// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/shared_memory.h"

#include "region/holds.h"
#include "region/keep_errno.h"
#include "region/process.h"
#include "region/tag.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {

uint64_t ShareMemory(int device, uint64_t bytes, uint64_t object) {
  region::Attachment* const a = attachment();
  return a == nullptr || device < 0 ? 0 : region::Share(a, static_cast<uint32_t>(device), bytes, object);
}

void TagMemory(int fd, const SharedMemory& memory) {
  const region::KeepErrno keep;  // a descriptor is the program's
  region::Attachment* const a = attachment();
  if (a == nullptr) return;
  region::WriteTag(fd, region::RegionMark(a), {memory.object, memory.bytes, static_cast<uint32_t>(memory.device)});
}

SharedMemory ReadMemoryTag(int fd) {
  const region::KeepErrno keep;
  region::Attachment* const a = attachment();
  if (a == nullptr) return {};
  const region::Tag tag = region::ReadTag(fd, region::RegionMark(a));
  return {tag.object, tag.bytes, static_cast<int>(tag.device)};
}

FileName NameFile(int fd) {
  const region::KeepErrno keep;
  const region::FileStatus file = region::StatFile(fd);
  return {file.device, file.inode, ReadMemoryTag(fd).object};
}

bool IsFile(int fd, const FileName& name) {
  const region::KeepErrno keep;
  const region::FileStatus file = region::StatFile(fd);
  if (!file.ok || file.device != name.device || file.inode != name.inode) return false;
  region::Attachment* const a = attachment();
  return name.object == 0 || a == nullptr || !region::LacksTag(fd, region::RegionMark(a), name.object);
}

bool JoinMemory(uint64_t object) {
  region::Attachment* const a = attachment();
  uint32_t device = 0;
  return a != nullptr && region::Join(a, object, &device);
}

bool LeaveMemory(uint64_t object) {
  region::Attachment* const a = attachment();
  return a != nullptr && region::Leave(a, object);
}

uint64_t GuestMemory(int device) {
  const region::Attachment* const a = attachment();
  return a == nullptr || device < 0 ? 0 : region::GuestBytes(*a, static_cast<uint32_t>(device));
}

void ClaimMemory() {
  region::Attachment* const a = attachment();
  if (a == nullptr) return;
  region::Sweep(a);
  region::ClaimHeritage(a);
}

}  // namespace hami::vgpu
