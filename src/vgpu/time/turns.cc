// SPDX-License-Identifier: Apache-2.0
#include "vgpu/time/turns.h"

#include <tuple>

#include "region/gpu_time.h"

namespace hami::vgpu::time {
namespace {

using region::Load, region::Store;

constexpr int kLineBits = 10;
constexpr uint64_t kLineMask = (uint64_t{1} << kLineBits) - 1;
constexpr int64_t kTick = 1'000;                 // ns; the word has us
constexpr uint64_t kMostHad = INT64_MAX / 2;     // ns, so that the sum of two stays within bounds,
constexpr int64_t kHadWraps = int64_t{1} << 48;  // and that of all

uint64_t WordOf(int line, int64_t now) {
  return static_cast<uint64_t>(now / kTick) << kLineBits | static_cast<uint64_t>(line + 1);
}
int LineOf(uint64_t word) { return static_cast<int>(word & kLineMask) - 1; }
// What lies ahead was never.
int64_t SinceOf(uint64_t word, int64_t now) {
  const uint64_t tick = word >> kLineBits;
  return tick < static_cast<uint64_t>((now + kWants) / kTick) ? static_cast<int64_t>(tick) * kTick : 0;
}

bool Outranks(int32_t a, int32_t b) { return a >= 0 && a < b; }
uint64_t ContainerOf(const TurnLine& line) { return Load(line.process) >> 32; }
// Times out of reach say nothing.
int64_t Sane(int64_t until, int64_t now) { return until < now + region::kCommonReach ? until : 0; }
int64_t HadOf(const TurnLine& line) { return static_cast<int64_t>(Load(line.word) & kMostHad); }
bool Within(int64_t at, int64_t now, int64_t span) { return at > now - span && at < now + span; }

}  // namespace

bool Turns::Better(int a, int b) const {
  const TurnLine& x = table_.lines[a];
  const TurnLine& y = table_.lines[b];
  const int32_t rank_x = Load(x.rank), rank_y = Load(y.rank);
  if (Outranks(rank_x, rank_y) || Outranks(rank_y, rank_x)) return Outranks(rank_x, rank_y);
  const bool siblings = ContainerOf(x) == ContainerOf(y);
  const auto order = [siblings](const TurnLine& line, int i) {
    return std::tuple((Load(line.flags) & kOwed) == 0, siblings ? 0 : Load(line.zero_at), HadOf(line), i);
  };
  return order(x, a) < order(y, b);
}

TurnView Turns::Look(int32_t rank, int64_t now) const {
  TurnView view;
  if (!joined()) return view;
  const uint64_t container = ContainerOf(*mine());
  view.had = HadOf(*mine()) % kHadWraps;
  for (int i = 0; i < table_.count; ++i) {
    const TurnLine& line = table_.lines[i];
    const uint64_t process = Load(line.process);
    if (i == line_ || process == 0 || process == kTurnItself || Load(line.gpu) != table_.gpu) continue;
    if (!Within(Load(line.seen_at), now, region::kCommonPresent)) continue;
    ++view.present;
    const int32_t other = Load(line.rank);
    view.higher |= Outranks(other, rank);
    view.lower |= Outranks(rank, other);
    const int64_t work_until = Sane(Load(line.work_until), now);
    const bool works = work_until > now;
    view.worked_until = std::max(view.worked_until, std::min(work_until, now));
    view.beside |= works && (Load(line.flags) & kLong) != 0;
    view.at_work += works ? 1 : 0;
    if (Within(Load(line.waiting_at), now, kTurn / 2) && (view.best < 0 || Better(i, view.best))) view.best = i;
    if (!works && !Within(Load(line.seen_at), now, kWants)) continue;
    ++view.hungry;
    const uint32_t rate = Load(line.rate);
    const int64_t zero_at = Load(line.zero_at);
    const int64_t lag = Within(zero_at, now, region::kLongestDebt) ? now - zero_at : 0;
    view.least_lag = std::min(view.least_lag, rate != 0 ? lag : INT64_MAX);
    view.had = (view.had + (rate != 0 ? HadOf(line) : 0)) % kHadWraps;
    if (process >> 32 == container) {
      view.rests |= (Load(line.flags) & kRests) != 0;
      view.sibling |= (Load(line.flags) & kRests) == 0 && works;
      ++view.siblings;
      view.before += HadOf(line) < HadOf(*mine()) ? 1 : 0;
      view.most = std::max(view.most, HadOf(line));
    } else {
      view.limited += rate;
      view.unlimited += rate == 0 ? 1 : 0;
    }
  }
  view.behind = view.most - HadOf(*mine()) > kTurn + kFlight;
  return view;
}

bool Turns::Leaves(const TurnView& view, const State& state, int64_t now) const {
  if (!joined() || state.free || view.best < 0) return false;
  const uint64_t word = Load(*table_.word);
  if (LineOf(word) != line_ || leaves_) return LineOf(word) == line_;
  const int32_t other = Load(table_.lines[view.best].rank);
  if (Outranks(other, state.rank) || Outranks(state.rank, other)) return Outranks(other, state.rank);
  const uint16_t flags = Load(table_.lines[view.best].flags);
  const bool soon = (flags & kFresh) != 0 && ((flags & kOwed) != 0 || !state.owed);
  // Of launches that go whole, as many as come nearest to the driver's slice.
  const int64_t end = SinceOf(word, now) + (soon ? kLeastTurn - state.next / 2 : kTurn);
  return now + state.in_flight > end && (soon || Better(view.best, line_));
}

void Turns::Publish(const State& state, int64_t now) {
  if (!joined()) return;
  TurnLine* const line = mine();
  Store(line->rank, state.rank);
  Store(line->rate, static_cast<uint16_t>(state.rate));
  Store(line->zero_at, state.zero_at);
  Store(line->flags, static_cast<uint16_t>((state.owed ? kOwed : 0) | (refused_ ? 0 : kFresh) |
                                           (state.long_launch ? kLong : 0) | (looks_ ? kLooks : 0)));
  Store(line->seen_at, now);
}

void Turns::Wants(const TurnView& view, int64_t now) {
  if (!joined()) return;
  const bool rested = waits_since_ == 0 && !refused_ && Load(mine()->work_until) < now - kUnused;
  if (rested) Store(mine()->word, static_cast<uint64_t>(std::max(HadOf(*mine()), view.most - kBank)));
}

void Turns::Had(int64_t ns, int64_t zero_at) {
  if (!joined()) return;
  Store(mine()->word, static_cast<uint64_t>(std::max<int64_t>(HadOf(*mine()) + ns, 0)));
  Store(mine()->zero_at, zero_at);
}

bool Turns::Pass(uint64_t word, int line, int64_t now) {
  return __atomic_compare_exchange_n(table_.word, &word, WordOf(line, now), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

Turns::Verdict Turns::Go(Verdict verdict) {
  leaves_ = refused_ = looks_ = false;
  waits_since_ = 0;
  Store(mine()->waiting_at, int64_t{0});
  return verdict;
}

Turns::Verdict Turns::Ask(const TurnView& view, const State& state, int64_t now) {
  Verdict verdict;
  Publish(state, now);
  if (!joined() || state.free) return verdict;
  TurnLine* const line = mine();
  const uint64_t word = verdict.seen = Load(*table_.word);
  const int holder = LineOf(word);
  if (holder == line_) {
    if (!Leaves(view, state, now)) return Go(verdict);
    if (!leaves_) Went(state.in_flight, view.lower || state.long_launch, now);  // no more is to come
    leaves_ = refused_ = true;
    Publish(state, now);
    Store(line->waiting_at, now);
    // Where both have work at the end of one of its slices the GPU changes to and fro, so one that does not have to
    // wake goes on when there is none left.
    const int64_t handover = (Load(table_.lines[view.best].flags) & kLooks) != 0 ? 0 : kHandover;
    verdict.Wait(true, state.in_flight - handover, now);
    if (state.in_flight > handover) return verdict;
    leaves_ = false;
    verdict.passed = Pass(word, view.best, now);
    verdict.seen = Load(*table_.word);
    verdict.Wait(false, 2 * kHandover, now);  // it is known by then how long that lasts
    return verdict;
  }
  leaves_ = false;
  const bool known = holder >= 0 && holder < table_.count;
  const int64_t since = SinceOf(word, now);
  const int64_t until = known ? Sane(Load(table_.lines[holder].work_until), now) : 0;
  // One that was given the turn and did not launch yet may still do so.
  const int64_t ends_at = until > since ? until : since + kUnused;
  // It is known of one that leaves. Of one that may go on it is the end of what it paid for, which is later.
  const bool exact = looks_ && known && Load(table_.lines[holder].waiting_at) != 0;
  // What is launched behind own work that has not ended is done before the holder's.
  const int64_t free_at =
      std::max(ends_at - (exact ? 0 : kHandover), state.in_flight > 0 ? now + std::min(state.in_flight, kHandover) : 0);
  const bool outranks = known && Outranks(state.rank, Load(table_.lines[holder].rank));
  // One that has the turn, and says that it waits for one, had its time, and so had one that did not take it.
  const bool first = view.best < 0 || view.best == holder || now >= free_at + kUnused || Better(line_, view.best);
  // What can not be interrupted does not keep the others from launching beside it.
  if (waits_since_ < since) waits_since_ = now;
  const bool over = known && now >= waits_since_ + kTurn + kFlight;
  if (over && view.beside && !Outranks(Load(table_.lines[holder].rank), state.rank)) {
    Store(line->waiting_at, int64_t{0});
    return verdict;
  }
  if ((outranks || now >= free_at) && first && Pass(word, line_, now)) return Go(verdict);
  Store(line->waiting_at, now);  // and again long before that counts no more
  verdict.Wait(first, std::min(free_at - now, kUnused), now);
  looks_ = verdict.soon &= ends_at == ends_at_;
  ends_at_ = ends_at;
  Publish(state, now);
  return verdict;
}

void Turns::Rests(bool overdrawn, int64_t now) {
  if (!joined()) return;
  refused_ = true;
  Store(mine()->flags, static_cast<uint16_t>(Load(mine()->flags) | (overdrawn ? kRests : 0)));
  Store(mine()->waiting_at, int64_t{0});
  Store(mine()->seen_at, now);
}

}  // namespace hami::vgpu::time
