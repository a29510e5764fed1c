// SPDX-License-Identifier: Apache-2.0
// One value for every variable; behind a zero, one for what the share says.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "vgpu/runtime/amounts.h"
#include "vgpu/runtime/settings.h"

namespace {

std::string* g_value;

hami::vgpu::Settings Read(std::string value) {
  g_value = &value;
  hami::vgpu::Settings settings;
  hami::vgpu::ReadSettings(&settings, [](const char*) { return g_value->data(); });
  return settings;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string both(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = both.find('\0');
  const std::string value = both.substr(0, zero);
  const hami::vgpu::ParsedSize parsed = hami::vgpu::ParseSize(value.c_str());
  if (parsed.invalid && parsed.bytes != 0) std::abort();
  hami::vgpu::Settings settings = Read(value);
  for (const uint64_t limit : settings.sm_limit) {
    if (limit == 0 || limit > 100) std::abort();
  }
  if (zero == both.npos) return 0;
  const hami::vgpu::Settings share = Read(both.substr(zero + 1));
  hami::vgpu::KeepToShare(&settings, share);
  for (std::size_t i = 0; i < hami::region::kMaxDevices; ++i) {
    const uint64_t limit = settings.memory_limit[i], most = share.memory_limit[i];
    if (most != 0 && (limit == 0 || limit > most)) std::abort();
    if (settings.sm_limit[i] > share.sm_limit[i]) std::abort();
  }
  return 0;
}
