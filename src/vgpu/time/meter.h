// SPDX-License-Identifier: Apache-2.0
//
// What one context had of the GPU. Marks (timed events) lie on its streams, one behind each segment of work. From mark
// to mark a stream was busy all the time when the launches between were made before the first mark was reached;
// otherwise it rested for a while, and was busy for no longer than was expected. The union of all streams is what is
// paid in the end: the difference to what was charged comes out of Poll. A mark's own time is measured once and
// subtracted.
//
// The caller holds the gate's lock. Recording an event is the caller's, outside of the lock: Before says which.
#pragma once

#include <stdint.h>

#include <span>

#include "vgpu/time/book.h"
#include "vgpu/time/busy_union.h"
#include "vgpu/time/ports.h"

namespace hami::vgpu::time {

struct Launch {
  StreamRef stream = {};
  uint64_t kind = 0;    // of the book
  uint64_t handle = 0;  // its kernel or graph; 0: not known any more
  int64_t cost = 0;     // ns, as the book has it
  int64_t scale = kWhole;
  bool priced = true;  // of its own kind; else `cost` is what its kernel takes on average

  static constexpr int64_t kWhole = 1024;
  // ns, on the account: streams overlap.
  int64_t Charged(int64_t of) const { return of * scale / kWhole; }
  int64_t Charged() const { return Charged(cost); }
};

class Meter {
 public:
  static constexpr int kStreams = 128;
  static constexpr int kMarks = 32;  // of one stream, not reached yet

  void Use(const void* context, const DriverPort* driver, CostBook* book) {
    context_ = context;
    driver_ = driver;
    book_ = book;
  }
  const void* context() const { return context_; }

  // Events to record: `empty` and `begin` before the launch, `end` behind it.
  struct Plan {
    bool empty = false, begin = false, end = false;
    bool busy = false;     // the stream has work ahead
    bool guessed = false;  // nothing is known of its cost
    bool again = false;    // the next one is to come here, too: this one says nothing of those that are known
    int64_t until = 0;     // the stream has work ahead until then, if what was expected is right
  };
  // A launch is about to go. `spacing`: ns of work between marks.
  Plan Before(const Launch& launch, int64_t spacing, int64_t now);
  // The launch is made; events are null where none was recorded. `took`: ns of the host between `begin` and the end of
  // the call.
  void After(const Launch& launch, const Plan& plan, Event empty, Event begin, Event end, int64_t took, int64_t now);
  // It did not take place.
  void Failed(const Launch& launch, const Plan& plan, Event empty, Event begin);
  // The thread is held until then, so nothing follows for a while: an event is to be recorded behind what was launched
  // on a stream that may be done by then, or that would end with a rest whose length nobody knows. The default stream
  // of another thread is out of reach.
  bool WantsTail(const void* thread, StreamRef* stream, int64_t until, int64_t now);
  void Tail(const StreamRef& stream, Event event, int64_t now);
  // Launches that were paid from a lease, together.
  void Spent(const Launch& launches, int count, int64_t now) {
    Track* const track = TrackOf(launches.stream);
    if (track == nullptr) return;
    // What was there before did not last until now, so between them the stream may have rested.
    track->open.sure &= now <= track->busy_until;
    Count(track, launches, count);
  }

  // Collects what was reached. `others`: so many others are at work on the GPU. `worked_until`: when the last of them
  // was, by the host's clock; `now` while one is. Returns what is to be paid beyond what was charged, ns.
  int64_t Poll(int others, int64_t worked_until, int64_t now);

