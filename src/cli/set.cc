// SPDX-License-Identifier: Apache-2.0

#include "cli/set.h"

#include <fcntl.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/inventory.h"
#include "cli/state.h"
#include "cli/view.h"
#include "region/reader.h"
#include "region/remote.h"

namespace hami::cli {
namespace {

using base::FormatBytes;

constexpr const char* kWhoHolds = "`hami smi` shows who holds the rest";

base::Status ChangeMemory(const base::Portion& memory, const Device& device, const Room& room, bool oversubscribe,
                          Grant& grant) {
  if (device.total_bytes == 0 && std::holds_alternative<base::Percent>(memory)) {
    return base::Fail("the size of " + grant.uuid + " is not known", "give --mem as an amount, like 6g");
  }
  const std::uint64_t wanted = BytesOf(memory, device.total_bytes);
  const bool fits = device.total_bytes == 0 || wanted <= std::max(room.free_bytes, grant.reserved_bytes);
  if (!fits && !oversubscribe) {
    return base::Fail("only " + FormatBytes(room.free_bytes) + " of " + grant.uuid + " can be had, " +
                          FormatBytes(wanted) + " were asked for",
                      kWhoHolds);
  }
  grant.limit_bytes = wanted;
  grant.reserved_bytes = fits ? wanted : room.free_bytes;
  return {};
}

base::Status ChangeCores(const SetOptions& change, const Room& room, Grant& grant) {
  if (change.cores) {
    if (*change.cores > std::max(room.free_cores, grant.cores)) {
      return base::Fail("only " + std::to_string(room.free_cores) + " % of the cores of " + grant.uuid +
                            " can be had, " + std::to_string(*change.cores) + " % were asked for",
                        kWhoHolds);
    }
    grant.cores = *change.cores;
  }
  if (change.burst && *change.burst != 0 && (grant.cores == 0 || *change.burst <= grant.cores)) {
    const std::string cores = grant.cores == 0 ? "its cores are not limited" : std::to_string(grant.cores) + " %";
    return base::Fail("--burst " + std::to_string(*change.burst) + " is not more than the cores of the share: " + cores,
                      "a burst goes beyond --cores; make it the larger");
  }
  if (change.burst) grant.burst = *change.burst;
  if (grant.burst <= grant.cores) grant.burst = 0;
  return {};
}

// The words that every process of the share reads at its next allocation or lease.
base::Status Publish(const std::string& path, const ShareRecord& record) {
  const auto fd = base::Open(path, O_RDWR);
  if (!fd) return tl::unexpected(fd.error());
  const region::Remote remote{fd->get(), 1};
  std::vector<region::Status> wrote{region::WritePriority(remote, static_cast<std::int32_t>(record.priority))};
  for (std::size_t i = 0; i < record.grants.size(); ++i) {
    const Grant& grant = record.grants[i];
    const auto device = static_cast<std::uint32_t>(i);
    wrote.push_back(region::WriteMemoryLimit(remote, device, grant.limit_bytes));
    wrote.push_back(region::WriteSmLimit(remote, device, grant.cores == 0 ? 100 : grant.cores));
    // A burst of 1 % says "none" aloud: where nothing is said the environment of the programs counts.
    wrote.push_back(region::WriteBurst(remote, device, grant.burst == 0 ? 1 : grant.burst));
  }
  for (const region::Status status : wrote) {
    if (status != region::Status::kOk) {
      return base::Fail("can not write the region " + path + " (" + region::StatusName(status) + ")");
    }
  }
  return {};
}

// The GPUs of RECORD as the driver knows them; where it does not answer, their sizes as the region remembers them.
std::vector<Device> DevicesFor(const ShareRecord& record, const std::string& region_path, const Inventory* inventory,
                               const std::vector<ShareView>& shares) {
  std::vector<Device> devices = inventory == nullptr ? std::vector<Device>{} : DevicesOf(*inventory, shares);
  std::erase_if(devices, [](const Device& device) { return !device.trouble.empty(); });
  const auto is_known = [&](const Grant& grant) {
    return std::any_of(devices.begin(), devices.end(), [&](const Device& known) { return known.uuid == grant.uuid; });
  };
  if (std::all_of(record.grants.begin(), record.grants.end(), is_known)) return devices;
  const auto snapshot = std::make_unique<region::Snapshot>();
  const bool readable = region::ReadSnapshotFile(region_path.c_str(), false, snapshot.get()) == region::Status::kOk;
  for (std::size_t i = 0; i < record.grants.size() && i < region::kMaxDevices; ++i) {
    const Grant& grant = record.grants[i];
    if (!is_known(grant)) devices.push_back({0, grant.uuid, readable ? snapshot->devices[i].physical_bytes : 0, 0, ""});
  }
  return devices;
}

struct Changed {
  ShareRecord before;
  ShareRecord after;
};

base::Result<Changed> ChangeLocked(const SetOptions& options, const Nvml* nvml, StateLock& lock) {
  const auto& stored = lock.shares();
  const auto share = std::find_if(stored.begin(), stored.end(),
                                  [&](const StoredShare& candidate) { return candidate.name == options.name; });
  if (share == stored.end()) {
    return base::Fail("there is no share named '" + options.name + "'", "`hami ps` lists all");
  }
  if (!share->record)
    return base::Fail("share '" + options.name + "' can not be changed: " + share->record.error().message);
  const auto read = nvml == nullptr ? base::Result<Inventory>(base::Fail("")) : nvml->Read();
  const Inventory* inventory = read ? &*read : nullptr;
  std::vector<ShareView> shares = ViewShares(stored, inventory);
  const auto devices = DevicesFor(*share->record, share->region_path, inventory, shares);
  std::erase_if(shares, [&](const ShareView& view) { return view.name == options.name; });
  const auto others = HoldersOf(shares);
  if (!others) return tl::unexpected(others.error());
  const auto changed = PlanChange(*share->record, options, devices, *others);
  if (!changed) return tl::unexpected(changed.error());
  // The record first: what is promised is set aside before anybody can use it.
  HAMI_TRY(lock.Update(*changed));
  if (const auto published = Publish(share->region_path, *changed); !published) {
    // What of the region was written goes back, too; the first failure is what matters.
    static_cast<void>(Publish(share->region_path, *share->record));
    static_cast<void>(lock.Update(*share->record));
    return tl::unexpected(published.error());
  }
  return Changed{*share->record, *changed};
}

base::Result<Changed> Change(const SetOptions& options) {
  const auto state = State::Open();
  if (!state) return tl::unexpected(state.error());
  // Starting the driver can take a second; that is not done while others wait for the lock.
  const auto nvml = Nvml::Load();
  auto lock = StateLock::Take(*state);
  if (!lock) return tl::unexpected(lock.error());
  return ChangeLocked(options, nvml ? &*nvml : nullptr, *lock);
}

}  // namespace

base::Result<ShareRecord> PlanChange(const ShareRecord& record, const SetOptions& change,
                                     const std::vector<Device>& devices, const std::vector<Holder>& others) {
  ShareRecord changed = record;
  if (change.priority) changed.priority = *change.priority;
  const std::vector<Room> rooms = CountRoom(devices, others);
  for (Grant& grant : changed.grants) {
    const auto room =
        std::find_if(rooms.begin(), rooms.end(), [&](const Room& candidate) { return candidate.uuid == grant.uuid; });
    if (room == rooms.end()) return base::Fail("the driver does not know " + grant.uuid + " any more");
    const Device& device = devices[static_cast<std::size_t>(room - rooms.begin())];
    if (change.memory) HAMI_TRY(ChangeMemory(*change.memory, device, *room, record.oversubscribe, grant));
    HAMI_TRY(ChangeCores(change, *room, grant));
  }
  return changed;
}

int Set(const SetOptions& options) {
  const auto changed = Change(options);
  if (!changed) {
    base::LogError(changed.error());
    return kFailed;
  }
  for (std::size_t i = 0; i < changed->after.grants.size(); ++i) {
    const Grant& grant = changed->after.grants[i];
    std::cout << changed->after.name << ": " << grant.uuid << ": " << FormatBytes(grant.limit_bytes) << ", "
              << (grant.cores == 0 ? std::string("all cores") : CoresText(grant.cores, grant.burst) + " of the cores")
              << ", " << (changed->after.priority == Priority::kHigh ? "high" : "low") << " priority\n";
    const unsigned before = changed->before.grants[i].burst;
    if (before != 0 && grant.burst == 0 && !options.burst) {
      std::cout << "  the burst up to " << before << " % is gone, as it is not above the cores\n";
    }
  }
  return 0;
}

}  // namespace hami::cli
