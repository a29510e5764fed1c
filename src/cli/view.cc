// SPDX-License-Identifier: Apache-2.0

#include "cli/view.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

#include "base/strings.h"
#include "region/reader.h"

namespace hami::cli {
namespace {

constexpr std::size_t kShortUuid = 12;  // "GPU-" and eight digits

void AddRecord(const ShareRecord& record, const Inventory* inventory, ShareView& view) {
  view.recorded = true;
  view.command = record.command;
  view.oversubscribe = record.oversubscribe;
  view.mps = record.mps;
  view.priority = record.priority;
  view.created_at = record.created_at;
  for (const Grant& grant : record.grants) {
    DeviceView device;
    device.uuid = grant.uuid;
    device.limit_bytes = grant.limit_bytes;
    device.reserved_bytes = grant.reserved_bytes;
    device.cores = device.reserved_cores = grant.cores;
    device.burst = grant.burst;
    if (inventory != nullptr) {
      if (const Gpu* gpu = inventory->Find(grant.uuid)) device.gpu = gpu->index;
    }
    view.devices.push_back(std::move(device));
  }
}

// Whether PID has the file at PATH mapped; false also where this user may not know.
bool Maps(int pid, const std::string& path) {
  std::error_code error;
  const std::string name = std::filesystem::canonical(path, error).string();
  struct stat file {};
  if (error || ::stat(name.c_str(), &file) != 0) return false;
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (!line.ends_with(" " + name)) continue;
    std::istringstream words(line);
    std::string skipped;
    ino_t inode = 0;
    if (words >> skipped >> skipped >> skipped >> skipped >> inode && inode == file.st_ino) return true;
  }
  return false;
}

// Who holds the slot's lock, as the kernel tells. A program that has closed its descriptors lost it, but not its
// mapping.
int ProvenPid(const region::SnapshotSlot& slot, const std::string& region_path) {
  if (slot.holder > 0) return slot.holder;
  return Maps(slot.pid, region_path) ? slot.pid : 0;
}

void AddProcesses(const region::Snapshot& snapshot, const std::string& region_path,
                  const std::vector<std::size_t>& places, ShareView& view) {
  for (int i = 0; i < snapshot.slot_count; ++i) {
    const region::SnapshotSlot& slot = snapshot.slots[i];
    if (slot.liveness == region::Liveness::kDead) continue;
    ProcessView process;
    process.pid = slot.pid;
    process.host_pid = slot.host_pid;
    process.proven_pid = ProvenPid(slot, region_path);
    process.command = slot.has_token ? base::Printable(slot.command) : "?";
    process.suspended = slot.status == region::kStatusSuspended;
    for (std::size_t d = 0; d < places.size(); ++d) {
      process.bytes.push_back(slot.memory[places[d]].total);
    }
    view.processes.push_back(std::move(process));
  }
}

// Where each of the share's devices is in the region's table.
std::optional<std::vector<std::size_t>> FindPlaces(const region::Snapshot& snapshot, const ShareView& view) {
  std::vector<std::size_t> places;
  for (const DeviceView& device : view.devices) {
    std::size_t place = 0;
    while (place < snapshot.device_count && device.uuid != snapshot.devices[place].uuid) ++place;
    if (place == snapshot.device_count) return std::nullopt;
    places.push_back(place);
  }
  return places;
}

std::string StateOf(const region::Snapshot& snapshot, const ShareView& view) {
  if (snapshot.recent_kernel < 0) return "blocked";
  if (view.processes.empty()) return "idle";
  const bool all_suspended = std::all_of(view.processes.begin(), view.processes.end(),
                                         [](const ProcessView& process) { return process.suspended; });
  return all_suspended ? "suspended" : "running";
}

// The region's limit of the GPU's time is the one that is kept; the record's is what was set aside for it.
void AddCores(const region::SnapshotDevice& from, DeviceView& device) {
  const unsigned recorded = device.cores;
  const bool unlimited = from.sm_limit == 0 || from.sm_limit >= 100;
  device.cores = unlimited ? (recorded == 100 ? 100 : 0) : static_cast<unsigned>(from.sm_limit);
  device.reserved_cores = std::max(recorded, device.cores);
  const unsigned burst = from.burst == 0 ? device.burst : from.burst;
  device.burst = device.cores != 0 && burst > device.cores ? burst : 0;
}

void AddRegion(const std::string& path, region::Snapshot& snapshot, ShareView& view) {
  const region::Status status = region::ReadSnapshotFile(path.c_str(), true, &snapshot);
  const auto places = status == region::Status::kOk ? FindPlaces(snapshot, view) : std::nullopt;
  if (!places) {
    view.state = "damaged";
    view.problem = status == region::Status::kOk ? "its region does not name its GPUs" : "its region can not be read";
    return;
  }
  for (std::size_t d = 0; d < places->size(); ++d) {
    const region::SnapshotDevice& from = snapshot.devices[(*places)[d]];
    DeviceView& device = view.devices[d];
    const std::uint64_t recorded = device.limit_bytes;
    device.limit_bytes = from.limit;
    device.used_bytes = from.used;
    device.peak_bytes = from.peak;
    device.refusals = from.refusals;
    AddCores(from, device);
    // No limit at all holds the whole card.
    const std::uint64_t allowed = from.limit == 0 ? ~std::uint64_t{0} : from.limit;
    // What was held before the limit was lowered is still held.
    if (!view.oversubscribe) device.reserved_bytes = std::max({recorded, allowed, from.used});
  }
  AddProcesses(snapshot, path, *places, view);
  view.state = StateOf(snapshot, view);
}

}  // namespace

