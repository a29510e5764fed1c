// SPDX-License-Identifier: Apache-2.0

#include "plugin/share_folders.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/fd.h"
#include "base/files.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/trash.h"
#include "base/watched_file.h"
#include "plugin/own_file.h"
#include "plugin/response.h"
#include "region/region.h"

namespace hami::plugin {
namespace {

namespace fs = std::filesystem;
using base::Concat;

constexpr std::size_t kMostRecordBytes = 64 << 20;
constexpr const char* kShares = "shares";
constexpr const char* kContainers = "containers";
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
constexpr int kMostRemoved = 10'000;  // in one call and folder, some tenths of a second

base::Status MakeRegion(const std::string& path, const RegionSettings& settings) {
  region::Config config;
  if (settings.limits.size() > region::kMaxDevices) {
    return base::Fail("a container can not have more than " + std::to_string(region::kMaxDevices) + " limited GPUs");
  }
  config.device_count = static_cast<std::uint32_t>(settings.limits.size());
  for (std::size_t i = 0; i < settings.limits.size(); ++i) {
    const DeviceLimit& limit = settings.limits[i];
    region::DeviceConfig& device = config.devices[i];
    limit.uuid.copy(device.uuid, sizeof device.uuid - 1);
    device.memory_limit = limit.memory_bytes;
    device.sm_limit = limit.cores == 0 ? 100 : static_cast<std::uint64_t>(limit.cores);
    device.physical_bytes = limit.physical_bytes;
  }
  config.priority = settings.priority;
  config.policy = static_cast<std::int32_t>(settings.core_policy);
  config.utilization_switch = settings.core_policy == CorePolicy::kDisable ? 0 : 1;
  config.flags = region::kFlagFixedDevices | (settings.oversubscribe ? region::kFlagOversubscribe : 0);
  int error_number = 0;
  const region::Status made = region::Create(path.c_str(), config, &error_number);
  if (made == region::Status::kOk) return {};
  const std::string text = "can not make the region " + path;
  if (error_number != 0) return base::FailErrno(text, error_number);
  return base::Fail(Concat({text, " (", region::StatusName(made), ")"}));
}

const char* PolicyName(CorePolicy policy) {
  switch (policy) {
    case CorePolicy::kForce:
      return "force";
    case CorePolicy::kDisable:
      return "disable";
    case CorePolicy::kDefault:
      break;
  }
  return "default";
}

// The container's environment once more, for the processes that do not have it: logins over ssh, MPI between pods,
// cron. The library takes from the environment only what gives them no more than this.
std::string ShareText(const std::string& region_path, const RegionSettings& settings) {
  std::vector<std::string> by_uuid;
  std::string text = Concat({"CUDA_DEVICE_MEMORY_SHARED_CACHE=", region_path, "\n"});
  for (std::size_t i = 0; i < settings.limits.size(); ++i) {
    const DeviceLimit& limit = settings.limits[i];
    const std::string memory = std::to_string(limit.memory_bytes), cores = std::to_string(limit.cores);
    text += Concat({"CUDA_DEVICE_MEMORY_LIMIT_", std::to_string(i), "=", memory, "\n"});
    text += Concat({"CUDA_DEVICE_SM_LIMIT_", std::to_string(i), "=", cores, "\n"});
    by_uuid.push_back(Concat({limit.uuid, "=", memory, ":", cores}));
  }
  return Concat({text, "HAMI_DEVICE_LIMITS=", base::Join(by_uuid, ","), "\nCUDA_TASK_PRIORITY=",
                 std::to_string(settings.priority), "\nGPU_CORE_UTILIZATION_POLICY=", PolicyName(settings.core_policy),
                 "\nCUDA_OVERSUBSCRIBE=", settings.oversubscribe ? "true" : "false",
                 "\nHAMI_FAIL_OPEN=false\nHAMI_COMMON_AREA=", kCommonInContainer, "\n"});
}

base::Status MakeShareFile(const std::string& path, const std::string& text) {
  HAMI_TRY(base::WriteNewFile(path, text, 0644));
  // Whoever the container runs as reads it.
  if (::chmod(path.c_str(), 0644) != 0) return base::FailErrno("can not set the mode of " + path);
  return {};
}

// A container whose user is known needs nobody else in its folder. Root may become anybody, so root's is open.
base::Status SetOwner(const std::string& path, const std::optional<std::uint32_t>& runs_as) {
  const bool owned = runs_as && *runs_as != 0 && ::chown(path.c_str(), *runs_as, static_cast<gid_t>(-1)) == 0;
  if (::chmod(path.c_str(), owned ? 0700 : 0777) != 0) return base::FailErrno("can not set the mode of " + path);
  return {};
}

// Takes PATH out of the way, in no time, whatever is in it.
base::Status TakeAway(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const base::Fd parent(::open(path.substr(0, slash).c_str(), kFolderFlags));
  if (!parent && errno == ENOENT) return {};
  if (!parent) return base::FailErrno("can not open the folder of " + path);
  const auto moved = base::MoveToTrash(parent.get(), path.substr(slash + 1));
  if (!moved) return base::Fail(Concat({path, ": ", moved.error().message}));
  return {};
}

void TakeAwayOrSay(const std::string& path) {
  if (const base::Status taken = TakeAway(path); !taken) base::LogWarning(taken.error().message);
}

// Links of ours that lead nowhere any more.
void RemoveLostLinks(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> lost;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const std::string target = fs::read_symlink(it->path(), ignored).string();
    if (target.starts_with(Concat({"../", kShares, "/"})) && !fs::exists(it->path(), ignored)) {
      lost.push_back(it->path());
    }
  }
  for (const fs::path& link : lost) fs::remove(link, error);
}

}  // namespace

