// SPDX-License-Identifier: Apache-2.0
//
// A GPU that is shared by time slices, and programs that launch on it through gates, on a clock that nobody waits for.
// The GPU has what was measured on a real one: turns of 2.083 ms round robin among the contexts that have work, 0.16 ms
// to change between them, half of that when the one before has nothing left, 1.79 us between kernels, 1.28 us for an
// event, 2 us more on a stream that was idle (most of which is the
// launch's way there). Hosts take 3 us for a launch and 50 us to wake. All of it is deterministic.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "vgpu/time/gate.h"

namespace hami::vgpu::time::testing {

inline constexpr int64_t kUs = 1'000;
inline constexpr int64_t kMs = 1'000'000;

struct GpuModel {
  int64_t slice = 2'083'000, change = 160'000, change_idle = 80'000;
  int64_t gap = 1'790, event = 1'280, idle_start = 280;
};

class Gpu {
 public:
  struct Item {
    int64_t left = 0;
    int event = kKernel;
  };
  static constexpr int kKernel = -1, kWait = -2;
  struct Stream {
    std::deque<Item> items;
    bool HasWork() const { return !items.empty() && items.front().event != kWait; }
  };
  struct Context {
    std::vector<Stream> streams;
    bool overlaps = false;  // streams run side by side, else one after the other
    int64_t busy = 0;       // ns that it held the GPU
    bool HasWork() const {
      return std::any_of(streams.begin(), streams.end(), [](const Stream& stream) { return stream.HasWork(); });
    }
  };

  explicit Gpu(const GpuModel& model) : model_(model) {}
  const GpuModel& model() const { return model_; }
  int NewContext(bool overlaps) {
    contexts_.push_back({});
    contexts_.back().overlaps = overlaps;
    return static_cast<int>(contexts_.size()) - 1;
  }
  void Launch(int context, int stream, int64_t length) {
    auto& items = Of(context, stream).items;
    const int64_t start = items.empty() ? model_.idle_start : 0;
    items.push_back({start + length + model_.gap, kKernel});
  }
  // What is launched behind it waits until the end of the wait.
  void Wait(int context, int stream) { Of(context, stream).items.push_back({0, kWait}); }
  void EndWait(int context, int stream) {
    auto& items = Of(context, stream).items;
    items.erase(std::find_if(items.begin(), items.end(), [](const Item& item) { return item.event == kWait; }));
  }
  int Record(int context, int stream) {
    reached_.push_back(-1);
    Of(context, stream).items.push_back({model_.event, static_cast<int>(reached_.size()) - 1});
    return static_cast<int>(reached_.size()) - 1;
  }
  int64_t ReachedAt(int event) const { return reached_[static_cast<size_t>(event)]; }
  int64_t BusyOf(int context) const { return At(context).busy; }
  size_t Queued(int context) const {
    size_t all = 0;
    for (const Stream& stream : At(context).streams) all += stream.items.size();
    return all;
  }
  size_t Launched(int context) const {
    size_t all = 0;
    for (const Stream& stream : At(context).streams) {
      for (const Item& item : stream.items) all += item.event < 0 ? 1U : 0U;
    }
    return all;
  }
  bool Idle(int context, int stream) { return Of(context, stream).items.empty(); }

  int64_t changes[2] = {};  // while the one before had work, and when it had not
  int64_t idle = 0;         // ns without any work

  void Advance(int64_t now) {
    while (now_ < now) Step(now);
  }

