// SPDX-License-Identifier: Apache-2.0

#include "plugin/mig_keeper.h"

#include <algorithm>

#include "base/log.h"
#include "base/strings.h"
#include "net/cancel.h"
#include "plugin/mig_profiles.h"

namespace hami::plugin {
namespace {

using base::Concat;
using base::Fail;
using base::Result;
using base::Status;
using nvml::GpuInstance;
using nvml::MigLayout;

constexpr net::Duration kLookAgain = std::chrono::milliseconds(50);

device::MigPlacement PlacementOf(const nvml::MigPlace& place) {
  return {static_cast<int>(place.start), static_cast<int>(place.size)};
}

nvml::MigPlace PlaceOf(const device::MigPlacement& placement) {
  return {static_cast<unsigned>(placement.start), static_cast<unsigned>(placement.size)};
}

bool SameContainer(const MigEntry& entry, const PodKey& owner, const device::MigReservation& want) {
  return entry.owner.uid == owner.uid && entry.container == want.container && entry.device == want.device;
}

bool SameKind(const MigEntry& entry, const device::MigReservation& want) {
  return entry.gpu_uuid == want.gpu_uuid && entry.profile == want.profile && entry.placement == want.placement;
}

bool SameEntry(const MigEntry& a, const MigEntry& b) { return a.gpu_uuid == b.gpu_uuid && a.placement == b.placement; }

// The instance of ENTRY as the driver shows it. An intent has no name for it yet; what is at its place came after it,
// for a place is looked at before an intent is written.
const GpuInstance* InstanceOf(const MigEntry& entry, const MigLayout& layout) {
  const nvml::MigProfile* const profile = FindProfile(layout, entry.profile);
  for (const GpuInstance& instance : layout.instances) {
    if (profile == nullptr || instance.profile_id != profile->id || instance.place != PlaceOf(entry.placement))
      continue;
    if (!entry.Made()) return &instance;
    if (instance.id != static_cast<unsigned>(entry.gpu_instance)) continue;
    // A death between the two halves of a removal leaves none.
    const bool ours = instance.compute.empty() ||
                      std::any_of(instance.compute.begin(), instance.compute.end(),
                                  [&](const nvml::ComputeInstance& one) { return one.uuid == entry.mig_uuid; });
    if (ours) return &instance;
  }
  return nullptr;
}

// Whether the MIG device of ENTRY is there, whole.
bool IsWhole(const MigEntry& entry, const MigLayout& layout) {
  const GpuInstance* const instance = entry.Made() ? InstanceOf(entry, layout) : nullptr;
  return instance != nullptr && !instance->compute.empty();
}

Status CheckPlace(const device::MigReservation& want, const MigLayout& layout) {
  const nvml::MigProfile* const profile = FindProfile(layout, want.profile);
  if (profile == nullptr) {
    return Fail(Concat({want.gpu_uuid, " has no MIG profile ", base::Printable(want.profile)}),
                "the scheduler's picture of this node is older than its GPUs; delete the pod to place it anew");
  }
  const bool possible = std::any_of(profile->places.begin(), profile->places.end(),
                                    [&](const nvml::MigPlace& place) { return PlacementOf(place) == want.placement; });
  if (possible) return {};
  return Fail(Concat(
      {"a ", want.profile, " cannot be at slice ", std::to_string(want.placement.start), " of ", want.gpu_uuid}));
}

void Fill(const MigEntry& entry, device::MigReservation& want) {
  want.mig_uuid = entry.mig_uuid;
  want.gpu_instance = entry.gpu_instance;
  want.compute_instance = entry.compute_instance;
}

}  // namespace

std::vector<nvml::MigPlace> ForeignPlaces(const MigLayout& layout, const std::string& gpu, const MigEntries& entries) {
  std::vector<nvml::MigPlace> places;
  for (const GpuInstance& instance : layout.instances) {
    const bool ours = std::any_of(entries.begin(), entries.end(), [&](const MigEntry& entry) {
      return entry.gpu_uuid == gpu && InstanceOf(entry, layout) == &instance;
    });
    if (!ours) places.push_back(instance.place);
  }
  return places;
}

Status MigKeeper::Start() {
  const std::lock_guard lock(mutex_);
  auto loaded = journal_.Load();
  if (!loaded) return tl::unexpected(loaded.error());
  Use(*std::move(loaded));
  return {};
}

MigEntries MigKeeper::entries() const {
  const std::lock_guard lock(entries_mutex_);
  return entries_;
}

void MigKeeper::Use(MigEntries entries) {
  const std::lock_guard lock(entries_mutex_);
  entries_ = std::move(entries);
}

Status MigKeeper::Reload() {
  if (!journal_.Changed()) return {};
  auto loaded = journal_.Load();
  if (!loaded) return tl::unexpected(loaded.error());
  Use(*std::move(loaded));
  return {};
}

// The same trouble is told once.
void MigKeeper::Complain(const std::string& trouble) {
  if (troubles_.insert(trouble).second) base::LogWarning("mig: " + trouble);
}

Status MigKeeper::Forget(const MigEntry& entry) {
  MigEntries left = entries_;
  std::erase_if(left, [&](const MigEntry& other) { return SameEntry(other, entry); });
  HAMI_TRY(journal_.Save(left));
  Use(std::move(left));
  return {};
}

Result<MigKeeper::Removal> MigKeeper::Remove(const MigEntry& entry) {
  const auto layout = driver_.Layout(entry.gpu_uuid);
  if (!layout) return tl::unexpected(layout.error());
  const GpuInstance* const instance = InstanceOf(entry, *layout);
  if (instance != nullptr) {
    const auto in_use = driver_.InUse(entry.gpu_uuid, instance->id);
    if (!in_use) return tl::unexpected(in_use.error());
    if (*in_use) return Removal::kBusy;
    for (const nvml::ComputeInstance& compute : instance->compute) {
      // Another compute instance inside of ours is somebody else's, and the GPU instance stays for it.
      if (entry.Made() && compute.uuid != entry.mig_uuid) continue;
      HAMI_TRY(driver_.DestroyComputeInstance(entry.gpu_uuid, instance->id, compute.id));
    }
    HAMI_TRY(driver_.DestroyGpuInstance(entry.gpu_uuid, instance->id));
    base::LogInfo("mig: removed " + Describe(entry));
  }
  HAMI_TRY(Forget(entry));
  return Removal::kGone;
}

Result<MigKeeper::Removal> MigKeeper::RemoveWaiting(const MigEntry& entry, net::Deadline until) {
  for (;;) {
    auto removed = Remove(entry);
    if (!removed || *removed == Removal::kGone || net::Clock::now() + kLookAgain >= until) return removed;
    net::Canceller().SleepUntil(net::After(kLookAgain));
  }
}

Status MigKeeper::MakeRoom(const PodKey& owner, const Reservation& want, const Holders& holders, net::Deadline until) {
  const MigEntries before = entries_;
  for (const MigEntry& entry : before) {
    if (entry.gpu_uuid != want.gpu_uuid || !device::Overlap(entry.placement, want.placement)) continue;
    const auto holder = holders(entry);
    if (holder && holder->uid != owner.uid) {
      return Fail(Concat({Describe(entry), " is in use by pod ", holder->ns, "/", holder->name}));
    }
    const auto removed = RemoveWaiting(entry, until);
    if (!removed) return tl::unexpected(removed.error());
    if (*removed == Removal::kBusy) {
      return Fail(Concat(
          {Describe(entry), " was pod ", entry.owner.ns, "/", entry.owner.name, "'s, and a process still uses it"}));
    }
  }
  return {};
}

Status MigKeeper::TakeOver(MigEntry& entry, const PodKey& owner, Reservation& want) {
  MigEntries changed = entries_;
  for (MigEntry& one : changed) {
    if (!SameEntry(one, entry)) continue;
    one.owner = owner;
    one.container = want.container;
    one.device = want.device;
  }
  HAMI_TRY(journal_.Save(changed));
  Fill(entry, want);
  base::LogInfo(Concat({"mig: ", Describe(entry), " goes over to pod ", owner.ns, "/", owner.name}));
  Use(std::move(changed));
  return {};
}

// Both halves, or neither.
Status MigKeeper::MakeInstance(MigEntry& entry, unsigned profile_id) {
  const auto gpu_instance = driver_.CreateGpuInstance(entry.gpu_uuid, profile_id, PlaceOf(entry.placement));
  if (!gpu_instance) return tl::unexpected(gpu_instance.error());
  const auto compute = driver_.CreateComputeInstance(entry.gpu_uuid, *gpu_instance);
  if (!compute) {
    if (const Status undone = driver_.DestroyGpuInstance(entry.gpu_uuid, *gpu_instance); !undone) {
      base::LogError(undone.error());
    }
    return tl::unexpected(compute.error());
  }
  entry.gpu_instance = static_cast<int>(*gpu_instance);
  entry.compute_instance = static_cast<int>(compute->id);
  entry.mig_uuid = compute->uuid;
  return {};
}

Status MigKeeper::Make(MigEntry entry, unsigned profile_id) {
  MigEntries intended = entries_;
  std::erase_if(intended, [&](const MigEntry& other) { return SameEntry(other, entry); });
  MigEntries made = intended;
  entry.mig_uuid.clear();
  entry.gpu_instance = entry.compute_instance = -1;
  intended.push_back(entry);
  HAMI_TRY(journal_.Save(intended));
  Use(intended);
  Status done = MakeInstance(entry, profile_id);
  if (done) {
    made.push_back(entry);
    done = journal_.Save(made);
  }
  if (done) {
    Use(std::move(made));
    base::LogInfo(Concat(
        {"mig: made ", Describe(entry), " uuid=", entry.mig_uuid, " for pod ", entry.owner.ns, "/", entry.owner.name}));
    return {};
  }
  // The intent stays until what may be there is gone: then Tend removes it.
  if (const auto removed = Remove(intended.back()); !removed) base::LogError(removed.error());
  return done;
}

Status MigKeeper::RealiseOne(const PodKey& owner, Reservation& want, const Holders& holders, net::Deadline until) {
  auto layout = driver_.Layout(want.gpu_uuid);
  if (!layout) return tl::unexpected(layout.error());
  HAMI_TRY(CheckPlace(want, *layout));
  for (MigEntry& entry : entries_) {
    if (!SameKind(entry, want) || !IsWhole(entry, *layout)) continue;
    if (SameContainer(entry, owner, want)) {
      Fill(entry, want);
      return {};
    }
    const auto holder = holders(entry);
    const auto in_use = driver_.InUse(entry.gpu_uuid, static_cast<unsigned>(entry.gpu_instance));
    if (!holder && in_use && !*in_use) return TakeOver(entry, owner, want);
  }
  HAMI_TRY(MakeRoom(owner, want, holders, until));
  layout = driver_.Layout(want.gpu_uuid);
  if (!layout) return tl::unexpected(layout.error());
  for (const nvml::MigPlace& foreign : ForeignPlaces(*layout, want.gpu_uuid, entries_)) {
    if (!device::Overlap(PlacementOf(foreign), want.placement)) continue;
    return Fail(
        Concat({"slices ", std::to_string(foreign.start), " to ", std::to_string(foreign.start + foreign.size - 1),
                " of ", want.gpu_uuid, " belong to a MIG instance that hami-device-plugin did not make"}),
        "remove it (nvidia-smi mig -dci, -dgi); the plugin leaves it alone");
  }
  MigEntry entry;
  entry.owner = owner;
  entry.container = want.container;
  entry.device = want.device;
  entry.gpu_uuid = want.gpu_uuid;
  entry.profile = want.profile;
  entry.placement = want.placement;
  HAMI_TRY(Make(entry, FindProfile(*layout, want.profile)->id));
  Fill(entries_.back(), want);
  return {};
}

Result<std::vector<device::MigReservation>> MigKeeper::Realise(const PodKey& owner, std::vector<Reservation> wanted,
                                                               const Holders& holders, net::Deadline until) {
  const std::lock_guard lock(mutex_);
  HAMI_TRY(Reload());
  const MigEntries before = entries_;
  for (Reservation& want : wanted) {
    const Status done = RealiseOne(owner, want, holders, until);
    if (done) continue;
    const MigEntries now = entries_;
    for (const MigEntry& entry : now) {
      const bool old = std::any_of(before.begin(), before.end(),
                                   [&](const MigEntry& other) { return other.mig_uuid == entry.mig_uuid; });
      if (old) continue;
      if (const auto undone = Remove(entry); !undone) base::LogError(undone.error());
    }
    return tl::unexpected(done.error());
  }
  return wanted;
}

// True when something is left.
bool MigKeeper::TendOne(const MigEntry& entry, bool held) {
  const auto layout = driver_.Layout(entry.gpu_uuid);
  if (!layout) {
    Complain(Concat({Describe(entry), ": ", layout.error().message}));
    return false;  // a driver in trouble is not asked without end
  }
  if (held && IsWhole(entry, *layout)) return false;
  const nvml::MigProfile* const profile = FindProfile(*layout, entry.profile);
  if (held && entry.Made() && profile != nullptr && InstanceOf(entry, *layout) == nullptr) {
    // The same profile at the same place of the same GPU has the same name, so the container finds its own.
    const std::string name = entry.mig_uuid;
    if (const Status made = Make(entry, profile->id); !made) {
      Complain(Concat({Describe(entry), " is gone and cannot be made again: ", made.error().message}));
      return true;
    }
    base::LogWarning(Concat({"mig: ", Describe(entry), " was gone, and is made again"}));
    if (entries_.back().mig_uuid != name) {
      base::LogError(Concat({"mig: it is ", entries_.back().mig_uuid, " now and was ", name, "; pod ", entry.owner.ns,
                             "/", entry.owner.name, " must be deleted"}));
    }
    return false;
  }
  if (held) return true;
  const auto removed = Remove(entry);
  if (!removed) Complain(Concat({Describe(entry), ": ", removed.error().message}));
  return !removed || *removed == Removal::kBusy;
}

bool MigKeeper::Tend(const Holders& holders) {
  const std::lock_guard lock(mutex_);
  if (const Status loaded = Reload(); !loaded) {
    Complain(loaded.error().message);
    return true;
  }
  bool left = false;
  const MigEntries before = entries_;
  for (const MigEntry& entry : before) left = TendOne(entry, holders(entry).has_value()) || left;
  if (!left) troubles_.clear();
  return left;
}

}  // namespace hami::plugin
