// SPDX-License-Identifier: Apache-2.0
// Threads, forks, deaths and exits.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <thread>

#include "test/preload/guest.h"

namespace guest {
namespace {

size_t OpenFiles() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

void Touch(const std::string& file) { close(open(file.c_str(), O_CREAT | O_WRONLY, 0600)); }

size_t MapsOf(const char* name) {
  FILE* const maps = std::fopen("/proc/self/maps", "r");
  size_t count = 0;
  char line[4096];
  while (std::fgets(line, sizeof line, maps) != nullptr) count += std::string(line).find(name) != std::string::npos;
  std::fclose(maps);
  return count;
}

// Threads that allocate and free at random never pass the limit, and at the end the books are even.
SCENARIO(threads) {
  CUcontext context = Begin();
  std::atomic<bool> exceeded{false};
  std::vector<std::thread> threads;
  const size_t before = Room();
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      cuCtxSetCurrent(context);
      unsigned random = t + 1;
      std::vector<CUdeviceptr> blocks;
      for (int i = 0; i < 2000; ++i) {
        random = random * 1103515245 + 12345;
        CUdeviceptr block = 0;
        if (random >> 31 == 0 && cuMemAlloc_v2(&block, ((random >> 8) % 64 + 1) * kMiB) == CUDA_SUCCESS) {
          blocks.push_back(block);
        } else if (!blocks.empty()) {
          cuMemFree_v2(blocks.back());
          blocks.pop_back();
        }
        if (Truth() > kGiB) exceeded = true;
      }
      for (const CUdeviceptr block : blocks) cuMemFree_v2(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT(!exceeded);
  EXPECT_SAME(Room(), before);
  Balanced();
}

// Holds `bytes`, says so by making a file, and waits to be killed.
SCENARIO(hold) {
  Begin();
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, std::strtoull(arguments.at(0).c_str(), nullptr, 10)));
  Touch(arguments.at(1));
  for (;;) pause();
}

// Makes its context, which takes longer than anybody would wait for without a reason.
SCENARIO(hold_slowly) {
  OK(cuInit(0));
  EXPECT_SAME(simgpu_inject("fault call=cuDevicePrimaryCtxRetain delay_ms=2500 nth=1", nullptr, 0), 1);
  CUcontext context = nullptr;
  Touch(arguments.at(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  Touch(arguments.at(1));
  for (;;) pause();
}

SCENARIO(start) {
  Begin();
  EXPECT(MemInfo().used() >= 300 * kMiB);
}

// What a dead process held can be had at once.
SCENARIO(take) {
  Begin();
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, std::strtoull(arguments.at(0).c_str(), nullptr, 10)));
}

SCENARIO(refused) {
  Begin();
  CUdeviceptr block = 0;
  OOM(cuMemAlloc_v2(&block, std::strtoull(arguments.at(0).c_str(), nullptr, 10)));
}

// Allocates until refused, a few times; never may the container hold more than the limit. Several run at once (A2).
SCENARIO(contend) {
  // While the others hold everything, not even a context fits; they let go again and again.
  CUcontext context = nullptr;
  OK(cuInit(0));
  CUresult retained = CUDA_SUCCESS;
  while ((retained = cuDevicePrimaryCtxRetain(&context, 0)) != CUDA_SUCCESS) {
    EXPECT_SAME(retained, CUDA_ERROR_OUT_OF_MEMORY);
    std::this_thread::yield();
  }
  OK(cuCtxSetCurrent(context));
  for (int round = 0; round < 20; ++round) {
    std::vector<CUdeviceptr> blocks;
    CUdeviceptr block = 0;
    while (cuMemAlloc_v2(&block, 32 * kMiB) == CUDA_SUCCESS) {
      blocks.push_back(block);
      const uint64_t used = simgpu_used_bytes(0);
      if (used > 2 * kGiB) EXPECT_SAME(used, 2 * kGiB);
    }
    for (const CUdeviceptr b : blocks) OK(cuMemFree_v2(b));
  }
  // A process that is gone but not collected holds memory in simgpu's books for a moment, so all stay to the end.
  close(open(arguments.at(0).c_str(), O_CREAT | O_WRONLY, 0600));
  while (access(arguments.at(1).c_str(), F_OK) != 0) std::this_thread::yield();
}

// The child has its own account: the parent's pointers are unknown in it, and freeing one gives nobody memory (A14,
// M9).
SCENARIO(fork_then_free) {
  OK(cuInit(0));
  CUcontext context = nullptr;
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, 100 * kMiB));
  const size_t room = Room();
  const pid_t child = fork();
  if (child == 0) {
    if (cuMemFree_v2(block) == CUDA_SUCCESS) std::_Exit(3);
    size_t free = 0;
    size_t total = 0;
    if (cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS) std::_Exit(4);
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_SAME(status, 0);
  EXPECT_SAME(Room(), room);
  Balanced();
}

