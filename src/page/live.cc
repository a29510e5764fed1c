// SPDX-License-Identifier: Apache-2.0

#include "page/live.h"

#include "base/strings.h"
#include "net/url.h"

namespace hami::page {
namespace {

constexpr auto kShortest = std::chrono::milliseconds(500);
constexpr auto kUnwatched = std::chrono::seconds(10);

// One of the few that may wait, while it lives.
class Turn {
 public:
  explicit Turn(std::atomic<unsigned>& count) : count_(count), granted_(count.fetch_add(1) < Live::kMostWaiting) {}
  ~Turn() { count_.fetch_sub(1); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool granted() const { return granted_; }

 private:
  std::atomic<unsigned>& count_;
  const bool granted_;
};

base::Status TakeSince(Ask& ask, const std::string& value) {
  const std::size_t dot = value.find('.');
  const auto revision = dot == std::string::npos ? std::nullopt : base::ParseNumber(value.substr(dot + 1));
  if (!revision || dot == 0) {
    return base::Fail("since is not EPOCH.REVISION", "take both from the answer before, or leave since out");
  }
  ask.epoch = value.substr(0, dot);
  ask.since = *revision;
  return {};
}

base::Status TakeWait(Ask& ask, const std::string& value) {
  const auto seconds = base::ParseNumber(value);
  if (!seconds || *seconds > kMostWait) {
    return base::Fail("wait is no number of seconds from 0 to " + std::to_string(kMostWait));
  }
  ask.wait = static_cast<unsigned>(*seconds);
  return {};
}

}  // namespace

base::Result<Ask> ParseAsk(std::string_view target) {
  const std::size_t mark = target.find('?');
  const std::string_view query = mark == std::string_view::npos ? std::string_view() : target.substr(mark + 1);
  Ask ask;
  if (query.empty()) return ask;
  const net::Query pairs = net::ParseQuery(target);
  // ParseQuery leaves out what does not decode.
  if (pairs.size() != base::Split(query, '&').size()) return base::Fail("the query is not KEY=VALUE&…");
  bool since = false;
  bool wait = false;
  for (const auto& [key, value] : pairs) {
    bool& given = key == "since" ? since : wait;
    if ((key != "since" && key != "wait") || given) {
      return base::Fail("the query has since=EPOCH.REVISION and wait=SECONDS, each once, and nothing else");
    }
    given = true;
    HAMI_TRY(key == "since" ? TakeSince(ask, value) : TakeWait(ask, value));
  }
  return ask;
}

Live::Live(std::string epoch, std::string version, LiveSources sources, const net::Canceller& stop)
    : sources_(std::move(sources)), stop_(stop), feed_(std::move(epoch), std::move(version)) {}

Live::~Live() { Stop(); }

void Live::Start() {
  thread_ = std::thread([this] {
    do Refresh(kUnwatched / 2);
    while (!stop_.SleepUntil(net::After(kUnwatched)));
  });
}

void Live::Stop() {
  if (thread_.joinable()) thread_.join();
}

void Live::Refresh(net::Duration age) {
  const std::scoped_lock lock(refreshing_);
  if (taken_ && net::Clock::now() - *taken_ < age) return;
  feed_.Take(sources_.take(), sources_.now());
  taken_ = net::Clock::now();
}

std::string Live::Answer(const Ask& ask, const std::function<bool()>& abandoned) {
  const net::Deadline until = net::After(std::chrono::seconds(ask.wait));
  const std::uint64_t since = ask.epoch == feed_.epoch() ? ask.since : 0;
  Refresh(kShortest);
  const Turn turn(waiting_);
  while (since != 0 && feed_.revision() == since && turn.granted() && net::Clock::now() < until && !abandoned()) {
    if (stop_.SleepUntil(std::min(until, net::After(kShortest)))) break;
    Refresh(kShortest);
  }
  return feed_.Render(since, sources_.now());
}

}  // namespace hami::page
