// SPDX-License-Identifier: Apache-2.0

#include "cli/mps.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/files.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/paths.h"
#include "cli/status.h"
#include "mps/client.h"
#include "mps/control.h"

namespace hami::cli {
namespace {

using base::Concat;

constexpr auto kLookEvery = std::chrono::milliseconds(500);
constexpr auto kAskEvery = std::chrono::milliseconds(50);
constexpr mps::Millis kServeWithin = 15'000;
// A share that is being made is not seen yet.
constexpr mps::Millis kStayAtLeast = 2'000;

mps::Place PlaceOf(const State& state, const std::string& uuid, const std::string& program) {
  return {program, uuid, Concat({state.folder(), "/mps/", uuid})};
}

// Held by the GPU's keeper. Nothing: another one has it.
base::Result<base::Fd> TakeKeeperLock(const mps::Place& place) {
  HAMI_TRY(base::MakeFolders(place.folder, 0755));
  auto file = base::Open(place.folder + "/keeper", O_RDWR | O_CREAT, 0600);
  if (!file) return file;
  const auto taken = base::TryLock(file->get(), base::LockMode::kExclusive);
  if (!taken) return tl::unexpected(taken.error());
  return *taken ? std::move(file) : base::Result<base::Fd>(base::Fd());
}

base::Status StartKeeper(const mps::Place& place) {
  std::array<std::string, 4> words = {ExecutablePath(), "mps-keeper", place.uuid, place.program};
  std::array<char*, 5> pointers = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
  std::vector<std::string> entries = Flatten(WithoutLibrary(CurrentEnvironment()));
  std::vector<char*> environment;
  for (std::string& entry : entries) environment.push_back(entry.data());
  environment.push_back(nullptr);
  const std::string log = place.folder + "/keeper.log";
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t pid = 0;
  const int failed = ::posix_spawn(&pid, words[0].c_str(), &actions, &attributes, pointers.data(), environment.data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return failed == 0 ? base::Status()
                     : base::Status(base::Fail(Concat({"cannot start ", words[0], ": ", std::strerror(failed)})));
}

// The limits that the living shares in mode mps on this GPU need; nothing: there is none.
base::Result<mps::Wanted> WantedOn(const State& state, const std::string& uuid) {
  const auto lock = StateLock::Take(state);
  if (!lock) return tl::unexpected(lock.error());
  mps::Wanted wanted;
  wanted.limits = {1, 0};
  for (const StoredShare& share : lock->shares()) {
    if (!share.record || !share.record->mps) continue;
    for (const Grant& grant : share.record->grants) {
      if (grant.uuid != uuid) continue;
      wanted.running = true;
      const int percent = grant.cores == 0 ? 100 : static_cast<int>(grant.cores);
      wanted.limits.percent = std::max(wanted.limits.percent, percent);
      wanted.limits.memory_mib = std::max(wanted.limits.memory_mib, grant.limit_bytes / base::kMiB);
    }
  }
  return wanted;
}

}  // namespace

void RefuseOtherMode(std::vector<Device>& devices, const std::vector<ShareView>& shares, bool mps) {
  for (Device& device : devices) {
    for (const ShareView& share : shares) {
      const bool there = std::any_of(share.devices.begin(), share.devices.end(),
                                     [&](const DeviceView& part) { return part.uuid == device.uuid; });
      if (!there || !share.recorded || share.mps == mps || !device.trouble.empty()) continue;
      device.trouble = Concat({"the share ", share.name, " uses it in mode ", share.mps ? "mps" : "hami-core"});
    }
  }
}

void AddMps(std::vector<Setting>* settings, const State& state, const Grant& grant) {
  mps::ClientLimits limits;
  limits.percent = static_cast<int>(grant.cores);
  limits.memory_mib = grant.reserved_bytes == grant.limit_bytes ? grant.limit_bytes / base::kMiB : 0;
  for (auto& [name, value] : mps::ClientEnvironment(PlaceOf(state, grant.uuid, "").Pipe(), limits)) {
    settings->push_back({name, value});
  }
  settings->push_back({"GPU_CORE_UTILIZATION_POLICY", "disable"});
}

base::Status ServeMps(const State& state, const std::string& uuid, const std::string& program) {
  const auto found = mps::FindProgram(program);
  if (!found) return tl::unexpected(found.error());
  const mps::Place place = PlaceOf(state, uuid, *found);
  const mps::Control control(place);
  const mps::Millis end = mps::Now() + kServeWithin;
  mps::Seen seen;
  while (mps::Now() < end) {
    bool kept = false;
    {
      const auto lock = TakeKeeperLock(place);
      if (!lock) return tl::unexpected(lock.error());
      kept = !*lock;
    }
    if (!kept) HAMI_TRY(StartKeeper(place));
    for (int i = 0; i < 20 && mps::Now() < end; ++i) {
      seen = control.Look();
      if (seen.answers && kept) return {};
      kept = kept || seen.answers;
      std::this_thread::sleep_for(kAskEvery);
    }
  }
  return base::Fail(Concat({"the MPS control daemon of ", uuid, " does not serve: ", seen.trouble}),
                    Concat({place.folder, "/keeper.log and ", place.Log(), " say why"}));
}

int KeepMps(const std::vector<std::string>& arguments) {
  if (arguments.size() != 2) {
    base::LogError("usage: hami mps-keeper UUID PROGRAM (hami run --mode mps starts it)");
    return kFailed;
  }
  ::signal(SIGHUP, SIG_IGN);
  const auto state = State::Open();
  if (!state) {
    base::LogError(state.error());
    return kFailed;
  }
  const mps::Control control(PlaceOf(*state, arguments[0], arguments[1]));
  const auto lock = TakeKeeperLock(control.place());
  if (!lock || !*lock) return lock ? 0 : kFailed;
  mps::Memory memory;
  const mps::Millis began = mps::Now();
  mps::Wanted wanted{true, {}};
  while (true) {
    const auto now_wanted = WantedOn(*state, arguments[0]);
    if (!now_wanted) {
      base::LogWarning(now_wanted.error().message);
    } else if (now_wanted->running || mps::Now() - began >= kStayAtLeast) {
      wanted = *now_wanted;
    }
    for (const mps::Notice& notice : mps::Tend(control, wanted, memory, mps::Now())) {
      base::Log(notice.warning ? base::LogLevel::kWarning : base::LogLevel::kInfo, notice.message);
    }
    if (!wanted.running && memory.state == mps::State::kStopped) return 0;
    std::this_thread::sleep_for(memory.state == mps::State::kStarting ? kAskEvery : kLookEvery);
  }
}

}  // namespace hami::cli
