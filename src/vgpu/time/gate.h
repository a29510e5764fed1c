// SPDX-License-Identifier: Apache-2.0
//
// Whether a launch may go now: one gate for each device of the process. It holds a launch while the container's account
// is overdrawn, while more than a bounded amount of expected work is in flight, and while another has the turn. What is
// paid in the end comes from the meters. Nothing here sleeps, locks or reads a clock: the shell does, and asks again.
#pragma once

#include <stdint.h>

#include "region/gpu_time.h"
#include "vgpu/time/book.h"
#include "vgpu/time/meter.h"
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
  static constexpr int kContexts = 2;

  struct Wait {
    bool overdrawn = false;
    bool own_overdrawn = false;
    int streams = 0;         // that were at work when it came to be overdrawn
    int64_t held_since = 0;  // for what takes longer than was expected
  };
  struct Paid {
    int64_t charged = 0;
    bool watch = false;  // less important ones wait for its end, so that is to be looked for
    int64_t lease = 0;   // what the thread may pay from besides, in the book's ns
  };

  void Use(region::GpuTimeDevice* account, CostBook* book, const DriverPort* driver);
  Turns& turns() { return turns_; }

  Turns::Verdict Ask(const Terms& terms, const StreamRef& stream, int64_t cost, Wait* wait, int64_t now);
  // It goes: takes what it costs from the account, and a lease, of which `left` is still there.
  Paid Pay(const Terms& terms, int64_t cost, int64_t left, int64_t now);
  void GiveBack(const Terms& terms, int64_t lease, int64_t now);
  // ns of work between marks.
  int64_t Spacing(const Terms& terms, int64_t now) const;

  // nullptr: this context is not measured.
  Meter* MeterOf(const void* context);
  Meter* FindMeter(const void* context);
  // A graph of this kind does something else from now on.
  void Changed(uint64_t kind);
  void DropContext(const void* context);
  void DropStream(const void* stream);

  // Collects what was measured. `watch`: others wait for the end of what is under way, so it is to be looked for.
  struct Polled {
    bool watch = false;
    bool ended = false;
  };
  Polled Poll(const Terms& terms, int64_t now, bool more_is_to_come = false);
  bool Pending() const;
  int64_t InFlight(int64_t now) const;
  // Others are there, so no launch goes without a look.
  bool Alone(const Terms& terms, int64_t now) const { return turns_.Look(terms.rank, now).present == 0; }

 private:
  uint32_t RateOf(const Terms& terms, const TurnView& view) const;
  int64_t Flight(const Terms& terms, const TurnView& view) const;
  int64_t Release(const TurnView& view, int streams) const;
  int Streams(int64_t now) const;
  int64_t Scale() const;
  Turns::State StateOf(const Terms& terms, int64_t balance, bool long_launch, int64_t now) const;
  void Forgive(const Terms& terms, const TurnView& view, uint32_t rate, int64_t now);
  void Charge(const Terms& terms, int64_t ns, uint32_t rate, int64_t now);
  void Forgo(const Terms& terms, const TurnView& view, uint32_t rate, int64_t now);

  Meter::Late LateFor(const StreamRef& stream) const;
  int64_t Beside(const StreamRef& stream, int64_t part, int64_t now) const;
  bool Guesses() const;
  bool Long() const;
  int64_t ReachedAt() const;

  struct Measured {
    const void* context = nullptr;
    Meter meter;
  };
  region::GpuTimeDevice* account_ = nullptr;
  region::GpuTimeDevice own_{};  // of this process alone, where it wants less than its container has
  Turns turns_;
  Measured measured_[kContexts];
  bool waits_ = false;  // something was late for a second, and only what was let go then made it end
  int vain_ = 0;        // so often a launch went as the GPU might wait for it, since something was in time
  uint32_t limit_ = 0;
  CostBook* book_ = nullptr;
  const DriverPort* driver_ = nullptr;
};

}  // namespace hami::vgpu::time
