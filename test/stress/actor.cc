// SPDX-License-Identifier: Apache-2.0
#include "test/stress/actor.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "simgpu/simgpu.h"
#include "test/stress/audit.h"

namespace stress {
namespace {

uint64_t Now() {
  timespec at{};
  clock_gettime(CLOCK_MONOTONIC, &at);
  return static_cast<uint64_t>(at.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(at.tv_nsec);
}

uint64_t Truth() { return simgpu_process_bytes(0, 0); }

uint64_t Counted() {
  size_t free = 0;
  size_t total = 0;
  return cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS ? total - free : 0;
}

uint64_t PoolReserve(CUmemoryPool pool) {
  cuuint64_t bytes = 0;
  cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
  return bytes;
}

uint64_t PoolUse(CUmemoryPool pool) {
  cuuint64_t bytes = 0;
  cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes);
  return bytes;
}

uint64_t GraphMemory(CUgraphMem_attribute attribute) {
  cuuint64_t bytes = 0;
  cuDeviceGetGraphMemAttribute(0, attribute, &bytes);
  return bytes;
}

CUmemoryPool DefaultPool() {
  CUmemoryPool pool = nullptr;
  cuDeviceGetDefaultMemPool(&pool, 0);
  return pool;
}

}  // namespace

Actor::Actor(const Options& options) : options_(options), random_(options.seed) {
  for (int i = 0; i < 2; ++i) {
    CUstream stream = nullptr;
    Done("cuStreamCreate", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0, 0);
    streams_.push_back(stream);
  }
  context_ = options_.exact ? Truth() : 0;
}

void Actor::Step() {
  using Path = void (Actor::*)();
  struct Choice {
    unsigned weight;
    bool allowed;
    Path path;
  };
  const bool own_quota = options_.quota != 0;
  const Choice choices[] = {
      {10, true, &Actor::MakePlain},
      {4, true, &Actor::MakePitched},
      {4, true, &Actor::MakeManaged},
      {14, true, &Actor::MakePooled},
      {2, true, &Actor::MakePool},
      {6, true, &Actor::MakePhysical},
      {6, true, &Actor::MakeMapping},
      {4, options_.arrays, &Actor::MakeArray},
      {3, options_.arrays, &Actor::MakeMipmap},
      {3, true, &Actor::MakeGraph},
      {5, true, &Actor::Launch},
      {1, true, &Actor::MakeHost},
      {2, options_.contexts, &Actor::MakeContext},
      {2, options_.measured, &Actor::MakeModule},
      {1, options_.measured, &Actor::SetLimit},
      {2, true, &Actor::MakeExternal},
      {3, true, &Actor::Retain},
      {2, true, &Actor::ImportOwn},
      {2, options_.import, &Actor::Send},
      {3, options_.import, &Actor::Receive},
      {2, options_.board != nullptr, &Actor::Publish},
      {3, options_.board != nullptr, &Actor::OpenPublished},
      {4, true, &Actor::TrimSomething},
      {4, true, &Actor::Synchronise},
      {3, true, &Actor::Nonsense},
      {3, !own_quota || options_.exact, &Actor::TooMuch},
      {1, options_.fork, &Actor::Fork},
      {1, options_.exact && options_.contexts, &Actor::ResetPrimary},
      {26, true, &Actor::FreeSomething},
  };
  unsigned sum = 0;
  for (const Choice& choice : choices) sum += choice.allowed ? choice.weight : 0;
  auto at = static_cast<unsigned>(random_.Below(sum));
  for (const Choice& choice : choices) {
    if (!choice.allowed) continue;
    if (at < choice.weight) {
      // Frees under way are not memory yet: only where there are none can a refusal be judged.
      settled_ = options_.exact && random_.OneIn(2);
      if (settled_) cuCtxSynchronize();
      const uint64_t before = Now();
      (this->*choice.path)();
      const uint64_t took = Now() - before;
      if (options_.cell != nullptr) {
        options_.cell->calls.fetch_add(1, std::memory_order_relaxed);
        if (took > options_.cell->longest_ns.load()) options_.cell->longest_ns = took;
      }
      break;
    }
    at -= choice.weight;
  }
  Report();
  if (options_.exact) CompareBooks();
  if (options_.watch != 0) Watch();
  if (!options_.audit) return;
  if (const uint64_t shortfall = TakeShortfall(); shortfall != 0) {
    options_.board->blind = 1;  // to what this process leaves behind now
    Fail("the driver held more than was counted; by", shortfall, 0);
  }
}

void Actor::Watch() const {
  const uint64_t used = simgpu_used_bytes(0);
  if (used > options_.watch) Fail("the driver holds more than the limit", used, options_.watch);
}

void Actor::End() {
  while (!objects_.empty()) Free(random_.Below(objects_.size()));
  for (const CUstream stream : streams_) Done("cuStreamDestroy", cuStreamDestroy_v2(stream), 0, 0);
  streams_.clear();
  Done("cuDeviceGraphMemTrim", cuDeviceGraphMemTrim(0), 0, 0);
  Settle();
  Report();
}

void Actor::Settle() {
  Done("cuCtxSynchronize", cuCtxSynchronize(), 0, 0);
  Done("cuMemPoolTrimTo", cuMemPoolTrimTo(DefaultPool(), 0), 0, 0);
}

void Actor::Report() {
  if (options_.cell == nullptr) return;
  uint64_t imported = 0;
  for (const Object& object : objects_) imported += (object.group & kImportedGroup) != 0 ? object.bytes : 0;
  options_.cell->imported.fetch_add(imported - reported_);  // several actors share a cell
  reported_ = imported;
}

// --- judging
// -----------------------------------------------------------------------------------------------------------

uint64_t Actor::Predicted() {
  uint64_t bytes =
      context_ + measured_ + PoolReserve(DefaultPool()) + GraphMemory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  for (const Object& object : objects_) {
    if (object.what == What::kPooled || object.what == What::kGraph) continue;
    bytes += object.what == What::kPool ? PoolReserve(reinterpret_cast<CUmemoryPool>(object.handle)) : object.bytes;
  }
  return bytes;
}

uint64_t Actor::Unexplained() { return Truth() - Predicted(); }

// What could not be given up whatever is asked for.
uint64_t Actor::Needed() const {
  uint64_t bytes = context_ + measured_ + Up(PoolUse(DefaultPool()), kGranule) +
                   Up(GraphMemory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), kGranule);
  for (const Object& object : objects_) {
    if (object.what == What::kPooled || object.what == What::kGraph) continue;
    bytes += object.what == What::kPool ? Up(PoolUse(reinterpret_cast<CUmemoryPool>(object.handle)), kGranule)
                                        : object.bytes;
  }
  return bytes;
}

