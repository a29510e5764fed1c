// SPDX-License-Identifier: Apache-2.0
#include "vgpu/runtime/threads.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#include "vgpu/loader/driver.h"
#include "vgpu/runtime/runtime.h"

namespace hami::vgpu {
namespace {

template <typename F>
F* Find(const char* name) {
  const DlsymFn look_up = RealDlsym();
  return look_up == nullptr ? nullptr : reinterpret_cast<F*>(look_up(nullptr, name));  // RTLD_DEFAULT
}

}  // namespace

bool StartThread(void* (*body)(void*)) {
  auto* const create = Find<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  auto* const detach = Find<int(pthread_t)>("pthread_detach");
  if (create == nullptr || detach == nullptr) return false;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // These come from what a thread does itself; blocked, they would end the process past what reports or mends that.
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all, number);
  sigprocmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const bool started = create(&thread, nullptr, body, nullptr) == 0;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (started) detach(thread);
  return started;
}

void WhenThreadEnds(void (*leave)(void* what), void* what) {
  auto* const create = Find<int(uint32_t*, void (*)(void*))>("pthread_key_create");
  auto* const discard = Find<int(uint32_t)>("pthread_key_delete");
  auto* const set = Find<int(uint32_t, const void*)>("pthread_setspecific");
  if (create == nullptr || discard == nullptr || set == nullptr) return;
  uint32_t* const made = &g_runtime.thread_key_and_one;
  uint32_t known = __atomic_load_n(made, __ATOMIC_ACQUIRE);
  uint32_t key = known - 1;
  if (known == 0) {
    if (create(&key, leave) != 0) return;
    if (!__atomic_compare_exchange_n(made, &known, key + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      discard(key);
      key = known - 1;
    }
  }
  set(key, what);
}

}  // namespace hami::vgpu