 private:
  Context& At(int context) { return contexts_[static_cast<size_t>(context)]; }
  const Context& At(int context) const { return contexts_[static_cast<size_t>(context)]; }
  Stream& Of(int context, int stream) {
    auto& streams = At(context).streams;
    if (streams.size() <= static_cast<size_t>(stream)) streams.resize(static_cast<size_t>(stream) + 1);
    return streams[static_cast<size_t>(stream)];
  }
  // Until something ends, `now` at the latest.
  void Step(int64_t now) {
    if (changing_ > 0) {
      const int64_t part = std::min(changing_, now - now_);
      changing_ -= part;
      now_ += part;
      return;
    }
    if (current_ < 0 || slice_left_ == 0 || !At(current_).HasWork()) {
      if (!Choose(now)) return;
      if (changing_ > 0) return;
    }
    Context& context = At(current_);
    int64_t part = std::min(slice_left_, now - now_);
    std::vector<Stream*>& running = running_;
    running.clear();
    for (Stream& stream : context.streams) {
      if (!stream.HasWork()) continue;
      running.push_back(&stream);
      part = std::min(part, stream.items.front().left);
      if (!context.overlaps) break;
    }
    now_ += part;
    slice_left_ -= part;
    context.busy += part;
    for (Stream* stream : running) {
      stream->items.front().left -= part;
      while (stream->HasWork() && stream->items.front().left == 0) {
        if (const int event = stream->items.front().event; event >= 0) reached_[static_cast<size_t>(event)] = now_;
        stream->items.pop_front();
      }
    }
  }
  bool Choose(int64_t now) {
    const int count = static_cast<int>(contexts_.size());
    int next = -1;
    for (int i = 1; i <= count && next < 0; ++i) {
      const int candidate = (current_ + i + count) % count;
      if (At(candidate).HasWork()) next = candidate;
    }
    if (next < 0) {
      idle += now - now_;
      now_ = now;
      return false;
    }
    if (next != current_ && current_ >= 0) {
      const bool full = At(current_).HasWork();
      changing_ = full ? model_.change : model_.change_idle;
      ++changes[full ? 0 : 1];
    }
    current_ = next;
    slice_left_ = model_.slice;
    return true;
  }

