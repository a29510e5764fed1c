// SPDX-License-Identifier: Apache-2.0
//
// The JSON document of the page (docs/operate/page.md), and its history: each snapshot that differs from the one before
// raises the revision, and a reader that names the revision it has is told what changed since. Keeps the text of every
// node, what became of the cards' health, and which nodes went, all bounded. A revision of another start, or from
// before what is kept, is answered with everything. Thread-safe.

#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "page/snapshot.h"

namespace hami::page {

// A line of the health time-line.
struct HealthEvent {
  std::uint64_t revision = 0;
  device::UnixSeconds time = 0;
  std::string node;
  std::string card;       // empty: the node itself
  const char* what = "";  // added, gone, unhealthy, healthy, cordoned, uncordoned
};

class Feed {
 public:
  static constexpr std::size_t kMostEvents = 1000;
  static constexpr std::size_t kMostGone = 4096;

  // EPOCH tells one start from another; letters and digits. VERSION: of the program.
  Feed(std::string epoch, std::string version) : epoch_(std::move(epoch)), version_(std::move(version)) {}

  void Take(const Snapshot& snapshot, device::UnixSeconds now);
  std::uint64_t revision() const;
  const std::string& epoch() const { return epoch_; }
  // What changed since SINCE; 0, or one that is not known: everything.
  std::string Render(std::uint64_t since, device::UnixSeconds now) const;

 private:
  struct CardHealth {
    std::string uuid;
    bool healthy = false;
    bool cordoned = false;
  };
  struct Entry {
    std::string text;
    std::uint64_t revision = 0;
    std::uint64_t seen = 0;  // the round in which a snapshot last had it
    std::vector<CardHealth> health;
  };
  struct Section {
    std::string text;
    std::uint64_t revision = 0;
  };
  void TakeNode(const Node& node, std::uint64_t next, device::UnixSeconds now);
  void NoteHealth(const Node& node, const Entry& before, std::uint64_t next, device::UnixSeconds now);
  void NoteTroubles(const Node& node, const Card& card, std::uint64_t next, device::UnixSeconds now);
  void Note(std::uint64_t next, device::UnixSeconds now, std::string_view node, std::string_view card,
            const char* what);
  void DropGone(std::uint64_t next, device::UnixSeconds now);
  void TakeSection(Section& section, std::string text, std::uint64_t next);

  const std::string epoch_;
  const std::string version_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry, std::less<>> nodes_;
  std::map<std::string, std::uint64_t, std::less<>> gone_;  // and the revision in which they went
  std::uint64_t kept_from_ = 0;                             // changes before this revision are not known any more
  std::deque<HealthEvent> events_;
  Section waiting_, quotas_, status_;
  std::uint64_t revision_ = 0;
  std::uint64_t round_ = 0;
  device::UnixSeconds since_ = 0;  // of the first snapshot with all nodes: the time-line begins
  bool settled_ = false;           // all nodes were there the last time: one more is news
};

// The document of one snapshot, for those who look once.
std::string Document(const Snapshot& snapshot, std::string_view version, device::UnixSeconds now);

}  // namespace hami::page
