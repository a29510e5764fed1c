// SPDX-License-Identifier: Apache-2.0
//
// What test/bench/sm.py runs: the programs whose GPU time is limited, and the judge that looks on. A guest finds the
// driver as a client does (dlopen and dlsym) and knows nothing of limits. It tells how far it is through the board, a
// file that guests, judge and sm.py map; the judge reads what the simulated device itself counts (simgpu_busy_ns).
//
//   sm_guest load BOARD SLOT SHAPE SEED JITTER FAKE
//       until the board says stop; FAKE: a limit that it keeps by itself, 0 for none
//   sm_guest requests BOARD SLOT SEED RATE SECONDS [one | warm]
//       Poisson requests of 2 ms GPU time; prints latency and ideal in us. Ten kernels; `one`: a single one whose
//       length is an argument; `warm`: it ran for 0.06 to 0.36 ms at the same grid before
//   sm_guest watch BOARD SLOTS SECONDS INTERVAL_MS
//       the judge: a line for each sample
//
// FAKE is a limiter that cannot be had from outside: it knows what each kernel will take. It shows that the judge
// tells good from bad.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "abi/cuda_abi.h"

namespace {

using Nanos = std::int64_t;
constexpr Nanos kMicro = 1'000;
constexpr Nanos kMilli = 1'000'000;
constexpr double kSecond = 1e9;

Nanos Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Nanos{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void SleepUntil(Nanos when) {
  const timespec until{static_cast<time_t>(when / 1'000'000'000), static_cast<long>(when % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

void* Driver() {
  static void* handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) {
    std::fprintf(stderr, "sm_guest: %s\n", dlerror());
    std::exit(2);
  }
  return handle;
}

template <typename F>
F* Find(const char* name) {
  auto* function = reinterpret_cast<F*>(dlsym(Driver(), name));
  if (function == nullptr) {
    std::fprintf(stderr, "sm_guest: the driver has no %s\n", name);
    std::exit(2);
  }
  return function;
}

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "sm_guest: %s gave %d\n", what, static_cast<int>(result));
  std::exit(3);
}

struct Cuda {
#define FIND(name) decltype(::name)* name = Find<decltype(::name)>(#name)
  FIND(cuInit);
  FIND(cuDeviceGetAttribute);
  FIND(cuDevicePrimaryCtxRetain);
  FIND(cuCtxSetCurrent);
  FIND(cuCtxSynchronize);
  FIND(cuModuleLoadData);
  FIND(cuModuleGetFunction);
  FIND(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  FIND(cuLaunchKernel);
  FIND(cuStreamCreate);
  FIND(cuStreamSynchronize);
  FIND(cuEventCreate);
  FIND(cuEventRecord);
  FIND(cuEventSynchronize);
  FIND(cuGraphCreate);
  FIND(cuGraphAddKernelNode_v2);
  FIND(cuGraphInstantiateWithFlags);
  FIND(cuGraphLaunch);
#undef FIND
};

// sm.py knows this layout.
struct BoardSlot {
  std::atomic<std::uint32_t> sequence;  // odd while being written
  std::atomic<std::int32_t> pid;        // not 0: the guest is at work
  std::atomic<Nanos> work;              // GPU time of what is done, had it run alone
  std::atomic<Nanos> at;                // when that was so
  std::uint64_t reserved[5];
};
struct Board {
  std::atomic<std::uint32_t> stop;
  std::uint32_t reserved[15];
  BoardSlot slots[63];

  static Board& Map(const char* path) {
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    void* at = fd < 0 ? MAP_FAILED : mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
      std::perror(path);
      std::exit(2);
    }
    close(fd);
    return *static_cast<Board*>(at);
  }
};
static_assert(sizeof(BoardSlot) == 64 && sizeof(Board) == 4096);

// Keeps the guest's own limit, by knowing the cost of everything before it is launched.
class SelfLimit {
 public:
  explicit SelfLimit(double fraction) : fraction_(fraction) {}

  void Before(double cost) {
    if (fraction_ <= 0) return;
    owed_ += cost / fraction_;
    if (owed_ < next_look_) return;
    next_look_ = owed_ + kChunk;
    const Nanos now = Now();
    if (begin_ == 0 || static_cast<double>(now - begin_) > owed_ + kCredit) {
      begin_ = now;  // was idle: what it did not use is gone, but for a little
      owed_ = next_look_ = cost / fraction_;
    }
    const double earliest = owed_ - cost / fraction_;
    if (static_cast<double>(now - begin_) < earliest) SleepUntil(begin_ + static_cast<Nanos>(earliest));
  }

 private:
  static constexpr double kChunk = 0.5e6, kCredit = 8e6;  // ns
  double fraction_;
  double owed_ = 0, next_look_ = 0;
  Nanos begin_ = 0;
};

class Guest {
 public:
  Guest(Board& board, int slot, std::uint64_t seed, double jitter, double limit)
      : board_(board), slot_(board.slots[slot]), random_(seed), jitter_(jitter), self_(limit) {
    Check(cuda_.cuInit(0), "cuInit");
    CUcontext context = nullptr;
    Check(cuda_.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    Check(cuda_.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    Check(cuda_.cuDeviceGetAttribute(&sms_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0), "cuDeviceGetAttribute");
    CUmodule module = nullptr;
    Check(cuda_.cuModuleLoadData(&module, "simgpu-image 1\nkernel work\n  param 8\n  cost param 0\n"),
          "cuModuleLoadData");
    Check(cuda_.cuModuleGetFunction(&function_, module, "work"), "cuModuleGetFunction");
    Check(cuda_.cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm_, function_, kBlock, 0), "occupancy");
    for (CUstream& stream : streams_) Check(cuda_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    slot_.pid.store(getpid());
  }

  bool Stopped() const { return board_.stop.load(std::memory_order_relaxed) != 0; }

  // Kernels of `nanos` that fill the device, one after the other, never waiting.
  void Async(Nanos nanos) {
    constexpr int kTell = 64;
    for (Nanos done = 0; !Stopped();) {
      for (int i = 0; i < kTell; ++i) {
        const Nanos cost = Jittered(nanos);
        self_.Before(static_cast<double>(cost));
        Launch(streams_[0], cost, sms_);
        done += cost;
      }
      Tell(done, Now());
    }
  }

  // Of one kernel and one grid, by chance short or four times as long: their arguments decide.
  void Mixed(Nanos nanos, std::size_t depth) {
    Nanos done = 0;
    const auto next = [&] {
      const Nanos cost = random_() % 2 == 0 ? nanos : 4 * nanos;
      Launch(streams_[0], cost, sms_);
      return cost;
    };
    InFlight(depth, &done, next);
  }

  // No two of the same grid, as of a program whose batches differ in length: half a wave of blocks to four, of up to
  // `nanos` each.
  void Anew(Nanos nanos, std::size_t depth) {
    constexpr unsigned kBlockSizes = 300;
    const unsigned wave = Blocks(sms_);
    const unsigned sizes = wave * 7 / 2;
    Nanos done = 0;
    std::uint64_t launched = 0;
    InFlight(depth, &done, [&] {
      const auto size = static_cast<unsigned>(launched * 97 % sizes);
      const unsigned threads = kBlock - static_cast<unsigned>(launched / sizes % kBlockSizes);
      ++launched;
      const Nanos cost = nanos * (wave / 2 + size) / (4 * wave);
      self_.Before(static_cast<double>(cost));
      Launch(streams_[0], cost, sms_, wave / 2 + size, threads);
      return cost;
    });
  }

  // The same as Async, with at most `depth` of them in flight; depth 1 is a synchronisation after each.
  void Bounded(Nanos nanos, std::size_t depth) {
    Nanos done = 0;
    const auto next = [&] {
      const Nanos cost = Jittered(nanos);
      self_.Before(static_cast<double>(cost));
      Launch(streams_[0], cost, sms_);
      return cost;
    };
    InFlight(depth, &done, next);
  }

  // Chains of `nodes` kernels.
  void Graphs(int nodes, Nanos nanos, std::size_t depth) {
    CUgraph graph = nullptr;
    Check(cuda_.cuGraphCreate(&graph, 0), "cuGraphCreate");
    Nanos length = 0;
    CUgraphNode last = nullptr;
    for (int i = 0; i < nodes; ++i) {
      const Nanos cost = Jittered(nanos);
      std::uint64_t work = static_cast<std::uint64_t>(cost) * static_cast<std::uint64_t>(sms_);
      void* params[] = {&work};
      CUDA_KERNEL_NODE_PARAMS node{};
      node.func = function_;
      node.gridDimX = Blocks(sms_);
      node.gridDimY = node.gridDimZ = node.blockDimY = node.blockDimZ = 1;
      node.blockDimX = kBlock;
      node.kernelParams = params;
      CUgraphNode added = nullptr;
      Check(cuda_.cuGraphAddKernelNode_v2(&added, graph, last == nullptr ? nullptr : &last, last == nullptr ? 0 : 1,
                                          &node),
            "cuGraphAddKernelNode");
      last = added;
      length += cost;
    }
    CUgraphExec exec = nullptr;
    Check(cuda_.cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiate");
    Nanos done = 0;
    InFlight(depth, &done, [&] {
      self_.Before(static_cast<double>(length));
      Check(cuda_.cuGraphLaunch(exec, streams_[0]), "cuGraphLaunch");
      return length;
    });
  }

  // Kernels an eighth of the device wide, on eight streams.
  void Streams(Nanos nanos) {
    constexpr int kRounds = 16;
    const int width = std::max(1, sms_ / kStreams);
    std::array<std::array<CUevent, kStreams>, 2> marks{};
    for (auto& mark : marks) {
      for (CUevent& event : mark) Check(cuda_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    }
    Nanos launched[3] = {0, 0, 0};
    std::vector<Nanos> costs(kRounds * kStreams);
    for (std::size_t batch = 0; !Stopped(); ++batch) {
      std::array<Nanos, kStreams> length{};
      for (std::size_t i = 0; i < costs.size(); ++i) {
        costs[i] = Jittered(nanos);
        length[i % kStreams] += costs[i];
        launched[0] += costs[i];
      }
      // The device is busy until the longest stream ends.
      self_.Before(static_cast<double>(*std::max_element(length.begin(), length.end())));
      for (std::size_t i = 0; i < costs.size(); ++i) Launch(streams_[i % kStreams], costs[i], width);
      auto& mark = marks[batch % 2];
      for (std::size_t i = 0; i < kStreams; ++i) {
        // Here lies the mark of the batch before the last one, so at most two batches are under way.
        if (batch >= 2) Check(cuda_.cuEventSynchronize(mark[i]), "cuEventSynchronize");
        Check(cuda_.cuEventRecord(mark[i], streams_[i]), "cuEventRecord");
      }
      Tell(launched[2], Now());
      launched[2] = launched[1];
      launched[1] = launched[0];
    }
  }

  // A burst each period, whether or not the one before is over, and nothing in between.
  void Bursts(Nanos period, int kernels, Nanos nanos) {
    Nanos done = 0;
    Nanos due = Now() + static_cast<Nanos>(random_() % static_cast<std::uint64_t>(period));
    for (; !Stopped(); due += period) {
      SleepUntil(due);
      const Nanos cost = Jittered(nanos);
      for (int i = 0; i < kernels; ++i) {
        self_.Before(static_cast<double>(cost));
        Launch(streams_[0], cost, sms_);
        done += cost;
      }
      Check(cuda_.cuStreamSynchronize(streams_[0]), "cuStreamSynchronize");
      Tell(done, Now());
    }
  }

  // Requests at Poisson times; each latency counts from when the request was due.
  void Requests(double rate, double seconds, const std::string& how) {
    const int kernels = how.empty() ? 10 : 1;
    const Nanos each = 2 * kMilli / kernels;
    for (int i = 0; how == "warm" && i < 120; ++i) {
      Launch(streams_[0], (60 + 60 * (i / 20)) * kMicro, sms_);
      if (i % 20 == 19) Check(cuda_.cuStreamSynchronize(streams_[0]), "cuStreamSynchronize");
    }
    std::exponential_distribution<double> gap(rate);
    std::vector<std::pair<double, double>> latencies;
    Nanos done = 0, free = 0;
    const Nanos end = Now() + static_cast<Nanos>(seconds * kSecond);
    Nanos due = Now() + 50 * kMilli;
    while (due < end) {
      SleepUntil(due);
      for (int i = 0; i < kernels; ++i) Launch(streams_[0], each, sms_);
      Check(cuda_.cuStreamSynchronize(streams_[0]), "cuStreamSynchronize");
      const Nanos now = Now();
      // On a device of its own, with a host that takes no time, a request waits for the ones before it alone.
      free = std::max(free, due) + kernels * each;
      latencies.emplace_back(static_cast<double>(now - due) / 1e3, static_cast<double>(free - due) / 1e3);
      Tell(done += kernels * each, now);
      due += static_cast<Nanos>(gap(random_) * kSecond);
    }
    for (const auto& [latency, ideal] : latencies) std::printf("%.1f %.1f\n", latency, ideal);
  }

 private:
  static constexpr int kStreams = 8;
  static constexpr unsigned kBlock = 1024;

  Nanos Jittered(Nanos nanos) {
    // One multiplication: this runs 200,000 times a second.
    const double unit = static_cast<double>(random_() >> 11) * 0x1p-53;
    return static_cast<Nanos>(static_cast<double>(nanos) * (1 + jitter_ * (2 * unit - 1)));
  }
  unsigned Blocks(int width) const { return static_cast<unsigned>(width * per_sm_); }

  void Launch(CUstream stream, Nanos cost, int width) { Launch(stream, cost, width, Blocks(width), kBlock); }

  // `cost` on so many SMs.
  void Launch(CUstream stream, Nanos cost, int width, unsigned blocks, unsigned threads) {
    std::uint64_t work = static_cast<std::uint64_t>(cost) * static_cast<std::uint64_t>(width);
    void* params[] = {&work};
    Check(cuda_.cuLaunchKernel(function_, blocks, 1, 1, threads, 1, 1, 0, stream, params, nullptr), "cuLaunchKernel");
  }

  // Calls `next`, which launches something and returns its cost, with at most `depth` of them in flight.
  template <typename Next>
  void InFlight(std::size_t depth, Nanos* done, Next next) {
    std::vector<std::pair<CUevent, Nanos>> ring(depth);
    for (auto& [event, cost] : ring) Check(cuda_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    for (std::size_t i = 0; !Stopped(); ++i) {
      auto& [event, cost] = ring[i % depth];
      if (i >= depth) {
        Check(cuda_.cuEventSynchronize(event), "cuEventSynchronize");
        Tell(*done += cost, Now());
      }
      cost = next();
      Check(cuda_.cuEventRecord(event, streams_[0]), "cuEventRecord");
    }
  }

  void Tell(Nanos work, Nanos at) {
    slot_.sequence.fetch_add(1, std::memory_order_acq_rel);
    slot_.work.store(work, std::memory_order_relaxed);
    slot_.at.store(at, std::memory_order_relaxed);
    slot_.sequence.fetch_add(1, std::memory_order_release);
  }

  Cuda cuda_;
  Board& board_;
  BoardSlot& slot_;
  std::mt19937_64 random_;
  double jitter_;
  SelfLimit self_;
  CUfunction function_ = nullptr;
  std::array<CUstream, kStreams> streams_{};
  int sms_ = 0, per_sm_ = 1;
};

int Load(Guest& guest, const std::string& shape) {
  if (shape == "tiny") {
    guest.Async(5 * kMicro);
  } else if (shape == "us20") {
    guest.Async(20 * kMicro);
  } else if (shape == "ahead") {
    guest.Async(100 * kMicro);
  } else if (shape == "half") {
    guest.Bounded(500 * kMicro, 16);
  } else if (shape == "sync40us") {
    guest.Bounded(40 * kMicro, 1);
  } else if (shape == "mixed" || shape == "mixed-sync") {
    guest.Mixed(20 * kMicro, shape == "mixed" ? 64 : 1);
  } else if (shape == "anew") {
    guest.Anew(80 * kMicro, 64);
  } else if (shape == "half-sync") {
    guest.Bounded(500 * kMicro, 1);
  } else if (shape == "sync50") {
    guest.Bounded(50 * kMilli, 1);
  } else if (shape == "sync100") {
    guest.Bounded(100 * kMilli, 1);
  } else if (shape == "long500") {
    guest.Bounded(500 * kMilli, 2);
  } else if (shape == "graph100") {
    guest.Graphs(100, 20 * kMicro, 4);
  } else if (shape == "graph-tiny") {
    guest.Graphs(100, 5 * kMicro, 16);
  } else if (shape == "streams8") {
    guest.Streams(200 * kMicro);
  } else if (shape == "procs8" || shape == "milli") {
    guest.Bounded(kMilli, 4);
  } else if (shape == "bursty") {
    guest.Bursts(250 * kMilli, 50, kMilli);
  } else {
    std::fprintf(stderr, "sm_guest: no shape is called %s\n", shape.c_str());
    return 2;
  }
  return 0;
}

struct Sample {
  Nanos at;
  std::uint64_t busy_all;
  std::vector<std::uint64_t> busy;
  std::vector<std::pair<Nanos, Nanos>> work;
};

std::pair<Nanos, Nanos> ReadWork(const BoardSlot& slot) {
  for (;;) {
    const std::uint32_t before = slot.sequence.load(std::memory_order_acquire);
    const std::pair<Nanos, Nanos> seen{slot.work.load(std::memory_order_acquire),
                                       slot.at.load(std::memory_order_acquire)};
    if (before % 2 == 0 && slot.sequence.load(std::memory_order_acquire) == before) return seen;
  }
}

// One line a sample: time, busy time of the device, then for each slot busy time of its process, work, time of that.
int Watch(Board& board, std::size_t slots, double seconds, double interval_ms) {
  const auto busy_ns = Find<std::uint64_t(int, int)>("simgpu_busy_ns");
  std::vector<Sample> samples;
  samples.reserve(static_cast<std::size_t>(seconds * 1e3 / interval_ms) + 2);
  const Nanos begin = Now();
  const auto interval = static_cast<Nanos>(interval_ms * 1e6);
  for (Nanos due = begin; due <= begin + static_cast<Nanos>(seconds * kSecond); due += interval) {
    SleepUntil(due);
    Sample sample;
    const Nanos before = Now();
    sample.busy_all = busy_ns(0, 0);
    sample.at = before + (Now() - before) / 2;  // the device was asked somewhere in between
    for (std::size_t i = 0; i < slots; ++i) {
      const int pid = board.slots[i].pid.load();
      // A device with one guest has nobody else on it, and the books' lock need not be taken twice.
      sample.busy.push_back(slots == 1 ? sample.busy_all : pid == 0 ? 0 : busy_ns(0, pid));
      sample.work.push_back(ReadWork(board.slots[i]));
    }
    samples.push_back(std::move(sample));
  }
  for (const Sample& sample : samples) {
    std::printf("%lld %llu", static_cast<long long>(sample.at), static_cast<unsigned long long>(sample.busy_all));
    for (std::size_t i = 0; i < slots; ++i) {
      std::printf(" %llu %lld %lld", static_cast<unsigned long long>(sample.busy[i]),
                  static_cast<long long>(sample.work[i].first), static_cast<long long>(sample.work[i].second));
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_TIMERSLACK, 1);
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // a benchmark that is killed leaves no load behind
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "load" && argc == 8) {
    Guest guest(Board::Map(argv[2]), std::atoi(argv[3]), std::strtoull(argv[5], nullptr, 10), std::atof(argv[6]),
                std::atof(argv[7]));
    return Load(guest, argv[4]);
  }
  const std::string how = argc > 7 ? argv[7] : "";
  if (what == "requests" && (argc == 7 || (argc == 8 && (how == "one" || how == "warm")))) {
    Guest guest(Board::Map(argv[2]), std::atoi(argv[3]), std::strtoull(argv[4], nullptr, 10), 0, 0);
    guest.Requests(std::atof(argv[5]), std::atof(argv[6]), how);
    return 0;
  }
  if (what == "watch" && argc == 6) {
    return Watch(Board::Map(argv[2]), static_cast<std::size_t>(std::atoi(argv[3])), std::atof(argv[4]),
                 std::atof(argv[5]));
  }
  std::fprintf(stderr, "sm_guest: see the head of test/bench/sm_guest.cc\n");
  return 2;
}
