// SPDX-License-Identifier: Apache-2.0
// A machine with more devices than a region has places for, made of fake driver functions.
#include "vgpu/runtime/device_map.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "region/region.h"
#include "vgpu/loader/driver.h"
#include "vgpu/runtime/nvml_probe.h"
#include "vgpu/runtime/process.h"

namespace hami::vgpu {
namespace {

constexpr unsigned kDevices = 20;
constinit region::Attachment g_region{};
Settings g_settings{};
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
nvmlReturn_t GetByUuid(const char* uuid, nvmlDevice_t* out) {
  for (unsigned i = 0; i < kDevices; ++i) {
    if (NameOf(i) != uuid) continue;
    *out = HandleOf(i);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}
nvmlReturn_t GetIndex(nvmlDevice_t handle, unsigned* out) {
  *out = IndexOf(handle);
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
    g_settings = {};
  }
  // As a file is that was made for other GPUs.
  static void NameAs(uint32_t count, const char* name) {
    char names[region::kMaxDevices][region::kUuidBytes] = {};
    for (uint32_t i = 0; i < count; ++i) std::snprintf(names[i], sizeof names[i], "%s%u", name, i);
    region::SetDevices(&g_region, count, names);
  }
  static uint64_t LimitOf(int device) { return g_region.region->limit[device]; }
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
TEST_F(DeviceMapTest, GivenDeviceLostAtListing_WhenItIsBack_ThenItHasItsPlace) {
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

TEST_F(DeviceMapTest, GivenDeviceBackWhileProcessRuns_WhenMet_ThenItHasItsPlace) {
  g_lost = 3;
  EXPECT_EQ(DeviceOfOrdinal(2), 2);
  g_lost = -1;
  EXPECT_EQ(DeviceOfOrdinal(3), 3);
}

TEST_F(DeviceMapTest, GivenAFileOfAnotherMachine_ThenTheEnvironmentsLimitsHold) {
  NameAs(3, "GPU-elsewhere-");
  for (int i = 0; i < 16; ++i) g_settings.memory_limit[i] = 100 + static_cast<uint64_t>(i);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(DeviceOfOrdinal(i), i);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(LimitOf(i), 100u + static_cast<uint64_t>(i));
  EXPECT_EQ(std::string(g_region.region->uuids[2]), NameOf(2));
}

TEST_F(DeviceMapTest, GivenOtherMachinesFileAndNoEnvironment_ThenLeastOfFileHolds) {
  NameAs(3, "GPU-elsewhere-");
  g_region.region->limit[0] = 700;
  g_region.region->limit[1] = 500;
  g_region.region->sm_limit[1] = 30;
  g_settings.sm_limit[1] = 100;
  EXPECT_EQ(DeviceOfHandle(HandleOf(1)), 1);
  EXPECT_EQ(DeviceOfOrdinal(1), 1);
  EXPECT_EQ(LimitOf(1), 500u);
  EXPECT_EQ(g_region.region->sm_limit[1], 30u);
}

TEST_F(DeviceMapTest, GivenFileWithoutDevice_ThenItIsAddedWithEnvironmentsLimit) {
  char names[region::kMaxDevices][region::kUuidBytes] = {};
  std::snprintf(names[0], sizeof names[0], "%s", NameOf(5).c_str());
  region::SetDevices(&g_region, 1, names);
  g_region.region->limit[0] = 900;
  g_settings.memory_limit[7] = 300;
  EXPECT_EQ(DeviceOfHandle(HandleOf(7)), kUnlimited);  // nobody has used it
  EXPECT_EQ(DeviceOfOrdinal(5), 0);
  EXPECT_EQ(DeviceOfOrdinal(7), 1);
  EXPECT_EQ(DeviceOfHandle(HandleOf(7)), 1);
  EXPECT_EQ(LimitOf(0), 900u);
  EXPECT_EQ(LimitOf(1), 300u);
  ResetDeviceMap();  // another process
  EXPECT_EQ(DeviceOfOrdinal(7), 1);
}

TEST_F(DeviceMapTest, GivenNamesThatMeanNothing_ThenTheyAreReplaced) {
  NameAs(16, "\xff\x01 not a uuid ");
  g_settings.memory_limit[3] = 300;
  EXPECT_EQ(DeviceOfOrdinal(3), 3);
  EXPECT_EQ(LimitOf(3), 300u);
}

// More handles than are remembered are looked up each time.
TEST_F(DeviceMapTest, GivenManyHandles_ThenNoneIsMistaken) {
  for (unsigned i = 0; i < 200; ++i) EXPECT_EQ(DeviceOfHandle(HandleOf(i)), i < 16 ? static_cast<int>(i) : kUnlimited);
}

}  // namespace

// What the map is built on.
const Settings& settings() { return g_settings; }
region::Attachment* attachment() { return &g_region; }
bool NvmlUse::Open() { return open_ = true; }
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
    case Sym::nvmlDeviceGetHandleByUUID:
      return reinterpret_cast<void*>(&GetByUuid);
    case Sym::nvmlDeviceGetIndex:
      return reinterpret_cast<void*>(&GetIndex);
    case Sym::nvmlDeviceGetMemoryInfo:
      return reinterpret_cast<void*>(&GetMemory);
    case Sym::nvmlDeviceGetUUID:
      return reinterpret_cast<void*>(&GetName);
    default:
      return nullptr;
  }
}

}  // namespace hami::vgpu
