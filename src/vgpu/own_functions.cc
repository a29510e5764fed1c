// SPDX-License-Identifier: Apache-2.0
//
// The functions of the C library that programs replace, as far as this library uses them: its own instead. Sanitizers,
// allocators and databases define memcpy, strlen or getenv themselves and find the real ones by dlsym, which is ours;
// if dlsym called theirs it would never return. Whatever is linked into libvgpu.so finds these first; tools/abi_gate.sh
// sees to it that none of the C library's is left.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

#if defined(__x86_64__)
long Enter(long number, const long (&a)[6]) {
  register long r10 __asm__("r10") = a[3];
  register long r8 __asm__("r8") = a[4];
  register long r9 __asm__("r9") = a[5];
  long result = number;
  __asm__ volatile("syscall"
                   : "+a"(result)
                   : "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}
#elif defined(__aarch64__)
long Enter(long number, const long (&a)[6]) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a[0];
  register long x1 __asm__("x1") = a[1];
  register long x2 __asm__("x2") = a[2];
  register long x3 __asm__("x3") = a[3];
  register long x4 __asm__("x4") = a[4];
  register long x5 __asm__("x5") = a[5];
  __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
#else
#error "system calls need a few lines for this architecture"
#endif

constexpr long kMostErrors = 4095;

unsigned char Lower(char c) { return static_cast<unsigned char>(c >= 'A' && c <= 'Z' ? c + 32 : c); }
unsigned char Same(char c) { return static_cast<unsigned char>(c); }

template <typename Fold>
int Compare(const char* a, const char* b, size_t most, Fold fold) {
  for (; most != 0; --most, ++a, ++b) {
    if (fold(*a) != fold(*b)) return fold(*a) - fold(*b);
    if (*a == '\0') return 0;
  }
  return 0;
}

}  // namespace

extern "C" {

long syscall(long number, ...) noexcept {
  long arguments[6];
  va_list rest;
  va_start(rest, number);
  for (long& argument : arguments) argument = va_arg(rest, long);
  va_end(rest);
  const long result = Enter(number, arguments);
  if (result >= 0 || result < -kMostErrors) return result;
  errno = static_cast<int>(-result);
  return -1;
}

pid_t getpid() noexcept { return static_cast<pid_t>(Enter(SYS_getpid, {0, 0, 0, 0, 0, 0})); }
int access(const char* path, int mode) noexcept {
  return static_cast<int>(syscall(SYS_faccessat, AT_FDCWD, path, mode));
}

void* memmove(void* to, const void* from, size_t size) noexcept {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  if (out <= in || out >= in + size) {
    for (size_t i = 0; i < size; ++i) out[i] = in[i];
  } else {
    for (size_t i = size; i-- > 0;) out[i] = in[i];
  }
  return to;
}

void* memcpy(void* __restrict to, const void* __restrict from, size_t size) noexcept {
#if defined(__x86_64__)
  void* out = to;
  __asm__ volatile("rep movsb" : "+D"(out), "+S"(from), "+c"(size) : : "memory");
  return to;
#else
  return memmove(to, from, size);
#endif
}

void* memset(void* to, int value, size_t size) noexcept {
#if defined(__x86_64__)
  void* out = to;
  __asm__ volatile("rep stosb" : "+D"(out), "+c"(size) : "a"(value) : "memory");
#else
  for (size_t i = 0; i < size; ++i) static_cast<char*>(to)[i] = static_cast<char>(value);
#endif
  return to;
}

int memcmp(const void* a, const void* b, size_t size) noexcept {
  const auto* x = static_cast<const unsigned char*>(a);
  const auto* y = static_cast<const unsigned char*>(b);
  for (; size != 0; --size, ++x, ++y) {
    if (*x != *y) return *x - *y;
  }
  return 0;
}

size_t strlen(const char* text) noexcept {
  size_t n = 0;
  while (text[n] != '\0') ++n;
  return n;
}

int strcmp(const char* a, const char* b) noexcept { return Compare(a, b, SIZE_MAX, &Same); }
int strncmp(const char* a, const char* b, size_t most) noexcept { return Compare(a, b, most, &Same); }
int strcasecmp(const char* a, const char* b) noexcept { return Compare(a, b, SIZE_MAX, &Lower); }
int strncasecmp(const char* a, const char* b, size_t most) noexcept { return Compare(a, b, most, &Lower); }

char* strchr(const char* text, int c) noexcept {
  for (;; ++text) {
    if (*text == static_cast<char>(c)) return const_cast<char*>(text);
    if (*text == '\0') return nullptr;
  }
}

char* strrchr(const char* text, int c) noexcept {
  const char* found = nullptr;
  for (;; ++text) {
    if (*text == static_cast<char>(c)) found = text;
    if (*text == '\0') return const_cast<char*>(found);
  }
}

char* strstr(const char* text, const char* part) noexcept {
  const size_t n = strlen(part);
  for (;; ++text) {
    if (strncmp(text, part, n) == 0) return const_cast<char*>(text);
    if (*text == '\0') return nullptr;
  }
}

char* getenv(const char* name) noexcept {
  const size_t n = strlen(name);
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    if (strncmp(*at, name, n) == 0 && (*at)[n] == '=') return *at + n + 1;
  }
  return nullptr;
}

}  // extern "C"
