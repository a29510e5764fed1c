// SPDX-License-Identifier: Apache-2.0
//
// What accounting adds to an allocation: one Reserve and one Refund, alone and with 8 threads of one process; a
// refusal; and a whole attach with its detach.

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "region/ledger.h"

namespace hami::region {
namespace {

std::string BenchPath() { return "/dev/shm/region_bench." + std::to_string(getpid()); }

Attachment* Shared() {
  static Attachment attachment;
  static const Status status = [] {
    Config config;
    config.devices[0].memory_limit = uint64_t{1} << 40;
    const std::string path = BenchPath();
    const Status result = Attach(&attachment, path.c_str(), config);
    unlink(path.c_str());
    return result;
  }();
  if (status != Status::kOk) std::abort();
  return &attachment;
}

void ReserveRefund(benchmark::State& state) {
  Attachment* attachment = Shared();
  for (auto _ : state) {
    benchmark::DoNotOptimize(Reserve(attachment, 0, 4096, Kind::kData));
    benchmark::DoNotOptimize(Refund(attachment, 0, 4096, Kind::kData));
  }
}
BENCHMARK(ReserveRefund);
BENCHMARK(ReserveRefund)->Threads(8)->UseRealTime();

void Refusal(benchmark::State& state) {
  Attachment* attachment = Shared();
  for (auto _ : state) benchmark::DoNotOptimize(Reserve(attachment, 0, uint64_t{1} << 50, Kind::kData));
}
BENCHMARK(Refusal);

void UsedQuery(benchmark::State& state) {
  Attachment* attachment = Shared();
  for (auto _ : state) benchmark::DoNotOptimize(Used(*attachment, 0));
}
BENCHMARK(UsedQuery);

void AttachDetach(benchmark::State& state) {
  const std::string path = BenchPath() + ".attach";
  const Config config;
  if (Create(path.c_str(), config) != Status::kOk) std::abort();
  for (auto _ : state) {
    Attachment attachment;
    if (Attach(&attachment, path.c_str(), config) != Status::kOk) std::abort();
    Detach(&attachment);
  }
  unlink(path.c_str());
}
BENCHMARK(AttachDetach);

}  // namespace
}  // namespace hami::region

BENCHMARK_MAIN();
