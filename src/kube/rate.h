// SPDX-License-Identifier: Apache-2.0
//
// Pure arithmetic of waiting: a token bucket and an exponential backoff. Time and randomness are arguments.

#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "net/time.h"

namespace hami::kube {

// QPS tokens a second, at most BURST saved up; starts full. Not thread-safe.
class TokenBucket {
 public:
  TokenBucket(double qps, int burst) : qps_(qps), burst_(std::max(burst, 1)), tokens_(std::max(burst, 1)) {}

  // Takes one token and says how long to wait before using it; takes none, and says nothing, where that would be longer
  // than MOST: who gives up must not make others wait. QPS of 0 or less: no limit.
  std::optional<net::Duration> Take(net::Deadline now, net::Duration most = net::Duration::max()) {
    if (qps_ <= 0) return net::Duration{};
    if (last_ != net::Deadline{}) {
      tokens_ = std::min(burst_, tokens_ + qps_ * std::chrono::duration<double>(now - last_).count());
    }
    last_ = now;
    if (tokens_ >= 1) {
      tokens_ -= 1;
      return net::Duration{};
    }
    const auto wait = std::chrono::duration_cast<net::Duration>(std::chrono::duration<double>((1 - tokens_) / qps_));
    if (wait > most) return std::nullopt;
    tokens_ -= 1;
    return wait;
  }
  // A token that was taken and not used.
  void Return() { tokens_ = std::min(burst_, tokens_ + 1); }

 private:
  double qps_;
  double burst_;
  double tokens_;
  net::Deadline last_{};
};

class Backoff {
 public:
  Backoff(net::Duration first, net::Duration most) : first_(first), most_(most), next_(first) {}

  // Between one and two times the current step, which then doubles; RANDOM is in [0, 1).
  net::Duration Next(double random) {
    const auto step = std::chrono::duration<double>(next_);
    next_ = std::min(next_ * 2, most_);
    return std::min(most_, std::chrono::duration_cast<net::Duration>(step * (1 + random)));
  }
  void Reset() { next_ = first_; }

 private:
  net::Duration first_;
  net::Duration most_;
  net::Duration next_;
};

}  // namespace hami::kube
