// SPDX-License-Identifier: Apache-2.0
//
// Control of the simulated machine, for tests: plain C, exported by libcuda.so.1 and libnvidia-ml.so.1 of simgpu alike
// (find them with dlsym; a real driver has none of them). None needs cuInit or nvmlInit. Devices are ordinals of the
// machine, before CUDA_VISIBLE_DEVICES.
#ifndef SIMGPU_SIMGPU_H_
#define SIMGPU_SIMGPU_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Devices of the machine; 0 when there is no usable one (the reason was written to stderr). */
int simgpu_device_count(void);

/* Applies statements (fault, clear, xid, lost, recover, set, link; docs/develop/simgpu.md) to the running machine. 0
   and nothing applied when the text is wrong; then `error` (may be NULL) says why. */
int simgpu_inject(const char* text, char* error, size_t error_size);

/* Exact nanoseconds that kernels of a process kept the device; pid 0: of all processes, dead ones too. */
uint64_t simgpu_busy_ns(int dev, int pid);

/* The driver's own books: bytes in use on the device, of one process, and what is free. */
uint64_t simgpu_used_bytes(int dev);
uint64_t simgpu_process_bytes(int dev, int pid);
uint64_t simgpu_free_bytes(int dev);

/* From now on this process, by this library, is shown what it does to the books of memory. `grown`: what is in use on
   the device, each time that has become more; the books stand still until it returns, and it must call neither the
   driver nor any of these functions. `giving`: before it becomes less, when the address of those bytes may be another's
   already; it may call anything. NULL for nothing. */
void simgpu_look_at_books(void (*grown)(int dev, uint64_t used), void (*giving)(int dev, uint64_t bytes));

/* The machine's clock; advance moves the virtual one (and does nothing to the real one). */
int64_t simgpu_now_ns(void);
void simgpu_advance_ns(int64_t by);

/* libcuda.so.1's own function of that exported name, whatever a preloaded library put before it; NULL for a name that
   it does not have. Not in libnvidia-ml.so.1. */
void* simgpu_own_function(const char* symbol);

#ifdef __cplusplus
}
#endif

#endif