void Actor::CompareBooks() {
  if (Truth() > options_.limit) Fail("the driver holds more than the limit", Truth(), options_.limit);
  // Work under way may give pool memory back between the looks: only what stays wrong is wrong.
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (Counted() == Truth() && Predicted() == Truth()) return;
    Done("cuCtxSynchronize", cuCtxSynchronize(), 0, 0);
  }
  if (Predicted() != Truth()) Fail("the model and the driver's books", Predicted(), Truth());
  Fail("counted and the driver's books", Counted(), Truth());
}

bool Actor::Done(const char* what, CUresult result, uint64_t a, uint64_t b) {
  log_.push_back({what, a, b, static_cast<int>(result)});
  if (result == CUDA_SUCCESS) return true;
  if (result != CUDA_ERROR_OUT_OF_MEMORY) Fail("an unexpected answer", static_cast<uint64_t>(result), 0);
  if (options_.exact) {
    const uint64_t needed = Needed() + want_;
    if (settled_ && needed <= options_.limit) Fail("refused though it fits; needed and limit", needed, options_.limit);
  } else if (options_.quota != 0) {
    Fail("refused under the quota; held and quota", Held() + debt_ + want_, options_.quota);
  }
  return false;
}

void Actor::Declined(const char* what, CUresult result) {
  log_.push_back({what, 0, 0, static_cast<int>(result)});
  if (result == CUDA_SUCCESS) Fail("nonsense succeeded", 0, 1);
}

