// SPDX-License-Identifier: Apache-2.0
//
// The programs whose GPU time is limited, and those that are beside them: what a guest launches, and when. Each tells
// on the board how far it is, and ends when the board says stop.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sm_board.h"
#include "sm_guest.h"
#include "sm_kernel.h"

namespace sm {

class Guest {
 public:
  Guest(Board& board, int slot, std::uint64_t seed, double jitter, double limit)
      : board_(board), slot_(board.slots[slot]), random_(seed), jitter_(jitter), self_(limit) {
    Check(cuda_.cuInit(0), "cuInit");
    Check(cuda_.cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain");
    Check(cuda_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    Check(cuda_.cuDeviceGetAttribute(&sms_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0), "cuDeviceGetAttribute");
    const CUresult loaded = kernel_.Init([&](const char* image, CUfunction* function) {
      CUmodule module = nullptr;
      const CUresult result = cuda_.cuModuleLoadData(&module, image);
      return result != CUDA_SUCCESS ? result : cuda_.cuModuleGetFunction(function, module, "work");
    });
    Check(loaded, "cuModuleLoadData");
    Check(cuda_.cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm_, kernel_.function, kBlock, 0), "occupancy");
    for (CUstream& stream : streams_) Check(cuda_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }

  // Says that it is at work from now on.
  void Begin() { slot_.pid.store(getpid()); }

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
      std::uint64_t work = kernel_.Argument(static_cast<double>(cost), sms_);
      void* params[] = {&work};
      CUDA_KERNEL_NODE_PARAMS node{};
      node.func = kernel_.function;
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

  // A program that its host holds up: `kernels` in a row and a wait, then `host` on the processor.
  void HostBound(int kernels, Nanos nanos, Nanos host) {
    Nanos done = 0;
    while (!Stopped()) {
      for (int i = 0; i < kernels; ++i) {
        const Nanos cost = Jittered(nanos);
        Launch(streams_[0], cost, sms_);
        done += cost;
      }
      Check(cuda_.cuStreamSynchronize(streams_[0]), "cuStreamSynchronize");
      Tell(done, Now());
      for (const Nanos until = Now() + host; Now() < until;) {
      }
    }
  }

  // As an eager training step of PyTorch: short kernels of many kinds that the host launches one by one, the first part
  // on this thread and the others on another (autograd's), on the default stream, with four steps under way.
  void Eager() {
    constexpr int kForward = 120;
    constexpr int kAll = 350;
    constexpr std::size_t kDepth = 4;
    constexpr Nanos kHost = 19 * kMicro;
    const std::vector<Nanos> costs = StepCosts(kAll);
    Nanos step = 0;
    for (const Nanos cost : costs) step += cost;
    const auto run = [&](int first, int last) {
      for (int i = first; i < last; ++i) {
        LaunchOfStep(costs, static_cast<std::size_t>(i));
        for (const Nanos until = Now() + kHost; Now() < until;) {
        }
      }
    };
    std::atomic<int> turn = 0;  // 0: forward, 1: backward, 2: the end
    std::thread autograd([&] {
      Check(cuda_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
      for (turn.wait(0); turn.load() != 2; turn.wait(0)) {
        run(kForward, kAll);
        turn.store(0);
        turn.notify_all();
      }
    });
    Nanos done = 0;
    std::array<CUevent, kDepth> events{};
    for (CUevent& event : events) Check(cuda_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    for (std::size_t i = 0; !Stopped(); ++i) {
      if (i >= kDepth) {
        Check(cuda_.cuEventSynchronize(events[i % kDepth]), "cuEventSynchronize");
        Tell(done += step, Now());
      }
      run(0, kForward);
      turn.store(1);
      turn.notify_all();
      turn.wait(1);
      Check(cuda_.cuEventRecord(events[i % kDepth], nullptr), "cuEventRecord");
    }
    turn.store(2);
    turn.notify_all();
    autograd.join();
  }

  // The same kernels as fast as they can be launched, and a synchronisation after each `every` ns of work.
  void Steps(Nanos every) {
    const std::vector<Nanos> costs = StepCosts(350);
    Nanos done = 0;
    for (std::size_t i = 0; !Stopped(); Tell(done, Now())) {
      for (const Nanos until = done + every; done < until; i = (i + 1) % costs.size()) {
        LaunchOfStep(costs, i);
        done += costs[i];
      }
      Check(cuda_.cuStreamSynchronize(nullptr), "cuStreamSynchronize");
    }
  }

  // One launch of `nanos` every `period`, for so long; prints what each took from the moment it was due.
  void Light(Nanos nanos, Nanos period, double seconds) {
    const Nanos end = Now() + static_cast<Nanos>(seconds * kSecond);
    Nanos done = 0;
    for (Nanos due = Now() + period; due < end; due += period) {
      SleepUntil(due);
      Launch(streams_[0], nanos, sms_);
      Check(cuda_.cuStreamSynchronize(streams_[0]), "cuStreamSynchronize");
      const Nanos now = Now();
      std::printf("%.1f %.1f\n", static_cast<double>(now - due) / 1e3, static_cast<double>(nanos) / 1e3);
      Tell(done += nanos, now);
    }
  }

  // Kernels of 0.5 ms, in turns of `turn` that `count` processes hand on after a synchronisation.
  void InTurns(int me, int count, Nanos turn) {
    constexpr Nanos kKernel = 500 * kMicro;
    constexpr std::size_t kDepth = 4;
    std::array<CUevent, kDepth> events{};
    for (CUevent& event : events) Check(cuda_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    Nanos done = 0;
    for (;;) {
      while (!Stopped() && board_.turn.load(std::memory_order_acquire) != static_cast<std::uint32_t>(me)) {
      }
      if (Stopped()) return;
      std::size_t launched = 0;
      for (const Nanos until = Now() + turn; Now() < until; ++launched) {
        if (launched >= kDepth) Check(cuda_.cuEventSynchronize(events[launched % kDepth]), "cuEventSynchronize");
        Launch(streams_[0], kKernel, sms_);
        Check(cuda_.cuEventRecord(events[launched % kDepth], streams_[0]), "cuEventRecord");
      }
      Check(cuda_.cuStreamSynchronize(streams_[0]), "cuStreamSynchronize");
      Tell(done += static_cast<Nanos>(launched) * kKernel, Now());
      board_.turn.store(static_cast<std::uint32_t>((me + 1) % count), std::memory_order_release);
    }
  }

  // ns of a round of the kernel on a real GPU that it fills; 1 on a simulated one, whose kernels need none.
  double RoundNs() {
    if (!kernel_.real) return 1;
    CUevent begin = nullptr;
    CUevent end = nullptr;
    Check(cuda_.cuEventCreate(&begin, 0), "cuEventCreate");
    Check(cuda_.cuEventCreate(&end, 0), "cuEventCreate");
    std::uint64_t rounds = 200'000;
    void* params[] = {&rounds};
    std::vector<double> each;
    for (int i = 0; i < 200; ++i) {  // the clock takes some 100 ms to rise
      Check(cuda_.cuEventRecord(begin, streams_[0]), "cuEventRecord");
      Check(cuda_.cuLaunchKernel(kernel_.function, Blocks(sms_), 1, 1, kBlock, 1, 1, 0, streams_[0], params, nullptr),
            "cuLaunchKernel");
      Check(cuda_.cuEventRecord(end, streams_[0]), "cuEventRecord");
      Check(cuda_.cuStreamSynchronize(streams_[0]), "cuStreamSynchronize");
      float ms = 0;
      Check(cuda_.cuEventElapsedTime(&ms, begin, end), "cuEventElapsedTime");
      each.push_back((static_cast<double>(ms) * 1e6 - kAroundKernelNs) / static_cast<double>(rounds));
    }
    std::sort(each.begin(), each.end());
    return each[each.size() / 4];
  }

 private:
  static constexpr double kAroundKernelNs =
      4'950;  // what an event pair says beyond a kernel on an idle stream, on an H200
  static constexpr int kStreams = 8;
  static constexpr unsigned kBlock = 1024;

  Nanos Jittered(Nanos nanos) {
    // One multiplication: this runs 200,000 times a second.
    const double unit = static_cast<double>(random_() >> 11) * 0x1p-53;
    return static_cast<Nanos>(static_cast<double>(nanos) * (1 + jitter_ * (2 * unit - 1)));
  }
  unsigned Blocks(int width) const { return static_cast<unsigned>(width * per_sm_); }

  void Launch(CUstream stream, Nanos cost, int width) { Launch(stream, cost, width, Blocks(width), kBlock); }

  // Most of 2 to 14 us, some of up to 82.
  static std::vector<Nanos> StepCosts(int kernels) {
    std::mt19937_64 shapes(1);
    std::vector<Nanos> costs(static_cast<std::size_t>(kernels));
    for (Nanos& cost : costs)
      cost = 2 * kMicro + static_cast<Nanos>(shapes() % 100 < 85 ? shapes() % 12'000 : shapes() % 80'000);
    return costs;
  }

  // Each in a grid of its own.
  void LaunchOfStep(const std::vector<Nanos>& costs, std::size_t i) {
    Launch(nullptr, costs[i], sms_, Blocks(sms_), kBlock - static_cast<unsigned>(i));
  }

  // `cost` on so many SMs.
  void Launch(CUstream stream, Nanos cost, int width, unsigned blocks, unsigned threads) {
    std::uint64_t work = kernel_.Argument(static_cast<double>(cost), width);
    void* params[] = {&work};
    Check(cuda_.cuLaunchKernel(kernel_.function, blocks, 1, 1, threads, 1, 1, 0, stream, params, nullptr),
          "cuLaunchKernel");
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
  CUcontext context_ = nullptr;
  Board& board_;
  BoardSlot& slot_;
  std::mt19937_64 random_;
  double jitter_;
  SelfLimit self_;
  WorkKernel kernel_;
  std::array<CUstream, kStreams> streams_{};
  int sms_ = 0, per_sm_ = 1;
};

}  // namespace sm
