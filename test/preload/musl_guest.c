/* SPDX-License-Identifier: Apache-2.0 */
/* A program of musl's that loads the driver itself, and forks. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*Init)(unsigned);
typedef int (*Retain)(void**, int);
typedef int (*Use)(void*);
typedef int (*Allocate)(uint64_t*, size_t);
typedef int (*Total)(size_t*, int);

extern int cuInit(unsigned) __attribute__((weak));

static int Fail(const char* what) {
  fprintf(stderr, "guest: %s\n", what);
  return 1;
}

static int UseGpu(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* context = NULL;
  uint64_t block = 0;
  size_t total = 0;
  if (driver == NULL) return Fail(dlerror());
  if (((Init)dlsym(driver, "cuInit"))(0) != 0) return Fail("cuInit");
  if (((Total)dlsym(driver, "cuDeviceTotalMem_v2"))(&total, 0) != 0 || total != (size_t)1 << 30)
    return Fail("the size");
  if (((Retain)dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0) != 0) return Fail("no context");
  ((Use)dlsym(driver, "cuCtxSetCurrent"))(context);
  Allocate allocate = (Allocate)dlsym(driver, "cuMemAlloc_v2");
  if (allocate(&block, (size_t)2 << 30) != 2) return Fail("the limit of 1 GiB does not hold");
  return allocate(&block, (size_t)1 << 20) == 0 ? 0 : Fail("1 MiB is refused");
}

int main(void) {
  int status = -1;
  if (cuInit != NULL) return Fail("a weak reference before there is a driver");
  if (UseGpu() != 0) return 1;
  pid_t child = fork();
  if (child == 0) _exit(UseGpu());
  waitpid(child, &status, 0);
  return status == 0 ? 0 : Fail("the child");
}
