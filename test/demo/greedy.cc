// SPDX-License-Identifier: Apache-2.0
//
// Takes all it can get: by every way of allocating in turn, in ever smaller pieces, until nothing more is given, then
// lets go and starts again. Argument: seconds.

#include <cstdlib>
#include <functional>
#include <vector>

#include "guest.h"

namespace {

using Release = std::function<void()>;

struct Greed {
  const guest::Cuda& cuda;
  std::vector<Release> held;
  uint64_t held_bytes = 0;
  uint64_t most_bytes = 0;
  uint64_t refused = 0;

  // True when the driver gave BYTES by way number WAY.
  bool Take(int way, size_t bytes) {
    CUdeviceptr pointer = 0;
    CUresult result = CUDA_SUCCESS;
    if (way == 0) {
      result = cuda.cuMemAlloc_v2(&pointer, bytes);
    } else if (way == 1) {
      result = cuda.cuMemAllocManaged(&pointer, bytes, CU_MEM_ATTACH_GLOBAL);
    } else if (way == 2) {
      result = cuda.cuMemAllocAsync(&pointer, bytes, nullptr);
    } else {
      return TakePhysical(bytes);
    }
    if (result == CUDA_SUCCESS) {
      held.push_back(
          [this, way, pointer] { way == 2 ? cuda.cuMemFreeAsync(pointer, nullptr) : cuda.cuMemFree_v2(pointer); });
    }
    return Count(result, bytes);
  }

  bool TakePhysical(size_t bytes) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle handle = 0;
    const size_t granularity = 2 * guest::kMiB;
    if (bytes % granularity != 0) return false;
    const CUresult result = cuda.cuMemCreate(&handle, bytes, &properties, 0);
    if (result == CUDA_SUCCESS) held.push_back([this, handle] { cuda.cuMemRelease(handle); });
    return Count(result, bytes);
  }

  bool Count(CUresult result, size_t bytes) {
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      ++refused;
      return false;
    }
    guest::Must(result, "an allocation");
    held_bytes += bytes;
    if (held_bytes > most_bytes) most_bytes = held_bytes;
    return true;
  }

  void LetGo() {
    for (const Release& release : held) release();
    held.clear();
    held_bytes = 0;
    guest::Must(cuda.cuStreamSynchronize(nullptr), "cuStreamSynchronize");
  }
};

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 6;
  Greed greed{guest::Start(), {}, 0, 0, 0};
  int way = 0;
  for (double elapsed = 0; elapsed < seconds; elapsed += 0.5) {
    for (size_t bytes = 256 * guest::kMiB; bytes >= 2 * guest::kMiB;) {
      way = (way + 1) % 4;
      if (!greed.Take(way, bytes)) bytes /= 2;
    }
    guest::Pause(0.5);
    if (elapsed + 0.5 < seconds) greed.LetGo();
  }
  guest::ReportViews(greed.cuda);
  guest::Report("most_bytes", greed.most_bytes);
  guest::Report("refused", greed.refused);
  return 0;
}
