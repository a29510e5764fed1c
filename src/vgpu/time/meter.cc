// SPDX-License-Identifier: Apache-2.0
#include "vgpu/time/meter.h"

namespace hami::vgpu::time {
namespace {

constexpr int64_t kUnsure = 16;                   // of what is expected to be ahead one part may not be
constexpr int64_t kClockDrift = 20'000;           // ns in kReferenceAge
constexpr int kPairs = 4;                         // the empty pair is the shortest of so many
constexpr int64_t kReferenceAge = 1'000'000'000;  // a float of ms is exact to 0.1 us over that
constexpr int64_t kLeastScale = Meter::kWhole / Meter::kStreams;

int64_t TheirsOf(int64_t span, int others) { return span * others / (1 + others); }
int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t Most(int64_t a, int64_t b) { return a > b ? a : b; }

}  // namespace

Meter::Track* Meter::TrackOf(const StreamRef& stream) {
  Track* rests = nullptr;
  for (int i = 0; i < used_; ++i) {
    if (tracks_[i].stream == stream) return &tracks_[i];
    if (rests == nullptr && tracks_[i].count == 0 && tracks_[i].since == 0) rests = &tracks_[i];
  }
  Track* const track = used_ < kStreams ? &tracks_[used_++] : rests;
  if (track != nullptr) {
    *track = Track{};
    track->stream = stream;
  }
  return track;
}

void Meter::Count(Track* track, uint64_t kind, uint64_t handle, const Cost& cost, int launches) {
  const bool first = track->launches == 0;
  track->kind = first || track->kind == kind ? kind : 0;
  if (handle != 0) track->handle = first || track->handle == handle ? handle : 0;
  track->since += cost.charged;
  track->unmeasured += cost.charged;
  track->cost += cost.expected;
  track->busy_until += cost.expected - cost.expected / kUnsure;
  track->launches += launches;
}

void Meter::Spent(const StreamRef& stream, uint64_t kind, const Cost& cost, int launches) {
  Track* const track = TrackOf(stream);
  if (track == nullptr) return;
  Count(track, kind, 0, cost, launches);
}

// Whether the stream has work, and had all the time since its last mark. `Poll` came just before, so a mark that is
// still there was not reached, and what was launched behind it is ahead, however late the next launch is seen.
bool Meter::LookAhead(Track* track, int64_t now) {
  const bool busy = track->count != 0 || driver_->busy(driver_->self, track->stream);
  const int64_t behind = now + track->cost - track->cost / kUnsure;
  if (track->count != 0 && track->busy_until < behind) track->busy_until = behind;
  if (!busy || now > track->busy_until) track->dense = false;
  if (!track->dense) track->busy_until = now;
  return busy;
}

// What was launched last was so while its last mark was still ahead.
bool Meter::StillAhead(const Track& track) const {
  if (track.count == 0) return false;
  const Mark& last = track.marks[(track.first + track.count - 1) % kMarks];
  return driver_->reached(driver_->self, last.event) == 0;
}

bool Meter::WantsTail(const void* thread, StreamRef* stream, int64_t now) {
  for (int i = 0; i < used_; ++i) {
    Track& track = tracks_[i];
    if (track.since == 0 || track.count >= kMarks - 2) continue;
    if (track.stream.thread != nullptr && track.stream.thread != thread) continue;
    LookAhead(&track, now);
    *stream = track.stream;
    return true;
  }
  return false;
}

void Meter::Tail(const StreamRef& stream, Event event, int64_t now) {
  Track* const track = TrackOf(stream);
  if (track == nullptr) return driver_->release(driver_->self, event);
  track->unmeasured = 0;
  if (now > track->busy_until && !StillAhead(*track) && !driver_->busy(driver_->self, stream)) track->dense = false;
  Push(track, event, track->dense, false);
}

Meter::Plan Meter::Before(const Launch& launch, int64_t charged, int64_t spacing, int64_t now) {
  Plan plan;
  plan.cost = {charged, launch.cost};
  Track* const track = TrackOf(launch.stream);
  if (track == nullptr || track->count >= kMarks - 2) {
    if (track != nullptr) Count(track, launch.kind, launch.handle, plan.cost, 1);
    return plan;
  }
  plan.busy = LookAhead(track, now);
  const bool unknown = book_->Expected(launch.kind, launch.handle) == 0 || book_->Doubted(launch.handle);
  // Apart from what went before: to know it alone, and because a stream that rested says nothing about the time
  // between.
  plan.begin = !track->dense || (unknown && track->since != 0);
  plan.end = unknown || track->unmeasured + charged >= spacing;
  plan.empty = plan.begin && !plan.busy && pairs_ < kPairs;
  plan.guessed = unknown;
  plan.until = track->busy_until;
  if (!plan.begin) Count(track, launch.kind, launch.handle, plan.cost, 1);
  if (InFlight(now) == 0) reached_at_ = now;
  if (!plan.busy) track->reached_at = now;
  track->since_at = now;
  return plan;
}

void Meter::Push(Track* track, Event event, bool dense, bool ends_pair) {
  Mark& mark = track->marks[(track->first + track->count++) % kMarks];
  mark = Mark{.event = event,
              .charged = track->since,
              .cost = track->cost,
              .took = track->took,
              .kind = track->kind,
              .handle = track->handle,
              .launches = track->launches,
              .others = static_cast<int16_t>(others_),
              .dense = dense,
              .ends_pair = ends_pair,
              .guessed = track->guessed};
  ++pending_;
  track->since = 0;
  track->cost = 0;
  track->took = 0;
  track->launches = 0;
  track->handle = 0;
  track->dense = true;
  track->guessed = false;
}

void Meter::After(const Launch& launch, const Plan& plan, Event empty, Event begin, Event end, int64_t took,
                  int64_t now) {
  Track* const track = TrackOf(launch.stream);
  if (track == nullptr) return;
  if (empty != nullptr) Push(track, empty, false, false);
  if (begin != nullptr) Push(track, begin, empty != nullptr || track->dense, empty != nullptr);
  if (plan.begin) Count(track, launch.kind, launch.handle, plan.cost, 1);
  // On a stream that rested the begin was reached before the launch was there.
  if (plan.begin && !plan.busy) track->took = took;
  track->guessed |= plan.guessed;
  // A thread that was taken off its processor since Before launched too late, or laid the mark behind a rest. A first
  // guess is better than none.
  if (!track->guessed && now > plan.until && !StillAhead(*track)) {
    const bool late = !plan.begin || now > track->busy_until;
    if (late && !(plan.begin && driver_->busy(driver_->self, launch.stream))) track->dense = false;
  }
  if (end != nullptr) {
    track->unmeasured = 0;
    Push(track, end, track->dense, false);
  }
  track->since_at = now;
}

void Meter::Failed(const Launch& launch, const Plan& plan, Event empty, Event begin) {
  if (empty != nullptr) driver_->release(driver_->self, empty);
  if (begin != nullptr) driver_->release(driver_->self, begin);
  Track* const track = plan.begin ? nullptr : TrackOf(launch.stream);
  // A mark that another thread laid meanwhile has it: then the book is wrong about one more launch.
  if (track != nullptr && track->launches > 0)
    Count(track, launch.kind, 0, {-plan.cost.charged, -plan.cost.expected}, -1);
}

// Launches on a stream that rested between them: where it was busy nobody knows, and for how long the book does, as
// well as what was measured on the stream says. Not more than there was time for; what did not fit is paid later, as of
// kernels that vary the short ones show that less was paid for, and the long ones make up for it.
// The launches were ahead when the mark before was reached, so they went on from there, beside what other streams had:
// what they cover of that is paid already. Where streams do not run side by side they cover nothing, and what was
// charged, of which all streams together had as much as the GPU did, is paid all the same.
int64_t Meter::PayRested(Track* track, const Mark& mark, int64_t least, int64_t most) {
  const int64_t due = Most(mark.cost * track->wrong / kExactly + track->carry, least);
  const int64_t paid = Least(most, due);
  // What was only guessed is owed by nobody.
  if (mark.guessed) return busy_.Add(track->at, track->at + paid) - mark.charged;
  track->carry = Least(due - paid, kFlightAlone);
  int64_t covers = busy_.Add(track->at, track->at + paid);
  beyond_charged_ += covers - (mark.charged - mark.grown) * track->wrong / kExactly;
  if (beyond_charged_ < 0) {
    covers += busy_.Fill(track->at, track->at + most, -beyond_charged_);
    beyond_charged_ = 0;
  }
  beyond_charged_ = Least(beyond_charged_, kFlightAlone);
  // What found no room was charged too high.
  if (mark.others == 0) LearnOverlap(paid, covers);
  return covers - mark.charged;
}

// Beside others it is their time that is above the expected, but what is less than half of the GPU's own turn, and what
// they were not at work for (`least`). What is longer than a turn shows how much they had. The GPU's changes seem to be
// its own, so of two that are near each other the less counts.
int64_t Meter::LengthOf(const Mark& mark, int64_t busy, int64_t least, int64_t theirs) const {
  // What had ended when the call came back may be as short as it likes.
  if (mark.took != 0 && !mark.guessed && busy <= Most(mark.took, kIdleStart)) return Least(busy, mark.cost);
  if (mark.others == 0 || (busy <= kTurn && busy < mark.cost + kLeastTurn / 2)) return busy;
  const int64_t own = Most(busy - theirs, 0);
  const bool near = own - mark.cost < mark.cost / 8 && mark.cost - own < mark.cost / 8;
  return busy <= kTurn ? Most(Least(busy, mark.cost), least) : near ? Least(own, mark.cost) : own;
}

int64_t Meter::PaySegment(Track* track, const Mark& mark, int64_t elapsed, int64_t theirs, int64_t at) {
  const int64_t busy = Most(elapsed - pair_ - (mark.took != 0 ? kIdleStart : 0), 0);
  // The launch was at work since the host's call came back, at the latest; others had no more than all of the time in
  // which they were at work.
  const bool slow = mark.took > Most(10 * kIdleStart, busy / 64);
  const int64_t beside = mark.others == 0 ? 0 : theirs * (1 + mark.others) / mark.others;
  const int64_t least = Most(busy - beside - (slow ? mark.took : 0), 0);
  if (!mark.dense || slow) {
    const int64_t own = busy_.Add(at - pair_, at);
    if (mark.charged == 0) return own;
    if (mark.dense) Teach(mark, mark.guessed ? least : busy, least);
    return own + PayRested(track, mark, mark.dense && mark.others == 0 ? least : 0, busy);
  }
  const int64_t length = LengthOf(mark, busy, least, theirs);
  if (mark.cost > 0 && !mark.guessed && mark.others == 0) {
    track->wrong += (length * kExactly / mark.cost - track->wrong) / kSmooth;
  }
  // The mark is on the container's stream, so it is paid, and is no part of what the launches cost. Where part of the
  // time was others', nobody knows which.
  const int64_t seen = busy_.Add(at - busy - pair_, at);
  const int64_t paid = busy == length ? seen : seen * (length + pair_) / (busy + pair_);
  Teach(mark, length, least);
  if (mark.others == 0) LearnOverlap(length, paid);
  return paid - mark.charged;
}

int64_t Meter::Settle(Track* track, const Mark& mark, int64_t seen, int64_t now) {
  const int64_t since_reference = reference_ == nullptr ? 0 : driver_->between(driver_->self, reference_, mark.event);
  const bool told = since_reference != kUnknownTime;
  const int64_t at = reference_ == nullptr ? seen : reference_at_ + since_reference;
  // When it was reached by the host's clock, which may see it late: as far behind as the one that was seen the soonest.
  behind_ = Least(behind_, seen - at);
  const int64_t theirs = theirs_ - TheirsOf(now - at - behind_, others_);
  int64_t correction = 0;
  if (told && track->known) {
    const int64_t elapsed = at - track->at;
    if (mark.ends_pair) {
      if (pairs_ == 0 || elapsed < pair_) pair_ = elapsed;
      ++pairs_;
      correction = -mark.charged;
    } else {
      correction = PaySegment(track, mark, elapsed, theirs - track->theirs_at, at);
    }
  }
  track->known = told;
  track->at = at;
  track->theirs_at = theirs;
  track->reached_at = told ? Most(track->reached_at, at + behind_) : seen;
  reached_at_ = Most(reached_at_, track->reached_at);
  if (told && (reference_ == nullptr || now - reference_taken_ > kReferenceAge)) {
    if (reference_ != nullptr) driver_->release(driver_->self, reference_);
    reference_ = mark.event;
    reference_at_ = at;
    reference_taken_ = now;
    behind_ += kClockDrift;
  } else {
    driver_->release(driver_->self, mark.event);
  }
  return correction;
}

// What is expected moves to the nearest of what is possible. A first guess is better than none.
void Meter::Teach(const Mark& mark, int64_t length, int64_t least) {
  const bool exact = mark.guessed || length > kTurn;
  const int64_t near = exact ? length : Most(least, Least(mark.cost, length));
  if (mark.launches > 0 && near > 0) book_->Teach(mark.kind, mark.handle, near / mark.launches, mark.guessed);
}

// Of `length` ns on one stream so much was not on another one as well.
void Meter::LearnOverlap(int64_t length, int64_t paid) {
  paid_ += paid;
  length_ += length;
  if (length_ < 8 * kSegment) return;
  scale_ += (paid_ * kWhole / length_ - scale_) / kSmooth;
  scale_ = Most(kLeastScale, Least(scale_, kWhole));
  paid_ = length_ = 0;
}

int64_t Meter::Poll(int others, int64_t now) {
  const int64_t span = polled_at_ == 0 ? 0 : now - polled_at_;
  const int64_t theirs = (TheirsOf(span, others_) + TheirsOf(span, others)) / 2;
  theirs_ += theirs;
  polled_at_ = now;
  others_ = others;
  if (pending_ == 0) return 0;
  int64_t correction = 0;
  for (int i = 0; i < used_; ++i) {
    Track& track = tracks_[i];
    if (track.count != 0) track.busy_until += theirs;
    for (int k = 0; k < track.count; ++k) {
      Mark& mark = track.marks[(track.first + k) % kMarks];
      if (mark.others < others) mark.others = static_cast<int16_t>(others);
    }
    while (track.count != 0) {
      const Mark& mark = track.marks[track.first];
      const int64_t reached = driver_->reached(driver_->self, mark.event);
      if (reached == 0) break;
      if (reached > 0) {
        correction += Settle(&track, mark, reached, now);
      } else {
        driver_->release(driver_->self, mark.event);
        track.known = false;
      }
      track.first = (track.first + 1) % kMarks;
      --track.count;
      --pending_;
    }
  }
  busy_.Forget(Earliest());
  return correction + Grow(now);
}

// Where the first stretch begins that is still to come, by the device's clock.
int64_t Meter::Earliest() const {
  int64_t earliest = INT64_MAX;
  for (int i = 0; i < used_; ++i) {
    const Track& track = tracks_[i];
    if (track.known && (track.count != 0 || track.since != 0)) earliest = Least(earliest, track.at);
  }
  return earliest;
}

Meter::Mark* Meter::LongestMark() {
  Mark* longest = nullptr;
  for (int i = 0; i < used_; ++i) {
    Track& track = tracks_[i];
    Mark& mark = track.marks[track.first];
    if (track.count != 0 && (longest == nullptr || mark.charged > longest->charged)) longest = &mark;
  }
  return longest;
}

int64_t Meter::Longest() const {
  int64_t longest = 0;
  for (int i = 0; i < used_; ++i) {
    const Track& track = tracks_[i];
    if (track.count != 0) longest = Most(longest, track.marks[track.first].charged);
  }
  return longest;
}

int64_t Meter::PayAhead(int64_t ns) {
  Mark* const longest = LongestMark();
  if (longest == nullptr || longest->grown < kPatience || ns <= 0) return 0;
  longest->charged += ns;
  return ns;
}

// What takes longer than was expected is charged as its time passes, for kPatience at most: the GPU may be waiting for
// something that the program can only launch when it is not held.
int64_t Meter::Grow(int64_t now) {
  Mark* const longest = LongestMark();
  if (longest == nullptr) return 0;
  const int64_t passed = (now - reached_at_) / (1 + longest->others);
  const int64_t grown = Least(passed - longest->charged, kPatience - longest->grown);
  if (grown <= 0) return 0;
  longest->grown += grown;
  longest->charged += grown;
  return grown;
}

int64_t Meter::InFlightOn(const Track& track, int64_t now) const {
  if (track.count == 0 && now - track.since_at >= track.since) return 0;
  int64_t own = track.since;
  for (int k = 0; k < track.count; ++k) own += track.marks[(track.first + k) % kMarks].charged;
  // No more than the segment at hand can have gone since a mark was reached.
  const int64_t gone = Most(now - track.reached_at, 0) * scale_ / kWhole;
  return own - Least(gone, track.count != 0 ? track.marks[track.first].charged : track.since);
}

int64_t Meter::InFlight(int64_t now) const {
  int64_t all = 0;
  for (int i = 0; i < used_; ++i) all += InFlightOn(tracks_[i], now);
  return all;
}

int64_t Meter::Beside(const StreamRef& stream, int64_t part, int64_t now) const {
  int64_t own = now;
  const Track* last = nullptr;
  for (int i = 0; i < used_; ++i) {
    const Track& track = tracks_[i];
    if (last == nullptr || track.busy_until > last->busy_until) last = &track;
    if (track.stream == stream) own = Most(own, track.busy_until);
  }
  return last != nullptr && own + part <= last->busy_until ? Most(InFlightOn(*last, now), 1) : 0;
}

int Meter::Streams(int64_t now) const {
  int streams = 0;
  for (int i = 0; i < used_; ++i) streams += now - tracks_[i].since_at < kWants ? 1 : 0;
  return streams;
}

bool Meter::Guesses() const {
  for (int i = 0; i < used_; ++i) {
    const Track& track = tracks_[i];
    for (int k = 0; k < track.count; ++k) {
      if (track.marks[(track.first + k) % kMarks].guessed) return true;
    }
  }
  return false;
}

Meter::Late Meter::LateFor(const StreamRef& stream) const {
  Late late = kInTime;
  for (int i = 0; i < used_ && late != kUnknown; ++i) {
    const Track& track = tracks_[i];
    const Mark& mark = track.marks[track.first];
    if (track.count == 0 || mark.grown < kPatience) continue;
    late = mark.guessed && track.stream == stream ? kUnknown : kKnown;
  }
  return late;
}

void Meter::Changed(uint64_t kind) {
  for (int i = 0; i < used_; ++i) {
    Track& track = tracks_[i];
    for (int k = 0; k < track.count; ++k) {
      Mark& mark = track.marks[(track.first + k) % kMarks];
      if (mark.kind == kind) mark.kind = 0;
    }
    if (track.launches != 0 && track.kind == kind) track.kind = 0;
  }
}

void Meter::DropTrack(Track* track) {
  for (int k = 0; k < track->count; ++k) {
    driver_->release(driver_->self, track->marks[(track->first + k) % kMarks].event);
  }
  pending_ -= track->count;
  track->count = 0;
  track->since = track->cost = 0;
  track->known = false;
}

void Meter::DropStream(const void* stream) {
  for (int i = 0; i < used_; ++i) {
    if (tracks_[i].stream.stream == stream) DropTrack(&tracks_[i]);
  }
}

void Meter::DropAll() {
  for (int i = 0; i < used_; ++i) DropTrack(&tracks_[i]);
  used_ = 0;
  if (reference_ != nullptr) driver_->release(driver_->self, reference_);
  reference_ = nullptr;
  behind_ = kNever;
}

}  // namespace hami::vgpu::time
