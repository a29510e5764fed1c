// SPDX-License-Identifier: Apache-2.0
#include "vgpu/time/meter.h"

namespace hami::vgpu::time {

// Whether the stream has work, and had all the time since its last mark. `Poll` came just before, so a mark that is
// still there was not reached, and what was launched behind it is ahead, however late the next launch is seen.
bool Meter::LookAhead(Track* track, int64_t now) {
  const bool busy = track->count != 0 || HasWork(*track);
  if (track->count != 0) track->busy_until = std::max(track->busy_until, now + track->open.cost);
  if (!busy || now > track->busy_until) track->open.dense = false;
  if (!track->open.dense) track->busy_until = now;
  return busy;
}

bool Meter::WantsTail(const void* thread, StreamRef* stream, int64_t until, int64_t now) {
  for (Track& track : Tracks()) {
    if (track.open.charged == 0 || track.count >= kMarks - 2) continue;
    if (track.busy_until > until + kFlight) continue;  // the thread may wake late
    if (track.stream.thread != nullptr && track.stream.thread != thread) continue;
    // The GPU would change to what rests, and back, for no more than the event. One that has the turn may be about to
    // launch.
    if (!LookAhead(&track, now) && now - worked_until_ < kWants) continue;
    *stream = track.stream;
    return true;
  }
  return false;
}

void Meter::Tail(const StreamRef& stream, Event event, int64_t now) {
  Track* const track = TrackOf(stream);
  if (track == nullptr) return driver_->release(driver_->self, event);
  track->unmeasured = 0;
  if (now > track->busy_until && !StillAhead(*track) && !HasWork(*track)) track->open.dense = false;
  Push(track, event);
}

Meter::Plan Meter::Before(const Launch& launch, int64_t spacing, int64_t now) {
  Plan plan;
  Track* const track = TrackOf(launch.stream);
  if (track == nullptr || track->count >= kMarks - 2) {
    if (track != nullptr) Count(track, launch, 1);
    return plan;
  }
  plan.busy = LookAhead(track, now);
  plan.guessed = book_->Expected(launch.kind, launch.handle) == 0 || book_->Doubted(launch.handle);
  // Apart from what went before: to know it alone, and because a stream that rested says nothing about the time
  // between. A grid whose kernel is known can wait for the next mark, or for the stream to rest, and would never be
  // known among other kernels.
  const bool known = book_->Price(launch.kind) != 0;
  // Of those that are as long as their argument says, on a stream that rests, each stands for few.
  const bool varied = !track->open.dense && track->spread > kExactly / kSmooth;
  const int64_t every = varied ? std::min(spacing, kLease) : spacing;
  const bool due = track->unmeasured + launch.Charged() >= every || (!known && !track->open.dense);
  const bool apart = plan.guessed || (due && !known && track->open.handle != launch.handle);
  plan.begin = !track->open.dense || (apart && track->open.charged != 0);
  plan.end = plan.guessed || due;
  plan.again = plan.begin && due && !launch.priced && !plan.guessed;
  plan.empty = plan.begin && !plan.busy && pairs_ < kPairs;
  plan.until = track->busy_until;
  if (!plan.begin) Count(track, launch, 1);
  if (InFlight(now) == 0) reached_at_ = now;
  if (!plan.busy) track->reached_at = now;
  track->launched_at = now;
  return plan;
}

void Meter::Push(Track* track, Event event, bool ends_pair) {
  track->open.event = event;
  track->open.due = track->busy_until;
  track->open.others = static_cast<int16_t>(at_work_);
  track->open.ends_pair = ends_pair;
  track->marked[track->count++] = track->open;
  ++pending_;
  track->open = {.dense = true};
}

void Meter::After(const Launch& launch, const Plan& plan, Event empty, Event begin, Event end, int64_t took,
                  int64_t now) {
  Track* const track = TrackOf(launch.stream);
  if (track == nullptr) return;
  if (empty != nullptr) Push(track, empty);
  if (begin != nullptr) Push(track, begin, empty != nullptr);
  if (plan.begin) Count(track, launch, 1);
  track->open.guessed |= plan.guessed;
  // A thread that was taken off its processor since Before launched too late, or laid the mark behind a rest. A first
  // guess is better than none.
  const bool late = !track->open.guessed && (plan.begin ? end != nullptr && now > track->busy_until : now > plan.until);
  const bool ahead = (!late && !(plan.begin && plan.busy)) || StillAhead(*track);
  // On a stream that rested, or came to rest since, the begin was reached before the launch was there.
  if (plan.begin && !(plan.busy && ahead)) track->open.took = took;
  if (late && !ahead && !(plan.begin && HasWork(*track))) track->open.dense = false;
  if (end != nullptr) {
    if (!plan.again) track->unmeasured = 0;
    Push(track, end);
  }
  track->launched_at = now;
}

void Meter::Failed(const Launch& launch, const Plan& plan, Event empty, Event begin) {
  if (empty != nullptr) driver_->release(driver_->self, empty);
  if (begin != nullptr) driver_->release(driver_->self, begin);
  Track* const track = plan.begin ? nullptr : TrackOf(launch.stream);
  // A mark that another thread laid meanwhile has it: then the book is wrong about one more launch.
  if (track == nullptr || track->open.launches == 0) return;
  Count(track, {.kind = launch.kind, .cost = -launch.cost, .scale = launch.scale}, -1);
}

// Launches on a stream that rested between them: where it was busy nobody knows, and for how long the book does, as
// well as what was measured on the stream says. Not more than there was time for; what did not fit is paid later, as of
// kernels that vary the short ones show that less was paid for, and the long ones make up for it.
// The launches were ahead when the mark before was reached, so they went on from there, beside what other streams had:
// what they cover of that is paid already. Where streams do not run side by side they cover nothing, and what was
// charged, of which all streams together had as much as the GPU did, is paid all the same.
int64_t Meter::PayRested(Track* track, const Segment& segment, int64_t least, int64_t most) {
  const int64_t due = std::max(segment.cost * track->wrong / kExactly + track->carry, least);
  const int64_t paid = std::min(most, due);
  int64_t covers = busy_.Add(track->at, track->at + paid);
  // What was only guessed is owed by nobody.
  if (segment.guessed) return covers - segment.charged;
  track->carry = std::min(due - paid, kFlightAlone);
  beyond_charged_ += covers - (segment.charged - segment.grown) * track->wrong / kExactly;
  if (beyond_charged_ < 0) covers += busy_.Fill(track->at, track->at + most, -beyond_charged_);
  beyond_charged_ = std::clamp<int64_t>(beyond_charged_, 0, kFlightAlone);
  // What found no room was charged too high.
  if (segment.others == 0) LearnOverlap(paid, covers);
  return covers - segment.charged;
}

// Beside others it is their time that is above the expected, but what is less than half of the GPU's own turn, and what
// they were not at work for (`least`). What is longer than a turn shows how much they had. The GPU's changes seem to be
// its own, so of two that are near each other the less counts.
int64_t Meter::LengthOf(const Segment& segment, int64_t busy, int64_t least, int64_t theirs) const {
  const int64_t cost = segment.cost;
  // What had ended when the call came back may be as short as it likes.
  if (segment.took != 0 && !segment.guessed && busy <= std::max(segment.took, kIdleStart)) return std::min(busy, cost);
  if (segment.others == 0 || (busy <= kTurn && busy < cost + kLeastTurn / 2)) return busy;
  if (busy <= kTurn) return std::max(std::min(busy, cost), least);
  const int64_t own = std::max<int64_t>(busy - theirs, 0);
  return own > cost && own - cost < cost / 8 ? cost : own;
}

int64_t Meter::Pay(Track* track, const Segment& segment, int64_t elapsed, int64_t theirs, int64_t at) {
  const int64_t busy = std::max<int64_t>(elapsed - pair_ - (segment.took != 0 ? kIdleStart : 0), 0);
  const bool beside = segment.others != 0;
  // The launch was at work since the host's call came back, at the latest; others had no more than all of the time in
  // which they were at work.
  const bool slow = segment.took > std::max(10 * kIdleStart, busy / 64);
  const int64_t most_theirs = beside ? theirs * (1 + segment.others) / segment.others : 0;
  const int64_t least = std::max<int64_t>(busy - most_theirs - (slow ? segment.took : 0), 0);
  if (!segment.dense || slow) {
    const int64_t own = busy_.Add(at - pair_, at);
    if (segment.charged == 0) return own;
    // A first guess that may be far too low would stay: what costs next to nothing is hardly ever measured. One that is
    // too high is soon put right.
    const bool sure = !segment.guessed || busy <= 2 * least;
    const int64_t length = segment.guessed && sure ? least : busy;
    if (segment.dense && (sure || book_->Unsure(segment.kind))) Teach(segment, length, least);
    return own + PayRested(track, segment, segment.dense && !beside ? least : 0, busy);
  }
  const int64_t length = LengthOf(segment, busy, least, theirs);
  if (segment.cost > 0 && segment.priced && segment.sure && !beside) {
    const int64_t ratio = length * kExactly / segment.cost;
    track->wrong += (ratio - track->wrong) / kSmooth;
    track->spread += (std::abs(ratio - kExactly) - track->spread) / kSmooth;
  }
  // The mark is on the container's stream, so it is paid, and is no part of what the launches cost. Where part of the
  // time was others', nobody knows which.
  const int64_t seen = busy_.Add(at - busy - pair_, at);
  const int64_t paid = busy == length ? seen : seen * (length + pair_) / (busy + pair_);
  Teach(segment, length, least);
  if (!beside) LearnOverlap(length, paid);
  return paid - segment.charged;
}

int64_t Meter::Settle(Track* track, const Segment& segment, int64_t seen, int64_t since_reference, int64_t now) {
  const bool told = since_reference != kUnknownTime;
  const int64_t at = reference_ == nullptr || !told ? seen : reference_at_ + since_reference;
  // When it was reached by the host's clock, which may see it late: as far behind as the one that was seen the soonest.
  behind_ = std::min(behind_, seen - at);
  const int64_t theirs = theirs_ - TheirsOf(std::max<int64_t>(worked_until_ - at - behind_, 0), others_);
  int64_t correction = 0;
  if (told && track->known) {
    const int64_t elapsed = at - track->at;
    if (segment.ends_pair) {
      if (pairs_++ == 0 || elapsed < pair_) pair_ = elapsed;
      correction = -segment.charged;
    } else {
      correction = Pay(track, segment, elapsed, theirs - track->theirs_at, at);
    }
  }
  track->known = told;
  track->at = at;
  track->theirs_at = theirs;
  track->reached_at = told ? std::max(track->reached_at, at + behind_) : seen;
  reached_at_ = std::max(reached_at_, track->reached_at);
  Event done = segment.event;
  if (told && (reference_ == nullptr || now - reference_taken_ > kReferenceAge)) {
    std::swap(reference_, done);
    reference_at_ = at;
    reference_taken_ = now;
    behind_ += kClockDrift;
  }
  if (done != nullptr) driver_->release(driver_->self, done);
  return correction;
}

// What is expected moves to the nearest of what is possible. A first guess is better than none.
void Meter::Teach(const Segment& segment, int64_t length, int64_t least) {
  const bool exact = segment.guessed || length > kTurn;
  const int64_t near = exact ? length : std::max(least, std::min(segment.cost, length));
  if (segment.launches <= 0 || near <= 0) return;
  book_->Teach(segment.kind, segment.handle, near / segment.launches, segment.guessed);
}

int64_t Meter::Poll(int others, int64_t worked_until, int64_t now) {
  at_work_ = others;
  // One may have begun and ended since.
  others_ = std::max(others, worked_until > polled_at_ ? 1 : 0);
  theirs_ += TheirsOf(std::max<int64_t>(worked_until - polled_at_, 0), others_);
  polled_at_ = now;
  worked_until_ = worked_until;
  if (pending_ == 0) return 0;
  int64_t correction = 0, earliest = INT64_MAX;  // the device's clock, where the first stretch to come begins
  for (Track& track : Tracks()) {
    for (Segment& segment : track.Marked()) segment.others = std::max(segment.others, static_cast<int16_t>(others_));
    int done = 0;
    for (; done < track.count; ++done) {
      const Segment& segment = track.marked[done];
      int64_t since = 0;
      const int64_t reached = driver_->reached(driver_->self, segment.event, reference_, &since);
      if (reached == 0) break;
      if (reached > 0) {
        correction += Settle(&track, segment, reached, since, now);
      } else {
        driver_->release(driver_->self, segment.event);
        track.known = false;
      }
    }
    if (done != 0) std::copy(track.marked + done, track.marked + track.count, track.marked);
    track.count -= done;
    pending_ -= done;
    if (track.known && (track.count != 0 || track.open.charged != 0)) earliest = std::min(earliest, track.at);
  }
  busy_.Forget(earliest);
  return correction + Grow(now);
}

// What takes longer than was expected is charged as its time passes, for kPatience at most: the GPU may be waiting for
// something that the program can only launch when it is not held. What is charged is less than the stream takes where
// others run beside it.
int64_t Meter::Grow(int64_t now) {
  Segment* const longest = LongestSegment();
  if (longest == nullptr) return 0;
  const int64_t expected = std::max(longest->charged - longest->grown, longest->due - reached_at_);
  const int64_t passed = (now - reached_at_) / (1 + longest->others);
  const int64_t grown = std::max<int64_t>(std::min(passed - expected, kPatience) - longest->grown, 0);
  longest->grown += grown;
  longest->charged += grown;
  return grown;
}

int64_t Meter::InFlightOn(const Track& track, int64_t now) const {
  int64_t own = track.open.charged;
  for (const Segment& segment : track.Marked()) own += segment.charged;
  // No more than the segment at hand can have gone since a mark was reached.
  const int64_t gone = std::max<int64_t>(now - track.reached_at, 0) * scale_ / Launch::kWhole;
  return own - std::min(gone, (track.count != 0 ? track.marked[0] : track.open).charged);
}

int64_t Meter::Beside(const StreamRef& stream, int64_t part, int64_t now) const {
  int64_t own = now;
  const Track* last = nullptr;
  for (const Track& track : Tracks()) {
    if (last == nullptr || track.busy_until > last->busy_until) last = &track;
    if (track.stream == stream) own = std::max(own, track.busy_until);
  }
  return last != nullptr && own + part <= last->busy_until ? std::max<int64_t>(InFlightOn(*last, now), 1) : 0;
}

}  // namespace hami::vgpu::time
