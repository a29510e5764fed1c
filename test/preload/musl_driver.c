/* SPDX-License-Identifier: Apache-2.0 */
/* As much of a driver as a program with musl needs to see whether its limit holds: one GPU of 8 GiB, one context. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static const size_t kTotal = (size_t)8 << 30;
static size_t used = 0;
static void* current = NULL;
static int context;

EXPORT int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }
EXPORT int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
EXPORT int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  memset(uuid, 7, 16);
  return device == 0 ? 0 : 101;
}
EXPORT int cuDevicePrimaryCtxRetain(void** out, int device) {
  *out = &context;
  return device == 0 ? 0 : 101;
}
EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  *flags = 0;
  *active = current != NULL;
  return device == 0 ? 0 : 101;
}
EXPORT int cuCtxSetCurrent(void* ctx) {
  current = ctx;
  return 0;
}
EXPORT int cuCtxGetCurrent(void** out) {
  *out = current;
  return 0;
}
EXPORT int cuCtxGetDevice(int* device) {
  *device = 0;
  return current != NULL ? 0 : 201;
}
EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  *bytes = kTotal;
  return device == 0 ? 0 : 101;
}
EXPORT int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  *free_bytes = kTotal - used;
  *total = kTotal;
  return 0;
}
EXPORT int cuMemAlloc_v2(uint64_t* out, size_t bytes) {
  if (bytes > kTotal - used) return 2;
  *out = ((uint64_t)1 << 40) + used;
  used += bytes;
  return 0;
}
EXPORT int cuMemFree_v2(uint64_t address) { return address != 0 ? 0 : 1; }
