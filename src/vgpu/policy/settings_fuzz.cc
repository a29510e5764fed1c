// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdlib>
#include <string>

#include "vgpu/policy/settings.h"

namespace {

std::string* g_value;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string value(reinterpret_cast<const char*>(data), size);
  g_value = &value;
  const hami::vgpu::ParsedSize parsed = hami::vgpu::ParseSize(value.c_str());
  if (parsed.invalid && parsed.bytes != 0) std::abort();
  hami::vgpu::Settings settings;
  hami::vgpu::ReadSettings(&settings, [](const char*) { return g_value->data(); });
  for (const uint64_t limit : settings.sm_limit) {
    if (limit == 0 || limit > 100) std::abort();
  }
  return 0;
}
