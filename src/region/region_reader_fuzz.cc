// SPDX-License-Identifier: Apache-2.0
//
// Any bytes are either refused or give a snapshot whose counts are in range and whose texts end.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "region/file.h"
#include "region/reader.h"
#include "region/testing/fuzz_input.h"

namespace hami::region {
namespace {

void Check(bool condition) {
  if (!condition) std::abort();
}

const std::vector<uint8_t>& ValidRegion() {
  static const std::vector<uint8_t> bytes = [] {
    const std::string path = "/tmp/region_reader_fuzz." + std::to_string(getpid());
    Config config;
    config.device_count = 2;
    Check(Create(path.c_str(), config) == Status::kOk);
    std::vector<uint8_t> result(kFileBytes);
    std::FILE* file = std::fopen(path.c_str(), "rb");
    Check(file != nullptr && std::fread(result.data(), 1, result.size(), file) == result.size());
    std::fclose(file);
    unlink(path.c_str());
    return result;
  }();
  return bytes;
}

void CheckSnapshot(const Snapshot& snapshot) {
  Check(snapshot.device_count <= kMaxDevices);
  Check(snapshot.slot_limit >= 0 && snapshot.slot_limit <= static_cast<int32_t>(kMaxSlots));
  Check(snapshot.slot_count >= 0 && snapshot.slot_count <= snapshot.slot_limit);
  Check(snapshot.share_name[kShareNameBytes] == '\0');
  for (const SnapshotDevice& device : snapshot.devices) {
    for (const char c : device.uuid) Check(c == '\0' || (c >= ' ' && c <= '~'));
    Check(device.uuid[kUuidBytes] == '\0');
  }
  for (int32_t i = 0; i < snapshot.slot_count; ++i) {
    Check(snapshot.slots[i].pid > 0 && snapshot.slots[i].index < snapshot.slot_limit);
    Check(snapshot.slots[i].command[16] == '\0');
  }
}

}  // namespace
}  // namespace hami::region

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hami::region;
  static const int fd = memfd_create("region_reader_fuzz", MFD_CLOEXEC);
  static const auto from_bytes = std::make_unique<Snapshot>();
  static const auto from_file = std::make_unique<Snapshot>();
  const std::vector<uint8_t> bytes = ExpandRegion(ValidRegion(), data, size);
  const Status parsed = ParseSnapshot(bytes.data(), bytes.size(), from_bytes.get());
  if (parsed == Status::kOk) CheckSnapshot(*from_bytes);
  Check(ftruncate(fd, 0) == 0);
  Check(bytes.empty() || pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  const Status read = ReadSnapshot(fd, true, from_file.get());
  Check(read == parsed);
  if (read == Status::kOk) CheckSnapshot(*from_file);
  return 0;
}
