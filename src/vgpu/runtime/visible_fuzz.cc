// SPDX-License-Identifier: Apache-2.0
// A program's CUDA_VISIBLE_DEVICES in a share of two GPUs: whatever it holds, it names granted devices.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "vgpu/runtime/device_map.h"
#include "vgpu/runtime/visible.h"

namespace {

constexpr const char* kGranted[] = {"GPU-aaaa0000-0000-0000-0000-000000000001",
                                    "GPU-aaaabbbb-0000-0000-0000-000000000002"};
constexpr char kInstance[] = "MIG-aaaa0000-0000-0000-0000-000000000003";

const char* Name(uint32_t index) { return kGranted[index]; }
bool HasInstance(const char* name) { return std::strcmp(name, kInstance) == 0; }

bool IsGranted(const std::string& name) { return name == kGranted[0] || name == kGranted[1] || name == kInstance; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string list(reinterpret_cast<const char*>(data), size);
  char out[200];
  std::memset(out, 'x', sizeof out);
  hami::vgpu::WriteVisible(list.c_str(), {2, &Name, &HasInstance}, out, sizeof out);
  if (std::memchr(out, '\0', sizeof out) == nullptr) std::abort();
  std::string rest = out;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    if (!IsGranted(rest.substr(0, comma))) std::abort();
    rest = comma == rest.npos ? "" : rest.substr(comma + 1);
  }
  return 0;
}

// What the part that is not looked at here is built on.
namespace hami::vgpu {

bool DevicesAreFixed() { return false; }
unsigned FixedDeviceCount() { return 0; }
const char* FixedDeviceName(unsigned) { return ""; }
bool IsPartOfFixedDevice(const char*) { return false; }

}  // namespace hami::vgpu
