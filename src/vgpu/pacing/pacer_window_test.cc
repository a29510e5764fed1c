// SPDX-License-Identifier: Apache-2.0
// What an on-phase is charged, on a GPU of eight streams whose kernels differ.
#include "vgpu/pacing/pacer_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "vgpu/loader/driver.h"
#include "vgpu/pacing/pacer.h"
#include "vgpu/pacing/pacer_common.h"
#include "vgpu/pacing/pacer_events.h"
#include "vgpu/pacing/pacer_overlap.h"
#include "vgpu/pacing/pacer_quantum.h"
#include "vgpu/pacing/pacer_samples.h"
#include "vgpu/pacing/pacer_trail.h"

namespace hami::vgpu {
namespace {

constexpr int64_t kUs = 1'000;
constexpr int64_t kMs = 1'000'000;
constexpr int kStreams = 8;
constexpr int kMostStreams = 200;
const auto kContext = reinterpret_cast<CUcontext>(0x3000);

int64_t g_now = 0;
std::map<CUevent, int64_t> g_event_at;
uintptr_t g_events = 0;
int64_t g_settled = 0;
int g_forgone = 0;  // times
int g_devices = 0;
int64_t g_others_until = 0;  // another container was at work until then; 0: there is none

CUresult Create(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(++g_events);
  return CUDA_SUCCESS;
}
CUresult Destroy(CUevent) { return CUDA_SUCCESS; }
CUresult Query(CUevent event) { return g_event_at[event] <= g_now ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY; }
CUresult Elapsed(float* milliseconds, CUevent start, CUevent end) {
  *milliseconds = static_cast<float>(static_cast<double>(g_event_at[end] - g_event_at[start]) / 1e6);
  return CUDA_SUCCESS;
}
CUresult Current(CUcontext* context) {
  *context = kContext;
  return CUDA_SUCCESS;
}
CUresult Device(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}

}  // namespace

void* DriverSymbol(Sym sym) {
  if (sym == Sym::cuEventCreate) return reinterpret_cast<void*>(&Create);
  if (sym == Sym::cuEventDestroy_v2) return reinterpret_cast<void*>(&Destroy);
  if (sym == Sym::cuEventQuery) return reinterpret_cast<void*>(&Query);
  if (sym == Sym::cuEventElapsedTime) return reinterpret_cast<void*>(&Elapsed);
  if (sym == Sym::cuCtxGetCurrent) return reinterpret_cast<void*>(&Current);
  if (sym == Sym::cuCtxGetDevice) return reinterpret_cast<void*>(&Device);
  return nullptr;
}
void SetWindowOpen(bool) {}
bool ContendedSince(int, int64_t since, int64_t) { return g_others_until >= since; }
bool OthersKnown(int) { return g_others_until != 0; }
region::CommonView Others(int, int64_t) {
  return {.active_until = g_others_until, .active = g_others_until != 0, .present = g_others_until != 0};
}
void EndQuiet(int, int64_t) {}
int64_t MonotonicNanos() { return g_now; }
void SettleWindow(int, int64_t gpu, int64_t, int64_t) { g_settled += gpu; }
void ForgoUnused(int, int64_t, int64_t) { ++g_forgone; }

namespace {

// A program that launches on its streams in turn, and is let go in releases.
class WindowTest : public testing::Test {
 protected:
  WindowTest() {
    ResetWindows();
    ResetEvents();
    ResetTrails();
    g_event_at.clear();
    g_now = 1000 * kMs;
    g_settled = 0;
    g_forgone = 0;
    g_others_until = 0;
  }

