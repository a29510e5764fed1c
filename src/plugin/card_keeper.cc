// SPDX-License-Identifier: Apache-2.0

#include "plugin/card_keeper.h"

#include <condition_variable>
#include <ctime>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/strings.h"
#include "net/cancel.h"
#include "plugin/driver_session.h"
#include "plugin/file_watch.h"
#include "plugin/mig_keeper.h"

namespace hami::plugin {

namespace {

ForeignInstances ForeignOf(const std::vector<nvml::Device>& devices, const MigEntries& own) {
  ForeignInstances foreign;
  for (const nvml::Device& device : devices) {
    if (!device.mig_layout) continue;
    auto places = ForeignPlaces(*device.mig_layout, device.uuid, own);
    if (!places.empty()) foreign[device.uuid] = std::move(places);
  }
  return foreign;
}

}  // namespace

using base::Status;
using Clock = std::chrono::steady_clock;

// Shared with the threads: one that hangs in the driver for good keeps it alive after the keeper is gone.
struct CardKeeper::Core {
  Core(Options options_in, CardBoard& board_in, KeeperHooks hooks_in, KeeperTimes times_in, nvml::LoadOptions load,
       HealthRules rules)
      : options(std::move(options_in)),
        board(&board_in),
        hooks(std::move(hooks_in)),
        times(times_in),
        session(std::move(load)),
        state(options.node_name, XidPolicy(options.disable_health_checks, options.enable_health_checks), rules) {
    if (!hooks.clock) hooks.clock = [] { return static_cast<UnixSeconds>(std::time(nullptr)); };
  }

  Status LoadConfig();
  void ReloadConfig();
  Status Look();
  void Settle();                // under the lock: publishes what the state says
  void Use(NodeConfig config);  // under the lock
  bool NoteFirst(const Status& looked);
  MigEntries OwnInstances();
  void WatchDriver();
  void WatchXids();
  void WatchConfig();
  void WatchForSilence();
  // Sleeps; true when it is time to stop. Ends early when POKED is set.
  bool Pause(std::chrono::milliseconds span, bool* poked = nullptr);
  void RunThread(void (Core::*body)());

  const Options options;
  CardBoard* board;  // null once the keeper is gone
  KeeperHooks hooks;
  const KeeperTimes times;
  DriverSession session;  // of the looking thread alone, but for its XIDs

  net::Canceller stop;  // for who does not wait for `changed`
  std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false;
  bool look_now = false;
  int running = 0;                   // threads
  std::optional<Status> first_look;  // how it went
  NodeState state;
  ConfigTexts texts;
  std::optional<NodeConfig> objected;  // what TEXTS say, while the node's labels speak against it
  bool concurrent = false;
  Clock::time_point look_began{};  // zero: none in progress
  Clock::time_point next_topology{};
  std::string last_config_error;
};

bool CardKeeper::Core::Pause(std::chrono::milliseconds span, bool* poked) {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, span, [&] { return stopping || (poked != nullptr && *poked); });
  if (poked != nullptr) *poked = false;
  return stopping;
}

Status CardKeeper::Core::LoadConfig() {
  auto loaded = LoadConfigTexts(options);
  if (!loaded) return tl::unexpected(loaded.error());
  auto config = ParseNodeConfig(*loaded, options);
  if (!config) return tl::unexpected(config.error());
  const std::scoped_lock lock(mutex);
  texts = *std::move(loaded);
  state.Configure(*std::move(config));
  return {};
}

void CardKeeper::Core::ReloadConfig() {
  const auto loaded = LoadConfigTexts(options);
  Status outcome;
  if (loaded) {
    const std::scoped_lock lock(mutex);
    if (*loaded == texts) {
      last_config_error.clear();
      return;
    }
    // Remembered even if it is wrong, so that it is judged once.
    texts = *loaded;
    objected.reset();
    auto config = ParseNodeConfig(texts, options);
    const std::string objection = config ? state.Objection(*config) : std::string();
    if (!objection.empty()) {
      objected = *std::move(config);
      config = base::Fail(objection);
    }
    if (config) return Use(*std::move(config));
    outcome = tl::unexpected(config.error());
  } else {
    outcome = tl::unexpected(loaded.error());
  }
  const std::scoped_lock lock(mutex);
  if (outcome.error().message == last_config_error) return;
  last_config_error = outcome.error().message;
  base::LogError("the configuration changed and is not used: " + last_config_error);
  if (hooks.on_event) hooks.on_event({true, "InvalidDeviceConfig", last_config_error});
}

void CardKeeper::Core::Use(NodeConfig config) {
  state.Configure(std::move(config));
  last_config_error.clear();
  base::LogInfo("the configuration was read anew");
  Settle();
}

