// SPDX-License-Identifier: Apache-2.0
//
// The page's document over time: takes snapshots while readers ask, at most one in half a second, and every ten
// seconds while nobody does, so that the health time-line has no holes. A reader may wait for the next change; those
// that wait are few, each on a thread of the page's own server.

#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/result.h"
#include "net/cancel.h"
#include "net/time.h"
#include "page/feed.h"

namespace hami::page {

// What a reader asks for: GET /v1/state?since=EPOCH.REVISION&wait=SECONDS.
struct Ask {
  std::string epoch;  // empty: everything
  std::uint64_t since = 0;
  unsigned wait = 0;  // seconds
};
inline constexpr unsigned kMostWait = 30;
// Of a request's target. What is not understood is refused, not passed over: it would read as another question.
base::Result<Ask> ParseAsk(std::string_view target);

struct LiveSources {
  std::function<Snapshot()> take;
  std::function<device::UnixSeconds()> now;
};

class Live {
 public:
  static constexpr unsigned kMostWaiting = 16;

  // STOP ends every wait, and must outlive this.
  Live(std::string epoch, std::string version, LiveSources sources, const net::Canceller& stop);
  ~Live();
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

  void Start();
  void Stop();  // after STOP was thrown
  std::string Answer(const Ask& ask, const std::function<bool()>& abandoned);

 private:
  void Refresh(net::Duration age);

  const LiveSources sources_;
  const net::Canceller& stop_;
  Feed feed_;
  std::mutex refreshing_;
  std::optional<net::Deadline> taken_;  // when the last snapshot was
  std::atomic<unsigned> waiting_ = 0;
  std::thread thread_;
};

}  // namespace hami::page
