// SPDX-License-Identifier: Apache-2.0
// Which devices a program in a share sees, and by which names and numbers.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "test/preload/guest.h"

namespace guest {
namespace {

std::string UuidOf(CUdevice ordinal) {
  CUuuid uuid{};
  OK(cuDeviceGetUuid_v2(&uuid, ordinal));
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += (i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "") + std::string(digits);
  }
  return text;
}

void ExpectText(const char* what, const std::string& got, const std::string& want) {
  if (got == want) return;
  std::fprintf(stderr, "%s: got '%s', want '%s'\n", what, got.c_str(), want.c_str());
  std::_Exit(1);
}

std::string Variable() {
  const char* const value = std::getenv("CUDA_VISIBLE_DEVICES");
  return value == nullptr ? "(unset)" : value;
}

}  // namespace

// visible UUIDS…: these are CUDA's devices, in this order; and the variable is what it was.
SCENARIO(visible) {
  const std::string before = Variable();
  const CUresult begun = cuInit(0);
  ExpectText("CUDA_VISIBLE_DEVICES", Variable(), before);
  if (arguments.empty()) {
    EXPECT_SAME(begun, CUDA_ERROR_NO_DEVICE);
    return;
  }
  EXPECT_SAME(begun, CUDA_SUCCESS);
  OK(cuInit(0));
  ExpectText("CUDA_VISIBLE_DEVICES", Variable(), before);
  int count = 0;
  OK(cuDeviceGetCount(&count));
  EXPECT_SAME(count, arguments.size());
  for (int i = 0; i < count; ++i) ExpectText("UUID", UuidOf(i), arguments[static_cast<size_t>(i)]);
}

// nvml_visible UUIDS…: these are NVML's devices, in this order.
SCENARIO(nvml_visible) {
  EXPECT_SAME(nvmlInit_v2(), NVML_SUCCESS);
  unsigned count = 0;
  EXPECT_SAME(nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
  EXPECT_SAME(count, arguments.size());
  for (unsigned i = 0; i < count; ++i) {
    nvmlDevice_t handle = nullptr;
    char uuid[96];
    unsigned index = 99;
    EXPECT_SAME(nvmlDeviceGetHandleByIndex_v2(i, &handle), NVML_SUCCESS);
    EXPECT_SAME(nvmlDeviceGetUUID(handle, uuid, sizeof uuid), NVML_SUCCESS);
    ExpectText("UUID", uuid, arguments[i]);
    EXPECT_SAME(nvmlDeviceGetIndex(handle, &index), NVML_SUCCESS);
    EXPECT_SAME(index, i);
  }
}

// visible_in_child LIST UUIDS…: a program that this one starts with another list sees what that says.
SCENARIO(visible_in_child) {
  OK(cuInit(0));
  const std::string own = Variable();
  const pid_t child = fork();
  if (child == 0) {
    setenv("CUDA_VISIBLE_DEVICES", arguments.at(0).c_str(), 1);
    std::vector<char*> words{const_cast<char*>("guest"), const_cast<char*>("visible")};
    for (size_t i = 1; i < arguments.size(); ++i) words.push_back(const_cast<char*>(arguments[i].c_str()));
    words.push_back(nullptr);
    execv("/proc/self/exe", words.data());
    _exit(127);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_SAME(status, 0);
  ExpectText("CUDA_VISIBLE_DEVICES", Variable(), own);
}

// visible_set LIST UUIDS…: the program sets the variable itself, as notebooks do, and others beside it afterwards.
SCENARIO(visible_set) {
  unsetenv("CUDA_VISIBLE_DEVICES");
  setenv("BEFORE", "1", 1);
  if (arguments.at(0) != "-") setenv("CUDA_VISIBLE_DEVICES", arguments[0].c_str(), 1);
  Scenario_visible(Arguments(arguments.begin() + 1, arguments.end()));
  setenv("AFTER", "2", 1);
  unsetenv("BEFORE");
  EXPECT(std::getenv("BEFORE") == nullptr);
  ExpectText("AFTER", std::getenv("AFTER"), "2");
  ExpectText("CUDA_VISIBLE_DEVICES", Variable(), arguments[0] == "-" ? "(unset)" : arguments[0]);
}

}  // namespace guest