void CardKeeper::Core::Settle() {
  for (const NodeEvent& event : state.TakeEvents()) {
    base::Log(event.warning ? base::LogLevel::kWarning : base::LogLevel::kInfo, event.message);
    if (hooks.on_event && board != nullptr) hooks.on_event(event);
  }
  if (!state.ready() || board == nullptr) return;
  const Cards cards = state.MakeCards();
  Registration registration = state.MakeRegistration(cards, options.topology_score, hooks.clock());
  registration.concurrent_allocate = concurrent;
  registration.answer_handshake = options.answer_handshake;
  if (cards.left_out != board->Current()->left_out) {
    for (const std::string& line : cards.left_out) base::LogWarning(line);
  }
  if (const auto before = board->Current();
      hooks.before_cards && (!before->ready || before->cards != cards.cards || before->parts != cards.parts)) {
    hooks.before_cards(cards);
  }
  board->Publish(cards);
  if (hooks.on_registration) hooks.on_registration(registration);
}

Status CardKeeper::Core::Look() {
  const UnixSeconds began = hooks.clock();
  const auto now = Clock::now();
  bool with_topology = false;
  {
    const std::scoped_lock lock(mutex);
    look_began = now;
    with_topology = options.topology_score && now >= next_topology;
    if (with_topology) next_topology = now + times.topology;
  }
  // One that is made or removed meanwhile is in one of the two lists.
  MigEntries own = OwnInstances();
  auto reading = session.Read(with_topology);
  const MigEntries since = OwnInstances();
  own.insert(own.end(), since.begin(), since.end());
  if (reading) reading->foreign = ForeignOf(reading->devices, own);
  const std::scoped_lock lock(mutex);
  look_began = {};
  if (reading) {
    state.SeeDriver(*reading, began);
  } else {
    state.LoseDriver(reading.error().message);
    next_topology = {};
  }
  Settle();
  if (!reading) return tl::unexpected(reading.error());
  return {};
}

MigEntries CardKeeper::Core::OwnInstances() {
  const std::scoped_lock lock(mutex);
  return hooks.own_instances ? hooks.own_instances() : MigEntries();
}

// True for the first. What is to be said of that, Start says.
bool CardKeeper::Core::NoteFirst(const Status& looked) {
  const std::scoped_lock lock(mutex);
  if (first_look) return false;
  first_look = looked;
  changed.notify_all();
  return true;
}

void CardKeeper::Core::WatchDriver() {
  auto retry = times.retry_first;
  std::string last_error;
  std::chrono::milliseconds pause{0};
  while (!Pause(pause, &look_now)) {
    const Status looked = Look();
    const bool first = NoteFirst(looked);
    if (looked) {
      if (!last_error.empty()) base::LogInfo("the GPU driver answers");
      last_error.clear();
      retry = times.retry_first;
      pause = times.reading;
      continue;
    }
    if (!first && looked.error().message != last_error) base::LogWarning(looked.error().message);
    last_error = looked.error().message;
    pause = retry;
    retry = std::min(retry * 2, times.retry_most);
  }
}

void CardKeeper::Core::WatchXids() {
  std::chrono::milliseconds retry{0};
  while (!Pause(session.xids() ? retry : std::max(retry, times.xid_slice))) {
    if (!session.xids()) continue;
    const auto event = session.NextXid(static_cast<unsigned>(times.xid_slice.count()));
    if (!event) {
      base::LogWarning(event.error().message);
      // Each failure costs a look, which makes a new watch and sees what could not be heard; that watch listens while
      // this thread pauses, so that a driver in trouble is not asked without end.
      retry = std::clamp(retry * 2, times.xid_slice, std::max(times.reading, times.xid_slice));
    } else {
      retry = {};
      if (!*event) continue;
    }
    const std::scoped_lock lock(mutex);
    if (event) {
      base::LogInfo(base::Concat({XidText((*event)->code), " on ", (*event)->uuid}));
      if (!state.SeeXid(**event, hooks.clock())) continue;
      Settle();
    }
    look_now = true;
    changed.notify_all();
  }
}

void CardKeeper::Core::WatchForSilence() {
  const std::scoped_lock lock(mutex);
  if (look_began == Clock::time_point{} || Clock::now() - look_began < times.silence) return;
  state.LoseDriver("the GPU driver does not answer");
  Settle();
}