  GpuModel model_;
  std::vector<Context> contexts_;
  std::vector<int64_t> reached_;
  std::vector<Stream*> running_;  // of a step
  int64_t now_ = 0, slice_left_ = 0, changing_ = 0;
  int current_ = -1;
};

class World;

// What a program does next on its one thread.
struct Step {
  enum What { kLaunch, kSync, kDrain, kThink, kEnd } what = kEnd;
  int64_t length = 0;  // of the kernel, or of the thought; so many launches are left after a drain
  int stream = 0;
  uint64_t kind = 1;
  uint64_t handle = 0;  // 0: as the kind
  uint64_t Handle() const { return handle != 0 ? handle : kind; }
};

// What the book knows a kind by: well mixed, as the library's.
inline uint64_t KindOf(uint64_t kind) { return kind * 0x9e37'79b9'7f4a'7c15 | 1; }

class Tenant {
 public:
  using Program = std::function<Step(int64_t now)>;
  Tenant(World* world, Terms terms, bool paced, bool overlaps, uint32_t container, Program program);

  void Run(int64_t now);
  void Help(int64_t now);

  int64_t wake = 0, help_at = 0;
  bool waits_for_turn = false, looks_for_turn = false;
  int context;
  int64_t done = 0;   // ns of kernels that were launched
  int64_t quick = 0;  // of those on other streams than the first
  int64_t looks = 0, holds = 0, marks = 0, most_in_flight = 0;
  CostBook& book() { return book_; }
  Terms terms;
  Gate gate;
  std::vector<int64_t> latencies;  // of launches that were waited for

 private:
  struct Spent {
    uint64_t kind = 0;
    int64_t cost = 0;
    int launches = 0;
  };
  static constexpr size_t kQueue = 1024;
  static constexpr size_t kLeaseStreams = 8;
  // Of a launch that was admitted: between what is decided and what is done the thread may be taken off its processor.
  struct Admitted {
    enum { kNone, kBegun, kLaunched } stage = kNone;
    bool measured = false;
    time::Launch launch;
    Meter::Plan plan;
    Event empty = nullptr, begin = nullptr;
    int64_t began_at = 0;
  };
  bool Launch(const Step& step, int64_t* now);
  bool Admit(const Step& step, int64_t* now);
  bool TakenOff(int64_t now);
  bool Waits(bool over, int64_t now);
  Event Record(int stream) {
    ++marks;
    return reinterpret_cast<Event>(static_cast<intptr_t>(gpu_->Record(context, stream) + 1));
  }

  World* world_;
  Gpu* gpu_;
  bool paced_;
  Program program_;
  Step step_;
  bool has_step_ = false;
  Admitted admitted_;
  bool waits_ = false;  // for the GPU
  int64_t sync_since_ = 0, began_ = 0;
  Gate::Wait wait_;
  CostBook book_;
  int64_t lease_ = 0, lease_scale_ = 1024;
  std::map<int, Spent> spent_;
  std::deque<int> open_;  // streams that the lease is for, as many as the library's
  DriverPort driver_;
  friend class World;
};

class World {
 public:
  explicit World(const GpuModel& model = {}) : gpu(model) { std::memset(static_cast<void*>(lines_), 0, sizeof lines_); }
  Tenant& Add(const Terms& terms, Tenant::Program program, bool paced = true, bool overlaps = false,
              int container = 0) {
    const int index = static_cast<int>(tenants.size());
    tenants.push_back(std::make_unique<Tenant>(this, terms, paced, overlaps,
                                               static_cast<uint32_t>(container != 0 ? container : 100 + index),
                                               std::move(program)));
    return *tenants.back();
  }
  void RunUntil(int64_t end) {
    while (true) {
      Tenant* next = nullptr;
      bool helps = false;
      int64_t at = end;
      for (auto& tenant : tenants) {
        if (tenant->wake < at) next = tenant.get(), at = tenant->wake, helps = false;
        if (tenant->help_at < at) next = tenant.get(), at = tenant->help_at, helps = true;
      }
      if (next == nullptr) break;
      gpu.Advance(now = at);
      const uint64_t before = word;
      helps ? next->Help(at) : next->Run(at);
      if (before == word && !ended) continue;
      ended = false;
      for (auto& tenant : tenants) {
        if (tenant.get() != next && tenant->waits_for_turn)
          tenant->wake = std::min(tenant->wake, at + (tenant->looks_for_turn ? kUs : Late()));
      }
    }
    gpu.Advance(end);
    now = end;
  }
  double Busy(const Tenant& tenant, int64_t since_busy, int64_t span) const {
    return 100.0 * static_cast<double>(gpu.BusyOf(tenant.context) - since_busy) / static_cast<double>(span);
  }

  // The tenant's line says that it waits, and is owed much, whatever its program does.
  void ClaimTurn(const Tenant& tenant) {
    TurnLine& line = lines_[tenant.context];
    line.seen_at = line.waiting_at = now;
    line.zero_at = now - 100 * kMs;
    line.rate = static_cast<uint16_t>(tenant.terms.limit);
  }

  region::GpuTimeDevice* AccountOf(uint32_t container) { return &accounts_[container]; }
  // What a thread that sleeps wakes late by: at times far more, as where two cores serve 16 threads.
  int64_t Late() {
    if (late_in_thousand == 0 || static_cast<int>(random_() % 1'000) >= late_in_thousand) return wake_latency;
    return turn_of_others != 0 ? TurnOfOthers() : static_cast<int64_t>(random_() % static_cast<uint64_t>(latest));
  }
  // Two cores and six threads that never sleep beside the tenants', as measured: one wake-up in four is late, by 4 ms
  // in the mean, and a thread that works for 4 ms is taken off for as long.
  void MakeBusy() {
    late_in_thousand = 250;
    turn_of_others = works_for = 4 * kMs;
  }
  // ns until a thread that worked for `ns` of its own time goes on; 0: it was not taken off.
  int64_t TakenOff(int64_t ns) {
    if (works_for == 0 || static_cast<int64_t>(random_() % static_cast<uint64_t>(works_for)) >= ns) return 0;
    return TurnOfOthers();
  }

  Gpu gpu;
  int64_t now = 0;
  int64_t wake_latency = 50 * kUs;
  int late_in_thousand = 0;
  int64_t latest = 8 * kMs;
  int64_t turn_of_others = 0;  // mean ns that other work has the processor for
  int64_t works_for = 0;       // ns of its own time after which a thread is taken off; 0: never
  int64_t launch_cost = 3 * kUs;
  uint64_t word = 0;
  bool ended = false;
  std::vector<std::unique_ptr<Tenant>> tenants;

 private:
  TurnLine lines_[32];
  std::map<uint32_t, region::GpuTimeDevice> accounts_;
  std::mt19937 random_{7};
  int64_t TurnOfOthers() {
    const double turn = std::exponential_distribution<double>(1.0)(random_) * static_cast<double>(turn_of_others);
    return std::min(static_cast<int64_t>(turn), 15 * turn_of_others);
  }
  friend class Tenant;
};

inline Tenant::Tenant(World* world, Terms terms_in, bool paced, bool overlaps, uint32_t container, Program program)
    : context(world->gpu.NewContext(overlaps)),
      terms(terms_in),
      world_(world),
      gpu_(&world->gpu),
      paced_(paced),
      program_(std::move(program)) {
  driver_ = {this,
             [](void* self, Event event, Event reference, int64_t* since) {
               const World& all = *static_cast<Tenant*>(self)->world_;
               const auto reached = [&](Event of) {
                 return all.gpu.ReachedAt(static_cast<int>(reinterpret_cast<intptr_t>(of)) - 1);
               };
               if (reached(event) < 0) return int64_t{0};
               if (reference != nullptr) *since = reached(event) - reached(reference);
               return all.now;
             },
             [](void*, Event) {},
             [](void* self, const void*, const StreamRef& stream) {
               auto* const tenant = static_cast<Tenant*>(self);
               const auto id = static_cast<int>(reinterpret_cast<intptr_t>(stream.stream)) - 1;
               return !tenant->gpu_->Idle(tenant->context, id);
             }};
  gate.Use(world->AccountOf(container), &book_, &driver_);
  const int line = static_cast<int>(world->tenants.size());
  if (paced_) {
    world->lines_[line] = {};
    world->lines_[line].process = uint64_t{container} << 32 | static_cast<uint32_t>(line + 1);
    world->lines_[line].gpu = 7;
    for (auto& other : world->tenants) {
      other->gate.turns().Join({world->lines_, line + 1, 7, &world->word}, static_cast<int>(other->context));
    }
    gate.turns().Join({world->lines_, line + 1, 7, &world->word}, line);
    help_at = 10 * kMs;
  } else {
    help_at = INT64_MAX;
  }
}

// False: it goes on at `wake`, where it was.
inline bool Tenant::Launch(const Step& step, int64_t* now) {
  if (admitted_.stage == Admitted::kNone) {
    if (!Admit(step, now)) return false;
    admitted_.stage = Admitted::kBegun;
    if (TakenOff(*now)) return false;
  }
  if (admitted_.stage == Admitted::kBegun) {
    *now += world_->launch_cost;
    world_->gpu.Advance(*now);
    world_->gpu.Launch(context, step.stream, step.length);
    admitted_.stage = Admitted::kLaunched;
    if (TakenOff(*now)) return false;
  }
  if (admitted_.measured) {
    const Event end = admitted_.plan.end ? Record(step.stream) : nullptr;
    gate.MeterOf(this)->After(admitted_.launch, admitted_.plan, admitted_.empty, admitted_.begin, end,
                              *now - admitted_.began_at, *now);
  }
  admitted_ = {};
  return true;
}

// False: it is held, and asks again at `wake`.
inline bool Tenant::Admit(const Step& step, int64_t* now) {
  const StreamRef stream{reinterpret_cast<const void*>(static_cast<intptr_t>(step.stream + 1)), nullptr};
  const uint64_t kind = KindOf(step.kind);
  const int64_t price = book_.Price(kind);
  Meter* const meter = gate.MeterOf(this);
  if (!paced_) return true;
  if (price > 0 && price <= lease_ && std::find(open_.begin(), open_.end(), step.stream) != open_.end()) {
    lease_ -= price;
    Spent& spent = spent_[step.stream];
    spent.kind = kind;
    spent.cost += price;
    ++spent.launches;
    return true;
  }
  for (auto& [id, spent] : spent_) {
    meter->Spent({.stream = {reinterpret_cast<const void*>(static_cast<intptr_t>(id + 1)), nullptr},
                  .kind = spent.kind,
                  .cost = spent.cost,
                  .scale = lease_scale_},
                 spent.launches, *now);
  }
  spent_.clear();
  ++looks;
  const time::Launch launch = gate.Expect(stream, kind, step.Handle(), meter);
  gate.Look(terms, *now);
  const Turns::Verdict verdict = gate.Ask(terms, launch, &wait_, *now);
  waits_for_turn = !verdict.go && verdict.seen != 0;
  looks_for_turn = verdict.soon;
  if (!verdict.go) {
    holds += open_.empty() ? 0 : 1;
    open_.clear();
    StreamRef tail;
    while (meter->WantsTail(nullptr, &tail, verdict.until, *now)) {
      meter->Tail(tail, Record(static_cast<int>(reinterpret_cast<intptr_t>(tail.stream)) - 1), *now);
    }
    wake = std::max(verdict.until, *now + kUs) + (verdict.soon ? 0 : world_->Late());
    return false;
  }
  wait_ = {};
  if (std::find(open_.begin(), open_.end(), step.stream) == open_.end()) open_.push_back(step.stream);
  if (open_.size() > kLeaseStreams) open_.pop_front();
  lease_ = gate.Pay(terms, launch, lease_, *now);
  if (gate.Watched()) help_at = std::min(help_at, *now + 150 * kUs);
  most_in_flight = std::max(most_in_flight, gate.InFlight(*now));
  lease_scale_ = launch.scale;
  admitted_.measured = true;
  admitted_.launch = launch;
  admitted_.plan = meter->Before(launch, gate.Spacing(terms), *now);
  if (admitted_.plan.again) open_.clear();
  admitted_.empty = admitted_.plan.empty ? Record(step.stream) : nullptr;
  admitted_.begin = admitted_.plan.begin ? Record(step.stream) : nullptr;
  admitted_.began_at = *now;
  return true;
}

// Others have its processor: it goes on at `wake`.
inline bool Tenant::TakenOff(int64_t now) {
  const int64_t off = world_->TakenOff(world_->launch_cost / 2);
  wake = now + off;
  return off > 0;
}

// For the GPU, looking again and again; on a busy machine it is woken.
inline bool Tenant::Waits(bool over, int64_t now) {
  const bool waited = waits_;
  waits_ = !over;
  const int64_t late = over && waited && world_->turn_of_others != 0 ? world_->Late() - world_->wake_latency : 0;
  wake = over ? now + late : now + 5 * kUs;
  return !over || late > 0;
}

inline void Tenant::Run(int64_t now) {
  for (int i = 0; i < 4; ++i) {
    if (!has_step_) {
      step_ = program_(now);
      has_step_ = true;
      sync_since_ = now;
    }
    switch (step_.what) {
      case Step::kLaunch:
        // A driver takes so many and then waits.
        if (admitted_.stage == Admitted::kNone && world_->gpu.Queued(context) >= kQueue) {
          wake = now + 20 * kUs;
          return;
        }
        if (!Launch(step_, &now)) return;
        done += step_.length;
        quick += step_.stream != 0 ? step_.length : 0;
        if (began_ == 0) began_ = sync_since_;
        break;
      case Step::kSync:
        if (Waits(world_->gpu.Idle(context, step_.stream), now)) return;
        latencies.push_back(now - began_);
        began_ = 0;
        break;
      case Step::kDrain:
        if (Waits(world_->gpu.Launched(context) <= static_cast<size_t>(step_.length), now)) return;
        break;
      case Step::kThink:
        now += step_.length;
        break;
      case Step::kEnd:
        wake = INT64_MAX;
        return;
    }
    has_step_ = false;
    if (step_.what == Step::kThink) break;
  }
  wake = now;
}

inline void Tenant::Help(int64_t now) {
  gate.Look(terms, now);
  const Gate::Polled polled = gate.Poll(terms, now);
  if (polled.ended && gate.Watched()) open_.clear();  // the next launch is to take the turn again
  // Others that wait look again.
  if (polled.ended) world_->ended = true;
  help_at = now + (polled.watch ? 150 * kUs : 10 * kMs) + world_->Late();
}

}  // namespace hami::vgpu::time::testing
