// SPDX-License-Identifier: Apache-2.0
//
// The exported dlsym and dlvsym. For a name that we replace, and that the driver really has, they answer our
// replacement, whichever handle is asked, except to the driver itself: a libcuda.so.1 that only loads the driver proper
// (WSL2 has one) must get what it asks for, or it would call us and we it. Every other question is passed on by a jump
// that leaves registers and return address as they were, so that the C library sees the true caller: RTLD_NEXT and
// RTLD_DEFAULT depend on it.
//
// Nothing here may be replaceable by the program: sanitizers and allocators ask dlsym for the real memcpy, strlen or
// dl_iterate_phdr from inside their own, before those work (see own_functions.cc).

#include <string.h>

#include "vgpu/loader/driver.h"
#include "vgpu/loader/elf_lookup.h"
#include "vgpu/loader/libc.h"
#include "vgpu/runtime/settings.h"

namespace {

using hami::vgpu::DriverSymbolCached;
using hami::vgpu::FindHook;
using hami::vgpu::FindInLibc;
using hami::vgpu::HookAddress;
using hami::vgpu::LibraryOf;
using hami::vgpu::LoadedDriver;
using hami::vgpu::RealDlsym;
using hami::vgpu::Sym;

// What the assembly below takes as "pass the question on".
void* const kForward = reinterpret_cast<void*>(-1);

bool MayBeOurs(const char* name) {
  return name != nullptr && ((name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v'));
}

// True when `address` lies in a driver library: in the one we call, or in another copy of it.
bool IsDriverCode(void* address) {
  Dl_info info;
  if (hami::vgpu::libc::Locate(address, &info) == 0 || info.dli_fname == nullptr) return false;
  const char* slash = strrchr(info.dli_fname, '/');
  const char* file = slash != nullptr ? slash + 1 : info.dli_fname;
  return strncmp(file, "libcuda.so", 10) == 0 || strncmp(file, "libnvidia-ml.so", 15) == 0;
}

struct Question {
  void* handle;
  const char* name;
  const char* version;
  void* caller;  // an address in the code that asks
};

void* Replace(const Question& question, void* (*look_up)(void*, const char*, const char*)) {
  const auto [handle, name, version, caller] = question;
  const Sym sym = FindHook(name);
  if (sym == Sym::kNone || hami::vgpu::ControlDisabled() || IsDriverCode(caller)) return kForward;
  void* const hook = HookAddress(sym);
  if (handle == RTLD_DEFAULT || handle == RTLD_NEXT) {
    // Without a loaded driver nobody would find the name; asked from here, "next" is everything behind us.
    if (LoadedDriver(LibraryOf(sym)) == nullptr) return look_up(RTLD_NEXT, name, version);
    return DriverSymbolCached(sym) != nullptr ? hook : look_up(RTLD_NEXT, name, version);
  }
  void* const found = look_up(handle, name, version);
  if (found == nullptr) return nullptr;
  if (found == hook) {
    // What the main program's handle finds first is us: as above.
    if (LoadedDriver(LibraryOf(sym)) == nullptr) return look_up(RTLD_NEXT, name, version);
    return DriverSymbolCached(sym) != nullptr ? hook : nullptr;
  }
  // Somebody else's function of the same name (a shim that wraps the driver) is what was asked for.
  return found == DriverSymbolCached(sym) || IsDriverCode(found) ? hook : found;
}

}  // namespace

extern "C" {

// Where the jumps go. Bound before the first one.
__attribute__((visibility("hidden"))) void* hami_real_dlsym = nullptr;
__attribute__((visibility("hidden"))) void* hami_real_dlvsym = nullptr;

__attribute__((visibility("hidden"), used)) void* hami_dlsym(void* handle, const char* name, const char*,
                                                             void* caller) {
  if (__atomic_load_n(&hami_real_dlsym, __ATOMIC_RELAXED) == nullptr) {
    void* const found = reinterpret_cast<void*>(RealDlsym());
    if (found == nullptr) return nullptr;
    __atomic_store_n(&hami_real_dlsym, found, __ATOMIC_RELAXED);
  }
  if (!MayBeOurs(name)) return kForward;
  return Replace({handle, name, nullptr, caller},
                 [](void* h, const char* n, const char*) { return RealDlsym()(h, n); });
}

__attribute__((visibility("hidden"), used)) void* hami_dlvsym(void* handle, const char* name, const char* version,
                                                              void* caller) {
  if (__atomic_load_n(&hami_real_dlvsym, __ATOMIC_RELAXED) == nullptr) {
    void* const found = FindInLibc("dlvsym");
    if (found == nullptr) return nullptr;
    __atomic_store_n(&hami_real_dlvsym, found, __ATOMIC_RELAXED);
  }
  if (!MayBeOurs(name)) return kForward;
  return Replace({handle, name, version, caller}, [](void* h, const char* n, const char* v) {
    return reinterpret_cast<void* (*)(void*, const char*, const char*)>(hami_real_dlvsym)(h, n, v);
  });
}

}  // extern "C"

// Ask, with the return address as the fourth argument; unless the answer is "pass on", return it. Otherwise jump with
// everything as it was at entry.
#if defined(__x86_64__)
#define HAMI_TAIL_JUMP(symbol, decide, target)             \
  __asm__(".pushsection .text\n.p2align 4\n.globl " symbol \
          "\n"                                             \
          ".type " symbol ", @function\n" symbol           \
          ":\n"                                            \
          ".cfi_startproc\n"                               \
          "  endbr64\n"                                    \
          "  pushq %rdi\n  .cfi_adjust_cfa_offset 8\n"     \
          "  pushq %rsi\n  .cfi_adjust_cfa_offset 8\n"     \
          "  pushq %rdx\n  .cfi_adjust_cfa_offset 8\n"     \
          "  movq 24(%rsp), %rcx\n"                        \
          "  call " decide                                 \
          "\n"                                             \
          "  popq %rdx\n  .cfi_adjust_cfa_offset -8\n"     \
          "  popq %rsi\n  .cfi_adjust_cfa_offset -8\n"     \
          "  popq %rdi\n  .cfi_adjust_cfa_offset -8\n"     \
          "  cmpq $-1, %rax\n"                             \
          "  je 1f\n"                                      \
          "  ret\n"                                        \
          "1: jmp *" target                                \
          "(%rip)\n"                                       \
          ".cfi_endproc\n"                                 \
          ".size " symbol ", .-" symbol "\n.popsection\n")
#elif defined(__aarch64__)
#define HAMI_TAIL_JUMP(symbol, decide, target)             \
  __asm__(".pushsection .text\n.p2align 4\n.globl " symbol \
          "\n"                                             \
          ".type " symbol ", %function\n" symbol           \
          ":\n"                                            \
          ".cfi_startproc\n"                               \
          "  hint #34\n"                                   \
          "  stp x29, x30, [sp, #-48]!\n"                  \
          "  .cfi_def_cfa_offset 48\n"                     \
          "  .cfi_offset 29, -48\n  .cfi_offset 30, -40\n" \
          "  stp x0, x1, [sp, #16]\n"                      \
          "  str x2, [sp, #32]\n"                          \
          "  mov x3, x30\n"                                \
          "  bl " decide                                   \
          "\n"                                             \
          "  mov x16, x0\n"                                \
          "  ldp x0, x1, [sp, #16]\n"                      \
          "  ldr x2, [sp, #32]\n"                          \
          "  ldp x29, x30, [sp], #48\n"                    \
          "  .cfi_def_cfa_offset 0\n"                      \
          "  cmn x16, #1\n"                                \
          "  b.eq 1f\n"                                    \
          "  mov x0, x16\n"                                \
          "  ret\n"                                        \
          "1: adrp x17, " target                           \
          "\n"                                             \
          "  ldr x17, [x17, #:lo12:" target                \
          "]\n"                                            \
          "  br x17\n"                                     \
          ".cfi_endproc\n"                                 \
          ".size " symbol ", .-" symbol "\n.popsection\n")
#else
#error "dlsym needs a tail jump for this architecture"
#endif

HAMI_TAIL_JUMP("dlsym", "hami_dlsym", "hami_real_dlsym");
HAMI_TAIL_JUMP("dlvsym", "hami_dlvsym", "hami_real_dlvsym");
