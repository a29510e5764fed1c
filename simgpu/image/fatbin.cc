// SPDX-License-Identifier: Apache-2.0
#include "simgpu/image/fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include <memory>

#include "simgpu/image/cubin.h"
#include "simgpu/image/ptx.h"

namespace simgpu {
namespace {

struct FileHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t header_size;
  std::uint64_t size;  // of what follows
};
static_assert(sizeof(FileHeader) == 16);

struct EntryHeader {
  std::uint16_t kind;
  std::uint16_t version;
  std::uint32_t header_size;  // larger than this struct: the entry's own name and options follow
  std::uint64_t size;         // of the payload, padded
  std::uint32_t packed_size;  // 0: not compressed
  std::uint32_t unknown0;
  std::uint32_t isa_version;
  std::uint32_t sm;
  std::uint64_t unknown1;
  std::uint64_t flags;
  std::uint64_t unknown2;
  std::uint64_t unpacked_size;
};
static_assert(sizeof(EntryHeader) == 64);
static_assert(offsetof(EntryHeader, packed_size) == 16 && offsetof(EntryHeader, sm) == 28);
static_assert(offsetof(EntryHeader, flags) == 40 && offsetof(EntryHeader, unpacked_size) == 56);

constexpr std::uint16_t kKindPtx = 1;
constexpr std::uint16_t kKindCubin = 2;
constexpr std::uint64_t kFlagLz4 = 0x2000;
constexpr std::uint64_t kFlagZstd = 0x8000;

struct Entry {
  EntryHeader header;
  Bytes payload;
};

std::optional<Entry> EntryAt(Bytes body, std::uint64_t at) {
  const auto header = LoadAt<EntryHeader>(body, at);
  if (!header || header->header_size < sizeof(EntryHeader)) return std::nullopt;
  const auto whole = SliceAt(body, at, header->header_size);
  if (!whole) return std::nullopt;
  const auto payload = SliceAt(body, at + header->header_size, header->size);
  if (!payload) return std::nullopt;
  return Entry{*header, *payload};
}

bool Better(const Entry& candidate, const std::optional<Entry>& best, int device) {
  const int sm = static_cast<int>(candidate.header.sm & 0xffff);
  const bool cubin = candidate.header.kind == kKindCubin;
  const bool runs = cubin ? CubinRunsOn(sm, device) : device == 0 || sm <= device;
  if (!runs) return false;
  if (!best) return true;
  if (cubin != (best->header.kind == kKindCubin)) return cubin;
  // Without a device to match, the first entry is as good as any.
  return device != 0 && sm > static_cast<int>(best->header.sm & 0xffff);
}

// The payload, unpacked into `buffer` when it has to be. Empty optional: damaged.
std::optional<Bytes> Unpack(const Entry& entry, std::unique_ptr<std::byte[]>* buffer) {
  const EntryHeader& header = entry.header;
  if ((header.flags & (kFlagLz4 | kFlagZstd)) == 0) return entry.payload;
  const auto packed = SliceAt(entry.payload, 0, header.packed_size);
  if (!packed || header.unpacked_size > kMaxUnpacked) return std::nullopt;
  const auto capacity = static_cast<std::size_t>(header.unpacked_size);
  // Left uninitialised: pages that a lying header asks for and the decoder never writes cost nothing.
  *buffer = std::make_unique_for_overwrite<std::byte[]>(capacity);
  if ((header.flags & kFlagZstd) != 0) {
    const std::size_t size = ZSTD_decompress(buffer->get(), capacity, packed->data(), packed->size());
    if (ZSTD_isError(size) != 0) return std::nullopt;
    return Bytes(buffer->get(), size);
  }
  if (packed->size() > LZ4_MAX_INPUT_SIZE) return std::nullopt;
  const int size =
      LZ4_decompress_safe(reinterpret_cast<const char*>(packed->data()), reinterpret_cast<char*>(buffer->get()),
                          static_cast<int>(packed->size()), static_cast<int>(capacity));
  if (size < 0) return std::nullopt;
  return Bytes(buffer->get(), static_cast<std::size_t>(size));
}

}  // namespace

std::optional<std::size_t> FatbinBytes(ByteSource& source) {
  FileHeader header;
  if (source.Read(0, std::as_writable_bytes(std::span(&header, 1))) != sizeof header) return std::nullopt;
  if (header.magic != kFatbinMagic || header.size > kMaxImageBytes) return std::nullopt;
  return static_cast<std::size_t>(header.header_size + header.size);
}

ParseStatus ParseFatbin(Bytes file, const Target& target, Image* out, std::string* log) {
  const auto header = LoadAt<FileHeader>(file, 0);
  if (!header || header->magic != kFatbinMagic || header->header_size < sizeof(FileHeader)) {
    return ParseStatus::kInvalidImage;
  }
  const auto body = SliceAt(file, header->header_size, header->size);
  if (!body) return ParseStatus::kInvalidImage;
  std::optional<Entry> best;
  for (std::uint64_t at = 0; at < body->size();) {
    const auto entry = EntryAt(*body, at);
    if (!entry) return ParseStatus::kInvalidImage;
    const bool program = entry->header.kind == kKindPtx || entry->header.kind == kKindCubin;
    if (program && Better(*entry, best, target.compute_capability)) best = entry;
    at += entry->header.header_size + entry->header.size;
  }
  if (!best) return ParseStatus::kNoBinaryForGpu;
  std::unique_ptr<std::byte[]> buffer;
  const auto program = Unpack(*best, &buffer);
  if (!program) return ParseStatus::kInvalidImage;
  if (best->header.kind == kKindCubin) return ParseCubin(*program, out);
  return ParsePtx(UpToNul(AsText(*program)), out, log);
}

}  // namespace simgpu
