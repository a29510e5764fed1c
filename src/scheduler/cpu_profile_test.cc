// SPDX-License-Identifier: Apache-2.0

#include "scheduler/cpu_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <ctime>
#include <map>
#include <thread>

#include "net/cancel.h"

// Uses up half a second of this thread's time, however long that takes. Outside of every namespace and never inlined,
// so that its name is known here.
extern "C" __attribute__((noinline, visibility("default"))) std::uint64_t HamiBurnsCpu();
extern "C" std::uint64_t HamiBurnsCpu() {
  std::uint64_t value = 1;
  timespec used{};
  while (used.tv_sec == 0 && used.tv_nsec < 500'000'000) {
    for (int i = 0; i < 1'000'000; ++i) value = value * 6364136223846793005U + 1442695040888963407U;
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  }
  return value;
}

namespace hami::scheduler {
namespace {

using testing::HasSubstr;

constexpr auto kNever = [] { return false; };

// Samples by the function they were taken in. The format: words of the machine's size; 0, 3, 0, period in µs, 0; then
// count, depth, addresses from the innermost for every stack; 0, 1, 0 and the memory map as text.
std::map<std::string, std::uint64_t> Samples(const std::string& profile) {
  const auto word = [&](std::size_t index) {
    std::uint64_t value = 0;
    if ((index + 1) * sizeof value > profile.size()) throw std::out_of_range("profile ends early");
    std::memcpy(&value, profile.data() + index * sizeof value, sizeof value);
    return value;
  };
  EXPECT_EQ(word(0), 0U);
  EXPECT_EQ(word(1), 3U);
  EXPECT_GT(word(3), 0U);
  std::map<std::string, std::uint64_t> samples;
  std::size_t at = 5;
  while (word(at) != 0) {
    samples[FunctionAt(word(at + 2))] += word(at);
    at += 2 + word(at + 1);
  }
  EXPECT_EQ(word(at + 1), 1U);
  EXPECT_NE(profile.find("libprofiler.so", (at + 3) * sizeof(std::uint64_t)), std::string::npos) << "no memory map";
  return samples;
}

class CpuProfileTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = CpuProfiler::Load();
    ASSERT_TRUE(loaded) << loaded.error().message << "; " << loaded.error().hint;
    profiler_ = *loaded;
  }
  CpuProfiler profiler_;
};

TEST_F(CpuProfileTest, GivenABusyThread_WhenProfiled_ThenItsFunctionHasTheTime) {
  std::atomic<bool> done = false;
  std::thread busy([&] { done = HamiBurnsCpu() != 0; });
  const auto profile = profiler_.Record(std::chrono::minutes(5), [&] { return done.load(); });
  busy.join();
  ASSERT_TRUE(profile) << profile.error().message;
  auto samples = Samples(*profile);
  EXPECT_GE(samples["HamiBurnsCpu"], 20U) << "a hundred a second";
}

TEST_F(CpuProfileTest, GivenRunningProfile_WhenAskedAgain_ThenErrorAndFirstGoesOn) {
  base::Result<std::string> second("none");
  const auto first = profiler_.Record(std::chrono::milliseconds(1), [&] {
    if (second) second = profiler_.Record(std::chrono::milliseconds(1), kNever);
    return true;
  });
  EXPECT_FALSE(second);
  ASSERT_TRUE(first);
  (void)Samples(*first);
  EXPECT_TRUE(profiler_.Record(std::chrono::milliseconds(1), kNever)) << "and the next one can begin";
}

TEST_F(CpuProfileTest, GivenEnough_WhenAskedForLong_ThenItEndsAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(profiler_.Record(std::chrono::hours(1), [] { return true; }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

// The signal meets whichever thread runs, and also those that wait.
TEST_F(CpuProfileTest, GivenThreadsThatWait_WhenSignalled_ThenTheyGoOnWaiting) {
  std::atomic<bool> enough = false;
  const net::Canceller switch_off;
  std::atomic<int> early = 0;
  std::vector<std::thread> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back([&] {
      while (!enough.load()) {
        const auto end = net::After(std::chrono::milliseconds(20));
        if (switch_off.SleepUntil(end) || net::Clock::now() < end) ++early;
        ::pthread_kill(::pthread_self(), SIGPROF);
      }
    });
  }
  const auto profile = profiler_.Record(std::chrono::milliseconds(400), [&] {
    for (std::thread& thread : waiting) ::pthread_kill(thread.native_handle(), SIGPROF);
    return false;
  });
  enough = true;
  for (std::thread& thread : waiting) thread.join();
  ASSERT_TRUE(profile);
  EXPECT_EQ(early, 0);
}

TEST(CpuProfile, GivenNoLibrary_WhenLoaded_ThenTheErrorSaysWhatToInstall) {
  const auto absent = CpuProfiler::Load("libnowhere.so.0");
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message, HasSubstr("libnowhere.so.0"));
  EXPECT_THAT(absent.error().hint, HasSubstr("libgoogle-perftools4"));
  const auto other = CpuProfiler::Load("libc.so.6");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("libc.so.6 is not gperftools"));
}

TEST(CpuProfile, GivenAnAddress_WhenNamed_ThenItIsTheFunctionsOrNothing) {
  EXPECT_EQ(FunctionAt(reinterpret_cast<std::uintptr_t>(&HamiBurnsCpu) + 1), "HamiBurnsCpu");
  EXPECT_EQ(FunctionAt(1), "");
}

}  // namespace
}  // namespace hami::scheduler
