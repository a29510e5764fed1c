// SPDX-License-Identifier: Apache-2.0

#include "kube/recorder.h"

#include <array>
#include <cstdio>

#include "base/log.h"

namespace hami::kube {
namespace {

constexpr char kUnit = '\x1f';  // between the parts of a key; no name holds it

// Cuts at a character, not within one.
std::string Shorten(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  static constexpr std::string_view kMore = "...";
  std::size_t end = most > kMore.size() ? most - kMore.size() : 0;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return std::string(text.substr(0, end)).append(kMore);
}

std::string_view TypeName(EventType type) { return type == EventType::kNormal ? "Normal" : "Warning"; }

}  // namespace

EventRecorder::EventRecorder(Client& client, RecorderOptions options)
    : client_(client), options_(std::move(options)), thread_([this] { Run(); }) {}

void EventRecorder::Record(const EventTarget& target, EventType type, std::string_view reason,
                           std::string_view message) {
  const WallTime now = options_.clock();
  std::string text = Shorten(message, options_.most_message_bytes);
  std::string key;
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
  queue_.push_back({key, target, type, std::string(reason), std::move(text), now, now});
  queued_[std::move(key)] = std::prev(queue_.end());
  changed_.notify_all();
}

void EventRecorder::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Pending pending = std::move(queue_.front());
    queued_.erase(pending.key);
    queue_.pop_front();
    if (cut_.cancelled()) {
      ++counters_.dropped;
      continue;
    }
    writing_ = true;
    lock.unlock();
    Write(pending);
    lock.lock();
    writing_ = false;
    changed_.notify_all();
  }
}

void EventRecorder::Write(const Pending& pending) {
  if (CountUp(pending)) return;
  std::array<char, 40> suffix{};
  std::snprintf(suffix.data(), suffix.size(), ".%llx%llx",
                static_cast<unsigned long long>(pending.first.time_since_epoch().count()),
                static_cast<unsigned long long>(++serial_));
  std::string name = pending.target.name + suffix.data();
  const std::string ns = pending.target.ns.empty() ? "default" : pending.target.ns;
  const auto created = client_.Create(kEvents, ns, Document(pending, name), {&cut_, options_.call_timeout});
  if (!created) {
    base::LogDebug("event not written: " + created.error().message);
    const std::scoped_lock lock(mutex_);
    ++counters_.failed;
    return;
  }
  Remember(pending, std::move(name));
  const std::scoped_lock lock(mutex_);
  ++counters_.created;
}

// True: done, one way or the other.
bool EventRecorder::CountUp(const Pending& pending) {
  const auto found = by_key_.find(pending.key);
  if (found == by_key_.end()) return false;
  Written& written = *found->second;
  if (pending.first - written.last > options_.memory) return false;
  const int count = written.count + pending.count;
  const std::string ns = pending.target.ns.empty() ? "default" : pending.target.ns;
  const auto patched =
      client_.Patch(kEvents, ns, written.name, PatchType::kMerge,
                    {{"count", count}, {"lastTimestamp", FormatTime(pending.last)}}, {&cut_, options_.call_timeout});
  // Events expire at the server: then a new one is due.
  if (!patched && patched.error().reason == Reason::kNotFound) return false;
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

void EventRecorder::Remember(const Pending& pending, std::string name) {
  if (const auto old = by_key_.find(pending.key); old != by_key_.end()) {
    written_.erase(old->second);
    by_key_.erase(old);
  }
  written_.push_front({pending.key, std::move(name), pending.count, pending.last});
  by_key_[pending.key] = written_.begin();
  if (written_.size() <= options_.most_remembered) return;
  by_key_.erase(written_.back().key);
  written_.pop_back();
}

json::value EventRecorder::Document(const Pending& pending, const std::string& name) const {
  const EventTarget& target = pending.target;
  json::object about{{"kind", target.kind}, {"apiVersion", target.api_version}, {"name", target.name}};
  if (!target.ns.empty()) about["namespace"] = target.ns;
  if (!target.uid.empty()) about["uid"] = target.uid;
  json::object source{{"component", options_.component}};
  if (!options_.host.empty()) source["host"] = options_.host;
  const std::string_view type = TypeName(pending.type);
  return {{"apiVersion", "v1"},
          {"kind", "Event"},
          {"metadata", {{"name", name}, {"namespace", target.ns.empty() ? "default" : target.ns}}},
          {"involvedObject", std::move(about)},
          {"reason", pending.reason},
          {"message", pending.message},
          {"type", json::string_view(type.data(), type.size())},
          {"source", std::move(source)},
          {"reportingComponent", options_.component},
          {"reportingInstance", options_.host},
          {"firstTimestamp", FormatTime(pending.first)},
          {"lastTimestamp", FormatTime(pending.last)},
          {"count", pending.count}};
}

bool EventRecorder::Flush(net::Deadline deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return queue_.empty() && !writing_; });
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