void CardKeeper::Core::WatchConfig() {
  constexpr std::chrono::milliseconds kSettled{50};  // several files are changed together
  FileWatch files({options.config_file, options.node_config_file});
  auto next_look = Clock::now();  // they may have changed since Start
  std::string deaf;
  while (!stop.cancelled()) {
    if (files.trouble() != deaf && !files.trouble().empty()) {
      base::LogWarning("changes of the configuration are looked for instead of heard: " + files.trouble());
    }
    deaf = files.trouble();
    const auto pause = deaf.empty() ? times.config : std::min(times.config, times.deaf);
    if (Clock::now() >= next_look) {
      ReloadConfig();
      next_look = Clock::now() + pause;
    }
    if (files.Wait(std::min<net::Duration>(pause, times.silence / 8), stop.fd())) {
      if (Pause(kSettled)) return;
      next_look = {};
    }
    WatchForSilence();
  }
}

void CardKeeper::Core::RunThread(void (Core::*body)()) {
  (this->*body)();
  const std::scoped_lock lock(mutex);
  --running;
  changed.notify_all();
}

CardKeeper::CardKeeper(Options options, CardBoard& board, KeeperHooks hooks, KeeperTimes times, nvml::LoadOptions load,
                       HealthRules rules)
    : core_(std::make_shared<Core>(std::move(options), board, std::move(hooks), times, std::move(load), rules)) {}

CardKeeper::~CardKeeper() { Stop(); }

Status CardKeeper::Start(const std::function<bool()>& interrupted) {
  HAMI_TRY(core_->LoadConfig());
  for (const auto body : {&Core::WatchDriver, &Core::WatchXids, &Core::WatchConfig}) {
    const std::scoped_lock lock(core_->mutex);
    ++core_->running;
    threads_.emplace_back([core = core_, body] { core->RunThread(body); });
  }
  return AwaitFirstLook(interrupted);
}

// The driver may never come back from it, so it is another thread's.
Status CardKeeper::AwaitFirstLook(const std::function<bool()>& interrupted) {
  constexpr std::chrono::milliseconds kListen{100};
  constexpr std::chrono::seconds kSilent{2};
  const auto began = Clock::now();
  bool told = false;
  Core& core = *core_;
  std::unique_lock lock(core.mutex);
  while (!core.changed.wait_for(lock, kListen, [&] { return core.first_look.has_value(); })) {
    lock.unlock();
    if (interrupted && interrupted()) return base::Fail("ended while the GPU driver did not answer");
    if (!told && Clock::now() - began >= kSilent) {
      base::LogWarning("waiting for the GPU driver, which does not answer");
      told = true;
    }
    lock.lock();
  }
  if (*core.first_look) return {};
  const std::string why = core.first_look->error().message;
  if (core.options.fail_on_init_error) {
    return base::Fail(why, "To wait for a driver instead, set --fail-on-init-error=false.");
  }
  base::LogWarning(why + "; waiting for a driver");
  return {};
}

void CardKeeper::Stop() {
  if (threads_.empty()) return;  // never started, or stopped before
  bool ended = false;
  {
    std::unique_lock lock(core_->mutex);
    core_->stopping = true;
    core_->stop.Cancel();
    core_->changed.notify_all();
    ended = core_->changed.wait_for(lock, core_->times.stop_grace, [&] { return core_->running == 0; });
    core_->board = nullptr;
    core_->hooks.before_cards = nullptr;
    core_->hooks.on_registration = nullptr;
    core_->hooks.on_event = nullptr;
    core_->hooks.own_instances = nullptr;
  }
  if (!ended) base::LogWarning("the GPU driver does not answer; leaving a call to it behind");
  for (std::thread& thread : threads_) {
    // A thread that hangs in the driver can not be joined; it holds nothing but the core.
    ended ? thread.join() : thread.detach();
  }
  threads_.clear();
}

void CardKeeper::SeeNode(const Labels& labels, const device::StringMap& annotations) {
  const std::scoped_lock lock(core_->mutex);
  core_->state.SeeNode(labels, annotations, core_->hooks.clock());
  // What was refused for the labels of before.
  if (core_->objected && core_->state.Objection(*core_->objected).empty()) {
    return core_->Use(*std::exchange(core_->objected, std::nullopt));
  }
  core_->Settle();
}

void CardKeeper::UseMode(OperatingMode mode) {
  const std::scoped_lock lock(core_->mutex);
  core_->state.UseMode(mode);
  core_->look_now = true;  // GPUs that are divided say so
  core_->changed.notify_all();
  core_->Settle();
}

void CardKeeper::SeeMps(Troubles troubles) {
  const std::scoped_lock lock(core_->mutex);
  core_->state.SeeMps(std::move(troubles));
  core_->Settle();
}

void CardKeeper::AllowConcurrentAllocate(bool allowed) {
  const std::scoped_lock lock(core_->mutex);
  core_->concurrent = allowed;
  core_->Settle();
}

bool CardKeeper::ready() const {
  const std::scoped_lock lock(core_->mutex);
  return core_->state.ready();
}

}  // namespace hami::plugin
