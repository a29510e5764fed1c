// SPDX-License-Identifier: Apache-2.0
#include "test/bench/writes.h"

#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

// No container: a fault may come while one is being changed, and mmap is called before anything is constructed.
struct Range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};
constinit std::array<Range, 256> g_ranges{};
constinit std::atomic<std::size_t> g_count{0};
constinit Range g_code{};  // of libvgpu.so, to know its calls of mmap
constinit std::array<Range, 256> g_mapped{};
constinit std::atomic<std::size_t> g_mapped_count{0};

constinit std::atomic<bool> g_opened{false};  // some page was made writable since all were read-only
constinit thread_local bool t_looked_at = false;
constinit thread_local int t_faults = 0;

const std::uintptr_t kPage = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));

bool IsLibrary(const dl_phdr_info& object) {
  const char* const name = std::strrchr(object.dlpi_name, '/');
  return name != nullptr && std::strcmp(name, "/libvgpu.so") == 0;
}

bool Add(std::uintptr_t begin, std::uintptr_t end) {
  const std::size_t at = g_count.load();
  if (begin >= end) return true;
  if (at == g_ranges.size()) return false;
  g_ranges.at(at) = {begin, end};
  g_count.store(at + 1);
  return true;
}

// The data of the library, but for what the loader made read-only already. The initial contents of thread-local
// storage lie there, its copies do not.
int AddData(dl_phdr_info* object, std::size_t, void* found) {
  if (!IsLibrary(*object)) return 0;
  std::uintptr_t constant_until = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    if (part.p_type == PT_GNU_RELRO) constant_until = (object->dlpi_addr + part.p_vaddr + part.p_memsz) / kPage * kPage;
  }
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_W) == 0) continue;
    const std::uintptr_t begin = (object->dlpi_addr + part.p_vaddr) / kPage * kPage;
    const std::uintptr_t end = (object->dlpi_addr + part.p_vaddr + part.p_memsz + kPage - 1) / kPage * kPage;
    *static_cast<bool*>(found) = Add(std::max(begin, constant_until), end);
  }
  return 1;
}

int FindCode(dl_phdr_info* object, std::size_t, void*) {
  if (!IsLibrary(*object)) return 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    g_code = {object->dlpi_addr + part.p_vaddr, object->dlpi_addr + part.p_vaddr + part.p_memsz};
  }
  return 1;
}

bool Protect(const Range& range, int how) {
  return ::mprotect(reinterpret_cast<void*>(range.begin), range.end - range.begin, how) == 0;
}

void OnFault(int number, siginfo_t* info, void*) {
  const int saved_errno = errno;
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr) / kPage * kPage;
  for (std::size_t i = 0; i < g_count.load(); ++i) {
    if (at < g_ranges[i].begin || at >= g_ranges[i].end) continue;
    g_opened.store(true);
    Protect({at, at + kPage}, PROT_READ | PROT_WRITE);
    if (t_looked_at) ++t_faults;
    errno = saved_errno;
    return;
  }
  ::signal(number, SIG_DFL);  // none of ours: the program dies of it when it is repeated
}

void* SystemMmap(void* where, std::size_t size, int protection, int flags, int fd, off_t offset) {
  return reinterpret_cast<void*>(::syscall(SYS_mmap, where, size, protection, flags, fd, offset));
}

}  // namespace

// Found before the C library's by everything that is loaded, so it sees what libvgpu.so maps.
extern "C" __attribute__((visibility("default"))) void* mmap(void* where, std::size_t size, int protection, int flags,
                                                             int fd, off_t offset) noexcept {
  void* const map = SystemMmap(where, size, protection, flags, fd, offset);
  const auto caller = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  if (g_code.end == 0) ::dl_iterate_phdr(&FindCode, nullptr);
  if (map == MAP_FAILED || caller < g_code.begin || caller >= g_code.end) return map;
  const auto begin = reinterpret_cast<std::uintptr_t>(map);
  const std::size_t at = g_mapped_count.fetch_add(1);
  if (at < g_mapped.size()) g_mapped.at(at) = {begin, begin + (size + kPage - 1) / kPage * kPage};
  return map;
}

extern "C" __attribute__((visibility("default"))) int munmap(void* map, std::size_t size) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(map);
  for (Range& range : g_mapped) {
    if (range.begin == begin) range = {};
  }
  return static_cast<int>(::syscall(SYS_munmap, map, size));
}

namespace writes {

bool Watch() {
  bool found = false;
  ::dl_iterate_phdr(&AddData, &found);
  if (!found || g_mapped_count.load() > g_mapped.size()) return false;
  for (const Range& range : g_mapped) {
    if (!Add(range.begin, range.end)) return false;
  }
  struct sigaction action {};
  action.sa_sigaction = &OnFault;
  action.sa_flags = SA_SIGINFO;
  g_opened.store(true);
  return ::sigaction(SIGSEGV, &action, nullptr) == 0;
}

std::size_t WatchedBytes() {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < g_count.load(); ++i) bytes += g_ranges[i].end - g_ranges[i].begin;
  return bytes;
}

void Begin() {
  // Before the pages are, so that one opened meanwhile is seen the next time.
  if (g_opened.exchange(false)) {
    for (std::size_t i = 0; i < g_count.load(); ++i) Protect(g_ranges[i], PROT_READ);
  }
  t_faults = 0;
  t_looked_at = true;
}

int End() {
  t_looked_at = false;
  return t_faults;
}

}  // namespace writes
