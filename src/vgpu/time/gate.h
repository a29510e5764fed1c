// SPDX-License-Identifier: Apache-2.0
//
// Whether a launch may go now: one gate for each device of the process. It holds a launch while the container's account
// is overdrawn, while more than a bounded amount of expected work is in flight, and while another has the turn. What is
// paid in the end comes from the meters. Nothing here sleeps, locks or reads a clock: the shell does, and asks again.
#pragma once

#include <stdint.h>

#include <algorithm>
#include <functional>

#include "region/gpu_time.h"
#include "vgpu/time/book.h"
#include "vgpu/time/meter.h"
#include "vgpu/time/trim.h"
#include "vgpu/time/turns.h"

namespace hami::vgpu::time {

// What the container may have, read anew at each look.
struct Terms {
  uint32_t limit = 0;    // 1/10000 of the GPU's time; 0: none
  uint32_t ceiling = 0;  // up to which idle time may be used; not above the limit: none
  uint32_t own = 0;      // what this process wants to have of that at most; 0: no less than all of it
  int32_t rank = 0;
  bool gives_way = false;  // it may be told to stop, by whom nobody knows before

  bool Limited() const { return limit != 0 || own != 0; }
};

class Gate {
 public:
  // Of one launch that is held.
  struct Wait {
    bool overdrawn = false, own_overdrawn = false;
    int streams = 0;         // that were at work when it came to be overdrawn
    int64_t held_since = 0;  // for what takes longer than was expected
    Meter::Late late = Meter::kInTime;
  };

  void Use(region::GpuTimeDevice* account, CostBook* book, const DriverPort* driver) {
    account_ = account;
    book_ = book;
    driver_ = driver;
  }
  Turns& turns() { return turns_; }
  // What NVML says of this process and of others, after a look.
  void Correct(const NvmlUsage& usage) { trim_.Correct(usage, view_.present); }

  // What the others on the GPU do; what follows goes by it. False: there are none, so launches may go without a look.
  bool Look(const Terms& terms, int64_t now);
  // A launch as the book and the meter of its context (nullptr: none) know it.
  Launch Expect(const StreamRef& stream, uint64_t kind, uint64_t handle, const Meter* meter) const;
  Turns::Verdict Ask(const Terms& terms, const Launch& launch, Wait* wait, int64_t now);
  // It goes: takes what it costs from the account, and a lease, of which `left` is still there. Returns the lease: what
  // the thread may pay from besides, in the book's ns.
  int64_t Pay(const Terms& terms, const Launch& launch, int64_t left, int64_t now);
  void GiveBack(const Terms& terms, int64_t ns, int64_t now) { Charge(terms, -ns, now); }
  // ns of work between marks.
  int64_t Spacing(const Terms& terms) const { return view_.lower ? kHandover : std::min(Flight(terms) / 2, kSegment); }
  // Less important ones wait for the end of what is launched, so that is to be looked for.
  bool Watched() const { return view_.lower; }

  // nullptr: this context is not measured. `make`: it is from now on, if there is room.
  Meter* MeterOf(const void* context, bool make = true) {
    Meter* free = nullptr;
    for (Meter& meter : meters_) {
      if (meter.context() == context && context != nullptr) return &meter;
      if (meter.context() == nullptr) free = &meter;
    }
    if (!make || context == nullptr || free == nullptr) return nullptr;
    free->Use(context, driver_, book_);
    return free;
  }
  // A graph of this kind does something else from now on.
  void Changed(uint64_t kind) {
    std::ranges::for_each(meters_, [=](Meter& meter) { meter.Changed(kind); });
  }
  void DropStream(const void* stream) {
    std::ranges::for_each(meters_, [=](Meter& meter) { meter.DropStream(stream); });
  }
  void DropContext(const void* context) {
    if (Meter* const meter = MeterOf(context, false); meter != nullptr) meter->Drop();
  }

  // Collects what was measured. `watch`: others wait for the end of what is under way, so it is to be looked for.
  struct Polled {
    bool watch = false, ended = false;
  };
  Polled Poll(const Terms& terms, int64_t now, bool more_is_to_come = false);
  bool Pending() { return Most(&Meter::Pending); }
  int64_t InFlight(int64_t now) const { return meters_[0].InFlight(now) + meters_[1].InFlight(now); }

 private:
  static constexpr int64_t kLeastRate = 100;       // of 10000
  static constexpr int64_t kUnknownPatience = 50;  // times kPatience: behind what was never measured, on its stream
  static constexpr int kMostVain = 20;

  int64_t Flight(const Terms& terms) const {
    return terms.gives_way || view_.higher ? kFlightUnder : view_.present == 0 ? kFlightAlone : kFlight;
  }
  int64_t Release(int streams) const;
  int64_t LeaseFor(const Terms& terms, const Launch& launch, int64_t now) const;
  int Streams(int64_t now) const { return meters_[0].Streams(now) + meters_[1].Streams(now); }
  // One of the launches under way is longer than a turn.
  bool Long() { return Most(&Meter::Longest) >= kTurn; }
  bool Overdrawn(region::GpuTimeDevice* account, uint32_t rate, int64_t release, bool* overdrawn, int64_t now,
                 int64_t* until);
  bool TooMuchInFlight(const Terms& terms, const Launch& launch, int64_t beside, Wait* wait, int64_t now,
                       Turns::Verdict* held);
  int64_t Missed(int64_t now);
  void Forgive(const Terms& terms, int64_t now);
  void Forgo(const Terms& terms, int64_t now);
  void Charge(const Terms& terms, int64_t ns, int64_t now);
  // The most that `of` says of a meter.
  template <typename Of>
  std::invoke_result_t<Of, Meter&> Most(Of of) {
    return std::max(std::invoke(of, meters_[0]), std::invoke(of, meters_[1]));
  }

  region::GpuTimeDevice* account_ = nullptr;
  region::GpuTimeDevice own_{};  // of this process alone, where it wants less than its container has
  Turns turns_;
  Trim trim_;
  TurnView view_;       // of the last look
  uint32_t rate_ = 1;   // of the account, as of then
  Meter meters_[2];     // one for each context
  bool waits_ = false;  // something was late for a second, and only what was let go then made it end
  int vain_ = 0;        // so often a launch went as the GPU might wait for it, since something was in time
  uint32_t limit_ = 0;
  struct Common {  // of all shares, when they last lagged by more
    int64_t at = 0, seen_at = 0, had = 0, rates = 0, hungry = 0;
  } common_;
  CostBook* book_ = nullptr;
  const DriverPort* driver_ = nullptr;
};

}  // namespace hami::vgpu::time
