// SPDX-License-Identifier: Apache-2.0
#include "simgpu/image/image.h"

#include <unordered_set>

#include "simgpu/image/cubin.h"
#include "simgpu/image/fatbin.h"
#include "simgpu/image/ptx.h"
#include "simgpu/image/simgpu_text.h"

namespace simgpu {
namespace {

// Text is recognised by its beginning; this much of it is looked at.
constexpr std::size_t kTextProbe = 64 * 1024;

template <typename Named>
const Named* FindNamed(const std::vector<Named>& all, std::string_view name) {
  for (const Named& one : all) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

// The first of several with one name stays: what a linker does with weak symbols.
template <typename Named>
void KeepFirstOfEachName(std::vector<Named>* all) {
  std::unordered_set<std::string> seen;
  std::erase_if(*all, [&](const Named& one) { return !seen.insert(one.name).second; });
}

template <typename Named>
void AppendNew(std::vector<Named>&& from, std::vector<Named>* into) {
  into->insert(into->end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  KeepFirstOfEachName(into);
}

std::optional<std::size_t> TextBytes(ByteSource& source) {
  std::vector<std::byte> chunk(kTextProbe);
  for (std::uint64_t at = 0; at <= kMaxImageBytes; at += chunk.size()) {
    const std::size_t got = source.Read(at, chunk);
    const void* nul = std::memchr(chunk.data(), 0, got);
    if (nul != nullptr) return at + static_cast<std::size_t>(static_cast<const std::byte*>(nul) - chunk.data());
    // Memory that ends without a NUL is no C string.
    if (got < chunk.size()) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

const KernelInfo* Image::FindKernel(std::string_view name) const { return FindNamed(kernels, name); }
const GlobalInfo* Image::FindGlobal(std::string_view name) const { return FindNamed(globals, name); }

ImageKind DetectKind(Bytes image) {
  if (const auto magic = LoadAt<std::uint32_t>(image, 0)) {
    if (*magic == kFatbinWrapperMagic) return ImageKind::kFatbinWrapper;
    if (*magic == kFatbinMagic) return ImageKind::kFatbin;
    if (*magic == kElfMagic) return ImageKind::kElf;
  }
  const std::string_view text = UpToNul(AsText(image.first(std::min(image.size(), kTextProbe))));
  if (text.starts_with(kSimgpuTextMark)) return ImageKind::kSimgpuText;
  return LooksLikePtx(text) ? ImageKind::kPtx : ImageKind::kUnknown;
}

std::optional<std::size_t> DeclaredBytes(ByteSource& source) {
  std::vector<std::byte> probe(kTextProbe);
  probe.resize(source.Read(0, probe));
  switch (DetectKind(probe)) {
    case ImageKind::kElf:
      return CubinBytes(source);
    case ImageKind::kFatbin:
      return FatbinBytes(source);
    case ImageKind::kFatbinWrapper:
      return sizeof(FatbinWrapper);
    case ImageKind::kPtx:
    case ImageKind::kSimgpuText:
      return TextBytes(source);
    case ImageKind::kUnknown:
      break;
  }
  return std::nullopt;
}

ParseStatus ParseImage(Bytes image, const Target& target, Image* out, std::string* log) {
  *out = Image{};
  if (image.size() > kMaxImageBytes) return ParseStatus::kInvalidImage;
  ParseStatus status = ParseStatus::kInvalidImage;
  switch (DetectKind(image)) {
    case ImageKind::kElf:
      status = ParseCubin(image, out);
      if (status == ParseStatus::kOk && !CubinRunsOn(out->compute_capability, target.compute_capability)) {
        status = ParseStatus::kNoBinaryForGpu;
      }
      break;
    case ImageKind::kFatbin:
      status = ParseFatbin(image, target, out, log);
      break;
    case ImageKind::kPtx:
      status = ParsePtx(UpToNul(AsText(image)), out, log);
      if (status == ParseStatus::kOk && target.compute_capability != 0 &&
          out->compute_capability > target.compute_capability) {
        if (log != nullptr) *log = "the .target of this PTX is newer than the device";
        status = ParseStatus::kInvalidPtx;
      }
      break;
    case ImageKind::kSimgpuText:
      status = ParseSimgpuText(UpToNul(AsText(image)), target, out, log);
      break;
    case ImageKind::kFatbinWrapper:
    case ImageKind::kUnknown:
      break;
  }
  if (status != ParseStatus::kOk) {
    *out = Image{};
    return status;
  }
  KeepFirstOfEachName(&out->kernels);
  KeepFirstOfEachName(&out->globals);
  return status;
}

void MergeImage(Image&& from, Image* into) {
  if (into->kernels.empty() && into->globals.empty() && into->kind == ImageKind::kUnknown) {
    *into = std::move(from);
    return;
  }
  into->code_bytes += from.code_bytes;
  AppendNew(std::move(from.kernels), &into->kernels);
  AppendNew(std::move(from.globals), &into->globals);
}

}  // namespace simgpu
