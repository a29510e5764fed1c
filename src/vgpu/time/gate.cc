// SPDX-License-Identifier: Apache-2.0
#include "vgpu/time/gate.h"

namespace hami::vgpu::time {

// One without a limit has an equal part of what the limits of the others leave. It holds nothing, and only says whose
// turn is next.
bool Gate::Look(const Terms& terms, int64_t now) {
  view_ = turns_.Look(terms.rank, now);
  const int64_t left = (region::kFullRate - view_.limited) / (1 + view_.unlimited);
  rate_ = terms.limit == 0 ? static_cast<uint32_t>(std::clamp<int64_t>(left, kLeastRate, region::kFullRate - 1))
                           : region::CommonBurstRate(terms.limit, terms.ceiling,
                                                     view_.limited + view_.unlimited * region::kFullRate);
  return view_.present != 0;
}

// What an overdrawn account waits for. Streams never end together, and each takes marks where it begins and ends, so
// the more there are the longer they go on.
int64_t Gate::Release(int streams) const {
  // Beside others that rest, too, the GPU would be idle.
  const bool beside = view_.limited != 0 || view_.unlimited != 0;
  if (view_.hungry != 0 && (!beside || view_.at_work != 0)) return kTurn;
  return std::clamp(kBurst * streams, kBurst, kFlightAlone);
}

// Wall ns that all shares lag by more than when they last did, as what they had is less than what they are to have.
// What is in flight is had already, so it goes up and down.
int64_t Gate::Missed(int64_t now) {
  const int64_t rates = view_.limited + rate_;
  const int64_t missed = now - common_.at - (view_.had - common_.had) * region::kFullRate / rates;
  const bool same = rates == common_.rates && view_.hungry == common_.hungry && now - common_.seen_at < kWants;
  common_.seen_at = now;
  if (same && missed <= 0) return 0;
  common_ = {now, now, view_.had, rates, view_.hungry};
  return same ? missed / (1 + view_.siblings) : 0;
}

// What a full GPU loses is missing to all, and each gives up its part of that, unless one is near to having its own.
// One without a limit neither saves nor owes more than kBank, or than a turn of each: the others had use for what it
// had, or they had not. With less the order would be lost in which it is their turn.
void Gate::Forgive(const Terms& terms, int64_t now) {
  const int64_t lag = now - region::Load(account_->zero_at);
  const int64_t missed = view_.limited != 0 ? Missed(now) : 0;
  const int64_t bank = std::max(kBank, (1 + view_.hungry) * kTurn);
  int64_t most = terms.limit == 0 ? bank : lag;
  if (terms.limit != 0 && std::min(lag, view_.least_lag) > kBank) most = std::max(lag - missed, kBank);
  if (lag > most) region::GpuTimeForgo(account_, -region::GpuTimeEarned(most, rate_), now, rate_);
  if (terms.limit == 0 && lag < -bank) region::Store(account_->zero_at, now + bank);
}

// A share that rests beside others has left them its time, and what was saved at a higher limit is not had at a lower
// one.
void Gate::Forgo(const Terms& terms, int64_t now) {
  const bool rested = view_.hungry != 0 && now - region::Load(account_->last_charge) > kWants;
  if (rested) region::GpuTimeForgo(account_, -region::kIdleCap, now, rate_);
  if (terms.limit < limit_) region::GpuTimeForgo(account_, -region::GpuTimeEarned(kBank, rate_), now, rate_);
  limit_ = terms.limit;
}

void Gate::Charge(const Terms& terms, int64_t measured, int64_t now) {
  const int64_t ns = trim_.Charged(measured);
  region::GpuTimeCharge(account_, ns, now, rate_);
  if (terms.own != 0) region::GpuTimeCharge(&own_, ns, now, terms.own);
  turns_.Had(ns, region::Load(account_->zero_at));
}

Gate::Polled Gate::Poll(const Terms& terms, int64_t now, bool more_is_to_come) {
  int64_t correction = 0;
  for (Meter& meter : meters_) correction += meter.Poll(view_.at_work, view_.worked_until, now);
  // What is saved up while something late runs is not lost, and pays for that, but for what a launch may wait for.
  if (Pending() && terms.limit != 0) {
    region::GpuTimeWaits(account_, now);
    const int64_t saved = region::GpuTimeBalance(account_, now, rate_) - correction;
    for (Meter& meter : meters_) correction += meter.PayAhead(saved - 2 * kTurn);
  }
  if (correction != 0) Charge(terms, correction, now);
  Polled polled;
  // Less important ones wait until the work is seen to have ended, not until it was expected to.
  const bool works = view_.lower && !Pending() && (meters_[0].Works(now) || meters_[1].Works(now));
  if (!works && !Pending() && InFlight(now) == 0) {
    // The thread of a more important one may be about to launch what comes next.
    polled.watch = view_.lower && now - Most(&Meter::reached_at) < kHandover;
    polled.ended = !polled.watch && !more_is_to_come && turns_.Ended(now);
  } else if (view_.lower || Long()) {
    // What takes its time beside others takes longer than was expected.
    turns_.Went(InFlight(now), true, now);
    polled.watch = view_.lower;
  }
  return polled;
}

Launch Gate::Expect(const StreamRef& stream, uint64_t kind, uint64_t handle, const Meter* meter) const {
  const int64_t known = book_->Expected(kind, handle);
  const int64_t cost = known != 0 ? known : kFlight;
  return {stream, kind, handle, cost, meter == nullptr ? Launch::kWhole : meter->scale(), book_->Price(kind) != 0};
}

// It waits for the balance to reach `release` once it was not above zero.
bool Gate::Overdrawn(region::GpuTimeDevice* account, uint32_t rate, int64_t release, bool* overdrawn, int64_t now,
                     int64_t* until) {
  const int64_t balance = region::GpuTimeBalance(account, now, rate);
  if (balance > (*overdrawn ? release : 0)) return false;
  *overdrawn = true;
  region::GpuTimeWaits(account, now);
  turns_.Rests(account == account_, now);
  if (!Pending() && InFlight(now) == 0) turns_.Ended(now);
  // Then limits and orders are read again.
  *until = now + std::clamp(region::WallToEarn(release - balance, rate), kHandover / 4, kTurn / 2);
  return true;
}

// The GPU may wait for a launch that is held behind something late, so after a while it goes, and after each one twice
// as much.
bool Gate::TooMuchInFlight(const Terms& terms, const Launch& launch, int64_t beside, Wait* wait, int64_t now,
                           Turns::Verdict* held) {
  const int64_t in_flight = InFlight(now);
  const int64_t most = Flight(terms);
  const int64_t ahead = beside + std::max(most - launch.Charged(), kHandover);
  if (wait->late == Meter::kInTime) {
    vain_ = 0;
    wait->held_since = 0;
    if (in_flight <= ahead && !Most(&Meter::Guesses)) return false;
  } else {
    if (wait->held_since == 0) wait->held_since = now;
    if (in_flight <= (most << vain_) - most - launch.Charged()) return false;
    const bool unknown = wait->late == Meter::kUnknown;
    if (now - wait->held_since >= (unknown && !waits_ ? kUnknownPatience * kPatience : kPatience)) {
      waits_ |= unknown;
      vain_ = std::min(vain_ + 1, kMostVain);
      return false;
    }
  }
  turns_.Went(in_flight + 2 * kHandover, view_.lower, now);  // more is to come
  // So little is in flight that all of it would have ended when a thread that sleeps wakes: the last of it is looked
  // for.
  held->Wait(most == kFlightUnder, std::min(in_flight - ahead, kFlight / 4), now);
  return true;
}

Turns::Verdict Gate::Ask(const Terms& terms, const Launch& launch, Wait* wait, int64_t now) {
  Poll(terms, now, true);
  turns_.Wants(view_, now);
  if (view_.beside || (view_.at_work != 0 && Long())) region::GpuTimeBesideLong(account_, now);
  region::GpuTimeBalance(account_, now, rate_);  // what is saved goes by the rate of now, before some is given up
  Forgo(terms, now);
  Turns::Verdict held{.go = false};
  // Streams that run side by side end together, or the last one would have the GPU for itself.
  const int64_t beside = Most([&](const Meter& meter) { return meter.Beside(launch.stream, launch.cost, now); });
  if (terms.limit != 0 && beside == 0) {
    // As soon as one process of the container goes on all may, and the one that had the least is to be the first. Until
    // then what comes in is saved up, and those that waited for the turn launch none of it bit by bit. One that hardly
    // launches does not wait for that.
    if (!wait->overdrawn) wait->streams = Streams(now);
    const bool goes_on = view_.sibling || view_.behind;
    wait->overdrawn |= view_.rests && !goes_on && InFlight(now) == 0;
    const int64_t release = (goes_on ? 0 : Release(wait->streams)) + view_.before * kHandover;
    if (Overdrawn(account_, rate_, release, &wait->overdrawn, now, &held.until)) return held;
  }
  if (terms.own != 0 && Overdrawn(&own_, terms.own, kBurst, &wait->own_overdrawn, now, &held.until)) return held;
  Forgive(terms, now);
  wait->late = Most([&](const Meter& meter) { return meter.LateFor(launch.stream); });
  const Turns::State state{.rank = terms.rank,
                           .rate = (terms.limit + view_.siblings) / (1 + view_.siblings),
                           .owed = terms.limit != 0 && region::GpuTimeBalance(account_, now, rate_) > 0,
                           .long_launch = launch.cost >= kTurn || wait->late != Meter::kInTime || Long(),
                           .zero_at = region::Load(account_->zero_at),
                           .free = wait->late != Meter::kInTime || beside >= kTurn || (beside != 0 && Long()),
                           .in_flight = InFlight(now),
                           .next = launch.Charged()};
  if (!turns_.Leaves(view_, state, now) && TooMuchInFlight(terms, launch, beside, wait, now, &held)) return held;
  const Turns::Verdict verdict = turns_.Ask(view_, state, now);
  if (!verdict.go) region::GpuTimeWaits(account_, now);
  return verdict;
}

// One that is alone, launches all the time, and has less than its limit allows, does not have to look as often. What a
// more important one waits for is little. Beside others a launch that is paid from a lease may come when they have the
// turn, so what is long against one looks for itself.
int64_t Gate::LeaseFor(const Terms& terms, const Launch& launch, int64_t now) const {
  if (view_.hungry != 0 && 4 * launch.Charged() >= kLease) return 0;
  if (view_.higher || terms.gives_way) return kFlightUnder / 4;
  const bool busy = now - region::Load(account_->last_charge) < kWants;
  const bool spare = busy && view_.present == 0 && region::GpuTimeBalance(account_, now, rate_) > kBank;
  return spare ? std::max(kSegment, (kFlightAlone - InFlight(now)) / 2) : kLease;
}

int64_t Gate::Pay(const Terms& terms, const Launch& launch, int64_t left, int64_t now) {
  const int64_t whole = LeaseFor(terms, launch, now);
  // What did not suffice for this launch is kept, so that as much goes unseen by the book's cost whatever that is. If
  // it were less where the cost is too high, the mean that is paid would be too low. Beside others that mean is not
  // known.
  const int64_t lease = whole + (launch.cost < whole && view_.hungry == 0 ? std::min(left, launch.cost) : 0);
  Charge(terms, launch.Charged(launch.cost + lease - left), now);
  // Of launches that are short against the lease more are to come.
  turns_.Went(InFlight(now) + launch.Charged() + (4 * launch.cost < lease ? lease : 0), view_.lower, now);
  return lease;
}

}  // namespace hami::vgpu::time
