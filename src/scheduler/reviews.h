// SPDX-License-Identifier: Apache-2.0
//
// The webhook at work. A review is looked at beside the books, whose mutex is held for a look at the namespace's quotas
// alone: /filter and the watches never wait for one. Large ones come one at a time, since the document of a review may
// need eighteen times its text; a few wait for their turn, each on a thread of the server, and the rest is sent away.

#pragma once

#include <atomic>
#include <mutex>
#include <string_view>
#include <utility>

#include "sched/trust.h"
#include "sched/webhook.h"
#include "scheduler/admission.h"
#include "scheduler/books.h"

namespace hami::scheduler {

class Reviews {
 public:
  static constexpr std::size_t kLargeBytes = 64U << 10U;  // more is large
  static constexpr unsigned kMostLarge = 5;               // the one that is looked at, and those that wait

  // WRITERS may write HAMi's annotations.
  Reviews(const Books& books, sched::WebhookConfig config, sched::Writers writers = {})
      : books_(books), config_(std::move(config)), writers_(std::move(writers)) {}

  // Also to be called on several threads at once.
  AdmissionAnswer Answer(std::string_view body);

 private:
  AdmissionAnswer Decide(std::string_view body) const;

  const Books& books_;
  const sched::WebhookConfig config_;
  const sched::Writers writers_;
  std::mutex large_;
  std::atomic<unsigned> large_there_ = 0;
};

}  // namespace hami::scheduler
