// SPDX-License-Identifier: Apache-2.0
#include "vgpu/time/gate.h"

namespace hami::vgpu::time {
namespace {

constexpr int64_t kLongestSleep = 5'000'000;  // then limits and orders are read again
constexpr int64_t kLongestPoll = 500'000;
constexpr int64_t kLeastRate = 100;       // of 10000
constexpr int64_t kUnknownPatience = 50;  // times kPatience: behind what was never measured, on its stream
constexpr int kMostVain = 20;

int64_t Clamp(int64_t value, int64_t least, int64_t most) {
  return value < least ? least : value > most ? most : value;
}

}  // namespace

void Gate::Use(region::GpuTimeDevice* account, CostBook* book, const DriverPort* driver) {
  account_ = account;
  book_ = book;
  driver_ = driver;
}

Meter* Gate::MeterOf(const void* context) {
  Measured* unused = nullptr;
  for (Measured& m : measured_) {
    if (m.context == context) return &m.meter;
    if (m.context == nullptr && unused == nullptr) unused = &m;
  }
  if (unused == nullptr) return nullptr;
  unused->context = context;
  unused->meter.Use(driver_, book_);
  return &unused->meter;
}

Meter* Gate::FindMeter(const void* context) {
  for (Measured& m : measured_) {
    if (m.context == context && context != nullptr) return &m.meter;
  }
  return nullptr;
}

void Gate::Changed(uint64_t kind) {
  for (Measured& m : measured_) {
    if (m.context != nullptr) m.meter.Changed(kind);
  }
}

void Gate::DropContext(const void* context) {
  for (Measured& m : measured_) {
    if (m.context != context || context == nullptr) continue;
    m.meter.DropAll();
    m.context = nullptr;
  }
}

void Gate::DropStream(const void* stream) {
  for (Measured& m : measured_) {
    if (m.context != nullptr) m.meter.DropStream(stream);
  }
}

bool Gate::Pending() const {
  for (const Measured& m : measured_) {
    if (m.context != nullptr && m.meter.Pending()) return true;
  }
  return false;
}

Meter::Late Gate::LateFor(const StreamRef& stream) const {
  Meter::Late latest = Meter::kInTime;
  for (const Measured& m : measured_) {
    const Meter::Late late = m.context == nullptr ? Meter::kInTime : m.meter.LateFor(stream);
    latest = late > latest ? late : latest;
  }
  return latest;
}

int64_t Gate::Beside(const StreamRef& stream, int64_t part, int64_t now) const {
  int64_t most = 0;
  for (const Measured& m : measured_) {
    const int64_t beside = m.context == nullptr ? 0 : m.meter.Beside(stream, part, now);
    most = beside > most ? beside : most;
  }
  return most;
}

bool Gate::Long() const {
  for (const Measured& m : measured_) {
    if (m.context != nullptr && m.meter.Longest() >= kTurn) return true;
  }
  return false;
}

bool Gate::Guesses() const {
  for (const Measured& m : measured_) {
    if (m.context != nullptr && m.meter.Guesses()) return true;
  }
  return false;
}

int64_t Gate::ReachedAt() const {
  int64_t last = 0;
  for (const Measured& m : measured_) {
    if (m.context != nullptr && m.meter.reached_at() > last) last = m.meter.reached_at();
  }
  return last;
}

int64_t Gate::InFlight(int64_t now) const {
  int64_t all = 0;
  for (const Measured& m : measured_) {
    if (m.context != nullptr) all += m.meter.InFlight(now);
  }
  return all;
}

// Of one without a limit: an equal part of what the limits of the others leave. It holds nothing, and only says whose
// turn is next.
uint32_t Gate::RateOf(const Terms& terms, const TurnView& view) const {
  if (terms.limit == 0) {
    const int64_t left = (region::kFullRate - view.limited) / (1 + view.unlimited);
    return static_cast<uint32_t>(Clamp(left, kLeastRate, region::kFullRate - 1));
  }
  return region::CommonBurstRate(terms.limit, terms.ceiling, view.limited + view.unlimited * region::kFullRate);
}

int64_t Gate::Scale() const {
  int64_t scale = Meter::kWhole;
  for (const Measured& m : measured_) {
    if (m.context != nullptr) scale = m.meter.scale();
  }
  return scale;
}

// What an overdrawn account waits for. Streams never end together, and each takes marks where it begins and ends, so
// the more there are the longer they go on.
int64_t Gate::Release(const TurnView& view, int streams) const {
  // Beside others that rest, too, the GPU would be idle.
  const bool beside = view.limited != 0 || view.unlimited != 0;
  if (view.hungry != 0 && (!beside || view.at_work != 0)) return kTurn;
  return Clamp(kBurst * streams, kBurst, kFlightAlone);
}

int Gate::Streams(int64_t now) const {
  int streams = 0;
  for (const Measured& m : measured_) {
    if (m.context != nullptr) streams += m.meter.Streams(now);
  }
  return streams;
}

int64_t Gate::Flight(const Terms& terms, const TurnView& view) const {
  if (terms.gives_way || view.higher) return kFlightUnder;
  if (view.present == 0) return kFlightAlone;
  // Beside one that can not be interrupted the driver gives slices: enough for more than one.
  return view.beside ? 2 * kLeastTurn : kFlight;
}

int64_t Gate::Spacing(const Terms& terms, int64_t now) const {
  const TurnView view = turns_.Look(terms.rank, now);
  const int64_t half = Flight(terms, view) / 2;
  return view.lower ? kHandover : half < kSegment ? half : kSegment;
}

Turns::State Gate::StateOf(const Terms& terms, int64_t balance, bool long_launch, int64_t now) const {
  return {.rank = terms.rank,
          .rate = terms.limit,
          .owed = terms.limit != 0 && balance > 0,
          .zero_at = region::Load(account_->zero_at),
          .long_launch = long_launch,
          .in_flight = InFlight(now)};
}

// What a full GPU loses is missing to all, so a share lags by kBank at most while no other lags less. One without a
// limit neither saves nor owes more than that: the others had use for what it had, or they had not.
void Gate::Forgive(const Terms& terms, const TurnView& view, uint32_t rate, int64_t now) {
  const int64_t lag = now - region::Load(account_->zero_at);
  if (lag > kBank && (terms.limit == 0 || (view.limited != 0 && lag <= view.least_lag))) {
    region::GpuTimeForgo(account_, -region::GpuTimeEarned(kBank, rate), now, rate);
  }
  if (terms.limit == 0 && lag < -kBank) region::Store(account_->zero_at, now + kBank);
}

// A share that rests beside others has left them its time, and what was saved at a higher limit is not had at a lower
// one.
void Gate::Forgo(const Terms& terms, const TurnView& view, uint32_t rate, int64_t now) {
  const bool rested = view.hungry != 0 && now - region::Load(account_->last_charge) > kWants;
  if (rested) region::GpuTimeForgo(account_, -region::kIdleCap, now, rate);
  if (terms.limit < limit_) region::GpuTimeForgo(account_, -region::GpuTimeEarned(kBank, rate), now, rate);
  limit_ = terms.limit;
}

void Gate::Charge(const Terms& terms, int64_t ns, uint32_t rate, int64_t now) {
  region::GpuTimeCharge(account_, ns, now, rate);
  if (terms.own != 0) region::GpuTimeCharge(&own_, ns, now, terms.own);
}

Gate::Polled Gate::Poll(const Terms& terms, int64_t now, bool more_is_to_come) {
  Polled polled;
  const TurnView view = turns_.Look(terms.rank, now);
  const uint32_t rate = RateOf(terms, view);
  int64_t correction = 0;
  for (Measured& m : measured_) {
    if (m.context != nullptr) correction += m.meter.Poll(view.at_work, now);
  }
  // What is saved up while something late runs is not lost, and pays for that, but for what a launch may wait for.
  if (Pending() && terms.limit != 0) {
    region::GpuTimeWaits(account_, now);
    const int64_t saved = region::GpuTimeBalance(account_, now, rate) - correction;
    for (Measured& m : measured_) {
      if (m.context != nullptr) correction += m.meter.PayAhead(saved - 2 * kTurn);
    }
  }
  if (correction != 0) Charge(terms, correction, rate, now);
  turns_.Had(correction, region::Load(account_->zero_at));
  if (!Pending() && InFlight(now) == 0) {
    // The thread of a more important one may be about to launch what comes next.
    polled.watch = view.lower && now - ReachedAt() < kHandover;
    polled.ended = !polled.watch && !more_is_to_come && turns_.Ended(now);
  } else if (view.lower || Long()) {
    // What takes its time beside others takes longer than was expected.
    turns_.Went(InFlight(now), true, now);
    polled.watch = view.lower;
  }
  return polled;
}

Turns::Verdict Gate::Ask(const Terms& terms, const StreamRef& stream, int64_t cost, Wait* wait, int64_t now) {
  Poll(terms, now, true);
  const TurnView view = turns_.Look(terms.rank, now);
  turns_.Wants(view, now);
  const uint32_t rate = RateOf(terms, view);
  if (view.beside || (view.at_work != 0 && Long())) region::GpuTimeBesideLong(account_, now);
  region::GpuTimeBalance(account_, now, rate);
  Forgo(terms, view, rate, now);
  const int64_t balance = region::GpuTimeBalance(account_, now, rate);
  const int64_t in_flight = InFlight(now);
  Turns::Verdict held{.go = false};
  // Streams that run side by side end together, or the last one would have the GPU for itself.
  // What ends after the others makes a debt, so that is small: else each would be beside the one before, for ever.
  const int64_t beside = Beside(stream, balance > -kBurst ? cost / 2 : cost, now);
  if (terms.limit != 0) {
    // As soon as one process of the container goes on all may, and the one that waits for longest is to be the first.
    if (!wait->overdrawn) wait->streams = Streams(now);
    const int64_t release = view.sibling ? 0 : Release(view, wait->streams) + view.before * kHandover;
    if (balance <= (wait->overdrawn ? release : 0) && beside == 0) {
      wait->overdrawn = true;
      region::GpuTimeWaits(account_, now);
      turns_.Rests(now);
      if (!Pending() && in_flight == 0) turns_.Ended(now);
      held.until = now + Clamp(region::WallToEarn(release - balance, rate), kHandover / 4, kLongestSleep);
      return held;
    }
  }
  if (terms.own != 0) {
    const int64_t own = region::GpuTimeBalance(&own_, now, terms.own);
    if (own <= (wait->own_overdrawn ? kBurst : 0)) {
      wait->own_overdrawn = true;
      region::GpuTimeWaits(&own_, now);
      turns_.Rests(now);
      held.until = now + Clamp(region::WallToEarn(kBurst - own, terms.own), kHandover / 4, kLongestSleep);
      return held;
    }
  }
  const int64_t most = Flight(terms, view);
  // To what is in flight, of which streams have parts side by side.
  const int64_t adds = cost * Scale() / Meter::kWhole;
  const int64_t ahead = beside + (most - adds > kHandover ? most - adds : kHandover);
  const Meter::Late late = LateFor(stream);
  if (late == Meter::kInTime) {
    vain_ = 0;
    wait->held_since = 0;
  } else if (wait->held_since == 0) {
    wait->held_since = now;
  }
  // The GPU may wait for a launch that is held, so after a while it goes, and after each one twice as much.
  const int64_t allowed = (most << vain_) - most - adds;
  const int64_t patience = late == Meter::kUnknown && !waits_ ? kUnknownPatience * kPatience : kPatience;
  if (late != Meter::kInTime && in_flight > allowed && now - wait->held_since >= patience) {
    waits_ |= late == Meter::kUnknown;
    if (vain_ < kMostVain) ++vain_;
  } else if (late != Meter::kInTime ? in_flight > allowed : in_flight > ahead || Guesses()) {
    turns_.Went(in_flight + 2 * kHandover, view.lower, now);  // more is to come
    held.until = now + Clamp(in_flight - ahead, kHandover / 4, kLongestPoll);
    return held;
  }
  Turns::State state = StateOf(terms, balance, cost >= kTurn || late != Meter::kInTime || Long(), now);
  state.late = late != Meter::kInTime;
  const Turns::Verdict verdict = turns_.Ask(view, state, now);
  if (!verdict.go) region::GpuTimeWaits(account_, now);
  return verdict;
}

Gate::Paid Gate::Pay(const Terms& terms, int64_t cost, int64_t left, int64_t now) {
  const TurnView view = turns_.Look(terms.rank, now);
  const uint32_t rate = RateOf(terms, view);
  const int64_t scale = Scale();
  Paid paid;
  paid.watch = view.lower;
  paid.lease = view.higher || view.lower || terms.gives_way ? 0 : kLease;
  const int64_t taken = (cost + paid.lease - left) * scale / Meter::kWhole;
  paid.charged = cost * scale / Meter::kWhole;
  Charge(terms, taken, rate, now);
  turns_.Had(taken, region::Load(account_->zero_at));
  Forgive(terms, view, rate, now);
  // Of launches that are short against the lease more are to come.
  const int64_t more = 4 * cost < paid.lease ? paid.lease : 0;
  turns_.Went(InFlight(now) + paid.charged + more, view.lower, now);
  return paid;
}

void Gate::GiveBack(const Terms& terms, int64_t lease, int64_t now) {
  Charge(terms, -lease, RateOf(terms, turns_.Look(terms.rank, now)), now);
}

}  // namespace hami::vgpu::time
