// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/meeting.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "region/keep_errno.h"
#include "region/region.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {
namespace {

constexpr int64_t kLookAgain = 1'000'000'000;  // ns; for an area where there was none
constexpr uint32_t kMostOpened = 64;           // each leaves a mapping behind, for another thread may be reading it

uint64_t Mix(uint64_t h, uint64_t value) {
  h = (h ^ value) * 0x9e37'79b9'7f4a'7c15;
  return h ^ h >> 29;
}

// 0 while the device is not known.
uint64_t GpuOf(const region::Attachment& a, int device) {
  if (region::DeviceCount(a) <= static_cast<uint32_t>(device)) return 0;  // written last
  uint64_t hash = 1;
  for (const char c : a.region->uuids[device]) {
    if (c == '\0') break;
    hash = Mix(hash, static_cast<unsigned char>(c));
  }
  return hash | 1;
}

using Path = char[sizeof(Settings::common_path) + 128];

// What was named, or below it.
bool PathOf(const region::Attachment& a, int device, Path& path) {
  const char* const named = settings().common_path;
  if (named[0] == '\0') return false;
  const int folder = open(named, O_PATH | O_CLOEXEC | O_DIRECTORY);
  if (folder >= 0) close(folder);
  char uuid[sizeof a.region->uuids[0]];
  memcpy(uuid, a.region->uuids[device], sizeof uuid);
  uuid[sizeof uuid - 1] = '\0';
  if (folder >= 0 && (uuid[0] == '\0' || strchr(uuid, '/') != nullptr)) return false;
  snprintf(path, sizeof path, folder >= 0 ? "%s/%s/area" : "%s", named, uuid);
  return true;
}

void OpenArea(const region::Attachment& a, Meeting* meeting, int index, int64_t now) {
  const region::KeepErrno keep;
  Path path;
  meeting->looked_at = now;
  meeting->file = {};
  meeting->process = Mix(Mix(1, a.device), a.inode) << 32 |
                     static_cast<uint32_t>(Mix(a.pid_namespace, static_cast<uint64_t>(getpid())));
  if (meeting->opened >= kMostOpened || !PathOf(a, index, path)) return;
  meeting->file = region::OpenCommonArea(path);
  if (meeting->in_area()) ++meeting->opened;
}

}  // namespace

region::CommonLines LinesOf(Meeting* meeting, int index, int64_t now) {
  const region::Attachment* const a = attachment();
  if (a == nullptr) return {};
  if (meeting->gpu == 0) meeting->gpu = GpuOf(*a, index);
  if (meeting->gpu == 0) return {};
  if (meeting->looked_at == 0) OpenArea(*a, meeting, index, now);
  return meeting->in_area() ? region::CommonLinesOf(meeting->file.area) : region::CommonLinesOf(a->area);
}

void CheckMeeting(Meeting* meeting, int index, int64_t now) {
  const region::Attachment* const a = attachment();
  if (a == nullptr || meeting->gpu == 0 || meeting->looked_at == 0) return;
  Path path;
  if (!meeting->in_area()) {
    if (now - meeting->looked_at < kLookAgain) return;
  } else if (PathOf(*a, index, path) && region::CommonIsWhole(meeting->file, path)) {
    return;
  }
  OpenArea(*a, meeting, index, now);
}

}  // namespace hami::vgpu
