// SPDX-License-Identifier: Apache-2.0

#include "kube/recorder.h"

#include <array>
#include <charconv>
#include <cstdint>

#include "base/json.h"
#include "base/log.h"

namespace hami::kube {
namespace {

// So few that their requests and answers fit into the buffers of a connection.
constexpr std::size_t kMostAtOnce = 32;
constexpr std::size_t kUsualDocumentBytes = 1024;
constexpr std::size_t kUsualKeyBytes = 256;
constexpr std::size_t kMostDigits = 16;  // of 64 bits
constexpr char kUnit = '\x1f';           // between the parts of a key; no name holds it

// Cuts at a character, not within one.
std::string Shorten(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  static constexpr std::string_view kMore = "...";
  std::size_t end = most > kMore.size() ? most - kMore.size() : 0;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return std::string(text.substr(0, end)).append(kMore);
}

std::string_view TypeName(EventType type) { return type == EventType::kNormal ? "Normal" : "Warning"; }

// Events of the cluster's own objects lie in the default namespace.
std::string NamespaceOf(const EventTarget& target) { return target.ns.empty() ? "default" : target.ns; }

}  // namespace

EventRecorder::EventRecorder(Client& client, RecorderOptions options)
    : client_(client), options_(std::move(options)), thread_([this] { Run(); }) {}

void EventRecorder::Record(const EventTarget& target, EventType type, std::string_view reason,
                           std::string_view message) {
  const WallTime now = options_.clock();
  std::string text = Shorten(message, options_.most_message_bytes);
  std::string key;
  key.reserve(kUsualKeyBytes);
  for (const std::string_view part :
       {std::string_view(target.kind), std::string_view(target.ns), std::string_view(target.name),
        std::string_view(target.uid), TypeName(type), reason, std::string_view(text)}) {
    key.append(part) += kUnit;
  }
  const std::scoped_lock lock(mutex_);
  ++counters_.recorded;
  if (const auto found = queued_.find(key); found != queued_.end()) {
    ++found->second->count;
    found->second->last = now;
    return;
  }
  if (stopping_) {
    ++counters_.dropped;
    return;
  }
  if (queue_.size() >= options_.most_queued) {
    queued_.erase(queue_.front().key);
    queue_.pop_front();
    ++counters_.dropped;
  }
  queue_.push_back({std::move(key), target, type, std::string(reason), std::move(text), now, now});
  queued_[queue_.back().key] = std::prev(queue_.end());
  // The writer waits for the first and, for a moment, for many: between them it need not be woken.
  if (queue_.size() == 1 || queue_.size() == kMostAtOnce) changed_.notify_all();
}

void EventRecorder::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    changed_.wait_for(lock, options_.gather,
                      [this] { return stopping_ || flushing_ > 0 || queue_.size() >= kMostAtOnce; });
    std::list<Pending> events = TakeSome();
    if (cut_.cancelled()) {
      counters_.dropped += events.size();
      continue;
    }
    writing_ = true;
    lock.unlock();
    Write(events);
    events.clear();  // not while others wait
    lock.lock();
    writing_ = false;
    changed_.notify_all();
  }
}

std::list<EventRecorder::Pending> EventRecorder::TakeSome() {
  std::list<Pending> events;
  while (!queue_.empty() && events.size() < kMostAtOnce) {
    queued_.erase(queue_.front().key);
    events.splice(events.end(), queue_, queue_.begin());
  }
  return events;
}

void EventRecorder::Write(std::list<Pending>& events) {
  std::vector<Pending*> fresh;
  std::vector<std::string> names;
  std::vector<NewObject> objects;
  for (Pending& pending : events) {
    if (CountUp(pending)) continue;
    fresh.push_back(&pending);
    names.push_back(NewName(pending));
    objects.push_back({NamespaceOf(pending.target), Document(pending, names.back())});
  }
  const std::vector<Status> created = client_.CreateAll(kEvents, objects, {&cut_, options_.call_timeout});
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    if (created[i]) {
      Remember(*fresh[i], std::move(names[i]));
    } else {
      base::LogDebug("event not written: " + created[i].error().message);
    }
    const std::scoped_lock lock(mutex_);
    ++(created[i] ? counters_.created : counters_.failed);
  }
}