std::string DiskShareFolders::LinkOf(const Record& record) const {
  return Concat({root_, "/", kContainers, "/", record.owner.uid, "_", record.container_name});
}

bool DiskShareFolders::Has(const Record& record) {
  std::error_code ignored;
  return fs::is_regular_file(fs::symlink_status(Concat({PathOf(record), "/", record.cache}), ignored));
}

base::Status DiskShareFolders::Make(const Record& record, const RegionSettings& settings) {
  const std::string path = PathOf(record);
  HAMI_TRY(base::MakeFolders(path.substr(0, path.rfind('/')), 0755));
  HAMI_TRY(TakeAway(path));
  if (::mkdir(path.c_str(), 0700) != 0) return base::FailErrno("can not make the folder " + path);
  HAMI_TRY(MakeRegion(Concat({path, "/", record.cache}), settings));
  if (record.share_file) {
    // The folder has the same name in the container as root_ has here.
    const std::string text = ShareText(Concat({root_, "/", record.cache}), settings);
    HAMI_TRY(MakeShareFile(Concat({path, "/", region::kShareFile}), text));
  }
  return SetOwner(path, settings.runs_as);
}

// From then on the folder itself has the container's name, as HAMi's monitor knows it, and where it was a link leads to
// it, for the container was told of that place. The two change places in one step, so that both are always there.
base::Status DiskShareFolders::Link(const Record& record) {
  const std::string place = PathOf(record);
  const std::string name = LinkOf(record);
  const std::string target = Concat({"../", name.substr(root_.size() + 1)});
  std::error_code error;
  const std::string present = fs::read_symlink(place, error).string();
  if (present == target) return {};
  // Another container was assumed to be the one.
  if (!present.empty()) HAMI_TRY(Unname(place, NamedBy(present)));
  HAMI_TRY(base::MakeFolders(Concat({root_, "/", kContainers}), 0755));
  if (fs::read_symlink(name, error).string() == "../" + record.folder) return {};
  // A folder of an earlier life may have the name.
  if (fs::is_directory(fs::symlink_status(name, error))) HAMI_TRY(TakeAway(name));
  HAMI_TRY(base::ReplaceLink(name, target));
  if (::renameat2(AT_FDCWD, place.c_str(), AT_FDCWD, name.c_str(), RENAME_EXCHANGE) == 0) return {};
  // A file system that cannot: the name is the link, then.
  return base::ReplaceLink(name, "../" + record.folder);
}

// The folder that TARGET of a link among the shares leads to; empty when it is not one of ours.
std::string DiskShareFolders::NamedBy(const std::string& target) const {
  const std::string prefix = Concat({"../", kContainers, "/"});
  const bool ours = target.starts_with(prefix) && target.find('/', prefix.size()) == std::string::npos;
  return ours ? Concat({root_, "/", target.substr(3)}) : std::string();
}