std::vector<ShareView> ViewShares(const std::vector<StoredShare>& shares, const Inventory* inventory) {
  std::vector<ShareView> views;
  auto snapshot = std::make_unique<region::Snapshot>();
  for (const StoredShare& share : shares) {
    ShareView view;
    view.name = share.name;
    if (share.record) {
      AddRecord(*share.record, inventory, view);
      AddRegion(share.region_path, *snapshot, view);
    } else {
      view.state = "damaged";
      view.problem = share.record.error().message;
    }
    views.push_back(std::move(view));
  }
  return views;
}

const ShareView* FindUnknownHolder(const std::vector<ShareView>& shares) {
  const auto found =
      std::find_if(shares.begin(), shares.end(), [](const ShareView& share) { return share.devices.empty(); });
  return found == shares.end() ? nullptr : &*found;
}

base::Result<std::vector<Holder>> HoldersOf(const std::vector<ShareView>& shares) {
  if (const ShareView* unknown = FindUnknownHolder(shares)) {
    return base::Fail("share '" + unknown->name + "' lives, but nobody can tell what it holds: " + unknown->problem,
                      "end its processes; its folder is then removed by the next hami command");
  }
  std::vector<Holder> holders;
  for (const ShareView& share : shares) {
    Holder holder{share.name, {}};
    for (const DeviceView& device : share.devices) {
      holder.grants.push_back(
          {device.uuid, device.limit_bytes, device.reserved_bytes, device.reserved_cores, device.burst});
    }
    holders.push_back(std::move(holder));
  }
  return holders;
}

std::vector<Device> DevicesOf(const Inventory& inventory, const std::vector<ShareView>& shares) {
  std::set<int> insiders;
  for (const ShareView& share : shares) {
    for (const ProcessView& process : share.processes) insiders.insert(process.proven_pid);
  }
  std::vector<Device> devices;
  for (const Gpu& gpu : inventory.gpus) {
    Device device{gpu.index, gpu.uuid, gpu.total_bytes, 0, gpu.trouble};
    for (const GpuProcess& process : gpu.processes) {
      if (!insiders.contains(process.pid)) device.outside_bytes += process.bytes;
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

base::json::array SharesToJson(const std::vector<ShareView>& shares, std::int64_t now) {
  using base::json::array;
  using base::json::object;
  array list;
  for (const ShareView& share : shares) {
    object entry{{"name", share.name}, {"state", share.state}};
    if (!share.problem.empty()) entry["problem"] = share.problem;
    entry["command"] = array(share.command.begin(), share.command.end());
    if (share.recorded) {
      entry["created_at"] = share.created_at;
      entry["age_seconds"] = std::max<std::int64_t>(0, now - share.created_at);
      entry["priority"] = share.priority == Priority::kHigh ? "high" : "low";
      entry["oversubscribe"] = share.oversubscribe;
      entry["mode"] = share.mps ? "mps" : "hami-core";
    }
    array devices;
    for (const DeviceView& device : share.devices) {
      object part{{"uuid", device.uuid},
                  {"limit_bytes", device.limit_bytes},
                  {"reserved_bytes", device.reserved_bytes},
                  {"used_bytes", device.used_bytes},
                  {"peak_bytes", device.peak_bytes},
                  {"refusals", device.refusals},
                  {"cores_percent", device.cores},
                  {"reserved_cores_percent", device.reserved_cores},
                  {"burst_percent", device.burst}};
      if (device.gpu) part["gpu"] = *device.gpu;
      devices.push_back(std::move(part));
    }
    entry["devices"] = std::move(devices);
    array processes;
    for (const ProcessView& process : share.processes) {
      processes.push_back(object{{"pid", process.pid},
                                 {"host_pid", process.host_pid},
                                 {"command", process.command},
                                 {"suspended", process.suspended},
                                 {"used_bytes", array(process.bytes.begin(), process.bytes.end())}});
    }
    entry["processes"] = std::move(processes);
    list.push_back(std::move(entry));
  }
  return list;
}

std::string CoresText(unsigned cores, unsigned burst) {
  if (cores == 0) return "-";
  return std::to_string(cores) + (burst > cores ? "-" + std::to_string(burst) : "") + " %";
}

std::string GpuName(const DeviceView& device) {
  return device.gpu ? std::to_string(*device.gpu) : device.uuid.substr(0, kShortUuid);
}

}  // namespace hami::cli
