// SPDX-License-Identifier: Apache-2.0
//
// A file of any bytes is either refused, and then not changed, or attached to, and then the ledger works on it: it
// grants, refuses, gives back and sweeps without crashing or hanging.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "region/holds.h"
#include "region/ledger.h"
#include "region/process.h"
#include "region/testing/fuzz_input.h"

namespace hami::region {
namespace {

void Check(bool condition) {
  if (!condition) std::abort();
}

std::vector<uint8_t> ReadAll(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::vector<uint8_t> bytes(static_cast<size_t>(lseek(fd, 0, SEEK_END)));
  Check(pread(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  close(fd);
  return bytes;
}

void WriteAll(const std::string& path, const std::vector<uint8_t>& bytes) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  Check(fd >= 0);
  Check(pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  close(fd);
}

void UseLedger(Attachment* attachment) {
  for (uint32_t device = 0; device < kMaxDevices; ++device) {
    const uint64_t limit = Limit(*attachment, device);
    const Status status = Reserve(attachment, device, 1000, Kind::kData);
    Check(status == Status::kOk || status == Status::kOverLimit);
    if (status == Status::kOk && limit != 0) Check(Used(*attachment, device) <= limit);
    if (status == Status::kOk) Check(OwnUsed(*attachment, device, Kind::kData) == 1000);
    Check(Refund(attachment, device, 2000, Kind::kData) == Status::kClamped);
    Check(OwnUsed(*attachment, device, Kind::kData) == 0);
  }
  uint32_t device = 0;
  for (uint64_t object = 0; object < 4; ++object) {
    if (Join(attachment, object, &device)) Check(device < kMaxDevices && Leave(attachment, object));
  }
  Check(Reserve(attachment, 3, 0, Kind::kData) != Status::kBusy);
  const uint64_t object = Share(attachment, 3, 0);
  if (object != 0) Check(Leave(attachment, object));
  Check(RegionMark(attachment) != 0);
  ClaimHeritage(attachment);
  Sweep(attachment);
  NoteLaunch(attachment, 1);
  Check(DeviceCount(*attachment) <= kMaxDevices);
  FindDevice(*attachment, "GPU-none");
  SetHostPid(attachment, 1);
  OwnStatus(*attachment);
  ForEachProcess(
      *attachment, [](const ProcessUsage&, void*) { return true; }, nullptr);
}

}  // namespace
}  // namespace hami::region

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hami::region;
  static const std::string path = "/dev/shm/region_attach_fuzz." + std::to_string(getpid());
  static Config config;
  static const std::vector<uint8_t> valid = [] {
    for (DeviceConfig& device : config.devices) device.memory_limit = 5000;
    Check(Create(path.c_str(), config) == Status::kOk);
    const std::vector<uint8_t> bytes = ReadAll(path);
    return bytes;
  }();
  const std::vector<uint8_t> bytes = ExpandRegion(valid, data, size);
  WriteAll(path, bytes);
  static Attachment attachment;
  const int64_t begin = MonotonicNanos();
  const Status status = Attach(&attachment, path.c_str(), config);
  if (status == Status::kOk) {
    UseLedger(&attachment);
    Detach(&attachment);
  } else if (status == Status::kUnsupported || status == Status::kCorrupt) {
    Check(ReadAll(path) == bytes);
  }
  Check(MonotonicNanos() - begin < 20'000'000'000);
  unlink(path.c_str());
  return 0;
}