// A process that forks before it uses CUDA: parent and child are two processes of the container.
SCENARIO(fork_before_init) {
  int ready[2];
  int done[2];
  EXPECT_SAME(pipe(ready), 0);
  EXPECT_SAME(pipe(done), 0);
  const pid_t child = fork();
  char byte = 0;
  if (child == 0) {
    Begin();
    CUdeviceptr block = 0;
    OK(cuMemAlloc_v2(&block, 100 * kMiB));
    if (write(ready[1], "x", 1) != 1 || read(done[0], &byte, 1) != 1) std::_Exit(5);
    std::_Exit(0);
  }
  EXPECT_SAME(read(ready[0], &byte, 1), 1);
  Begin();
  EXPECT(MemInfo().used() >= 100 * kMiB + 600 * kMiB);
  EXPECT_SAME(write(done[1], "x", 1), 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_SAME(status, 0);
  // The child is gone; what it held fits at once.
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, 1600 * kMiB));
  EXPECT(Truth() <= 2 * kGiB);
}

// What makes a child attach anew: CUDA, which a fork leaves unusable, and NVML.
void UseBothLibraries() {
  CUdeviceptr block = 0;
  cuMemAlloc_v2(&block, kMiB);
  nvmlInit_v2();
  nvmlDevice_t device = nullptr;
  nvmlMemory_t memory{};
  nvmlDeviceGetHandleByIndex_v2(0, &device);
  nvmlDeviceGetMemoryInfo(device, &memory);
}

// Forks leave neither descriptors nor maps behind, in parent or child (D4).
SCENARIO(fork_leaks_nothing) {
  Begin();
  const size_t files = OpenFiles();
  const size_t maps = MapsOf("region.cache");
  EXPECT(maps != 0);
  for (int i = 0; i < 5; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      UseBothLibraries();
      // All that is mapped but the parent's life line, which is the parent's alone.
      std::_Exit(MapsOf("region.cache") == maps - 1 && OpenFiles() <= files + 1 ? 0 : 6);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_SAME(status, 0);
  }
  EXPECT_SAME(OpenFiles(), files);
  EXPECT_SAME(MapsOf("region.cache"), maps);
  Balanced();
}

// Nor does a child's child, and so on: each would add to what it inherited.
SCENARIO(fork_chain_leaks_nothing) {
  Begin();
  const size_t files = OpenFiles();
  const size_t maps = MapsOf("region.cache");
  for (int generation = 0; generation < 5; ++generation) {
    const pid_t child = fork();
    if (child != 0) {
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_SAME(status, 0);
      return;
    }
    UseBothLibraries();
    EXPECT_SAME(MapsOf("region.cache"), maps - 1);  // without the first one's life line
    EXPECT(OpenFiles() <= files + 1);               // whatever NVML itself opens, once
  }
}

// A child of a fork waits for no lock that a thread of the parent holds at that moment: such a thread is not in it.
SCENARIO(fork_amid_calls) {
  CUcontext context = Begin();
  CUmemoryPool pool = nullptr;
  OK(cuDeviceGetDefaultMemPool(&pool, 0));
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      cuCtxSetCurrent(context);
      for (CUdeviceptr block = 0; !stop;) {
        if (cuMemAllocAsync(&block, kMiB, nullptr) == CUDA_SUCCESS) cuMemFreeAsync(block, nullptr);
      }
    });
  }
  threads.emplace_back([&] {
    CUcontext again = nullptr;
    while (!stop && cuDevicePrimaryCtxRetain(&again, 0) == CUDA_SUCCESS) cuDevicePrimaryCtxRelease_v2(0);
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // whose signal ends a child that waits
      CUcontext none = nullptr;
      cuDevicePrimaryCtxRetain(&none, 0);
      cuMemPoolDestroy(pool);
      UseBothLibraries();
      std::_Exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_SAME(status, 0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

// Where a process keeps its own account, a child of a fork begins with an empty one.
SCENARIO(fork_counts_anew) {
  Begin();
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, 100 * kMiB));
  const pid_t child = fork();
  if (child == 0) {
    nvmlDevice_t device = nullptr;
    nvmlMemory_t memory{};
    nvmlInit_v2();
    if (nvmlDeviceGetHandleByIndex_v2(0, &device) != NVML_SUCCESS) std::_Exit(3);
    if (nvmlDeviceGetMemoryInfo(device, &memory) != NVML_SUCCESS) std::_Exit(4);
    std::_Exit(memory.used == 0 ? 0 : 5);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_SAME(status, 0);
}

SCENARIO(exec_again) {
  Begin();
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, 600 * kMiB));
  // The new image is the same process with nothing allocated: all of the room is there again.
  execl("/proc/self/exe", "preload_guest", "take", "629145600", static_cast<char*>(nullptr));
  EXPECT(false);
}

