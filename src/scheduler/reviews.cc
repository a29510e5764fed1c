// SPDX-License-Identifier: Apache-2.0

#include "scheduler/reviews.h"

namespace hami::scheduler {

AdmissionAnswer Reviews::Answer(std::string_view body) {
  if (body.size() <= kLargeBytes) return Decide(body);
  AdmissionAnswer answer{503, "large reviews are being looked at, one at a time: try again\n", false, false};
  if (large_there_.fetch_add(1) < kMostLarge) {
    const std::scoped_lock turn(large_);
    answer = Decide(body);
  }
  large_there_.fetch_sub(1);
  return answer;
}

AdmissionAnswer Reviews::Decide(std::string_view body) const {
  return AnswerReview(body, [this](const base::json::value& pod, std::string_view ns) {
    const auto room = books_.Read([ns](const State& state) { return state.ledger.quotas().Rooms(ns); });
    return sched::Admit(pod, config_, books_.vendors(), room);
  });
}

}  // namespace hami::scheduler