  // Pays up to so many ns ahead for what takes kPatience longer than was expected; returns how many.
  int64_t PayAhead(int64_t ns) {
    Segment* const longest = ns > 0 ? LongestSegment() : nullptr;
    if (longest == nullptr || longest->grown < kPatience) return 0;
    longest->charged += ns;
    return ns;
  }
  // ns of work that was charged and is not known to be done.
  int64_t InFlight(int64_t now) const {
    int64_t all = 0;
    for (const Track& track : Tracks()) all += InFlightOn(track, now);
    return all;
  }
  // What is in flight on another stream, when `part` of a launch would go beside that if they run side by side; else 0.
  int64_t Beside(const StreamRef& stream, int64_t part, int64_t now) const;
  // What the longest of the segments that are under way was charged.
  int64_t Longest() {
    const Segment* const longest = LongestSegment();
    return longest == nullptr ? 0 : longest->charged;
  }
  // Streams that were launched on not long ago.
  int Streams(int64_t now) const {
    const auto works = [now](const Track& track) { return now - track.launched_at < kWants; };
    return static_cast<int>(std::ranges::count_if(Tracks(), works));
  }
  // Something is under way of which nothing is known.
  bool Guesses() const {
    const auto guessed = [](const Track& track) { return std::ranges::any_of(track.Marked(), &Segment::guessed); };
    return std::ranges::any_of(Tracks(), guessed);
  }
  // What is under way takes kPatience longer than was expected; or it was never measured, and is on this stream.
  enum Late { kInTime, kKnown, kUnknown };
  Late LateFor(const StreamRef& stream) const {
    Late late = kInTime;
    for (const Track& track : Tracks()) {
      const Segment& segment = track.marked[0];
      if (track.count == 0 || segment.grown < kPatience) continue;
      late = std::max(late, segment.guessed && track.stream == stream ? kUnknown : kKnown);
    }
    return late;
  }
  // Something that no mark lies behind is seen to be at work.
  bool Works(int64_t now) {
    for (Track& track : Tracks()) {
      // What a lease pays for goes unseen.
      if (track.rests && now - track.launched_at > kWants) continue;
      if (HasWork(track)) return true;
      if (!track.rests) reached_at_ = now;
      track.rests = true;
    }
    return false;
  }
  // A mark is not reached.
  bool Pending() const { return pending_ != 0; }
  // When the last mark was reached, by the host's clock.
  int64_t reached_at() const { return reached_at_; }
  // What is charged for one ns of the book, in 1/Launch::kWhole: streams overlap.
  int64_t scale() const { return scale_; }

  // What is under way says nothing of what goes by this name from now on.
  void Changed(uint64_t kind) {
    const auto forget = [kind](Segment& segment) { segment.kind = segment.kind == kind ? 0 : segment.kind; };
    for (Track& track : Tracks()) {
      forget(track.open);
      for (Segment& segment : track.Marked()) forget(segment);
    }
  }
  // The stream is gone, or the context; marks are released.
  void DropStream(const void* stream) {
    for (Track& track : Tracks()) {
      if (track.stream.stream == stream) DropTrack(&track);
    }
  }
  void Drop() {
    for (Track& track : Tracks()) DropTrack(&track);
    used_ = 0;
    if (reference_ != nullptr) driver_->release(driver_->self, reference_);
    reference_ = nullptr;
    behind_ = kNever;
    context_ = nullptr;
  }

 private:
  // Launches on one stream, and the event behind them.
  struct Segment {
    Event event = nullptr;
    int64_t charged = 0, cost = 0;
    int64_t took = 0;               // ns of the host between the event before and the launch
    int64_t grown = 0;              // of `charged`, as the time passed
    int64_t due = 0;                // host's clock: when its stream is expected to be done with it
    uint64_t kind = 0, handle = 0;  // 0: of several
    int32_t launches = 0;
    int16_t others = 0;
    bool dense = true;  // the stream was busy all the time since the event before
    bool ends_pair = false, guessed = false;
    bool priced = true;  // each launch was
    bool sure = true;    // it was `dense` whatever the launches cost
  };
  struct Track {
    StreamRef stream = {};
    Segment marked[kMarks] = {};  // that are not reached yet, in their order
    int count = 0;
    Segment open = {};         // since the last mark
    int64_t launched_at = 0;   // host's clock, of the last launch
    int64_t reached_at = 0;    // host's clock, of the last mark, or when it began to have work
    int64_t wrong = kExactly;  // what was measured, of what the book had
    int64_t spread = 0;        // how far a measurement is from that, in the mean
    int64_t carry = 0;         // ns that it was too short for
    int64_t unmeasured = 0;    // ns that were charged since a mark lay right behind a launch
    int64_t busy_until = 0;    // it has work until then, if what was expected is right
    bool rests = true;         // was seen to, after the last launch
    bool known = false;        // `at` is
    int64_t at = 0;            // the device's clock at the last mark that was reached
    int64_t theirs_at = 0;     // what others had until then

    std::span<Segment> Marked() { return {marked, static_cast<size_t>(count)}; }
    std::span<const Segment> Marked() const { return {marked, static_cast<size_t>(count)}; }
  };
  static constexpr int64_t kExactly = 1 << 20;
  static constexpr int64_t kNever = INT64_MAX / 2;
  static constexpr int64_t kClockDrift = 20'000;           // ns in kReferenceAge
  static constexpr int64_t kReferenceAge = 1'000'000'000;  // ns; a float of ms is exact to 0.1 us over that
  static constexpr int kPairs = 4;                         // the empty pair is the shortest of so many