SCENARIO(vfork_and_system) {
  Begin();
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, 100 * kMiB));
  const size_t room = Room();
  EXPECT_SAME(std::system("true"), 0);
  const pid_t child = vfork();
  if (child == 0) _exit(0);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_SAME(status, 0);
  EXPECT_SAME(Room(), room);
  OK(cuMemFree_v2(block));
  Balanced();
}

// Calls that arrive when everything else is gone: exit handlers and static destructors (B5).
CUdeviceptr g_late = 0;
struct Late {
  ~Late() {
    if (g_late == 0) return;
    size_t free = 0;
    size_t total = 0;
    cuMemGetInfo_v2(&free, &total);
    cuMemFree_v2(g_late);
    CUdeviceptr block = 0;
    cuMemAlloc_v2(&block, kMiB);
    nvmlDevice_t device = nullptr;
    nvmlDeviceGetHandleByIndex_v2(0, &device);
    cuDevicePrimaryCtxRelease_v2(0);
    if (write(STDOUT_FILENO, "late\n", 5) != 5) std::_Exit(7);
  }
};
const Late g_late_destructor;

SCENARIO(static_destructors) {
  Begin();
  std::atexit([] {
    CUdeviceptr block = 0;
    cuMemAlloc_v2(&block, kMiB);
    cuMemFree_v2(block);
  });
  OK(cuMemAlloc_v2(&g_late, kMiB));
  std::exit(0);
}

// errno, the umask and signal handlers are the program's (B11, D1).
SCENARIO(good_guest) {
  umask(027);
  signal(SIGUSR1, [](int) {});
  const auto handler = signal(SIGUSR2, SIG_IGN);
  EXPECT(handler == SIG_DFL);
  errno = 4711;
  Begin();
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, kMiB));
  OOM(cuMemAlloc_v2(&block, 2 * kGiB));
  MemInfo();
  nvmlInit_v2();
  EXPECT_SAME(umask(022), 027);
  struct sigaction action {};
  sigaction(SIGUSR2, nullptr, &action);
  EXPECT(action.sa_handler == SIG_IGN);
  raise(SIGUSR2);
  raise(SIGUSR1);
  OK(cuMemFree_v2(block));  // our own SIGUSR2 must not have frozen anything
}

// All descriptors used up, or closed behind our back: the account still works (C11).
SCENARIO(no_descriptors) {
  Begin();
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, 100 * kMiB));
  std::vector<int> files;
  for (int fd = open("/dev/null", O_RDONLY); fd >= 0; fd = open("/dev/null", O_RDONLY)) files.push_back(fd);
  OOM(cuMemAlloc_v2(&g_late, 2 * kGiB));
  g_late = 0;
  EXPECT(MemInfo().used() >= 100 * kMiB);
  for (const int fd : files) close(fd);
  Balanced();
}

// Who can open nothing can not look whether another lives, and must not take it for dead (C11).
SCENARIO(refused_without_descriptors) {
  Begin();
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, 512));
  while (open("/dev/null", O_RDONLY) >= 0) {
  }
  OOM(cuMemAlloc_v2(&block, std::strtoull(arguments.at(0).c_str(), nullptr, 10)));
}

// Dies in the middle of its work.
SCENARIO(die_allocating) {
  Begin();
  const unsigned long after = std::strtoul(arguments.at(0).c_str(), nullptr, 10);
  std::thread([after] {
    usleep(static_cast<useconds_t>(after));
    kill(getpid(), SIGKILL);
  }).detach();
  for (;;) {
    CUdeviceptr block = 0;
    if (cuMemAlloc_v2(&block, 3 * kMiB) == CUDA_SUCCESS) cuMemFree_v2(block);
  }
}

}  // namespace
}  // namespace guest