std::string EventRecorder::NewName(const Pending& pending) {
  // With two numbers behind it, it has to stay a name.
  constexpr std::size_t kMostNameBytes = 253;
  std::string name = pending.target.name.substr(0, kMostNameBytes - 2 * kMostDigits - 1);
  while (!name.empty() && (name.back() == '.' || name.back() == '-')) name.pop_back();
  name += '.';
  const auto put = [&](std::uint64_t number) {
    std::array<char, kMostDigits> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, 16).ptr;
    name.append(digits.data(), end);
  };
  put(static_cast<std::uint64_t>(pending.first.time_since_epoch().count()));
  put(++serial_);
  return name;
}

// True: done, one way or the other.
bool EventRecorder::CountUp(const Pending& pending) {
  const auto found = by_key_.find(pending.key);
  if (found == by_key_.end()) return false;
  Written& written = *found->second;
  if (pending.first - written.last > options_.memory) return false;
  const int count = written.count + pending.count;
  const auto patched =
      client_.Patch(kEvents, NamespaceOf(pending.target), written.name, PatchType::kMerge,
                    {{"count", count}, {"lastTimestamp", FormatTime(pending.last)}}, {&cut_, options_.call_timeout});
  // Events expire at the server: then a new one is due. So it is where our role, made for HAMi, may not change them.
  const bool anew =
      !patched && (patched.error().reason == Reason::kNotFound || patched.error().reason == Reason::kForbidden);
  if (anew) return false;
  const std::scoped_lock lock(mutex_);
  if (!patched) {
    ++counters_.failed;
    return true;
  }
  ++counters_.patched;
  written.count = count;
  written.last = pending.last;
  written_.splice(written_.begin(), written_, found->second);
  return true;
}

void EventRecorder::Remember(Pending& pending, std::string name) {
  written_.push_front({std::move(pending.key), std::move(name), pending.count, pending.last});
  const auto [at, fresh] = by_key_.try_emplace(written_.front().key, written_.begin());
  if (!fresh) {
    // The table looks at the key of the old entry, which goes.
    const auto old = at->second;
    by_key_.erase(at);
    by_key_.emplace(written_.front().key, written_.begin());
    written_.erase(old);
  }
  if (written_.size() <= options_.most_remembered) return;
  by_key_.erase(written_.back().key);
  written_.pop_back();
}

std::string EventRecorder::Document(const Pending& pending, std::string_view name) const {
  const EventTarget& target = pending.target;
  std::string text;
  text.reserve(kUsualDocumentBytes + pending.message.size());
  const auto put = [&](std::string_view before, std::string_view value) {
    base::AppendJsonString(text += before, value);
  };
  put(R"({"apiVersion":"v1","kind":"Event","metadata":{"name":)", name);
  put(R"(,"namespace":)", NamespaceOf(target));
  put(R"(},"involvedObject":{"kind":)", target.kind);
  put(R"(,"apiVersion":)", target.api_version);
  put(R"(,"name":)", target.name);
  if (!target.ns.empty()) put(R"(,"namespace":)", target.ns);
  if (!target.uid.empty()) put(R"(,"uid":)", target.uid);
  put(R"(},"reason":)", pending.reason);
  put(R"(,"message":)", pending.message);
  put(R"(,"type":)", TypeName(pending.type));
  put(R"(,"source":{"component":)", options_.component);
  if (!options_.host.empty()) put(R"(,"host":)", options_.host);
  put(R"(},"reportingComponent":)", options_.component);
  put(R"(,"reportingInstance":)", options_.host);
  const std::string first = FormatTime(pending.first);
  put(R"(,"firstTimestamp":)", first);
  put(R"(,"lastTimestamp":)", pending.last == pending.first ? first : FormatTime(pending.last));
  return text.append(R"(,"count":)").append(std::to_string(pending.count)).append("}");
}

bool EventRecorder::Flush(net::Deadline deadline) {
  std::unique_lock lock(mutex_);
  ++flushing_;
  changed_.notify_all();
  const bool done = changed_.wait_until(lock, deadline, [this] { return queue_.empty() && !writing_; });
  --flushing_;
  return done;
}

void EventRecorder::Stop(net::Duration grace) {
  if (!thread_.joinable()) return;
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, grace, [this] { return queue_.empty() && !writing_; });
  }
  cut_.Cancel();
  thread_.join();
}

EventRecorder::Counters EventRecorder::counters() const {
  const std::scoped_lock lock(mutex_);
  return counters_;
}

}  // namespace hami::kube
