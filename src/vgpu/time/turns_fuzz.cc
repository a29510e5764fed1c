// SPDX-License-Identifier: Apache-2.0
//
// A table of any content can be looked at and asked for a turn: what is to be waited for comes soon, and numbers are
// within bounds, however others lie. A gate that goes by it holds no launch for long but for its own account's sake.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "vgpu/time/gate.h"

namespace {

constexpr int64_t kNow = 1'000'000'000'000;
constexpr int64_t kMs = 1'000'000;

void Check(bool holds) {
  if (!holds) std::abort();
}

void AskGate(const hami::vgpu::time::TurnTable& table, int line) {
  using namespace hami;
  using vgpu::time::Gate;
  static vgpu::time::CostBook book;
  static const vgpu::time::DriverPort driver{
      nullptr,
      [](void*, vgpu::time::Event, vgpu::time::Event, int64_t*) { return int64_t{0}; },
      [](void*, vgpu::time::Event) {},
      [](void*, const void*, const vgpu::time::StreamRef&) { return false; },
  };
  region::GpuTimeDevice account{};
  const auto gate = std::make_unique<Gate>();
  gate->Use(&account, &book, &driver);
  gate->turns().Join(table, line);
  const vgpu::time::Terms terms{.limit = 3'000, .ceiling = 9'000, .rank = 1};
  Gate::Wait wait;
  for (int64_t now = kNow; now < kNow + 100 * kMs; now += kMs) {
    gate->Look(terms, now);
    const vgpu::time::Launch launch = gate->Expect({}, 1, 1, nullptr);
    const vgpu::time::Turns::Verdict verdict = gate->Ask(terms, launch, &wait, now);
    Check(verdict.go || verdict.until <= now + 10 * kMs);
    if (verdict.go) gate->Pay(terms, launch, 0, now);
    Check(account.zero_at < now + 1'000 * kMs);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hami;
  using vgpu::time::Turns;
  const auto area = std::make_unique<region::CommonArea>();
  std::memcpy(static_cast<void*>(area.get()), data,
              size < sizeof(region::CommonArea) ? size : sizeof(region::CommonArea));
  const region::CommonLines lines = region::CommonLinesOf(area.get());
  const uint64_t gpu = area->members[0].gpu;
  const int line = lines.Join(-1, uint64_t{5} << 32 | 7, gpu, kNow);
  const int turn = lines.Join(-1, vgpu::time::kTurnItself, gpu, kNow);
  if (line < 0 || turn < 0) return 0;
  const int count = area->used < region::kCommonMembers ? static_cast<int>(area->used) : int{region::kCommonMembers};
  const vgpu::time::TurnTable table{lines.lines, count, gpu, &lines.lines[turn].word};
  Turns turns;
  turns.Join(table, line);
  Turns::State state{.rank = 1, .rate = 3'000};
  for (int64_t now = kNow; now < kNow + 100 * kMs; now += kMs) {
    const vgpu::time::TurnView view = turns.Look(state.rank, now);
    Check(view.present >= 0 && view.present < count && view.hungry <= view.present && view.at_work <= view.present);
    Check(view.worked_until >= 0 && view.worked_until <= now);
    Check(view.had >= 0 && view.had < int64_t{1} << 48);
    Check(view.best >= -1 && view.best < count && view.limited >= 0 && view.unlimited >= 0);
    turns.Wants(view, now);
    const Turns::Verdict verdict = turns.Ask(view, state, now);
    Check(verdict.go || verdict.until < now + 10 * kMs);
    if (verdict.go) turns.Went(kMs, false, now);
    turns.Had(kMs, now);
    state.in_flight = verdict.go ? kMs : 0;
    state.free = now > kNow + 50 * kMs;
  }
  turns.Ended(kNow + 100 * kMs);
  turns.Rests(true, kNow + 100 * kMs);
  AskGate(table, line);
  return 0;
}
