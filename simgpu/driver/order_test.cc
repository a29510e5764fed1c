// SPDX-License-Identifier: Apache-2.0
// Random work on several streams, on the virtual clock: it always comes to its end, in the order that was asked for,
// and neither faster nor slower than the hardware it stands for.
#include <cstddef>
#include <random>
#include <vector>

#include "simgpu/driver/testing/time.h"

namespace simgpu::testing {
namespace {

constexpr int kStreams = 5;  // the last one is the legacy stream
constexpr std::int64_t kFillBound = 200 * kMicro;

class OrderTest : public TimedTest {
 protected:
  void Option(const char* text) const {
    std::ofstream(folder_ + "/config", std::ios::app) << "option " << text << "\n";
  }
};

// What was submitted, with an event before and after each piece.
struct Piece {
  CUevent start, end;
  std::int64_t least;  // ns that it takes when nothing else runs
};

class Player {
 public:
  explicit Player(unsigned seed) : random_(seed) {
    for (int i = 0; i + 1 < kStreams; ++i) {
      streams_[i] = NewStream(i % 2 == 0 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
    }
    EXPECT_OK(cuMemAlloc_v2(&buffer_, kMiB));
    begin_ = Mark(streams_[0]);
    EXPECT_OK(cuEventSynchronize(begin_));
  }

  void Step() {
    CUstream s = streams_[Below(kStreams)];
    switch (Below(9)) {
      case 0:
        Fill(s);
        break;
      case 1:
        WaitForAnother(s);
        break;
      case 2:
        EXPECT_OK(cuLaunchHostFunc(
            s, [](void* calls) { ++*static_cast<int*>(calls); }, &calls_));
        ++asked_;
        break;
      case 3:
        if (Below(4) == 0) {
          EXPECT_OK(cuStreamSynchronize(s));
        }
        break;
      case 4:
        static_cast<void>(cuStreamQuery(s));
        break;
      default:
        Kernel(s);
    }
  }

  void Check(std::int64_t latency, bool alone) {
    EXPECT_OK(cuCtxSynchronize());
    CUevent end = Mark(streams_[0]);
    EXPECT_OK(cuEventSynchronize(end));
    for (const Piece& piece : order_) {
      EXPECT_GE(Between(piece.start, piece.end), piece.least);
    }
    EXPECT_EQ(calls_, asked_);
    if (alone) {
      // Work conserving: the worst that can happen is one after the other.
      EXPECT_LE(Between(begin_, end), bound_ + latency * static_cast<std::int64_t>(order_.size() + 1));
    }
  }

 private:
  std::size_t Below(int n) { return static_cast<std::size_t>(random_() % static_cast<unsigned>(n)); }

  void Kernel(CUstream s) {
    static constexpr std::int64_t kCosts[] = {0, 0, 1, 3, 1000, 250'000, 2'500'000};
    static constexpr unsigned kWidths[] = {1, 7, 50, kSms};
    const std::int64_t cost = kCosts[Below(7)];
    CUevent start = Mark(s);
    EXPECT_OK(gpu_.Launch(s, cost, kWidths[Below(4)]));
    order_.push_back({start, Mark(s), cost});
    bound_ += cost;
  }

  void WaitForAnother(CUstream s) {
    CUevent awaited = Mark(streams_[Below(kStreams)]);
    EXPECT_OK(cuStreamWaitEvent(s, awaited, 0));
    order_.push_back({awaited, Mark(s), 0});
  }

  void Fill(CUstream s) {
    CUevent start = Mark(s);
    EXPECT_OK(cuMemsetD8Async(buffer_, 1, 1 + Below(1 << 16), s));
    order_.push_back({start, Mark(s), 0});
    bound_ += kFillBound;
  }

  std::mt19937 random_;
  const Gpu gpu_;
  CUstream streams_[kStreams] = {};
  CUdeviceptr buffer_ = 0;
  CUevent begin_ = nullptr;
  std::vector<Piece> order_;
  std::int64_t bound_ = 0;
  int calls_ = 0, asked_ = 0;
};

void Play(unsigned seed, int steps, std::int64_t latency, bool alone = true) {
  alarm(30);  // the failure that this looks for is a wait that never ends
  Player player(seed);
  for (int i = 0; i < steps; ++i) {
    player.Step();
  }
  player.Check(latency, alone);
}

TEST_F(OrderTest, GivenRandomWorkWithoutLatency_WhenDone_ThenOrderAndTimeRight) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    RunWithContext([seed] { Play(seed, 150, 0); });
  }
}

TEST_F(OrderTest, GivenRandomWorkWithLatencyWhenDoneThenOrderAndTimeAreRight) {
  Option("launch_ns=2000");
  for (unsigned seed = 101; seed <= 108; ++seed) {
    SCOPED_TRACE(seed);
    RunWithContext([seed] { Play(seed, 150, 2000); });
  }
}

TEST_F(OrderTest, GivenKernelsThatCostNothingWhenWaitedForThenTheWaitEnds) {
  Option("kernel_ns=0");
  RunWithContext([] {
    alarm(30);
    const Gpu gpu;
    CUstream a = NewStream();
    CUstream b = NewStream();
    for (int i = 0; i < 200; ++i) {
      EXPECT_OK(gpu.Launch(i % 2 == 0 ? a : b, 0));
      CUevent mark = Mark(a);
      EXPECT_OK(cuStreamWaitEvent(b, mark, 0));
      EXPECT_OK(cuMemsetD8Async(0, 0, 0, b));
      if (i % 10 == 0) {
        EXPECT_OK(cuStreamSynchronize(b));
      }
    }
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_EQ(simgpu_busy_ns(0, 0), 0U);
  });
}

TEST_F(OrderTest, GivenTwoProcessesWithUnequalKernels_WhenBothWait_ThenBothEnd) {
  Option("quantum_us=50");
  Child other([] {
    UsePrimary(0);
    Play(7, 150, 0, false);
  });
  RunWithContext([] {
    alarm(30);
    const Gpu gpu;
    CUstream s = NewStream();
    for (int i = 0; i < 100; ++i) {
      EXPECT_OK(gpu.Launch(s, i % 3 == 0 ? 0 : i * kMicro));
      if (i % 7 == 0) {
        EXPECT_OK(cuStreamSynchronize(s));
      }
    }
    EXPECT_OK(cuCtxSynchronize());
  });
  EXPECT_EQ(other.Join(), 0);
}

}  // namespace
}  // namespace simgpu::testing
