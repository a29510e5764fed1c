// SPDX-License-Identifier: Apache-2.0

#include "kube/reflector.h"

#include <memory>
#include <random>

#include "base/log.h"
#include "base/strings.h"

namespace hami::kube {
namespace {

std::function<double()> NewRandom() {
  auto engine = std::make_shared<std::mt19937_64>(std::random_device{}());
  return [engine] { return std::uniform_real_distribution<double>(0, 1)(*engine); };
}

// Views into the object, but for the key.
struct Told {
  std::string key;
  std::string_view uid;
  std::string_view version;
};

std::string_view TextOf(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(json::string_view(key.data(), key.size()));
  if (value == nullptr || !value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

const json::object* MetadataOf(const json::value& object) {
  const json::object* whole = object.if_object();
  const json::value* metadata = whole == nullptr ? nullptr : whole->if_contains("metadata");
  return metadata == nullptr ? nullptr : metadata->if_object();
}

std::optional<Told> IdentityOf(const json::value& object) {
  const json::object* metadata = MetadataOf(object);
  const std::string_view name = metadata == nullptr ? std::string_view() : TextOf(*metadata, "name");
  if (name.empty()) return std::nullopt;
  return Told{base::Concat({TextOf(*metadata, "namespace"), "/", name}), TextOf(*metadata, "uid"),
              TextOf(*metadata, "resourceVersion")};
}

// Versions are numbers that grow, wherever they are numbers at all; where they are not, nothing is known to be older.
bool IsOlder(std::string_view version, std::string_view than) {
  const auto left = base::ParseNumber(version);
  const auto right = base::ParseNumber(than);
  return left && right && *left < *right;
}

}  // namespace

Reflector::Reflector(ListWatcher& source, Handler& handler, ReflectorOptions options)
    : source_(source),
      handler_(handler),
      options_(std::move(options)),
      backoff_(options_.backoff_first, options_.backoff_most) {
  if (!options_.warn) options_.warn = [](const std::string& message) { base::LogWarning(message); };
  if (!options_.random) options_.random = NewRandom();
  if (!options_.sleep) {
    options_.sleep = [](net::Duration span, const net::Canceller& stop) { return stop.SleepUntil(net::After(span)); };
  }
  if (!options_.now) options_.now = [] { return net::Clock::now(); };
  if (options_.knows) source_.SetKnown([this](const Identity& object) { return IsEcho(object); });
}

void Reflector::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Reflector::Stop() {
  stop_.Cancel();
  if (thread_.joinable()) thread_.join();
}

void Reflector::Run() {
  while (!stop_.cancelled()) {
    if (options_.now() >= next_list_) need_list_ = true;
    const bool fine = need_list_ ? ListOnce() : WatchOnce();
    if (fine) {
      backoff_.Reset();
    } else if (options_.sleep(backoff_.Next(options_.random()), stop_)) {
      return;
    }
  }
}

bool Reflector::ListOnce() {
  lists_.fetch_add(1, std::memory_order_relaxed);
  ++round_;
  ListSink sink;
  sink.item = [this](const json::value& object) { Upsert(object, true); };
  // What was told stays told; only what the new attempt does not show is forgotten.
  sink.restart = [this] { ++round_; };
  const auto version = source_.List(sink, stop_);
  if (!version) {
    Report("list", version.error());
    return false;
  }
  ForgetUnlisted();
  Reached(*version);
  need_list_ = false;
  const bool again = options_.relist_interval.count() > 0;
  next_list_ = again ? options_.now() + options_.relist_interval : net::kNever;
  last_report_.clear();
  synced_.store(true, std::memory_order_release);
  handler_.OnListed();
  return true;
}

bool Reflector::WatchOnce() {
  watches_.fetch_add(1, std::memory_order_relaxed);
  const double spread = 1 + options_.random();
  auto timeout = std::chrono::duration_cast<std::chrono::seconds>(options_.watch_timeout * spread);
  if (next_list_ != net::kNever) {
    const auto left = std::chrono::ceil<std::chrono::seconds>(next_list_ - options_.now());
    timeout = std::min(timeout, left);
  }
  timeout = std::max(timeout, std::chrono::seconds(1));
  bool heard = false;
  const auto start = options_.now();
  const auto end = source_.Watch(
      version_, timeout,
      [&](WatchType type, const json::value& object) {
        heard = true;
        return OnEvent(type, object);
      },
      stop_);
  if (end) {
    last_report_.clear();
    // A server that ends every watch at once must not be hammered.
    return heard || options_.now() - start >= std::chrono::seconds(1);
  }
  constexpr int kFromTheFuture = 504;  // "Too large resource version": the server was restored from a backup
  if (end.error().code == kFromTheFuture) need_list_ = true;
  if (end.error().reason == Reason::kExpired) {
    need_list_ = true;
    return heard;
  }
  Report("watch", end.error());
  return false;
}

bool Reflector::OnEvent(WatchType type, const json::value& object) {
  switch (type) {
    case WatchType::kAdded:
    case WatchType::kModified:
      Upsert(object, false);
      break;
    case WatchType::kDeleted:
      Remove(object);
      break;
    case WatchType::kBookmark:
      break;
  }
  if (const json::object* metadata = MetadataOf(object)) {
    const std::string_view version = TextOf(*metadata, "resourceVersion");
    // Never back: a repeated old event would make the next watch repeat everything after it.
    if (!version.empty() && !IsOlder(version, version_)) Reached(version);
  }
  return !stop_.cancelled() && options_.now() < next_list_;
}

void Reflector::Reached(std::string_view version) {
  version_ = version;
  reached_.store(base::ParseNumber(version_).value_or(0), std::memory_order_release);
}

bool Reflector::IsEcho(const Identity& object) {
  const auto found = book_.find(base::Concat({object.ns, "/", object.name}));
  if (found == book_.end() || found->second.uid != object.uid) return false;
  std::string version(object.version);
  if (IsOlder(version, found->second.version) || !options_.knows(object)) return false;
  found->second.version = std::move(version);
  echoes_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Reflector::Upsert(const json::value& object, bool from_list) {
  auto identity = IdentityOf(object);
  if (!identity) return;
  const auto found = book_.find(identity->key);
  if (found == book_.end()) {
    book_.emplace(identity->key, Known{std::string(identity->uid), std::string(identity->version), round_});
    size_.store(book_.size(), std::memory_order_relaxed);
    return Tell(ChangeType::kAdded, identity->key, identity->uid, &object);
  }
  Known& known = found->second;
  // A list is the truth even when its versions went back: the server was restored from a backup.
  const bool older = IsOlder(identity->version, known.version);
  if (!from_list && older) {
    stale_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  known.round = round_;
  if (known.uid != identity->uid) {
    const std::string old_uid = std::exchange(known.uid, identity->uid);
    known.version = identity->version;
    Tell(ChangeType::kDeleted, identity->key, old_uid, nullptr);
    return Tell(ChangeType::kAdded, identity->key, identity->uid, &object);
  }
  if (!identity->version.empty() && known.version == identity->version) return;
  known.version = identity->version;
  Tell(ChangeType::kModified, identity->key, identity->uid, &object, older);
}

void Reflector::Remove(const json::value& object) {
  const auto identity = IdentityOf(object);
  if (!identity) return;
  const auto found = book_.find(identity->key);
  if (found == book_.end() || IsOlder(identity->version, found->second.version)) {
    stale_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const std::string uid = std::move(found->second.uid);
  book_.erase(found);
  size_.store(book_.size(), std::memory_order_relaxed);
  // The last state is that of the incarnation we knew, unless we missed a whole life.
  Tell(ChangeType::kDeleted, identity->key, uid, uid == identity->uid ? &object : nullptr);
}

void Reflector::ForgetUnlisted() {
  for (auto item = book_.begin(); item != book_.end();) {
    if (item->second.round == round_) {
      ++item;
      continue;
    }
    const auto gone = book_.extract(item++);
    Tell(ChangeType::kDeleted, gone.key(), gone.mapped().uid, nullptr);
  }
  size_.store(book_.size(), std::memory_order_relaxed);
}

void Reflector::Tell(ChangeType type, const std::string& key, std::string_view uid, const json::value* object,
                     bool restored) {
  changes_.fetch_add(1, std::memory_order_relaxed);
  const auto slash = key.find('/');
  handler_.OnChange(
      {type, std::string_view(key).substr(0, slash), std::string_view(key).substr(slash + 1), uid, object, restored});
}

void Reflector::Report(const char* doing, const Error& error) {
  if (error.reason == Reason::kCancelled) return;
  errors_.fetch_add(1, std::memory_order_relaxed);
  std::string line = std::string("can not ") + doing + " " + options_.name + ": " + error.message;
  // Once, not at every try.
  if (line == last_report_) return;
  options_.warn(line);
  last_report_ = std::move(line);
}

Reflector::Counters Reflector::counters() const {
  return {lists_.load(), watches_.load(), changes_.load(), stale_.load(), echoes_.load(), errors_.load()};
}

}  // namespace hami::kube
