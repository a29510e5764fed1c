// SPDX-License-Identifier: Apache-2.0

#include "mps/daemons.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/strings.h"

namespace hami::mps {

namespace fs = std::filesystem;

Daemons::Daemons(DaemonsOptions options) : options_(std::move(options)), thread_([this] { Run(); }) {}

Daemons::~Daemons() { Stop(); }

void Daemons::Stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Daemons::Want(const std::string& uuid, const Limits& limits) {
  const std::scoped_lock lock(mutex_);
  WantLocked(uuid, limits);
}

void Daemons::WantAtLeast(const std::string& uuid, Limits limits) {
  const std::scoped_lock lock(mutex_);
  if (const auto entry = entries_.find(uuid); entry != entries_.end() && entry->second.wanted.running) {
    const Limits& before = entry->second.wanted.limits;
    limits.percent = std::max(limits.percent, before.percent);
    limits.memory_mib = std::max(limits.memory_mib, before.memory_mib);
  }
  WantLocked(uuid, limits);
}

void Daemons::WantLocked(const std::string& uuid, const Limits& limits) {
  const Wanted wanted{true, limits};
  Entry& entry = entries_[uuid];
  if (entry.wanted == wanted) return;
  entry.wanted = wanted;
  poked_ = true;
  changed_.notify_all();
}

void Daemons::FindOthersLocked() {
  std::error_code error;
  for (const fs::directory_entry& one : fs::directory_iterator(options_.folder, error)) {
    const std::string uuid = one.path().filename();
    // What else lies there is no daemon's: the clients' shared memory, which containers write to.
    if (!uuid.starts_with("GPU-")) continue;
    if (!entries_.contains(uuid) && fs::exists(PlaceOf(uuid).ProcessFile(), error)) {
      entries_.try_emplace(uuid);
      poked_ = true;
    }
  }
  if (poked_) changed_.notify_all();
}

void Daemons::EndOthers() {
  const std::scoped_lock lock(mutex_);
  FindOthersLocked();
}

void Daemons::WantNone() {
  const std::scoped_lock lock(mutex_);
  FindOthersLocked();
  for (auto& [uuid, entry] : entries_) entry.wanted = {};
  poked_ = true;
  changed_.notify_all();
}

bool Daemons::AllStopped() const {
  const std::scoped_lock lock(mutex_);
  for (const auto& [uuid, entry] : entries_) {
    if (!IsStopped(entry)) return false;
  }
  return true;
}

base::Status Daemons::Await(const std::string& uuid, std::chrono::milliseconds within) const {
  std::unique_lock lock(mutex_);
  const auto serves = [&] {
    const auto entry = entries_.find(uuid);
    return entry != entries_.end() && Serves(entry->second.memory);
  };
  if (changed_.wait_for(lock, within, serves)) return {};
  const auto entry = entries_.find(uuid);
  const std::string why = entry == entries_.end() ? "nothing wants it" : entry->second.memory.trouble;
  return base::Fail(base::Concat({"the MPS control daemon of ", uuid, " does not serve: ", why}),
                    base::Concat({PlaceOf(uuid).Log(), " has what it wrote"}));
}

std::map<std::string, Memory> Daemons::Look() const {
  const std::scoped_lock lock(mutex_);
  std::map<std::string, Memory> all;
  for (const auto& [uuid, entry] : entries_) all.emplace(uuid, entry.memory);
  return all;
}

void Daemons::TendOne(const std::string& uuid) {
  Entry entry;
  {
    const std::scoped_lock lock(mutex_);
    entry = entries_[uuid];
  }
  const bool served = Serves(entry.memory);
  const State before = entry.memory.state;
  const Control control(PlaceOf(uuid), options_.answer_within);
  const std::vector<Notice> notices = Tend(control, entry.wanted, entry.memory, Now(), options_.rules);
  const bool changed = served != Serves(entry.memory) || before != entry.memory.state;
  {
    const std::scoped_lock lock(mutex_);
    entries_[uuid].memory = std::move(entry.memory);
    entries_[uuid].looked_at = true;
    changed_.notify_all();
  }
  if (options_.on_notice) {
    for (const Notice& notice : notices) options_.on_notice(uuid, notice);
  }
  if (changed && options_.on_change) options_.on_change();
}

void Daemons::TendAll() {
  std::vector<std::string> uuids;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [uuid, entry] : entries_) {
      if (!IsStopped(entry)) uuids.push_back(uuid);
    }
  }
  for (const std::string& uuid : uuids) TendOne(uuid);
}

void Daemons::Run() {
  // One that starts or ends is looked at more often: somebody waits for it.
  constexpr std::chrono::milliseconds kSoon{50};
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    poked_ = false;
    lock.unlock();
    TendAll();
    lock.lock();
    bool waited_for = false;
    for (const auto& [uuid, entry] : entries_) {
      const State state = entry.memory.state;
      waited_for = waited_for || (entry.wanted.running ? state == State::kStarting : !IsStopped(entry));
    }
    changed_.wait_for(lock, waited_for ? std::min(kSoon, options_.every) : options_.every,
                      [&] { return stopping_ || poked_; });
  }
}

}  // namespace hami::mps