// Puts the folder NAME back to PLACE, where a link leads to it.
base::Status DiskShareFolders::Unname(const std::string& place, const std::string& name) const {
  if (name.empty()) return base::Fail(place + " is a link that is not ours");
  if (::renameat2(AT_FDCWD, place.c_str(), AT_FDCWD, name.c_str(), RENAME_EXCHANGE) != 0) {
    return base::FailErrno(Concat({"can not move ", name, " back to ", place}));
  }
  std::error_code ignored;
  fs::remove(name, ignored);
  return {};
}

void DiskShareFolders::Remove(const Record& record) {
  if (record.folder.empty()) return;
  std::error_code ignored;
  const std::string place = PathOf(record);
  if (const std::string name = NamedBy(fs::read_symlink(place, ignored).string()); !name.empty()) TakeAwayOrSay(name);
  const std::string link = LinkOf(record);
  if (fs::read_symlink(link, ignored) == "../" + record.folder) fs::remove(link, ignored);
  TakeAwayOrSay(place);
}

// Only in our own folder: names in the other may be HAMi's.
void DiskShareFolders::RemoveAllBut(const Records& records) {
  std::error_code error;
  std::vector<fs::path> orphans;
  for (fs::directory_iterator it(Concat({root_, "/", kShares}), error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if (name.starts_with(base::kTrashPrefix)) continue;
    const std::string folder = Concat({kShares, "/", name});
    const bool known = std::any_of(records.begin(), records.end(), [&](const auto& r) { return r.folder == folder; });
    if (!known) orphans.push_back(it->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    base::LogWarning(Concat({"can not list ", root_, "/", kShares, ": ", error.message()}));
  }
  for (const fs::path& orphan : orphans) {
    const std::string name = NamedBy(fs::read_symlink(orphan, error).string());
    const bool known = std::any_of(records.begin(), records.end(), [&](const auto& r) { return PathOf(r) == name; });
    if (!name.empty() && !known) TakeAwayOrSay(name);
    TakeAwayOrSay(orphan);
  }
  RemoveLostLinks(Concat({root_, "/", kContainers}));
}

bool DiskShareFolders::EmptyTrash() {
  bool more = false;
  std::vector<std::string> stuck;
  for (const char* folder : {kShares, kContainers}) {
    const std::string path = Concat({root_, "/", folder});
    const base::Fd parent(::open(path.c_str(), kFolderFlags));
    if (!parent) continue;
    std::vector<std::string> names = base::FindTrash(parent.get());
    more = base::EmptyTrash(parent.get(), names, kMostRemoved) || more;
    for (const std::string& name : names) stuck.push_back(Concat({path, "/", name}));
  }
  std::string told = more ? std::string() : base::Join(stuck, ", ");
  if (!told.empty() && told != stuck_) base::LogWarning("can not remove all of " + told);
  stuck_ = std::move(told);
  return more;
}

bool DiskRecordKeeper::Changed() { return !stamp_.empty() && base::FileStamp(path_) != stamp_; }

base::Result<Records> DiskRecordKeeper::Load() {
  stamp_ = base::FileStamp(path_);
  const auto text = ReadOwnFile(path_, kMostRecordBytes);
  if (!text) return tl::unexpected(text.error());
  if (!*text) return Records();
  auto records = DecodeRecords(**text);
  if (!records) {
    return base::Fail(Concat({path_, ": ", records.error().message}),
                      "it says which GPUs the running containers hold; drain the node before removing it");
  }
  return records;
}

base::Status DiskRecordKeeper::Save(const Records& records) {
  HAMI_TRY(base::MakeFolders(path_.substr(0, path_.rfind('/')), 0755));
  // The lock goes with the descriptor.
  const base::Fd lock(::open((path_ + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock || ::flock(lock.get(), LOCK_EX) != 0) return base::FailErrno("can not lock " + path_);
  if (Changed()) return base::Fail(path_ + " was written by another hami-device-plugin a moment ago");
  HAMI_TRY(base::ReplaceFile(path_, EncodeRecords(records), 0600));
  stamp_ = base::FileStamp(path_);
  return {};
}

}  // namespace hami::plugin
