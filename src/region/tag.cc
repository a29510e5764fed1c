// SPDX-License-Identifier: Apache-2.0
#include "region/tag.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "region/layout.h"
#include "region/process.h"

#ifndef F_OFD_SETLK
#define F_OFD_SETLK 37
#endif

namespace hami::region {
namespace {

// Where the two parts of a name begin; each has room for all regions, and those for their values.
constexpr uint64_t kTagStart = uint64_t{1} << 62;
constexpr uint64_t kTagPart = uint64_t{1} << 60;
constexpr uint64_t kMaxValue = (uint64_t{1} << 48) - 1;
// Behind the object: the size in units, and the device.
constexpr int kDeviceBits = 4;
static_assert(kMaxDevices <= 1 << kDeviceBits && kMaxTagBytes / kTagUnit <= kMaxValue >> kDeviceBits);

bool LockPart(int fd, uint64_t region, uint64_t part, uint64_t value) {
  struct flock range;
  memset(&range, 0, sizeof range);
  range.l_type = F_RDLCK;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<int64_t>(kTagStart + part * kTagPart + region);
  range.l_len = static_cast<int64_t>(value + 1);
  return fcntl(fd, F_OFD_SETLK, &range) == 0;
}

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

struct Search {
  uint64_t region;
  uint64_t values[2];
  bool answered;
};

Search SearchTag(int fd, uint64_t region) {
  Search search = {region, {0, 0}, false};
  const auto visit = [](const char* line, void* context) {
    auto* const wanted = static_cast<Search*>(context);
    wanted->answered = true;
    uint64_t of_region = 0;
    uint64_t value = 0;
    int part = 0;
    if (ParseTag(line, &of_region, &part, &value) && of_region == wanted->region) wanted->values[part] = value;
    return true;
  };
  ForEachDescriptorLine(fd, visit, &search);
  return search;
}

}  // namespace

// "lock:\t1: OFDLCK ADVISORY  READ -1 00:06:3 4611686018427400249 4611686018427400325", spaces as they come.
bool ParseTag(const char* line, uint64_t* region, int* part, uint64_t* value) {
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
  const uint64_t place = (start - kTagStart) % kTagPart;
  if (start < kTagStart || start - kTagStart >= 2 * kTagPart || place == 0 || place > kMaxTagRegion) return false;
  if (end <= start || end - start > kMaxValue) return false;
  *region = place;
  *part = static_cast<int>((start - kTagStart) / kTagPart);
  *value = end - start;
  return true;
}

bool WriteTag(int fd, uint64_t region, const Tag& tag) {
  if (region == 0 || region > kMaxTagRegion || tag.object == 0 || tag.object > kMaxTagObject) return false;
  if (tag.bytes == 0 || tag.bytes % kTagUnit != 0 || tag.bytes > kMaxTagBytes || tag.device >= kMaxDevices)
    return false;
  // A name of one part is none, so a description that takes only the first is not named.
  return LockPart(fd, region, 1, tag.bytes / kTagUnit << kDeviceBits | tag.device) &&
         LockPart(fd, region, 0, tag.object);
}

Tag ReadTag(int fd, uint64_t region) {
  const Search search = SearchTag(fd, region);
  const uint64_t bytes = (search.values[1] >> kDeviceBits) * kTagUnit;
  if (search.values[0] == 0 || bytes == 0) return {};
  return {search.values[0], bytes, static_cast<uint32_t>(search.values[1] & ((1 << kDeviceBits) - 1))};
}

bool LacksTag(int fd, uint64_t region, uint64_t object) {
  const Search search = SearchTag(fd, region);
  return search.answered && search.values[0] != object;
}

}  // namespace hami::region
