// SPDX-License-Identifier: Apache-2.0
// Text as PTX and as simgpu's own format, whatever it begins with.

#include "simgpu/image/ptx.h"
#include "simgpu/image/simgpu_text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  simgpu::Image image;
  std::string log;
  static_cast<void>(simgpu::ParsePtx(text, &image, &log));
  image = simgpu::Image{};
  static_cast<void>(simgpu::ParsePtx(".version 8.0 .target sm_75 " + std::string(text), &image, &log));
  image = simgpu::Image{};
  static_cast<void>(simgpu::ParseSimgpuText(text, simgpu::Target{}, &image, &log));
  return 0;
}
