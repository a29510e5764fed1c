// SPDX-License-Identifier: Apache-2.0
// Any bytes as an image: parsed for a device and for none, measured, and, when they are an image, written and read
// back.

#include <cstdlib>

#include "simgpu/image/cubin_writer.h"
#include "simgpu/image/image.h"

namespace {

class SpanSource final : public simgpu::ByteSource {
 public:
  explicit SpanSource(simgpu::Bytes bytes) : bytes_(bytes) {}
  std::size_t Read(std::uint64_t offset, std::span<std::byte> out) override {
    if (out.empty() || offset >= bytes_.size()) return 0;
    const std::size_t size = std::min<std::size_t>(out.size(), bytes_.size() - static_cast<std::size_t>(offset));
    std::memcpy(out.data(), bytes_.data() + offset, size);
    return size;
  }

 private:
  simgpu::Bytes bytes_;
};

void Check(bool holds) {
  if (!holds) std::abort();
}

// What a small image declares may be large; writing it out is not the point then.
bool Small(const simgpu::Image& image) {
  std::uint64_t bytes = image.code_bytes;
  for (const simgpu::GlobalInfo& global : image.globals) bytes += global.size;
  return bytes < (1u << 20) && image.kernels.size() < 1000;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const simgpu::Bytes bytes = std::as_bytes(std::span(data, size));
  SpanSource source(bytes);
  static_cast<void>(simgpu::DeclaredBytes(source));
  simgpu::Image image;
  std::string log;
  static_cast<void>(simgpu::ParseImage(bytes, simgpu::Target{90}, &image, &log));
  if (simgpu::ParseImage(bytes, simgpu::Target{}, &image, &log) != simgpu::ParseStatus::kOk) return 0;
  for (const simgpu::GlobalInfo& global : image.globals) Check(global.init.size() <= global.size);
  for (const simgpu::KernelInfo& kernel : image.kernels) {
    std::uint32_t end = 0;
    for (const simgpu::ParamInfo& param : kernel.params) {
      Check(param.offset >= end);
      end = param.offset + param.size;
    }
    Check(end <= kernel.param_bytes);
  }
  if (!Small(image)) return 0;
  const std::vector<std::byte> written = simgpu::WriteCubin(image);
  if (written.empty()) return 0;
  simgpu::Image back;
  Check(simgpu::ParseImage(written, simgpu::Target{}, &back, &log) == simgpu::ParseStatus::kOk);
  Check(back.kernels.size() == image.kernels.size());
  return 0;
}
