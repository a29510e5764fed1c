// SPDX-License-Identifier: Apache-2.0
// A machine with more devices than a region has places for, made of fake driver functions.
#include "vgpu/policy/device_map.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "region/region.h"
#include "vgpu/loader/driver.h"
#include "vgpu/policy/nvml_probe.h"
#include "vgpu/policy/process.h"

namespace hami::vgpu {
namespace {

constexpr unsigned kDevices = 20;
constinit region::Attachment g_region{};
constinit int g_lost = -1;  // the device that does not answer

// Device i has the uuid i, i, i …; a handle is its index + 1.
CUuuid UuidOf(int i) {
  CUuuid uuid{};
  std::memset(uuid.bytes, i, sizeof uuid.bytes);
  return uuid;
}

std::string NameOf(unsigned i) {
  std::string name = "GPU-";
  for (int byte = 0; byte < 16; ++byte) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%02x", i);
    name += (byte == 4 || byte == 6 || byte == 8 || byte == 10 ? "-" : "") + std::string(digits);
  }
  return name;
}

nvmlDevice_t HandleOf(unsigned i) { return reinterpret_cast<nvmlDevice_t>(uintptr_t{i} + 1); }
unsigned IndexOf(nvmlDevice_t handle) { return static_cast<unsigned>(reinterpret_cast<uintptr_t>(handle) - 1); }

CUresult GetCount(int* count) {
  *count = kDevices;
  return CUDA_SUCCESS;
}
CUresult GetUuid(CUuuid* out, CUdevice ordinal) {
  *out = UuidOf(ordinal);
  return CUDA_SUCCESS;
}
nvmlReturn_t GetNvmlCount(unsigned* count) {
  *count = kDevices;
  return NVML_SUCCESS;
}
nvmlReturn_t GetByIndex(unsigned index, nvmlDevice_t* out) {
  if (static_cast<int>(index) == g_lost) return NVML_ERROR_GPU_IS_LOST;
  *out = HandleOf(index);
  return NVML_SUCCESS;
}
nvmlReturn_t GetMemory(nvmlDevice_t, nvmlMemory_t* out) {
  out->total = 80;
  return NVML_SUCCESS;
}
nvmlReturn_t GetName(nvmlDevice_t handle, char* out, unsigned room) {
  std::snprintf(out, room, "%s", NameOf(IndexOf(handle)).c_str());
  return NVML_SUCCESS;
}

class DeviceMapTest : public testing::Test {
 protected:
  DeviceMapTest() {
    path_ = testing::TempDir() + "/device-map-" + std::to_string(getpid());
    unlink(path_.c_str());
    EXPECT_EQ(region::Attach(&g_region, path_.c_str(), region::Config{}), region::Status::kOk);
  }
  ~DeviceMapTest() override {
    region::Detach(&g_region);
    unlink(path_.c_str());
    ResetDeviceMap();
    g_lost = -1;
  }
  std::string path_;
};

// B12: the names of the devices above 16 must not run over the limits that follow them in the file.
TEST_F(DeviceMapTest, GivenTwentyDevices_ThenSixteenAreLimitedAndTheRestAreNot) {
  for (int i = 0; i < 16; ++i) EXPECT_EQ(DeviceOfOrdinal(i), i);
  for (int i = 16; i < static_cast<int>(kDevices); ++i) EXPECT_EQ(DeviceOfOrdinal(i), kUnlimited);
  EXPECT_EQ(region::DeviceCount(g_region), region::kMaxDevices);
  for (const uint64_t limit : g_region.region->limit) EXPECT_EQ(limit, 0u);
}

TEST_F(DeviceMapTest, GivenTwentyHandles_ThenTheSameAnswersAsForOrdinals) {
  for (int round = 0; round < 2; ++round) {
    for (unsigned i = 0; i < kDevices; ++i) {
      EXPECT_EQ(DeviceOfHandle(HandleOf(i)), i < 16 ? static_cast<int>(i) : kUnlimited);
    }
  }
}

TEST_F(DeviceMapTest, GivenOrdinalsThatAreNone_ThenUnlimitedAndNothingIsTouched) {
  for (const int ordinal : {-1, static_cast<int>(kDevices), 127, 128, 1 << 30}) {
    EXPECT_EQ(DeviceOfOrdinal(ordinal), kUnlimited);
  }
}

// What limits the second program of a container must not hang on what the first one met.
TEST_F(DeviceMapTest, GivenADeviceThatIsLostWhenTheOthersAreListed_WhenItIsBack_ThenItHasItsPlace) {
  g_lost = 3;
  EXPECT_EQ(DeviceOfOrdinal(2), 2);
  EXPECT_EQ(DeviceOfOrdinal(4), 4);
  g_lost = -1;
  ResetDeviceMap();  // another process
  EXPECT_EQ(DeviceOfOrdinal(3), 3);
  EXPECT_EQ(DeviceOfHandle(HandleOf(3)), 3);
  EXPECT_EQ(DeviceOfOrdinal(4), 4);
  EXPECT_EQ(region::Load(g_region.area->devices[3].physical_bytes), 80u);
}

// Many programs begin at once, and each lists the devices: the last byte of a name, and the number of them, come last.
TEST_F(DeviceMapTest, GivenAnotherThatIsWritingTheNames_ThenTheyAreWholeAllTheSame) {
  for (int i = 0; i < 4; ++i) std::memcpy(g_region.region->uuids[i], "GPU-0", 5);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(DeviceOfOrdinal(i), i);
}

TEST_F(DeviceMapTest, GivenADeviceThatComesBackWhileTheProcessRuns_WhenItIsMet_ThenItHasItsPlace) {
  g_lost = 3;
  EXPECT_EQ(DeviceOfOrdinal(2), 2);
  g_lost = -1;
  EXPECT_EQ(DeviceOfOrdinal(3), 3);
}

// More handles than are remembered are looked up each time.
TEST_F(DeviceMapTest, GivenManyHandles_ThenNoneIsMistaken) {
  for (unsigned i = 0; i < 200; ++i) EXPECT_EQ(DeviceOfHandle(HandleOf(i)), i < 16 ? static_cast<int>(i) : kUnlimited);
}

}  // namespace

// What the map is built on.
region::Attachment* attachment() { return &g_region; }
const Settings& settings() {
  static const Settings nothing{};
  return nothing;
}
NvmlUse::NvmlUse() : open_(true) {}
NvmlUse::~NvmlUse() = default;

void* DriverSymbol(Sym sym) {
  switch (sym) {
    case Sym::cuDeviceGetCount:
      return reinterpret_cast<void*>(&GetCount);
    case Sym::cuDeviceGetUuid_v2:
      return reinterpret_cast<void*>(&GetUuid);
    case Sym::nvmlDeviceGetCount_v2:
      return reinterpret_cast<void*>(&GetNvmlCount);
    case Sym::nvmlDeviceGetHandleByIndex_v2:
      return reinterpret_cast<void*>(&GetByIndex);
    case Sym::nvmlDeviceGetMemoryInfo:
      return reinterpret_cast<void*>(&GetMemory);
    case Sym::nvmlDeviceGetUUID:
      return reinterpret_cast<void*>(&GetName);
    default:
      return nullptr;
  }
}

}  // namespace hami::vgpu
