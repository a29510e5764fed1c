// SPDX-License-Identifier: Apache-2.0
//
// What processes that share a GPU tell each other about its time: one small file, a line for each process and GPU, and
// one for the GPU itself, whose word names the line that has the turn (vgpu/time/turns.h). A process says until when it
// expects to be at work there, how much it may have, how important it is, and that it waits. All of it is advice:
// nobody's limit is ever raised by it, and a line that nobody renews is as good as gone. Time is always a parameter
// (CLOCK_MONOTONIC ns).
//
// Any content is survived: times out of reach count as long ago, numbers are clamped, and a line whose owner changes
// under its user is joined anew. A file that is too short is refused; one that shrinks later is left alone.
//
// The path is that of the file, which is for one user, as whoever may write it may cut it short under the others; or
// that of a socket at which somebody hands it out, sealed so that nobody can: that is for users who do not trust each
// other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "region/layout.h"

namespace hami::region {

inline constexpr uint64_t kCommonMagic = 0x326d'6d63'494d'4148;  // "HAMIcmm2", little endian
inline constexpr uint32_t kCommonMembers = 255;

struct alignas(64) CommonMember {
  uint64_t process;    // the container in the upper half; 0: free
  uint64_t gpu;        // a hash of its UUID
  int64_t seen_at;     // the last launch, or wait for one
  int64_t work_until;  // when what was launched is expected to end
  uint16_t rate;       // of the container's limit, 1/10000; 0: no limit
  uint16_t flags;
  int32_t rank;        // as CUDA_TASK_PRIORITY: lower is more important; below 0 goes before nobody
  int64_t waiting_at;  // when it last said that it waits for the turn
  int64_t zero_at;     // of its account: the share of the smaller is owed for longer
  uint64_t word;       // ns that it had, to be compared within a container; of the line of the GPU itself: the turn
};
static_assert(sizeof(CommonMember) == 64);

struct CommonArea {
  uint64_t magic;
  uint32_t used;  // lines from here on were never used
  uint32_t reserved[13];
  CommonMember members[kCommonMembers];
};
static_assert(sizeof(CommonArea) == 16384);

// Where processes of one container meet without an area of several: in what is left of its region's last page.
struct RegionMembers {
  alignas(64) uint32_t used;
  CommonMember lines[42];
};
static_assert(sizeof(PrivateArea) % alignof(RegionMembers) == 0 &&
              kPrivateOffset + sizeof(PrivateArea) + sizeof(RegionMembers) == kFileBytes);

inline constexpr int64_t kCommonPresent = 2'000'000'000;  // ns; not seen for so long is gone
inline constexpr int64_t kCommonReach = 1'000'000'000;    // nobody says anything about times beyond

inline bool CommonSeenWithin(const CommonMember& m, int64_t now, int64_t span) {
  const int64_t seen = Load(m.seen_at);
  return seen > now - span && seen < now + span;
}

struct CommonLines {
  CommonMember* lines = nullptr;
  uint32_t* used = nullptr;  // lines from there on were never used
  int room = 0;

  bool Has(int line, uint64_t process, uint64_t gpu) const {
    return line >= 0 && line < room && Load(lines[line].process) == process && Load(lines[line].gpu) == gpu;
  }
  // The line is free at once, if it still is the process's.
  void Leave(int line, uint64_t process, uint64_t gpu) const {
    if (!Has(line, process, gpu)) return;
    __atomic_compare_exchange_n(&lines[line].process, &process, uint64_t{0}, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
  }
  // The line of a process on a GPU, `line` when it still is; -1 when there is no room.
  int Join(int line, uint64_t process, uint64_t gpu, int64_t now) const {
    if (Has(line, process, gpu)) return line;
    const uint32_t known = Load(*used);
    for (int i = 0; i < room && i < static_cast<int64_t>(known); ++i) {
      if (Has(i, process, gpu)) return i;
    }
    for (int i = 0; i < room; ++i) {
      CommonMember& m = lines[i];
      uint64_t owner = Load(m.process);
      if (owner != 0 && CommonSeenWithin(m, now, kCommonPresent)) continue;
      if (!__atomic_compare_exchange_n(&m.process, &owner, process, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        continue;
      }
      Store(m.gpu, gpu);
      Store(m.rate, uint16_t{0});
      Store(m.flags, uint16_t{0});
      Store(m.rank, int32_t{-1});
      Store(m.work_until, int64_t{0});
      Store(m.waiting_at, int64_t{0});
      Store(m.zero_at, int64_t{0});
      Store(m.word, uint64_t{0});
      Store(m.seen_at, now);
      const auto count = static_cast<uint32_t>(i) + 1;
      for (uint32_t seen = Load(*used); seen < count || seen > static_cast<uint32_t>(room);) {
        if (__atomic_compare_exchange_n(used, &seen, count, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) break;
      }
      return i;
    }
    return -1;
  }
};
inline CommonLines CommonLinesOf(CommonArea* area) { return {area->members, &area->used, kCommonMembers}; }
inline CommonLines CommonLinesOf(PrivateArea* area) {
  auto* const members = reinterpret_cast<RegionMembers*>(area + 1);
  return {members->lines, &members->used, sizeof members->lines / sizeof members->lines[0]};
}

// The rate of a container that may use idle time up to `ceiling`: its part by weight of what those who want it want.
inline uint32_t CommonBurstRate(uint32_t rate, uint32_t ceiling, int64_t others) {
  if (rate == 0 || ceiling <= rate) return rate;
  const int64_t part = int64_t{10'000} * rate / (rate + others);
  return part <= rate ? rate : part < ceiling ? static_cast<uint32_t>(part) : ceiling;
}

// Makes the file if it is not there. errno tells why not.
bool CreateCommonArea(const char* path);

struct CommonFile {
  CommonArea* area = nullptr;
  uint64_t device = 0, inode = 0;  // of the file, or of the socket
  bool sealed = false;             // from a socket
};
// `area` stays null when there is none that can be used. Whoever hands it out is waited for 20 ms at most.
CommonFile OpenCommonArea(const char* path);
// Whether the path still leads to what was opened, in its full length. A socket that is gone or silent changes nothing.
bool CommonIsWhole(const CommonFile& file, const char* path);

}  // namespace hami::region
