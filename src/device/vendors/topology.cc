// SPDX-License-Identifier: Apache-2.0

#include "device/vendors/topology.h"

#include <algorithm>
#include <numeric>

namespace hami::device {
namespace {

constexpr int kMaxSteps = 100'000;  // enough for any choice among eighteen

class Search {
 public:
  Search(int candidates, int count, const std::function<std::int64_t(int, int)>& pair)
      : n_(candidates), count_(count), scores_(static_cast<std::size_t>(n_) * static_cast<std::size_t>(n_)) {
    for (int a = 0; a < n_; ++a) {
      for (int b = a + 1; b < n_; ++b) {
        At(a, b) = At(b, a) = pair(a, b);
        highest_ = a == 0 && b == 1 ? At(a, b) : std::max(highest_, At(a, b));
      }
    }
  }

  std::vector<int> Lowest() {
    int best = 0;
    std::int64_t best_sum = 0;
    for (int a = 0; a < n_; ++a) {
      std::int64_t sum = 0;
      for (int b = 0; b < n_; ++b) sum += a == b ? 0 : At(a, b);
      if (a == 0 || sum < best_sum) {
        best = a;
        best_sum = sum;
      }
    }
    return {best};
  }

  std::vector<int> Highest() {
    gains_.assign(static_cast<std::size_t>(count_) + 1, std::vector<std::int64_t>(static_cast<std::size_t>(n_), 0));
    BeginWithGood();
    Extend(0, 0);
    return best_;
  }

 private:
  std::int64_t& At(int a, int b) {
    return scores_[static_cast<std::size_t>(a) * static_cast<std::size_t>(n_) + static_cast<std::size_t>(b)];
  }

  // One card after the other, each the one that adds most: what is known to be worse than that is not looked at, and it
  // stays where there are too many to look at all. Of equals the first in order wins, so what only equals it does.
  void BeginWithGood() {
    std::vector<std::int64_t> gains(static_cast<std::size_t>(n_), 0);
    for (int a = 0; a < n_; ++a) {
      for (int b = 0; b < n_; ++b) {
        if (a != b) gains[static_cast<std::size_t>(a)] = std::max(gains[static_cast<std::size_t>(a)], At(a, b));
      }
    }
    std::vector<bool> taken(static_cast<std::size_t>(n_), false);
    std::int64_t sum = 0;
    for (int depth = 0; depth < count_; ++depth) {
      int next = -1;
      for (int c = 0; c < n_; ++c) {
        const auto at = static_cast<std::size_t>(c);
        if (!taken[at] && (next < 0 || gains[at] > gains[static_cast<std::size_t>(next)])) next = c;
      }
      if (depth == 0) {
        gains.assign(static_cast<std::size_t>(n_), 0);
      } else {
        sum += gains[static_cast<std::size_t>(next)];
      }
      taken[static_cast<std::size_t>(next)] = true;
      for (int c = 0; c < n_; ++c) gains[static_cast<std::size_t>(c)] += c == next ? 0 : At(next, c);
    }
    for (int c = 0; c < n_; ++c) {
      if (taken[static_cast<std::size_t>(c)]) best_.push_back(c);
    }
    best_sum_ = sum - 1;
  }

  // CHOSEN_ holds a prefix with sum SUM; gains_[depth][c] is what candidate c would add to it.
  void Extend(int first, std::int64_t sum) {
    const int depth = static_cast<int>(chosen_.size());
    if (depth == count_) {
      if (best_.empty() || sum > best_sum_) {
        best_ = chosen_;
        best_sum_ = sum;
      }
      return;
    }
    const int missing = count_ - depth;
    const std::vector<std::int64_t>& gains = gains_[static_cast<std::size_t>(depth)];
    if (!best_.empty() && Bound(gains, first, missing, sum) <= best_sum_) return;
    for (int c = first; c <= n_ - missing; ++c) {
      if (++steps_ > kMaxSteps && !best_.empty()) return;
      std::vector<std::int64_t>& next = gains_[static_cast<std::size_t>(depth) + 1];
      for (int d = c + 1; d < n_; ++d) {
        next[static_cast<std::size_t>(d)] = gains[static_cast<std::size_t>(d)] + At(c, d);
      }
      chosen_.push_back(c);
      Extend(c + 1, sum + gains[static_cast<std::size_t>(c)]);
      chosen_.pop_back();
    }
  }

  // No completion can exceed this: every missing card gains at most the best gain left, every pair among them the best
  // pair there is.
  std::int64_t Bound(const std::vector<std::int64_t>& gains, int first, int missing, std::int64_t sum) const {
    const std::int64_t best_gain = *std::max_element(gains.begin() + first, gains.end());
    return sum + best_gain * missing + highest_ * missing * (missing - 1) / 2;
  }

  int n_;
  int count_;
  std::vector<std::int64_t> scores_;
  std::int64_t highest_ = 0;
  std::vector<std::vector<std::int64_t>> gains_;
  std::vector<int> chosen_;
  std::vector<int> best_;
  std::int64_t best_sum_ = 0;
  int steps_ = 0;
};

}  // namespace

std::vector<int> ChooseClosest(int candidates, int count, const std::function<std::int64_t(int, int)>& pair) {
  if (count >= candidates) {
    std::vector<int> all(static_cast<std::size_t>(candidates));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  Search search(candidates, count, pair);
  return count == 1 ? search.Lowest() : search.Highest();
}

}  // namespace hami::device
