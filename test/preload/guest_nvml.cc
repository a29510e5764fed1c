// SPDX-License-Identifier: Apache-2.0
// NVML as seen from inside: the same figures as CUDA, only the own processes, and no other devices where they are
// fixed.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "test/preload/guest_kernels.h"

namespace guest {
namespace {

#define NVML(call) EXPECT_SAME(call, NVML_SUCCESS)

nvmlDevice_t Device(unsigned index = 0) {
  nvmlDevice_t device = nullptr;
  NVML(nvmlInit_v2());
  NVML(nvmlDeviceGetHandleByIndex_v2(index, &device));
  return device;
}

SCENARIO(nvml_agrees) {
  Begin();
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, 123 * kMiB));
  const Seen cuda = MemInfo();
  nvmlMemory_t memory{};
  NVML(nvmlDeviceGetMemoryInfo(Device(), &memory));
  EXPECT_SAME(memory.total, cuda.total);
  EXPECT_SAME(memory.free, cuda.free);
  EXPECT_SAME(memory.used, cuda.used());
  nvmlMemory_v2_t second{};
  second.version = nvmlMemory_v2;
  NVML(nvmlDeviceGetMemoryInfo_v2(Device(), &second));
  EXPECT_SAME(second.version, nvmlMemory_v2);
  EXPECT_SAME(second.total, cuda.total);
  EXPECT_SAME(second.free, cuda.free);
  EXPECT_SAME(second.used, cuda.used());
  EXPECT_SAME(second.reserved + second.used + second.free, second.total);
  second.version = 77;
  EXPECT(nvmlDeviceGetMemoryInfo_v2(Device(), &second) != NVML_SUCCESS);
}

// The monitor lowers the limit below what is in use: no error, no wrap, nothing more to be had (C5).
SCENARIO(limit_lowered) {
  constexpr off_t kLimitOffset = 1600;  // Region.limit[0]
  Begin();
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, 400 * kMiB));
  const int fd = open(std::getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), O_RDWR);
  const uint64_t limit = 100 * kMiB;
  EXPECT_SAME(pwrite(fd, &limit, sizeof limit, kLimitOffset), sizeof limit);
  close(fd);
  EXPECT_SAME(MemInfo().total, limit);
  EXPECT_SAME(MemInfo().free, 0);
  nvmlMemory_t memory{};
  NVML(nvmlDeviceGetMemoryInfo(Device(), &memory));
  EXPECT_SAME(memory.total, limit);
  EXPECT_SAME(memory.used, limit);
  EXPECT_SAME(memory.free, 0);
  CUdeviceptr more = 0;
  OOM(cuMemAlloc_v2(&more, 1));
  OK(cuMemFree_v2(block));
}