  // `launches`, then a wait in which the GPU runs dry. `estimate` is what each is thought to cost.
  void Release(int launches, int64_t estimate) {
    const int64_t begin = g_now;
    int64_t end = begin;
    int64_t since = 0;
    const bool asks = WindowSeeksQuietLocked(device_, false, &since);
    if (asks) CountWindowLocked(device_, neighbour_hears_ ? g_now + region::kCommonQuiet : 0, g_now);
    // Both take turns for as long as there is something to do.
    const int64_t turns = neighbour_ && !(asks && neighbour_hears_) ? 2 : 1;
    if (turns == 2) g_others_until = begin + kMs;
    for (int i = 0; i < launches; ++i) {
      const int stream = i % streams_;
      const int64_t charge = ScaleFor(device_, estimate);
      Issued(device_, charge);
      charged_ += charge;
      if (const CUevent start = WindowStartLocked(device_); start != nullptr) {
        Recorded(start, std::max(begin, free_[stream]));
        ++counted_;
      }
      random_ = random_ * 6364136223846793005u + 1442695040888963407u;
      free_[stream] =
          std::max(begin, free_[stream]) + turns * (180 * kUs + static_cast<int64_t>((random_ >> 33) % 40'000));
      end = std::max(end, free_[stream]);
      if (const CUevent mark = WindowMarkLocked(device_, Handle(stream), false, estimate); mark != nullptr) {
        Recorded(mark, free_[stream]);
        ++events_;
      }
    }
    busy_ += (end - begin) / turns;
    TurnWindowLocked(device_, true, begin + (end - begin) / 2);
    g_now = end + pause_;
    if (neighbour_) g_others_until = g_now;  // it began again
    CollectWindows(g_now);
  }
  int64_t Charged() const { return charged_ + g_settled; }
  // What `rounds` releases of so many launches each are charged, by what they took, after `warm` others.
  double ChargedToBusy(int warm, int rounds, const std::function<int(int)>& launches, int64_t estimate) {
    for (int i = 0; i < warm; ++i) Release(launches(i), estimate);
    const int64_t charged = Charged();
    const int64_t busy = busy_;
    for (int i = 0; i < rounds; ++i) Release(launches(i), estimate);
    return static_cast<double>(Charged() - charged) / static_cast<double>(busy_ - busy);
  }

  static CUstream Handle(int stream) { return reinterpret_cast<CUstream>(static_cast<uintptr_t>(0x1000 + stream)); }
  void Recorded(CUevent event, int64_t at) const {
    g_event_at[event] = at;
    WindowRecordedLocked(device_, true);
  }

  int device_ = 0;  // what is known of one stays known; others are new
  int64_t pause_ = 300 * kMs;
  int streams_ = kStreams;
  int counted_ = 0;         // phases
  bool neighbour_ = false;  // another container always has work when this one has,
  bool neighbour_hears_ = true;
  int64_t charged_ = 0;
  int64_t busy_ = 0;
  int events_ = 0;

 private:
  int64_t free_[kMostStreams]{};
  uint64_t random_ = 1;
};

TEST_F(WindowTest, GivenReleasesOfStreamsSideBySide_ThenTheyAreChargedWhatTheyTook_RaggedEndsIncluded) {
  const double ratio = ChargedToBusy(
      30, 300, [](int i) { return static_cast<int>(kSideBySide) * kStreams + i % 9; }, 200 * kUs);
  EXPECT_NEAR(ratio, 1.0, 0.002);
}

TEST_F(WindowTest, GivenDozensOfStreams_ThenTheyAreChargedWhatTheyTook) {
  streams_ = kMostStreams;
  const double ratio = ChargedToBusy(
      30, 100, [&](int i) { return 16 * streams_ + i % 9; }, 200 * kUs);
  EXPECT_NEAR(ratio, 1.0, 0.02);
}

// What is launched while it goes is earned meanwhile: at a limit of 75 a release of 80 is one of 200.
TEST_F(WindowTest, GivenLongReleases_ThenTheyAreChargedWhatTheyTook_RaggedEndsIncluded) {
  const double ratio = ChargedToBusy(
      30, 300, [](int i) { return 200 * kStreams + i % 9; }, 200 * kUs);
  EXPECT_NEAR(ratio, 1.0, 0.001);
}

TEST_F(WindowTest, GivenEstimatesThatAreTooHigh_ThenReleasesAreChargedWhatTheyTook) {
  const double ratio = ChargedToBusy(
      30, 60, [](int) { return static_cast<int>(kSideBySide) * kStreams; }, 225 * kUs);
  EXPECT_NEAR(ratio, 1.0, 0.005);
}

// To record an event may take as long as a launch: a phase with many would be longer than the others.
TEST_F(WindowTest, GivenReleasesOfKnownLength_ThenFewEventsAreLaid) {
  for (int i = 0; i < 30; ++i) Release(static_cast<int>(kSideBySide) * kStreams, 200 * kUs);
  events_ = 0;
  for (int i = 0; i < 60; ++i) Release(static_cast<int>(kSideBySide) * kStreams, 200 * kUs);
  EXPECT_GT(events_, 0);
  EXPECT_LE(events_, 2 * kStreams * 60);
}

TEST_F(WindowTest, WhileLittleIsKnown_ThenPhasesAreCountedOftener) {
  device_ = ++g_devices;
  pause_ = 5 * kMs;
  // 2 ms of work and the pause: a window of two phases, and the next one is due.
  for (int i = 0; i < 40; ++i) Release(10 * kStreams, 200 * kUs);
  EXPECT_GE(counted_, 8);
  counted_ = 0;
  for (int i = 0; i < 100; ++i) Release(10 * kStreams, 200 * kUs);  // 0.7 s
  EXPECT_GE(counted_, 10);
  EXPECT_LE(counted_, 20);
}

// Who is charged far too little never waits again, so how much goes together after the wait before it must not decide
// when that shows; as long as little is known. Later, a phase ends with a wait.
TEST_F(WindowTest, WhileLittleIsKnown_ThenAPhaseEndsThoughNobodyWaits) {
  constexpr int kSoon = 2 * static_cast<int>(kSideBySide) * kStreams;
  const auto until_counted = [&](int device) {
    device_ = device;
    ResetWindows();  // what is known stays known
    g_now += 1000 * kMs;
    TurnWindowLocked(device, true, g_now);
    for (int i = 1;; ++i) {
      if (const CUevent start = WindowStartLocked(device); start != nullptr) return Recorded(start, g_now), i;
      if (i > 16 * kSoon) return i;
      if (const CUevent mark = WindowMarkLocked(device, Handle(i % kStreams), false, kUs); mark != nullptr) {
        Recorded(mark, g_now);
      }
    }
  };
  EXPECT_LE(until_counted(++g_devices), kSoon + 1);
  device_ = ++g_devices;
  for (int i = 0; i < 60; ++i) Release(10 * kStreams, 200 * kUs);
  EXPECT_GT(until_counted(device_), 4 * kSoon);
}

TEST_F(WindowTest, WhenReleasesBecomeShorter_ThenTheyAreChargedWhatTheyTook) {
  for (int i = 0; i < 30; ++i) Release(static_cast<int>(kSideBySide) * kStreams, 200 * kUs);
  for (int i = 0; i < 10; ++i) Release(10 * kStreams, 200 * kUs);
  const double ratio = ChargedToBusy(
      0, 300, [](int i) { return (i % 7 < 2 ? 40 : 10) * kStreams; }, 200 * kUs);
  EXPECT_NEAR(ratio, 1.0, 0.02);
}

TEST_F(WindowTest, WhenEstimatesDriftWithinSeconds_ThenTheReleasesInNoWindowAreSettledToo) {
  for (int i = 0; i < 30; ++i) Release(static_cast<int>(kSideBySide) * kStreams, 180 * kUs);
  const int64_t charged = Charged();
  const int64_t busy = busy_;
  for (int i = 0; i < 60; ++i) Release(static_cast<int>(kSideBySide) * kStreams, (180 + i / 2) * kUs);
  const auto ratio = static_cast<double>(Charged() - charged) / static_cast<double>(busy_ - busy);
  EXPECT_NEAR(ratio, 1.0, 0.005);
}

TEST_F(WindowTest, GivenANeighbourThatAlwaysHasWork_ThenReleasesAreChargedWhatTheyTookAndNotWhatItTook) {
  neighbour_ = true;
  const double ratio = ChargedToBusy(
      30, 300, [](int) { return static_cast<int>(kSideBySide) * kStreams; }, 200 * kUs);
  EXPECT_NEAR(ratio, 1.0, 0.005);
}

TEST_F(WindowTest, WhenEnoughPhasesHadTheGpuAlone_ThenWhatWasLostBesideANeighbourIsForgoneOnce) {
  device_ = ++g_devices;
  for (int i = 0; i < 30; ++i) Release(static_cast<int>(kSideBySide) * kStreams, 200 * kUs);
  EXPECT_EQ(g_forgone, 0);
  device_ = ++g_devices;
  neighbour_ = true;
  for (int i = 0; i < 60; ++i) Release(static_cast<int>(kSideBySide) * kStreams, 200 * kUs);
  EXPECT_EQ(g_forgone, 1);
}

// Who never holds its launches leaves a guess, by how many take turns.
TEST_F(WindowTest, GivenANeighbourThatIsNeverQuiet_ThenReleasesAreChargedAboutWhatTheyTook) {
  neighbour_ = true;
  neighbour_hears_ = false;
  const double ratio = ChargedToBusy(
      30, 60, [](int) { return static_cast<int>(kSideBySide) * kStreams; }, 200 * kUs);
  EXPECT_NEAR(ratio, 1.0, 0.1);
}

// A program that gives way, and launches on its streams in turn: a launch waits until a quantum is in flight at most.
class GivesWay : public WindowTest {
 protected:
  GivesWay() {
    ScaleFor(device_, 0);
    EXPECT_EQ(ScaleFor(device_, kOverlapOne), kOverlapOne) << "something is known of the device";
  }
  // What a launch has to wait for, as in AdmitQuantum.
  int64_t Wait(CUstream stream) {
    const int64_t charge = ScaleFor(device_, kKernel);
    const int64_t ahead = InFlightLocked(device_, g_now);
    most_ahead_ = std::max(most_ahead_, std::max(Busy(g_now) - g_now, int64_t{0}));
    return WindowWaitLocked(device_, NameOf(stream, false), ahead, charge, QuantumWait(ahead, charge, kShortQuantum),
                            g_now);
  }
  void Launch(int stream) {
    const auto handle = reinterpret_cast<CUstream>(static_cast<uintptr_t>(0x1000 + stream));
    CollectWindows(g_now);
    while (const int64_t wait = Wait(handle)) {
      g_now += wait;
      CollectWindows(g_now);
    }
    Issued(device_, ScaleFor(device_, kKernel));
    const int64_t begin = std::max(g_now, overlap_ ? free_[stream] : Busy(g_now));
    if (const CUevent start = WindowStartLocked(device_); start != nullptr) Record(start, begin);
    free_[stream] = begin + kKernel;
    if (const CUevent mark = WindowMarkLocked(device_, handle, false, kKernel); mark != nullptr) {
      Record(mark, free_[stream]);
    }
    if (const CUevent mark = LayMarkLocked(device_, handle, false, kKernel / 4, g_now); mark != nullptr) {
      g_event_at[mark] = free_[stream];
      MarkLaidLocked(device_, mark, true);
    }
    ++launched_;
    g_now += 2 * kUs;  // the host's time
  }
  // Kernels a second.
  double Rate(int64_t span, int streams = kStreams) {
    const int64_t begin = g_now;
    const int before = launched_;
    while (g_now < begin + span) Launch(next_++ % streams);
    return static_cast<double>(launched_ - before) / static_cast<double>(g_now - begin) * 1e9;
  }
  int64_t Busy(int64_t now) const { return std::max(now, *std::max_element(free_, free_ + kStreams)); }
  void Record(CUevent event, int64_t at) {
    g_event_at[event] = at;
    WindowRecordedLocked(device_, true);
  }

  static constexpr int64_t kKernel = 200 * kUs;
  static constexpr int64_t kOverlapOne = Overlap::kOne;
  const int device_ = ++g_devices;
  bool overlap_ = true;
  int64_t free_[kStreams]{};
  int64_t most_ahead_ = 0;
  int launched_ = 0;
  int next_ = 0;
};

TEST_F(GivesWay, GivenStreamsSideBySide_ThenTheyRunSideBySide) {
  Rate(300 * kMs);
  most_ahead_ = 0;
  EXPECT_GT(Rate(1000 * kMs), 20'000);  // 5,000 one after the other, 40,000 if the streams never waited
  EXPECT_LE(most_ahead_, 2 * kKernel);
}

// They are tried again and again, but it is not tried often, nor with more than is to be in flight.
TEST_F(GivesWay, GivenStreamsThatDoNotOverlap_ThenLittleIsInFlight_ButForARareTry) {
  overlap_ = false;
  Rate(1000 * kMs);
  most_ahead_ = 0;
  int much = 0;
  for (int i = 0; i < 10'000; ++i) {
    Launch(next_++ % kStreams);
    much += Busy(g_now) - g_now > kKernel ? 1 : 0;
  }
  EXPECT_LE(most_ahead_, 1600 * kUs);
  EXPECT_LT(much, 10'000 / 100);
  EXPECT_GT(most_ahead_, kKernel);
}

TEST_F(GivesWay, WhenStreamsBecomeOne_ThenLittleIsInFlightSoonAfter) {
  Rate(500 * kMs);
  Rate(500 * kMs, 1);
  most_ahead_ = 0;
  Rate(500 * kMs, 1);
  EXPECT_LE(most_ahead_, 2 * kKernel);
}

TEST_F(GivesWay, WhenAnotherIsAtWorkMeanwhile_ThenWhatIsKnownStays) {
  Rate(300 * kMs);
  const int64_t known = ScaleFor(device_, kMs);
  g_others_until = g_now + 3600 * 1000 * kMs;
  overlap_ = false;  // as if it took turns with another
  Rate(500 * kMs);
  EXPECT_LE(ScaleFor(device_, kMs), known + known / 8);
}

// A window that looks for a moment alone: its first phase is through, and somebody waits.
class FirstPhaseAlone : public WindowTest {
 protected:
  FirstPhaseAlone() {
    g_others_until = g_now + 3600 * 1000 * kMs;
    TurnWindowLocked(device_, true, g_now);
    Launch(kStreams);
    g_now += kMs;
    TurnWindowLocked(device_, true, g_now);
  }
  // One after the other on the streams, 200 us each.
  void Launch(int launches) {
    for (int i = 0; i < launches; ++i) {
      const auto handle = reinterpret_cast<CUstream>(static_cast<uintptr_t>(0x1000 + i % kStreams));
      if (const CUevent start = WindowStartLocked(device_); start != nullptr) Record(start, g_now);
      const int64_t end = g_now + (i / kStreams + 1) * took_;
      if (const CUevent mark = WindowMarkLocked(device_, handle, false, 200 * kUs); mark != nullptr) Record(mark, end);
      last_ = end;
    }
  }
  void Record(CUevent event, int64_t at) {
    g_event_at[event] = at;
    WindowRecordedLocked(device_, true);
  }
  // The phase, with others quiet, or as they say.
  void CountAlone(int launches) {
    CountWindowLocked(device_, g_now + region::kCommonQuiet, g_now);
    g_others_until = g_now;
    Launch(launches);
    TurnWindowLocked(device_, true, g_now);
    g_now = last_ + kUs;
    CollectWindows(g_now);
  }

  const int device_ = ++g_devices;  // nothing is known of it
  int64_t since_ = 0;
  int64_t took_ = 200 * kUs;
  int64_t last_ = 0;
};

// To be asked at each look, until there is a moment: who is charged too much launches rarely.
TEST_F(FirstPhaseAlone, WhenItIsNotTheMoment_ThenItIsSoughtAgain) {
  EXPECT_TRUE(WindowSeeksQuietLocked(device_, true, &since_));
  EXPECT_FALSE(WindowSeeksQuietLocked(device_, true, &since_));
  CountWindowLocked(device_, 0, g_now + kMs);
  EXPECT_TRUE(WindowSeeksQuietLocked(device_, true, &since_));
}

TEST_F(FirstPhaseAlone, GivenOneThatIsTooShort_ThenItGoesOn_UntilItSaysSomethingOrTheTimeIsOver) {
  WindowSeeksQuietLocked(device_, true, &since_);
  EXPECT_FALSE(WindowGoesOnLocked(device_, g_now));
  CountWindowLocked(device_, g_now + region::kCommonQuiet, g_now);
  Launch(8 * kStreams);
  EXPECT_TRUE(WindowGoesOnLocked(device_, g_now));
  EXPECT_FALSE(WindowGoesOnLocked(device_, g_now + region::kCommonQuiet));
  Launch(8 * kStreams);
  EXPECT_FALSE(WindowGoesOnLocked(device_, g_now));
}

// Nobody knows whether streams overlap: what goes before it is paid for fits the time if they do not.
TEST_F(FirstPhaseAlone, GivenLittleTime_ThenNoMoreGoesThanFits) {
  WindowSeeksQuietLocked(device_, true, &since_);
  CountWindowLocked(device_, g_now + 4 * kMs, g_now);
  Launch(20);
  EXPECT_FALSE(WindowGoesOnLocked(device_, g_now));
}

TEST_F(FirstPhaseAlone, WhenItWasMeasured_ThenItIsWhatStreamsSideBySideTake_AndNoOtherIsTheFirst) {
  WindowSeeksQuietLocked(device_, true, &since_);
  CountAlone(16 * kStreams);
  EXPECT_NEAR(static_cast<double>(ScaleFor(device_, 8 * kMs)), 1.0 * kMs, 0.02 * kMs);
  g_others_until = g_now + 3600 * 1000 * kMs;
  g_now += 300 * kMs;
  TurnWindowLocked(device_, true, g_now);
  Launch(kStreams);
  TurnWindowLocked(device_, true, g_now);
  EXPECT_FALSE(WindowSeeksQuietLocked(device_, true, &since_));
  EXPECT_TRUE(WindowSeeksQuietLocked(device_, false, &since_));
}

// Who has just come has not said that he is at work.
TEST_F(FirstPhaseAlone, WhenItTookLongerThanOneAfterTheOther_ThenItWasNotAlone_AndOthersAreAskedAgain) {
  took_ = 2 * kMs;  // of eight streams, 16 times
  WindowSeeksQuietLocked(device_, true, &since_);
  CountAlone(16 * kStreams);
  g_others_until = g_now + 3600 * 1000 * kMs;
  g_now += 30 * kMs;
  TurnWindowLocked(device_, true, g_now);
  Launch(kStreams);
  TurnWindowLocked(device_, true, g_now);
  EXPECT_TRUE(WindowSeeksQuietLocked(device_, true, &since_));
}

// What is charged too little on a GPU that is full: the balance is never used up.
TEST_F(FirstPhaseAlone, WhenNobodyWaits_ThenTheNextOneBeginsAllTheSame) {
  WindowSeeksQuietLocked(device_, true, &since_);
  CountAlone(16 * kStreams);
  g_others_until = g_now + 3600 * 1000 * kMs;
  g_now += 300 * kMs;
  BeginWindowLocked(device_, g_now);
  Launch(2 * static_cast<int>(kSideBySide) * kStreams + 1);
  EXPECT_TRUE(WindowSeeksQuietLocked(device_, false, &since_));
}

}  // namespace
}  // namespace hami::vgpu
