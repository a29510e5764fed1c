// SPDX-License-Identifier: Apache-2.0
//
// What guests, judge and the programs in Python share: the clock, the driver as a client finds it (dlopen and dlsym),
// and the board, a file that all map.
#ifndef HAMI_TEST_BENCH_SM_BOARD_H_
#define HAMI_TEST_BENCH_SM_BOARD_H_

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "abi/cuda_abi.h"

namespace sm {

using Nanos = std::int64_t;
constexpr Nanos kMicro = 1'000;
constexpr Nanos kMilli = 1'000'000;
constexpr double kSecond = 1e9;

inline Nanos Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Nanos{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

inline void SleepUntil(Nanos when) {
  const timespec until{static_cast<time_t>(when / 1'000'000'000), static_cast<long>(when % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

inline void* Driver() {
  static void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    std::fprintf(stderr, "sm_guest: %s\n", dlerror());
    std::exit(2);
  }
  return handle;
}

template <typename F>
F* Find(const char* name) {
  auto* function = reinterpret_cast<F*>(dlsym(Driver(), name));
  if (function == nullptr) {
    std::fprintf(stderr, "sm_guest: the driver has no %s\n", name);
    std::exit(2);
  }
  return function;
}

inline void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "sm_guest: %s gave %d\n", what, static_cast<int>(result));
  std::exit(3);
}

// sm_cell.py knows this layout.
struct BoardSlot {
  std::atomic<std::uint32_t> sequence;  // odd while being written
  std::atomic<std::int32_t> pid;        // not 0: the guest is at work
  std::atomic<Nanos> work;              // GPU time of what is done, had it run alone
  std::atomic<Nanos> at;                // when that was so
  std::uint64_t reserved[5];
};
struct Board {
  std::atomic<std::uint32_t> stop;
  std::atomic<std::uint32_t> turn;  // the slot that has it, of those that take turns
  std::uint32_t reserved[14];
  BoardSlot slots[63];

  static Board& Map(const char* path) {
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    void* at = fd < 0 ? MAP_FAILED : mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
      std::perror(path);
      std::exit(2);
    }
    close(fd);
    return *static_cast<Board*>(at);
  }
};
static_assert(sizeof(BoardSlot) == 64 && sizeof(Board) == 4096);

// The judge: one line a sample, until `seconds` are over.
int Watch(Board& board, std::size_t slots, double seconds, double interval_ms);

}  // namespace sm

#endif  // HAMI_TEST_BENCH_SM_BOARD_H_
