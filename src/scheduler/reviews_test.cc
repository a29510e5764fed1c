// SPDX-License-Identifier: Apache-2.0

#include "scheduler/reviews.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <new>
#include <vector>

#include "base/json.h"
#include "sched/testing/samples.h"

namespace hami::scheduler {
namespace {

namespace json = base::json;
using namespace std::chrono_literals;
using testing::HasSubstr;

// Lets the test look around while a pod is looked at.
class Watched : public device::Vendor {
 public:
  explicit Watched(const std::function<void()>& look) : look_(look) {}

  base::Result<bool> Mutate(json::object& container, device::PodDraft& pod, device::Warnings& warnings) const override {
    look_();
    return inner_.Mutate(container, pod, warnings);
  }
  base::Result<std::optional<device::Request>> ParseRequest(const device::Container& container) const override {
    look_();
    return inner_.ParseRequest(container);
  }
  std::optional<device::Request> MostOf(const device::Container& container) const override {
    return inner_.MostOf(container);
  }
  std::vector<std::string_view> resources() const override { return inner_.resources(); }
  std::string_view key() const override { return inner_.key(); }
  std::string_view to_allocate_annotation() const override { return inner_.to_allocate_annotation(); }
  std::string_view allocated_annotation() const override { return inner_.allocated_annotation(); }
  std::string_view register_annotation() const override { return inner_.register_annotation(); }
  std::string_view count_resource() const override { return inner_.count_resource(); }
  device::QuotaResources quota_resources() const override { return inner_.quota_resources(); }
  device::CardRules ParseRules(const device::StringMap& annotations) const override {
    return inner_.ParseRules(annotations);
  }
  base::Result<device::NodeCards> ReadNode(const device::NodeFacts& node) const override {
    return inner_.ReadNode(node);
  }
  device::FitResult Fit(const device::FitInput& input) const override { return inner_.Fit(input); }

 private:
  const device::NvidiaVendor inner_{sched::testing::DefaultNvidia()};
  const std::function<void()>& look_;
};

class ReviewsTest : public testing::Test {
 protected:
  static std::string Body(std::size_t bytes) {
    json::value pod = json::parse(R"({"metadata":{"annotations":{}},"spec":{"containers":[
        {"name":"main","resources":{"limits":{"nvidia.com/gpu":"1","nvidia.com/gpumem":"3000"}}}]}})");
    pod.at("metadata").at("annotations").as_object()["long"] = std::string(bytes, 'x');
    const json::object request{{"uid", "review-1"}, {"namespace", "team"}, {"operation", "CREATE"}, {"object", pod}};
    return json::serialize(
        json::object{{"kind", "AdmissionReview"}, {"apiVersion", "admission.k8s.io/v1"}, {"request", request}});
  }
  static device::Vendors Vendors(const std::function<void()>& look) {
    device::Vendors vendors;
    vendors.push_back(std::make_unique<Watched>(look));
    return vendors;
  }
  void SetQuota(const char* memory) {
    books_.Locked([&](State& state) {
      state.ledger.quotas().Set("team", "q", {{"limits.nvidia.com/gpumem", memory}});
    });
  }

  std::function<void()> look_ = [] {};
  Books books_{Vendors(look_), {}};
  Reviews reviews_{books_, {"hami-scheduler", true}};
};

TEST_F(ReviewsTest, WhileAPodIsLookedAtTheBooksAreFree) {
  SetQuota("9000");
  std::vector<std::future<std::size_t>> reads;
  int free = 0;
  look_ = [&] {
    reads.push_back(std::async(std::launch::async, [this] {
      return books_.Read([](const State& state) { return state.ledger.pod_count(); });
    }));
    free += reads.back().wait_for(10s) == std::future_status::ready ? 1 : 0;
  };
  const AdmissionAnswer answer = reviews_.Answer(Body(100));
  EXPECT_TRUE(answer.allowed) << answer.body;
  EXPECT_EQ(free, 2) << "once when the pod was changed, once when its quota was asked";
}

TEST_F(ReviewsTest, TheQuotaIsTheOneOfNow) {
  SetQuota("9000");
  EXPECT_TRUE(reviews_.Answer(Body(100)).allowed);
  SetQuota("2000");
  const AdmissionAnswer answer = reviews_.Answer(Body(100));
  EXPECT_FALSE(answer.allowed);
  EXPECT_THAT(answer.body, HasSubstr("exceeding resource quota"));
}

TEST_F(ReviewsTest, OfLargeOnesAFewWaitAndTheRestIsSentAway) {
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  look_ = [ended] { ended.wait(); };
  constexpr unsigned kTooMany = 7;
  const std::string large = Body(Reviews::kLargeBytes);
  std::promise<void> all_away;
  std::atomic<unsigned> away = 0;
  std::vector<std::future<AdmissionAnswer>> answers;
  for (unsigned i = 0; i < Reviews::kMostLarge + kTooMany; ++i) {
    answers.push_back(std::async(std::launch::async, [&] {
      AdmissionAnswer answer = reviews_.Answer(large);
      if (answer.http_status == 503 && ++away == kTooMany) all_away.set_value();
      return answer;
    }));
  }
  EXPECT_EQ(all_away.get_future().wait_for(10s), std::future_status::ready) << "while the first is looked at";
  EXPECT_EQ(away, kTooMany);
  end.set_value();
  unsigned allowed = 0;
  for (auto& answer : answers) allowed += answer.get().allowed ? 1U : 0U;
  EXPECT_EQ(allowed, Reviews::kMostLarge);
  EXPECT_TRUE(reviews_.Answer(large).allowed) << "the room is given back";
}

TEST_F(ReviewsTest, LargeOnesThatFailGiveTheirRoomBack) {
  const std::string large = Body(Reviews::kLargeBytes);
  look_ = [] { throw std::bad_alloc(); };
  for (unsigned i = 0; i < Reviews::kMostLarge; ++i) EXPECT_THROW((void)reviews_.Answer(large), std::bad_alloc);
  look_ = [] {};
  EXPECT_TRUE(reviews_.Answer(large).allowed);
}

TEST_F(ReviewsTest, SmallOnesDoNotWaitForALargeOne) {
  std::promise<void> begun;
  std::promise<void> end;
  std::atomic<bool> first = true;
  look_ = [&] {
    if (!first.exchange(false)) return;
    begun.set_value();
    end.get_future().wait();
  };
  auto large = std::async(std::launch::async, [&] { return reviews_.Answer(Body(Reviews::kLargeBytes)); });
  begun.get_future().wait();
  EXPECT_TRUE(reviews_.Answer(Body(100)).allowed);
  end.set_value();
  EXPECT_TRUE(large.get().allowed);
}

}  // namespace
}  // namespace hami::scheduler