void Actor::Dump() const {
  std::fprintf(stderr, "process %d, seed %llu: the operations\n", getpid(),
               static_cast<unsigned long long>(options_.seed));
  const size_t from = log_.size() > 400 ? log_.size() - 400 : 0;
  for (size_t i = from; i < log_.size(); ++i) {
    const Line& line = log_[i];
    std::fprintf(stderr, "  %s(%#llx, %llu) -> %d\n", line.what, static_cast<unsigned long long>(line.a),
                 static_cast<unsigned long long>(line.b), line.result);
  }
}

void Actor::Fail(const char* what, uint64_t got, uint64_t want) const {
  Dump();
  for (const Object& object : objects_) {
    std::fprintf(stderr, "  holds kind %d, handle %#llx, %llu bytes\n", static_cast<int>(object.what),
                 static_cast<unsigned long long>(object.handle), static_cast<unsigned long long>(object.bytes));
  }
  std::fprintf(stderr, "  default pool: %llu of %llu in use; graph memory: %llu of %llu in use\n",
               static_cast<unsigned long long>(PoolUse(DefaultPool())),
               static_cast<unsigned long long>(PoolReserve(DefaultPool())),
               static_cast<unsigned long long>(GraphMemory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)),
               static_cast<unsigned long long>(GraphMemory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)));
  std::fprintf(stderr, "FAILED process %d, seed %llu: %s: %llu, %llu; driver's books %llu, counted %llu\n", getpid(),
               static_cast<unsigned long long>(options_.seed), what, static_cast<unsigned long long>(got),
               static_cast<unsigned long long>(want), static_cast<unsigned long long>(Truth()),
               static_cast<unsigned long long>(Counted()));
  std::_Exit(1);
}

// --- holding
// -----------------------------------------------------------------------------------------------------------

uint64_t Actor::Held() const {
  uint64_t bytes = 0;
  for (const Object& object : objects_) bytes += object.bytes;
  return bytes;
}

bool Actor::Afford(uint64_t bytes) {
  want_ = bytes;
  if (options_.quota == 0) return true;
  if (bytes > options_.quota) return false;
  while (Held() + debt_ + bytes > options_.quota && !objects_.empty()) Free(random_.Below(objects_.size()));
  if (Held() + debt_ + bytes > options_.quota) {
    Settle();
    Done("cuDeviceGraphMemTrim", cuDeviceGraphMemTrim(0), 0, 0);
    for (const Object& object : objects_) {
      if (object.what != What::kPool) continue;
      Done("cuMemPoolTrimTo", cuMemPoolTrimTo(reinterpret_cast<CUmemoryPool>(object.handle), 0), object.handle, 0);
    }
    debt_ = 0;
  }
  want_ = bytes;
  return true;
}

Object* Actor::Pick(What what) {
  const auto count = static_cast<uint64_t>(
      std::count_if(objects_.begin(), objects_.end(), [&](const Object& object) { return object.what == what; }));
  if (count == 0) return nullptr;
  uint64_t skip = random_.Below(count);
  for (Object& object : objects_) {
    if (object.what == what && skip-- == 0) return &object;
  }
  return nullptr;
}

CUstream Actor::AnyStream() {
  const uint64_t at = random_.Below(streams_.size() + 1);
  return at == streams_.size() ? nullptr : streams_[at];
}

void Actor::FreeSomething() {
  if (!objects_.empty()) Free(random_.Below(objects_.size()));
}

void Actor::Synchronise() {
  switch (random_.Below(4)) {
    case 0:
      Done("cuStreamSynchronize", cuStreamSynchronize(AnyStream()), 0, 0);
      break;
    case 1:
      Done("cuStreamSynchronize_ptsz", cuStreamSynchronize_ptsz(nullptr), 0, 0);
      break;
    case 2:
      Counted();
      break;
    default:
      Settle();
  }
}

void Actor::TrimSomething() {
  Object* const pool = Pick(What::kPool);
  if (pool != nullptr && random_.OneIn(2)) {
    Done("cuMemPoolTrimTo", cuMemPoolTrimTo(reinterpret_cast<CUmemoryPool>(pool->handle), random_.Size(kMiB)),
         pool->handle, 0);
  } else {
    Done("cuDeviceGraphMemTrim", cuDeviceGraphMemTrim(0), 0, 0);
  }
}

}  // namespace stress