  static int64_t TheirsOf(int64_t span, int others) { return span * others / (1 + others); }

  std::span<Track> Tracks() { return {tracks_, static_cast<size_t>(used_)}; }
  std::span<const Track> Tracks() const { return {tracks_, static_cast<size_t>(used_)}; }
  Track* TrackOf(const StreamRef& stream) {
    Track* rests = nullptr;
    for (Track& track : Tracks()) {
      if (track.stream == stream) return &track;
      if (rests == nullptr && track.count == 0 && track.open.charged == 0) rests = &track;
    }
    Track* const track = used_ < kStreams ? &tracks_[used_++] : rests;
    if (track != nullptr) *track = Track{.stream = stream};
    return track;
  }
  bool HasWork(const Track& track) const { return driver_->busy(driver_->self, context_, track.stream); }
  bool LookAhead(Track* track, int64_t now);
  // What was launched last was so while its last mark was still ahead.
  bool StillAhead(const Track& track) const {
    return track.count != 0 && driver_->reached(driver_->self, track.Marked().back().event, nullptr, nullptr) == 0;
  }
  void Count(Track* track, const Launch& launch, int count) {
    Segment& open = track->open;
    const bool first = open.launches == 0;
    const bool other = !first && open.kind != launch.kind;
    open.kind = other ? 0 : launch.kind;
    // What a lease paid for says only of which kind it was.
    if (launch.handle != 0 || other) open.handle = first || open.handle == launch.handle ? launch.handle : 0;
    open.charged += launch.Charged();
    open.cost += launch.cost;
    open.launches += count;
    open.priced &= launch.priced;
    track->rests = false;
    track->unmeasured += launch.Charged();
    track->busy_until += launch.cost;
  }
  void Push(Track* track, Event event, bool ends_pair = false);
  int64_t Settle(Track* track, const Segment& segment, int64_t seen, int64_t since_reference, int64_t now);
  int64_t Pay(Track* track, const Segment& segment, int64_t elapsed, int64_t theirs, int64_t at);
  int64_t PayRested(Track* track, const Segment& segment, int64_t least, int64_t most);
  int64_t LengthOf(const Segment& segment, int64_t busy, int64_t least, int64_t theirs) const;
  void Teach(const Segment& segment, int64_t length, int64_t least);
  // Of `length` ns on one stream so much was not on another one as well.
  void LearnOverlap(int64_t length, int64_t paid) {
    paid_ += paid;
    length_ += length;
    if (length_ < 8 * kSegment) return;
    scale_ += (paid_ * Launch::kWhole / length_ - scale_) / kSmooth;
    scale_ = std::clamp<int64_t>(scale_, Launch::kWhole / kStreams, Launch::kWhole);
    paid_ = length_ = 0;
  }
  Segment* LongestSegment() {
    const auto charged = [](const Track& track) { return track.count == 0 ? -1 : track.marked[0].charged; };
    const auto longest = std::ranges::max_element(Tracks(), {}, charged);
    return longest == Tracks().end() || longest->count == 0 ? nullptr : &longest->marked[0];
  }
  int64_t Grow(int64_t now);
  int64_t InFlightOn(const Track& track, int64_t now) const;
  void DropTrack(Track* track) {
    for (const Segment& segment : track->Marked()) driver_->release(driver_->self, segment.event);
    pending_ -= track->count;
    *track = Track{.stream = track->stream, .wrong = track->wrong};
  }

  const void* context_ = nullptr;
  const DriverPort* driver_ = nullptr;
  CostBook* book_ = nullptr;
  Track tracks_[kStreams] = {};
  int used_ = 0, pending_ = 0;    // tracks; marks that are not reached
  int at_work_ = 0, others_ = 0;  // when it was last polled; since the time before
  int64_t polled_at_ = 0, worked_until_ = 0;
  int64_t theirs_ = 0;  // ns that others had until then, where the GPU goes from one to the next
  BusyUnion busy_;
  Event reference_ = nullptr;  // every moment is measured from it
  int64_t reference_at_ = 0, reference_taken_ = 0;
  int64_t behind_ = kNever;  // the host's clock before the device's
  int64_t pair_ = 0;
  int pairs_ = 0;
  int64_t scale_ = Launch::kWhole;
  int64_t paid_ = 0, length_ = 0;  // since the scale moved
  int64_t beyond_charged_ = 0;     // ns that streams that rested covered beyond what was charged for them
  int64_t reached_at_ = 0;         // when the last one of them was
};

}  // namespace hami::vgpu::time
