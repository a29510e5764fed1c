// SPDX-License-Identifier: Apache-2.0
#include "region/tag.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "region/process.h"

#ifndef F_OFD_SETLK
#define F_OFD_SETLK 37
#endif

namespace hami::region {
namespace {

constexpr uint64_t kTagStart = uint64_t{1} << 62;

bool StartsWith(const char* text, const char* prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

// A decimal number that ends where `line` ends or a space follows.
bool TakeNumber(const char** text, uint64_t* value) {
  *value = 0;
  const char* at = *text;
  for (; *at >= '0' && *at <= '9'; ++at) {
    if (__builtin_mul_overflow(*value, 10, value) ||
        __builtin_add_overflow(*value, static_cast<uint64_t>(*at - '0'), value)) {
      return false;
    }
  }
  if (at == *text || (*at != '\0' && *at != ' ')) return false;
  *text = *at == ' ' ? at + 1 : at;
  return true;
}

}  // namespace

// "lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 4611686018427400249 4611686018427400325", spaces as they come.
bool ParseTag(const char* line, uint64_t* region, uint64_t* object) {
  if (!StartsWith(line, "lock:") || strstr(line, " OFDLCK ") == nullptr || strstr(line, " READ ") == nullptr) {
    return false;
  }
  const char* last = strrchr(line, ' ');
  const char* first = last;
  while (first > line && first[-1] != ' ') --first;
  uint64_t start = 0;
  uint64_t end = 0;
  ++last;
  if (!TakeNumber(&first, &start) || !TakeNumber(&last, &end)) return false;
  if (start <= kTagStart || start - kTagStart > kMaxTagRegion || end <= start || end - start > kMaxTagObject) {
    return false;
  }
  *region = start - kTagStart;
  *object = end - start;
  return true;
}

bool TagDescriptor(int fd, uint64_t region, uint64_t object) {
  if (region == 0 || region > kMaxTagRegion || object == 0 || object > kMaxTagObject) return false;
  struct flock range;
  memset(&range, 0, sizeof range);
  range.l_type = F_RDLCK;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<int64_t>(kTagStart + region);
  range.l_len = static_cast<int64_t>(object + 1);
  return fcntl(fd, F_OFD_SETLK, &range) == 0;
}

uint64_t TaggedObject(int fd, uint64_t region) {
  struct Search {
    uint64_t region, object;
  } search = {region, 0};
  const auto visit = [](const char* line, void* context) {
    auto* const wanted = static_cast<Search*>(context);
    Search seen = {0, 0};
    if (!ParseTag(line, &seen.region, &seen.object) || seen.region != wanted->region) return true;
    wanted->object = seen.object;
    return false;
  };
  ForEachDescriptorLine(fd, visit, &search);
  return search.object;
}

}  // namespace hami::region
