// SPDX-License-Identifier: Apache-2.0

#include "monitor/monitor.h"

#include <algorithm>
#include <unordered_set>

#include "base/log.h"
#include "base/units.h"
#include "monitor/gc.h"
#include "region/remote.h"

namespace hami::monitor {
namespace {

using std::chrono::seconds;

constexpr int kFilesPerRound = 1000;    // deleted
constexpr seconds kFreshProcesses{10};  // older sightings of busy processes say nothing, if looks are more frequent

// What may be shown as the UUID of a device of this pod. A region can claim anything, and each claim would be a series.
std::unordered_set<std::string> TrustedUuids(const PodFacts& pod, const GpusPicture& gpus) {
  std::unordered_set<std::string> trusted;
  for (const device::ContainerGrant& container : pod.grant) {
    for (const device::Share& share : container) trusted.insert(share.uuid);
  }
  for (const GpuPicture& gpu : gpus.gpus) {
    trusted.insert(gpu.device.uuid);
    for (const nvml::MigDevice& mig : gpu.device.mig_devices) trusted.insert(mig.uuid);
  }
  return trusted;
}

bool TellsOfProcesses(const GpusPicture& gpus, const Now& now) {
  return gpus.answering && !gpus.OlderThan(kFreshProcesses, now.steady);
}

// HAMi's library writes into the region what NVML says of its processes; ours leaves asking to this program, which
// needs no thread in each of them for that. FRESH: whether the driver's word holds.
void AddUtilization(const GpusPicture& gpus, bool fresh, RegionView& region) {
  const std::unordered_set<pid_t> own(region.host_pids.begin(), region.host_pids.end());
  for (DeviceUse& use : region.devices) {
    if (use.sm_percent != 0) continue;
    use.unwatched = region.ours;
    for (const GpuPicture& gpu : gpus.gpus) {
      if (!fresh || use.uuid.empty() || gpu.device.uuid != use.uuid || !gpu.processes) continue;
      use.unwatched = false;
      for (const nvml::ProcessUtilization& process : *gpu.processes) {
        if (own.contains(process.pid)) use.sm_percent += process.sm_percent;
      }
    }
  }
}

std::unordered_set<pid_t> BusyProcesses(const GpusPicture& gpus, const Now& now) {
  std::unordered_set<pid_t> busy;
  if (!TellsOfProcesses(gpus, now)) return busy;
  for (const GpuPicture& gpu : gpus.gpus) {
    if (!gpu.processes) continue;
    for (const nvml::ProcessUtilization& process : *gpu.processes) busy.insert(process.pid);
  }
  return busy;
}

Task ToTask(const std::string& key, const RegionView& region, const std::unordered_set<pid_t>& busy) {
  Task task;
  task.key = key;
  for (const DeviceUse& use : region.devices) task.devices.push_back(use.uuid == kUnknownUuid ? "" : use.uuid);
  task.recent_kernel = region.recent_kernel;
  task.utilization_switch = region.utilization_switch;
  task.priority = region.priority;
  task.last_kernel_time = region.last_kernel_time;
  task.seen_busy =
      std::any_of(region.host_pids.begin(), region.host_pids.end(), [&](pid_t pid) { return busy.count(pid) != 0; });
  return task;
}

bool SameSmLimit(std::uint64_t a, std::uint64_t b) {
  const auto none = [](std::uint64_t limit) { return limit == 0 || limit >= 100; };
  return a == b || (none(a) && none(b));
}

seconds Since(WallTime then, WallTime now) { return std::chrono::duration_cast<seconds>(now - then); }

}  // namespace

Monitor::Monitor(Config config, Outside outside)
    : config_(std::move(config)),
      outside_(std::move(outside)),
      folder_(config_.hook_path),
      feedback_(config_.tick),
      resized_(config_.hook_path + "/.hami-monitor-resized"),
      last_(std::make_shared<const Picture>(Picture{config_.node, {}, {}, {}})) {}

std::shared_ptr<const Picture> Monitor::Last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

void Monitor::Tick(const Now& now) {
  const auto began = std::chrono::steady_clock::now();
  ++round_;
  const Pods pods = outside_.pods();
  const PodsByUid by_uid = IndexPods(pods);
  const std::shared_ptr<const GpusPicture> gpus = outside_.gpus();
  const auto listed = folder_.List();
  self_.folder_problem = listed ? std::string() : listed.error().message;
  if (!listed) Complain(listed.error().message);
  const std::vector<Entry> entries = listed.value_or(std::vector<Entry>{});
  std::vector<Sighting> sightings = LookAt(entries, by_uid, *gpus);
  NoteNameless(sightings);
  const bool fresh = TellsOfProcesses(*gpus, now);
  for (Sighting& sighting : sightings) AddUtilization(*gpus, fresh, sighting.reading.region);
  // What is not seen is no news of anybody: it all stays as it was until there is a list again.
  if (listed) {
    if (config_.feedback) GiveFeedback(sightings, *gpus, now);
    if (config_.resize) Resize(sightings);
    KeepResized(entries);
    CollectGarbage(entries, by_uid, pods.known, now);
    Forget();
    before_ = now.steady;
  }
  ++self_.ticks;
  self_.tick_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  Publish(sightings, by_uid, pods.known);
}

void Monitor::KeepResized(const std::vector<Entry>& entries) {
  const auto named = [](const Entry& entry, const std::string& name) { return entry.name < name; };
  Note(resized_.Keep([&](const std::string& name) {
    const auto found = std::lower_bound(entries.begin(), entries.end(), name, named);
    return found != entries.end() && found->name == name;
  }));
}

std::vector<Monitor::Sighting> Monitor::LookAt(const std::vector<Entry>& entries, const PodsByUid& pods,
                                               const GpusPicture& gpus) {
  std::vector<Sighting> sightings;
  for (const Entry& entry : entries) {
    const auto pod = pods.find(entry.container.pod_uid);
    if (pod == pods.end()) continue;
    const auto position = pod->second.Find(entry.container.container);
    if (!position) continue;
    Sighting sighting{&entry, &pod->second, *position, folder_.Read(entry)};
    const auto trusted = TrustedUuids(pod->second, gpus);
    for (DeviceUse& use : sighting.reading.region.devices) {
      if (!use.uuid.empty() && trusted.count(use.uuid) == 0) use.uuid = kUnknownUuid;
    }
    Remember(entry.name);
    sightings.push_back(std::move(sighting));
  }
  return sightings;
}

// Once: it is a matter of how this program was started, and the metric says of whom it is true.
void Monitor::NoteNameless(const std::vector<Sighting>& sightings) {
  for (const Sighting& sighting : sightings) {
    const std::vector<DeviceUse>& devices = sighting.reading.region.devices;
    const bool nameless =
        std::any_of(devices.begin(), devices.end(), [](const DeviceUse& use) { return use.nameless; });
    if (!nameless || std::exchange(told_nameless_, true)) continue;
    base::LogWarning(sighting.entry->name +
                     ": the pids that its processes have on the host are not known, so their utilization is not shown; "
                     "in the host's pid namespace (hostPID: true) this program sees them");
  }
}

void Monitor::GiveFeedback(std::vector<Sighting>& sightings, const GpusPicture& gpus, const Now& now) {
  const std::unordered_set<pid_t> busy = BusyProcesses(gpus, now);
  std::vector<Task> tasks;
  std::vector<Sighting*> of_tasks;
  for (Sighting& sighting : sightings) {
    if (sighting.reading.problem != Problem::kNone) continue;
    tasks.push_back(ToTask(sighting.entry->name, sighting.reading.region, busy));
    of_tasks.push_back(&sighting);
  }
  const auto unix_seconds = std::chrono::duration_cast<seconds>(now.wall.time_since_epoch()).count();
  const std::vector<Orders> orders = feedback_.Step(tasks, unix_seconds);
  const double passed = before_ ? std::chrono::duration<double>(now.steady - *before_).count() : 0;
  for (std::size_t i = 0; i < orders.size(); ++i) {
    Memory& memory = Remember(of_tasks[i]->entry->name);
    if (memory.blocked) memory.blocked_seconds += passed;
    if (orders[i].blocked != memory.blocked) {
      base::LogDebug(of_tasks[i]->entry->name + (orders[i].blocked ? ": launches stop" : ": launches go on"));
    }
    memory.blocked = orders[i].blocked;
    Carry(*of_tasks[i], orders[i]);
  }
}

void Monitor::Carry(const Sighting& sighting, const Orders& orders) {
  if (!orders.recent_kernel && !orders.utilization_switch) return;
  const auto file = folder_.OpenForWriting(*sighting.entry, sighting.reading);
  if (!file) return Count(region::Status::kIo, sighting.entry->name);
  const region::Remote remote{file->get(), sighting.reading.region.version};
  if (orders.recent_kernel) Count(WriteRecentKernel(remote, *orders.recent_kernel), sighting.entry->name);
  if (orders.utilization_switch)
    Count(WriteUtilizationSwitch(remote, *orders.utilization_switch), sighting.entry->name);
}

void Monitor::Resize(std::vector<Sighting>& sightings) {
  for (const Sighting& sighting : sightings) {
    Memory& memory = Remember(sighting.entry->name);
    if (!sighting.pod->resize && !resized_.Has(sighting.entry->name)) {
      memory.resize.clear();
      memory.told.clear();
      continue;
    }
    ResizeOne(sighting, memory);
  }
}

void Monitor::ResizeOne(const Sighting& sighting, Memory& memory) {
  const PodFacts& pod = *sighting.pod;
  const auto refuse = [&](const std::string& why) {
    memory.resize = ResizeStateName(ResizeState::kRefused);
    Tell(sighting, memory, kube::EventType::kWarning, "ResizeRefused", why + "; the limits stay as they are");
  };
  if (pod.resize && !pod.wishes) return refuse(std::string(kResizeAnnotation) + ": " + pod.wishes.error().message);
  std::optional<ContainerWish> wish;
  if (pod.resize) {
    const auto found = pod.wishes->find(pod.containers[sighting.position]);
    if (found != pod.wishes->end()) wish = found->second;
  }
  const std::string& name = sighting.entry->name;
  if (!wish && !resized_.Has(name)) return;
  if (sighting.reading.problem != Problem::kNone) {
    memory.resize = ResizeStateName(ResizeState::kWaiting);
    return;
  }
  const device::ContainerGrant none;
  const ResizePlan plan = PlanResize(wish, sighting.position < pod.grant.size() ? pod.grant[sighting.position] : none,
                                     sighting.reading.region);
  if (plan.state == ResizeState::kRefused) return refuse(plan.reason);
  memory.resize = ResizeStateName(plan.state);
  if (plan.state != ResizeState::kApplied) return;
  if (wish) Note(resized_.Add(name));
  if (!ApplyLimits(sighting, plan, memory)) {
    memory.resize = ResizeStateName(ResizeState::kWaiting);
  } else if (!wish) {
    Note(resized_.Remove(name));
    memory.resize.clear();
  }
}

void Monitor::Note(const base::Status& written) {
  if (!written) Complain(written.error().message + ": which limits were changed is forgotten with this process");
}

bool Monitor::ApplyLimits(const Sighting& sighting, const ResizePlan& plan, Memory& memory) {
  const std::vector<DeviceUse>& devices = sighting.reading.region.devices;
  std::string changes;
  base::Fd file;
  for (const Limit& limit : plan.limits) {
    const DeviceUse holds = limit.device < devices.size() ? devices[limit.device] : DeviceUse{};
    if (holds.limit == limit.memory_bytes && SameSmLimit(holds.sm_limit, limit.sm_limit)) continue;
    if (!file) {
      auto opened = folder_.OpenForWriting(*sighting.entry, sighting.reading);
      if (!opened) {
        Count(region::Status::kIo, sighting.entry->name);
        return false;
      }
      file = *std::move(opened);
    }
    const region::Remote remote{file.get(), sighting.reading.region.version};
    Count(WriteMemoryLimit(remote, limit.device, limit.memory_bytes), sighting.entry->name);
    Count(WriteSmLimit(remote, limit.device, limit.sm_limit), sighting.entry->name);
    changes += (changes.empty() ? "" : "; ") + std::string("GPU ") + std::to_string(limit.device) + ": " +
               (limit.memory_bytes == 0 ? std::string("all memory") : base::FormatBytes(limit.memory_bytes)) + ", " +
               (limit.sm_limit == 0 || limit.sm_limit >= 100 ? std::string("all cores")
                                                             : std::to_string(limit.sm_limit) + " % of the cores");
  }
  if (changes.empty()) return true;
  Tell(sighting, memory, kube::EventType::kNormal, "Resized",
       changes + (plan.reason.empty() ? "" : " (" + plan.reason + ")"));
  return true;
}

// Once, until there is something else to say.
void Monitor::Tell(const Sighting& sighting, Memory& memory, kube::EventType type, std::string_view reason,
                   const std::string& message) {
  const std::string text = "container " + sighting.pod->containers[sighting.position] + ": " + message;
  const std::string told = std::string(reason) + text;
  if (memory.told == told) return;
  memory.told = told;
  const kube::Metadata& pod = sighting.pod->pod->metadata;
  base::Log(type == kube::EventType::kWarning ? base::LogLevel::kWarning : base::LogLevel::kInfo,
            pod.ns + "/" + pod.name + ": " + std::string(reason) + ": " + text);
  outside_.tell(*sighting.pod->pod, type, reason, text);
}

void Monitor::CollectGarbage(const std::vector<Entry>& entries, const PodsByUid& pods, bool pods_known,
                             const Now& now) {
  std::unordered_map<std::string, std::chrono::steady_clock::time_point> unwanted;
  for (const Entry& entry : entries) {
    if (!pods_known || pods.count(entry.container.pod_uid) != 0) continue;
    const auto before = unwanted_.find(entry.name);
    const auto since = before == unwanted_.end() ? now.steady : before->second;
    unwanted.emplace(entry.name, since);
    if (!Removable(entry, std::chrono::duration_cast<seconds>(now.steady - since), now)) continue;
    if (const auto removed = folder_.Remove(entry); !removed) {
      Complain(removed.error().message);
      continue;
    }
    ++self_.directories_removed;
    base::LogInfo("removed " + folder_.path() + "/" + entry.name + ": its pod is gone");
  }
  unwanted_ = std::move(unwanted);
  folder_.EmptyTrash(kFilesPerRound);
}

bool Monitor::Removable(const Entry& entry, seconds unwanted_for, const Now& now) {
  GcFacts facts;
  facts.unwanted_for = unwanted_for;
  facts.unchanged_for = Since(entry.changed, now.wall);
  if (!MayRemove(facts, config_.resync)) return false;
  const Reading reading = folder_.Read(entry);
  facts.living = reading.region.living > 0;
  facts.doubtful = reading.region.possible > 0;
  const WallTime launched{
      seconds(static_cast<std::int64_t>(std::min<std::uint64_t>(reading.region.last_kernel_time, INT32_MAX)))};
  facts.silent_for = Since(std::max(reading.written, std::min(launched, now.wall)), now.wall);
  return MayRemove(facts, config_.resync);
}

void Monitor::Publish(const std::vector<Sighting>& sightings, const PodsByUid& pods, bool pods_known) {
  auto picture = std::make_shared<Picture>();
  picture->node = config_.node;
  for (const Sighting& sighting : sightings) {
    const kube::Metadata& pod = sighting.pod->pod->metadata;
    const Memory& memory = Remember(sighting.entry->name);
    const bool awaited = sighting.reading.problem == Problem::kNoFile;  // no program yet
    if (awaited && memory.resize.empty()) continue;
    ContainerPicture container;
    container.ns = pod.ns;
    container.pod = pod.name;
    container.container = sighting.pod->containers[sighting.position];
    container.region = sighting.reading.region;
    container.awaited = awaited;
    if (!awaited && sighting.reading.problem != Problem::kNone)
      container.problem = ProblemName(sighting.reading.problem);
    container.blocked = memory.blocked;
    container.blocked_seconds = memory.blocked_seconds;
    container.resize = memory.resize;
    picture->containers.push_back(std::move(container));
  }
  for (const auto& [uid, pod] : pods) {
    for (const device::MigReservation& mig : pod.migs) {
      if (!mig.Realised() || mig.container < 0 || static_cast<std::size_t>(mig.container) >= pod.containers.size())
        continue;
      picture->migs.push_back(
          {pod.pod->metadata.ns, pod.pod->metadata.name, pod.containers[static_cast<std::size_t>(mig.container)], mig});
    }
  }
  const auto name_of = [](const auto& one) { return std::tie(one.ns, one.pod, one.container); };
  const auto by_name = [&](const auto& a, const auto& b) { return name_of(a) < name_of(b); };
  std::sort(picture->containers.begin(), picture->containers.end(), by_name);
  std::stable_sort(picture->migs.begin(), picture->migs.end(), by_name);
  self_.pods_known = pods_known;
  picture->self = self_;
  const std::lock_guard lock(mutex_);
  last_ = std::move(picture);
}

void Monitor::Release() {
  if (!config_.feedback) return;
  const auto entries = folder_.List();
  if (!entries) return;
  const PodsByUid pods = IndexPods(outside_.pods());
  for (const Sighting& sighting : LookAt(*entries, pods, *outside_.gpus())) {
    if (sighting.reading.problem != Problem::kNone) continue;
    Carry(sighting, Feedback::Release(ToTask(sighting.entry->name, sighting.reading.region, {})));
  }
}

Monitor::Memory& Monitor::Remember(const std::string& name) {
  Memory& memory = memories_[name];
  memory.round = round_;
  return memory;
}

void Monitor::Forget() {
  std::erase_if(memories_, [&](const auto& memory) { return memory.second.round != round_; });
}

void Monitor::Count(region::Status status, const std::string& name) {
  if (status == region::Status::kOk) {
    ++self_.writes;
    return;
  }
  ++self_.failed_writes;
  Complain("can not write the region of " + name + ": " + region::StatusName(status));
}

void Monitor::Complain(const std::string& message) {
  if (message == complaint_) return;
  complaint_ = message;
  base::LogWarning(message);
}

}  // namespace hami::monitor
