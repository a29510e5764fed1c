// SPDX-License-Identifier: Apache-2.0

#include "scheduler/reviews.h"

namespace hami::scheduler {
namespace {

// One of those that are there, until it ends, be it for lack of memory.
class Place {
 public:
  explicit Place(std::atomic<unsigned>& there) : there_(there), before_(there.fetch_add(1)) {}
  ~Place() { there_.fetch_sub(1); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  unsigned before() const { return before_; }

 private:
  std::atomic<unsigned>& there_;
  const unsigned before_;
};

}  // namespace

AdmissionAnswer Reviews::Answer(std::string_view body) {
  if (body.size() <= kLargeBytes) return Decide(body);
  const Place place(large_there_);
  if (place.before() >= kMostLarge) {
    return {503, "large reviews are being looked at, one at a time: try again\n", false, false};
  }
  const std::scoped_lock turn(large_);
  return Decide(body);
}

AdmissionAnswer Reviews::Decide(std::string_view body) const {
  return AnswerReview(body, [this](const base::json::value& pod, const PodReview& review) {
    if (review.before != nullptr) return sched::AdmitUpdate(*review.before, pod, review.user, writers_);
    const auto room = [&](const device::PodTraits& traits) {
      return books_.Read([&](const State& state) { return state.ledger.quotas().Rooms(review.ns, traits); });
    };
    return sched::AdmitCreation(pod, review.user, writers_, config_, books_.vendors(), room);
  });
}

}  // namespace hami::scheduler
