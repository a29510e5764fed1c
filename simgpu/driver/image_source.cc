// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/image_source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "simgpu/image/fatbin.h"

namespace simgpu {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kChunk = std::size_t{1} << 20;
// More object files than any program was linked from: a wrapper without its final null.
constexpr std::size_t kMaxFatbins = std::size_t{1} << 16;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Reads this process' memory without ever faulting: write(2) answers EFAULT, or a short count, where a load would trap.
class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(const void* start)
      : start_(reinterpret_cast<std::uintptr_t>(start)), scratch_(memfd_create("simgpu-image", MFD_CLOEXEC)) {}

  std::size_t Read(std::uint64_t offset, std::span<std::byte> out) override {
    std::size_t done = 0;
    while (done < out.size()) {
      // Page by page at the end of a mapping: what is readable counts.
      const std::uintptr_t from = start_ + offset + done;
      const std::size_t whole = std::min(out.size() - done, kChunk);
      std::size_t got = Transfer(from, out.subspan(done, whole));
      if (got == 0) got = Transfer(from, out.subspan(done, std::min<std::size_t>(whole, kPage - from % kPage)));
      if (got == 0) break;
      done += got;
    }
    return done;
  }

 private:
  std::size_t Transfer(std::uintptr_t from, std::span<std::byte> out) const {
    // By number: a sanitizer's pwrite would take the question itself for an error.
    const long written = syscall(SYS_pwrite64, scratch_.get(), from, out.size(), 0L);
    if (written <= 0) return 0;
    const ssize_t read = pread(scratch_.get(), out.data(), static_cast<std::size_t>(written), 0);
    return read > 0 ? static_cast<std::size_t>(read) : 0;
  }

  std::uintptr_t start_;
  Descriptor scratch_;
};

const void* PointerOf(std::uint64_t address) {
  return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address));
}

CUresult CopyPart(MemorySource& source, std::size_t size, ImageParts* out) {
  std::vector<std::byte> part(size);
  if (source.Read(0, part) != size) return CUDA_ERROR_INVALID_IMAGE;
  out->push_back(std::move(part));
  return CUDA_SUCCESS;
}

CUresult CopyFatbin(std::uint64_t address, ImageParts* out) {
  MemorySource source(PointerOf(address));
  const auto size = FatbinBytes(source);
  return size ? CopyPart(source, *size, out) : CUDA_ERROR_INVALID_IMAGE;
}

CUresult CopyWrapper(const FatbinWrapper& wrapper, ImageParts* out) {
  if (wrapper.version == 1) return CopyFatbin(wrapper.data, out);
  if (wrapper.version != 2) return CUDA_ERROR_INVALID_IMAGE;
  MemorySource array(PointerOf(wrapper.extra));
  for (std::size_t i = 0; i < kMaxFatbins; ++i) {
    std::uint64_t fatbin = 0;
    if (array.Read(i * sizeof fatbin, std::as_writable_bytes(std::span(&fatbin, 1))) != sizeof fatbin) break;
    if (fatbin == 0) return out->empty() ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
    const CUresult copied = CopyFatbin(fatbin, out);
    if (copied != CUDA_SUCCESS) return copied;
  }
  return CUDA_ERROR_INVALID_IMAGE;
}

}  // namespace

CUresult CopyImage(const void* start, ImageParts* out) {
  if (start == nullptr) return CUDA_ERROR_INVALID_VALUE;
  out->clear();
  MemorySource source(start);
  const auto size = DeclaredBytes(source);
  if (!size) return CUDA_ERROR_INVALID_IMAGE;
  FatbinWrapper wrapper;
  const bool may_wrap =
      *size == sizeof wrapper && source.Read(0, std::as_writable_bytes(std::span(&wrapper, 1))) == sizeof wrapper;
  if (may_wrap && wrapper.magic == kFatbinWrapperMagic) return CopyWrapper(wrapper, out);
  return CopyPart(source, *size, out);
}

CUresult CopyImage(const void* start, std::size_t size, ImageParts* out) {
  if (start == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (size > kMaxImageBytes) return CUDA_ERROR_INVALID_IMAGE;
  out->clear();
  MemorySource source(start);
  return CopyPart(source, size, out);
}

CUresult ReadImageFile(const char* path, ImageParts* out) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  out->clear();
  const Descriptor file(open(path, O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return CUDA_ERROR_FILE_NOT_FOUND;
  if (status.st_size <= 0 || static_cast<std::uint64_t>(status.st_size) > kMaxImageBytes) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  std::vector<std::byte> part(static_cast<std::size_t>(status.st_size));
  std::size_t done = 0;
  while (done < part.size()) {
    const ssize_t got = read(file.get(), part.data() + done, part.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  part.resize(done);
  out->push_back(std::move(part));
  return CUDA_SUCCESS;
}

CUresult ParseParts(const ImageParts& parts, const Target& target, std::shared_ptr<const Image>* out,
                    std::string* log) {
  auto merged = std::make_shared<Image>();
  bool any = false;
  for (const std::vector<std::byte>& part : parts) {
    Image image;
    const ParseStatus status = ParseImage(part, target, &image, log);
    // An object file of a program may have been compiled for other GPUs only.
    if (status == ParseStatus::kNoBinaryForGpu && parts.size() > 1) continue;
    if (status != ParseStatus::kOk) return ResultOf(status);
    any = true;
    MergeImage(std::move(image), merged.get());
  }
  if (!any) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  *out = std::move(merged);
  return CUDA_SUCCESS;
}

CUresult ResultOf(ParseStatus status) {
  switch (status) {
    case ParseStatus::kOk:
      return CUDA_SUCCESS;
    case ParseStatus::kInvalidPtx:
      return CUDA_ERROR_INVALID_PTX;
    case ParseStatus::kNoBinaryForGpu:
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case ParseStatus::kInvalidImage:
      break;
  }
  return CUDA_ERROR_INVALID_IMAGE;
}

}  // namespace simgpu
