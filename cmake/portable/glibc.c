// SPDX-License-Identifier: Apache-2.0
//
// What programs and libraries built with a new glibc call and glibc 2.28 does not have, for a `hami` that starts on
// both (HAMI_PORTABLE). Each keeps to its documented behaviour; nothing here is used by a build for this machine alone.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// 2.32. False: no promise that there is one thread alone, so that nothing is left out.
char __libc_single_threaded = 0;

// 2.36.
uint32_t arc4random(void) {
  uint32_t number = 0;
  while (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) {
  }
  return number;
}

// 2.30.
pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

// 2.33; before, headers made calls of __xstat of them. The kernel's structure is this one on amd64 and arm64.
int fstatat(int folder, const char* restrict path, struct stat* restrict out, int flags) {
  return (int)syscall(SYS_newfstatat, folder, path, out, flags);
}
int stat(const char* restrict path, struct stat* restrict out) { return fstatat(AT_FDCWD, path, out, 0); }
int lstat(const char* restrict path, struct stat* restrict out) {
  return fstatat(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
int fstat(int file, struct stat* out) { return (int)syscall(SYS_fstat, file, out); }
int stat64(const char* path, struct stat64* out) { return stat(path, (struct stat*)out); }
int lstat64(const char* path, struct stat64* out) { return lstat(path, (struct stat*)out); }
int fstat64(int file, struct stat64* out) { return fstat(file, (struct stat*)out); }
int fstatat64(int folder, const char* path, struct stat64* out, int flags) {
  return fstatat(folder, path, (struct stat*)out, flags);
}

// 2.30. A wait by the monotonic clock, in steps by the clock that older glibcs know: it may end early, which its caller
// looks for, and never hangs where a clock is set.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* end) {
  struct timespec now, wall;
  if (clock != CLOCK_MONOTONIC) return pthread_cond_timedwait(condition, mutex, end);
  clock_gettime(CLOCK_MONOTONIC, &now);
  clock_gettime(CLOCK_REALTIME, &wall);
  int64_t left = (int64_t)(end->tv_sec - now.tv_sec) * 1000000000 + (end->tv_nsec - now.tv_nsec);
  if (left <= 0) return ETIMEDOUT;
  const int64_t step = 1000000000;
  const int last = left <= step;
  const int64_t until = wall.tv_nsec + (last ? left : step);
  wall.tv_sec += until / 1000000000;
  wall.tv_nsec = until % 1000000000;
  const int status = pthread_cond_timedwait(condition, mutex, &wall);
  return status == ETIMEDOUT && !last ? 0 : status;
}

// 2.35. How the unwinder finds the frames of an address; before, it walked the loaded objects, as this does.
struct Sought {
  uintptr_t address;
  struct dl_find_object* out;
};
static int Visit(struct dl_phdr_info* info, size_t size, void* sought_) {
  struct Sought* sought = sought_;
  (void)size;
  uintptr_t least = UINTPTR_MAX, most = 0;
  const ElfW(Phdr)* frames = NULL;
  int inside = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* one = &info->dlpi_phdr[i];
    const uintptr_t from = info->dlpi_addr + one->p_vaddr;
    if (one->p_type == PT_GNU_EH_FRAME) frames = one;
    if (one->p_type != PT_LOAD) continue;
    if (from < least) least = from;
    if (from + one->p_memsz > most) most = from + one->p_memsz;
    if (sought->address >= from && sought->address < from + one->p_memsz) inside = 1;
  }
  if (!inside || frames == NULL) return inside ? -1 : 0;
  sought->out->dlfo_flags = 0;
  sought->out->dlfo_map_start = (void*)least;
  sought->out->dlfo_map_end = (void*)most;
  sought->out->dlfo_link_map = NULL;  // the unwinder does not look at it
  sought->out->dlfo_eh_frame = (void*)(info->dlpi_addr + frames->p_vaddr);
  return 1;
}
int _dl_find_object(void* address, struct dl_find_object* out) {
  struct Sought sought = {(uintptr_t)address, out};
  return dl_iterate_phdr(Visit, &sought) == 1 ? 0 : -1;
}
