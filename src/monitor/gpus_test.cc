// SPDX-License-Identifier: Apache-2.0

#include "monitor/gpus.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace hami::monitor {
namespace {

using std::chrono::milliseconds;

constexpr GpuSampler::Pace kFast{milliseconds(1), milliseconds(1), milliseconds(2)};

GpuPicture Gpu(const std::string& uuid) {
  GpuPicture gpu;
  gpu.device.uuid = uuid;
  return gpu;
}

class Scripted : public GpuSource {
 public:
  explicit Scripted(std::function<base::Result<std::vector<GpuPicture>>()> look) : look_(std::move(look)) {}
  base::Result<std::vector<GpuPicture>> Look() override { return look_(); }

 private:
  const std::function<base::Result<std::vector<GpuPicture>>()> look_;
};

template <typename Condition>
bool Eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// V8: HAMi starts and ends NVML in each scrape, so a driver that hangs takes the metrics of the whole node with it.
TEST(GpuSampler, GivenHangingDriver_ThenLastAnswerAtOnceAndStopDoesNotHang) {
  std::promise<void> release;
  const auto released = release.get_future().share();
  auto looks = std::make_shared<std::atomic<int>>(0);
  auto ended = std::make_shared<std::promise<void>>();
  auto end = ended->get_future();
  {
    GpuSampler sampler(
        [=](XidCounts&) -> base::Result<std::unique_ptr<GpuSource>> {
          return std::make_unique<Scripted>([=]() -> base::Result<std::vector<GpuPicture>> {
            if (looks->fetch_add(1) == 1) {
              released.wait();
              ended->set_value();
            }
            return std::vector{Gpu("GPU-0")};
          });
        },
        kFast);
    ASSERT_TRUE(Eventually([&] { return looks->load() == 2; }));
    ASSERT_EQ(sampler.Last()->gpus.size(), 1U);
    EXPECT_TRUE(sampler.Last()->answering);
    EXPECT_FALSE(sampler.Stop(milliseconds(1)));
  }
  release.set_value();
  end.wait();
}

TEST(GpuSampler, GivenNoDriverAtFirst_WhenItArrives_ThenItIsFound) {
  auto attempts = std::make_shared<std::atomic<int>>(0);
  GpuSampler sampler(
      [=](XidCounts&) -> base::Result<std::unique_ptr<GpuSource>> {
        if (attempts->fetch_add(1) < 3) return base::Fail("libnvidia-ml.so.1 is not there");
        return std::make_unique<Scripted>([] { return std::vector{Gpu("GPU-0")}; });
      },
      kFast);
  ASSERT_TRUE(Eventually([&] { return sampler.Last()->answering; }));
  EXPECT_EQ(attempts->load(), 4);
}

TEST(GpuSampler, GivenSessionThatDies_WhenAsked_ThenTroubleToldAndNewSession) {
  auto sessions = std::make_shared<std::atomic<int>>(0);
  auto seen_trouble = std::make_shared<std::atomic<bool>>(false);
  GpuSampler sampler(
      [=](XidCounts&) -> base::Result<std::unique_ptr<GpuSource>> {
        const int session = sessions->fetch_add(1);
        return std::make_unique<Scripted>([=]() -> base::Result<std::vector<GpuPicture>> {
          if (session < 2) return base::Fail("driver reloaded");
          while (!seen_trouble->load()) std::this_thread::yield();
          return std::vector{Gpu("GPU-0")};
        });
      },
      kFast);
  ASSERT_TRUE(Eventually([&] { return sampler.Last()->trouble == "driver reloaded"; }));
  EXPECT_FALSE(sampler.Last()->answering);
  seen_trouble->store(true);
  EXPECT_TRUE(Eventually([&] { return sampler.Last()->answering; }));
  EXPECT_TRUE(sampler.Stop(std::chrono::seconds(30)));
}

TEST(GpuSampler, GivenFailingDriver_WhenAskedAgain_ThenLastFiguresStayAndAge) {
  auto looks = std::make_shared<std::atomic<int>>(0);
  GpuSampler sampler(
      [=](XidCounts&) -> base::Result<std::unique_ptr<GpuSource>> {
        return std::make_unique<Scripted>([=]() -> base::Result<std::vector<GpuPicture>> {
          if (looks->fetch_add(1) > 0) return base::Fail("driver reloaded");
          return std::vector{Gpu("GPU-0")};
        });
      },
      kFast);
  ASSERT_TRUE(Eventually([&] { return looks->load() > 0 && sampler.Last()->taken != decltype(GpusPicture::taken)(); }));
  const auto taken = sampler.Last()->taken;
  ASSERT_TRUE(Eventually([&] { return looks->load() > 3 && !sampler.Last()->answering; }));
  EXPECT_EQ(sampler.Last()->taken, taken);
  ASSERT_EQ(sampler.Last()->gpus.size(), 1U);
  EXPECT_EQ(sampler.Last()->trouble, "driver reloaded");
}

}  // namespace
}  // namespace hami::monitor