// NVML alone, before any CUDA.
SCENARIO(nvml_alone) {
  unsigned count = 0;
  EXPECT_SAME(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
  EXPECT(nvmlErrorString(NVML_ERROR_UNINITIALIZED) != nullptr);
  nvmlMemory_t memory{};
  NVML(nvmlDeviceGetMemoryInfo(Device(), &memory));
  EXPECT_SAME(memory.total, kGiB);
  EXPECT_SAME(memory.used, 0);
  EXPECT_SAME(memory.free, kGiB);
  EXPECT(nvmlDeviceGetMemoryInfo(Device(), nullptr) == NVML_ERROR_INVALID_ARGUMENT);
}

// nvml_ahead: with the driver's start NVML is opened for the first context. Only a function that is not replaced tells.
SCENARIO(nvml_ahead) {
  nvmlBrandType_t brand{};
  const auto session = [&] { return nvmlDeviceGetBrand(nullptr, &brand) != NVML_ERROR_UNINITIALIZED; };
  EXPECT(!session());
  OK(cuInit(0));
  for (int i = 0; i < 1000 && !session(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT(session());
  unsigned count = 0;
  EXPECT_SAME(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
  EXPECT_SAME(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
  Begin();
  EXPECT(session());
}

// The library looks into NVML too; the program's own sessions are all that it may notice.
SCENARIO(nvml_sessions) {
  unsigned count = 0;
  char version[80];
  EXPECT_SAME(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
  size_t total = 0;
  OK(cuInit(0));
  OK(cuDeviceTotalMem_v2(&total, 0));
  EXPECT_SAME(nvmlSystemGetDriverVersion(version, sizeof version), NVML_ERROR_UNINITIALIZED);
  Begin();
  EXPECT_SAME(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
  nvmlDevice_t device = nullptr;
  EXPECT_SAME(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_ERROR_UNINITIALIZED);
  EXPECT_SAME(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
  NVML(nvmlInit_v2());
  NVML(nvmlInitWithFlags(0));
  NVML(nvmlDeviceGetHandleByIndex_v2(0, &device));
  NVML(nvmlShutdown());
  NVML(nvmlDeviceGetCount_v2(&count));
  NVML(nvmlShutdown());
  nvmlMemory_t memory{};
  nvmlUtilization_t rates{};
  EXPECT_SAME(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
  EXPECT_SAME(nvmlDeviceGetMemoryInfo(device, &memory), NVML_ERROR_UNINITIALIZED);
  EXPECT_SAME(nvmlDeviceGetUtilizationRates(device, &rates), NVML_ERROR_UNINITIALIZED);
  EXPECT_SAME(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, nullptr), NVML_ERROR_UNINITIALIZED);
  EXPECT_SAME(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
  // Measuring goes on all the same, and ends with the last context.
  LoadImage("simgpu-image 1\nkernel k\nglobal g 104857600\n");
  Balanced();
  OK(cuDevicePrimaryCtxRelease_v2(0));
  EXPECT_SAME(nvmlSystemGetDriverVersion(version, sizeof version), NVML_ERROR_UNINITIALIZED);
  NVML(nvmlInit());
  NVML(nvmlSystemGetDriverVersion(version, sizeof version));
  NVML(nvmlShutdown());
  EXPECT_SAME(nvmlSystemGetDriverVersion(version, sizeof version), NVML_ERROR_UNINITIALIZED);
}

// A device by the newer form of its uuid.
SCENARIO(nvml_uuid_struct) {
  nvmlDevice_t device = Device();
  char name[96];
  NVML(nvmlDeviceGetUUID(device, name, sizeof name));
  nvmlUUID_t uuid{};
  uuid.version = nvmlUUID_v1;
  uuid.type = NVML_UUID_TYPE_ASCII;
  std::memcpy(uuid.value.str, name, sizeof uuid.value.str - 1);
  nvmlDevice_t again = nullptr;
  const nvmlReturn_t result = nvmlDeviceGetHandleByUUIDV(&uuid, &again);
  EXPECT(result == NVML_ERROR_NOT_SUPPORTED || (result == NVML_SUCCESS && again == device));
  nvmlAccountingStats_t stats{};
  EXPECT(nvmlDeviceGetAccountingStats(device, 1, &stats) != NVML_SUCCESS);  // init is not ours
}

// A first nvmlInit that fails does not spoil the next one.
SCENARIO(nvml_init_again) {
  EXPECT_SAME(simgpu_inject("fault call=nvmlInit_v2 error=9", nullptr, 0), 1);
  EXPECT_SAME(nvmlInit_v2(), 9);
  EXPECT_SAME(simgpu_inject("clear", nullptr, 0), 1);
  nvmlMemory_t memory{};
  NVML(nvmlDeviceGetMemoryInfo(Device(), &memory));
  EXPECT_SAME(memory.total, kGiB);
}

template <typename Info, typename List>
std::set<unsigned> Pids(List list, nvmlDevice_t device) {
  unsigned count = 0;
  const nvmlReturn_t sized = list(device, &count, nullptr);
  EXPECT(sized == NVML_SUCCESS || sized == NVML_ERROR_INSUFFICIENT_SIZE);
  std::vector<Info> infos(count + 4);
  count = static_cast<unsigned>(infos.size());
  NVML(list(device, &count, infos.data()));
  std::set<unsigned> pids;
  for (unsigned i = 0; i < count; ++i) {
    pids.insert(infos[i].pid);
    EXPECT(infos[i].usedGpuMemory <= kGiB);
    if (infos[i].pid == static_cast<unsigned>(getpid())) EXPECT_SAME(infos[i].usedGpuMemory, Truth());
  }
  return pids;
}

// Another container's process (the argument is how many of ours there are) is not to be seen.
SCENARIO(nvml_processes) {
  Begin();
  const size_t ours = std::strtoul(arguments.at(0).c_str(), nullptr, 10);
  const unsigned self = static_cast<unsigned>(getpid());
  nvmlDevice_t device = Device();
  for (const std::set<unsigned>& pids : {Pids<nvmlProcessInfo_v1_t>(nvmlDeviceGetComputeRunningProcesses, device),
                                         Pids<nvmlProcessInfo_v2_t>(nvmlDeviceGetComputeRunningProcesses_v2, device),
                                         Pids<nvmlProcessInfo_t>(nvmlDeviceGetComputeRunningProcesses_v3, device)}) {
    EXPECT_SAME(pids.size(), ours);
    EXPECT(pids.count(self) == 1);
  }
  EXPECT(Pids<nvmlProcessInfo_t>(nvmlDeviceGetGraphicsRunningProcesses_v3, device).size() <= ours);
  EXPECT(Pids<nvmlProcessInfo_t>(nvmlDeviceGetMPSComputeRunningProcesses_v3, device).size() <= ours);
  unsigned none = 0;
  EXPECT_SAME(nvmlDeviceGetComputeRunningProcesses_v3(device, &none, nullptr), NVML_ERROR_INSUFFICIENT_SIZE);
  EXPECT_SAME(none, ours);
  EXPECT(nvmlDeviceGetComputeRunningProcesses_v3(device, nullptr, nullptr) == NVML_ERROR_INVALID_ARGUMENT);
  nvmlProcessDetailList_t details{};
  std::vector<nvmlProcessDetail_v1_t> room(64);
  details.version = nvmlProcessDetailList_v1;
  details.mode = 0;
  details.numProcArrayEntries = 64;
  details.procArray = room.data();
  const nvmlReturn_t listed = nvmlDeviceGetRunningProcessDetailList(device, &details);
  EXPECT(listed == NVML_ERROR_NOT_SUPPORTED || details.numProcArrayEntries == ours);
}

// Two that start together, each under a pid that NVML does not show: each finds itself, with what it holds (C12).
// BYTES MINE OTHERS: the files tell how far each is.
SCENARIO(nvml_twins) {
  const auto meet = [&](const char* stage) {
    std::fclose(std::fopen((arguments.at(1) + stage).c_str(), "w"));
    for (int waits = 0; access((arguments.at(2) + stage).c_str(), F_OK) != 0; ++waits) {
      EXPECT(waits < 30'000);
      usleep(1000);
    }
  };
  OK(cuInit(0));
  meet(".up");
  Begin();
  CUdeviceptr block = 0;
  OK(cuMemAlloc_v2(&block, std::strtoull(arguments.at(0).c_str(), nullptr, 10)));
  meet(".holds");
  const std::set<unsigned> pids = Pids<nvmlProcessInfo_t>(nvmlDeviceGetComputeRunningProcesses_v3, Device());
  EXPECT_SAME(pids.count(static_cast<unsigned>(getpid())), 1);
  EXPECT_SAME(pids.size(), 2);
  meet(".done");
}

// Utilisation is the container's: nothing of ours runs, whatever the neighbour does.
SCENARIO(nvml_idle) {
  Begin();
  nvmlUtilization_t rates{};
  NVML(nvmlDeviceGetUtilizationRates(Device(), &rates));
  EXPECT_SAME(rates.gpu, 0);
}

// Where NVML does not tell per process, what the container recorded itself is shown, and never the neighbour's load.
SCENARIO(nvml_utilization_recorded) {
  constexpr off_t kSmOffset = 1856 + 1160 + 16;  // Region.slots[0].utilization[0].sm
  Begin();
  nvmlDevice_t device = Device();
  EXPECT_SAME(simgpu_inject("fault call=nvmlDeviceGetProcessUtilization error=3", nullptr, 0), 1);
  nvmlUtilization_t rates{50, 50};
  NVML(nvmlDeviceGetUtilizationRates(device, &rates));
  EXPECT_SAME(rates.gpu, 0);
  const int fd = open(std::getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), O_RDWR);
  for (const uint64_t percent : {uint64_t{37}, uint64_t{4000}}) {
    EXPECT_SAME(pwrite(fd, &percent, sizeof percent, kSmOffset), sizeof percent);
    NVML(nvmlDeviceGetUtilizationRates(device, &rates));
    EXPECT_SAME(rates.gpu, percent < 100 ? percent : 100);
  }
  close(fd);
}

// Makes two instances on the first GPU and names them; for the tests of what a program in one of them sees.
SCENARIO(make_mig) {
  nvmlDevice_t gpu = Device();
  nvmlReturn_t activation = NVML_SUCCESS;
  NVML(nvmlDeviceSetMigMode(gpu, NVML_DEVICE_MIG_ENABLE, &activation));
  nvmlGpuInstanceProfileInfo_t profile{};
  NVML(nvmlDeviceGetGpuInstanceProfileInfo(gpu, NVML_GPU_INSTANCE_PROFILE_1_SLICE, &profile));
  for (unsigned i = 0; i < 2; ++i) {
    nvmlGpuInstance_t instance = nullptr;
    nvmlComputeInstance_t compute = nullptr;
    NVML(nvmlDeviceCreateGpuInstance(gpu, profile.id, &instance));
    NVML(nvmlGpuInstanceCreateComputeInstance(instance, NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE, &compute));
    nvmlDevice_t mig = nullptr;
    char uuid[96];
    NVML(nvmlDeviceGetMigDeviceHandleByIndex(gpu, i, &mig));
    NVML(nvmlDeviceGetUUID(mig, uuid, sizeof uuid));
    std::printf("%s\n", uuid);
  }
}

// In a MIG instance: the total (argument, MiB; 0 = the instance's own), in CUDA and in NVML by the instance's handle.
SCENARIO(in_mig) {
  const size_t want = std::strtoull(arguments.at(0).c_str(), nullptr, 10) * kMiB;
  Begin();
  CUdeviceptr block = 0;
  const size_t total = MemInfo().total;
  if (want != 0) EXPECT_SAME(total, want);
  EXPECT(want != 0 || total > 5 * kGiB);
  OOM(cuMemAlloc_v2(&block, total));
  OK(cuMemAlloc_v2(&block, total / 4));
  NVML(nvmlInit_v2());
  nvmlDevice_t mig = nullptr;
  NVML(nvmlDeviceGetHandleByUUID(std::getenv("CUDA_VISIBLE_DEVICES"), &mig));
  nvmlMemory_t memory{};
  NVML(nvmlDeviceGetMemoryInfo(mig, &memory));
  if (want != 0) EXPECT_SAME(memory.total, want);
  EXPECT(memory.used >= total / 4);
  NVML(nvmlShutdown());
}

SCENARIO(busy) {
  Begin();
  const CUfunction kernel = KernelOf(LoadImage("simgpu-image 1\nkernel k\n"), "k");
  std::FILE* const ready = std::fopen(arguments.at(0).c_str(), "w");
  for (;;) {
    Launch(kernel, nullptr, 10000, 256);
    OK(cuCtxSynchronize());
    if (ready != nullptr) std::fflush(ready);
  }
}

// With fixed devices the others do not exist, by no name (argument: the uuid of one that is hidden).
SCENARIO(nvml_fixed) {
  NVML(nvmlInit_v2());
  unsigned count = 0;
  NVML(nvmlDeviceGetCount_v2(&count));
  EXPECT_SAME(count, 1);
  nvmlDevice_t device = nullptr;
  NVML(nvmlDeviceGetHandleByIndex_v2(0, &device));
  char uuid[96];
  NVML(nvmlDeviceGetUUID(device, uuid, sizeof uuid));
  EXPECT(arguments.at(1) == uuid);
  unsigned index = 9;
  NVML(nvmlDeviceGetIndex(device, &index));
  EXPECT_SAME(index, 0);
  EXPECT_SAME(nvmlDeviceGetHandleByIndex_v2(1, &device), NVML_ERROR_INVALID_ARGUMENT);
  EXPECT_SAME(nvmlDeviceGetHandleByUUID(arguments.at(0).c_str(), &device), NVML_ERROR_NOT_FOUND);
  NVML(nvmlDeviceGetHandleByUUID(arguments.at(1).c_str(), &device));
  // Nor do devices that are shown lead to others.
  for (const unsigned room : {0u, 8u}) {
    nvmlDevice_t found[8];
    count = room;
    NVML(nvmlDeviceGetTopologyNearestGpus(device, NVML_TOPOLOGY_SYSTEM, &count, found));
    EXPECT_SAME(count, 0);
  }
}

// The device that the driver counts first is lost, and not ours.
SCENARIO(nvml_hidden_device_lost) {
  NVML(nvmlInit_v2());
  nvmlDevice_t device = nullptr;
  NVML(nvmlDeviceGetHandleByIndex_v2(0, &device));
  char uuid[96];
  NVML(nvmlDeviceGetUUID(device, uuid, sizeof uuid));
  EXPECT(arguments.at(0) == uuid);
  NVML(nvmlShutdown());
  EXPECT_SAME(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_ERROR_UNINITIALIZED);
}

SCENARIO(print_uuids) {
  NVML(nvmlInit_v2());
  unsigned count = 0;
  NVML(nvmlDeviceGetCount_v2(&count));
  for (unsigned i = 0; i < count; ++i) {
    char uuid[96];
    NVML(nvmlDeviceGetUUID(Device(i), uuid, sizeof uuid));
    std::printf("%s\n", uuid);
  }
}

}  // namespace
}  // namespace guest
