// SPDX-License-Identifier: Apache-2.0

#include "cli/state.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/files.h"
#include "region/reader.h"

namespace hami::cli {
namespace {

constexpr const char* kLifeLine = "alive";
constexpr const char* kRecordFile = "share.json";
constexpr std::size_t kMostRecordBytes = 1 << 20;  // a command line can be long

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

base::Status MakeFolder(const std::string& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST) {
    auto failure = base::FailErrno("can not make the folder " + path);
    failure.value().hint = "HAMI_STATE_DIR can name another place for the state of the shares";
    return failure;
  }
  return {};
}

// A folder that somebody else may write to would let them plant links and regions.
base::Status CheckPrivate(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return base::FailErrno("can not examine " + path);
  if (!S_ISDIR(status.st_mode)) return base::Fail(path + " is not a folder");
  if (status.st_uid != ::geteuid()) {
    return base::Fail("the state folder " + path + " belongs to another user",
                      "set HAMI_STATE_DIR to a folder of your own");
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return base::Fail("the state folder " + path + " can be written by others",
                      "set HAMI_STATE_DIR to a folder that only you can write to");
  }
  return {};
}

base::Status Remove(const std::string& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);  // does not follow links
  if (error) return base::Fail("can not remove " + folder + ": " + error.message());
  return {};
}

bool HasLivingProcess(const std::string& region_path) {
  auto snapshot = std::make_unique<region::Snapshot>();
  if (region::ReadSnapshotFile(region_path.c_str(), true, snapshot.get()) != region::Status::kOk) return false;
  for (int i = 0; i < snapshot->slot_count; ++i) {
    if (snapshot->slots[i].liveness == region::Liveness::kAlive) return true;
  }
  return false;
}

// Shared, so that one who asks is never mistaken for a run by another who asks.
bool LifeLineIsHeld(const std::string& path) {
  const auto fd = base::Open(path, O_RDONLY | O_NONBLOCK);
  if (!fd) return false;
  const auto free = base::TryLock(fd->get(), base::LockMode::kShared);
  return free && !*free;
}

bool IsAlive(const std::string& folder) {
  return LifeLineIsHeld(folder + "/" + kLifeLine) || HasLivingProcess(folder + "/" + kRegionFile);
}

base::Result<ShareRecord> ReadRecord(const std::string& path) {
  const auto text = base::ReadFile(path, kMostRecordBytes);
  auto record = text ? DecodeRecord(*text) : base::Result<ShareRecord>(tl::unexpected(text.error()));
  if (!record) return base::Fail("its record can not be read: " + record.error().message);
  return record;
}

}  // namespace

std::string DefaultStateFolder(uid_t user) {
  if (const std::string chosen = Variable("HAMI_STATE_DIR"); !chosen.empty()) return chosen;
  if (user == 0) return "/var/lib/hami";
  // A runtime folder comes and goes with the user's sessions, and cron has none: with it one user had two sets of
  // books.
  return "/tmp/hami-" + std::to_string(user);
}

base::Result<State> State::Open() { return OpenAt(DefaultStateFolder(::geteuid())); }

base::Result<State> State::OpenAt(const std::string& folder) {
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(folder, error).string();
  if (error) return base::Fail("can not find the folder " + folder + ": " + error.message());
  // Parents may be missing too (HAMI_STATE_DIR=~/a/b); what they are made with is their owner's umask.
  std::filesystem::create_directories(std::filesystem::path(absolute).parent_path(), error);
  HAMI_TRY(MakeFolder(absolute, 0700));
  HAMI_TRY(CheckPrivate(absolute));
  HAMI_TRY(MakeFolder(absolute + "/shares", 0700));
  HAMI_TRY(CheckPrivate(absolute + "/shares"));
  return State(absolute);
}

base::Fd State::KeepFromCleaners() const {
  auto fd = base::Open(folder_, O_RDONLY | O_DIRECTORY);
  if (!fd) return {};
  const auto locked = base::TryLock(fd->get(), base::LockMode::kShared);
  if (!locked || !*locked) return {};
  return *std::move(fd);
}

base::Result<StateLock> StateLock::Take(const State& state) {
  auto fd = base::Open(state.folder() + "/lock", O_RDWR | O_CREAT, 0600);
  if (!fd) return tl::unexpected(fd.error());
  HAMI_TRY(base::WaitForLock(fd->get(), base::LockMode::kExclusive));
  StateLock lock(state.folder() + "/shares", *std::move(fd));
  HAMI_TRY(lock.Load());
  return lock;
}

base::Status StateLock::Load() {
  std::error_code error;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator entry(shares_folder_, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) return base::Fail("can not list " + shares_folder_ + ": " + error.message());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::string folder = shares_folder_ + "/" + name;
    if (name == kNewFolder) {
      // Only the holder of the lock makes one, and that is us: its maker died half-way.
      HAMI_TRY(Remove(folder));
      continue;
    }
    if (!CheckShareName(name)) continue;  // nothing of ours
    if (!IsAlive(folder)) {
      HAMI_TRY(Remove(folder));
      continue;
    }
    auto record = ReadRecord(folder + "/" + kRecordFile);
    if (record && record->name != name) record = base::Fail("the share's record has another name");
    shares_.push_back({name, folder + "/" + kRegionFile, std::move(record)});
  }
  return {};
}

base::Status StateLock::CheckNameIsFree(const std::string& name) const {
  HAMI_TRY(CheckShareName(name));
  for (const StoredShare& share : shares_) {
    if (share.name == name) {
      return base::Fail("there is a share named '" + name + "' already",
                        "choose another --name, or leave it out to get one that is free; `hami ps` lists all");
    }
  }
  return {};
}

base::Result<base::Fd> StateLock::BeginCreate(const ShareRecord& record, const std::string& folder) const {
  HAMI_TRY(CheckNameIsFree(record.name));
  HAMI_TRY(Remove(folder));
  HAMI_TRY(MakeFolder(folder, 0700));
  auto life = base::Open(folder + "/" + kLifeLine, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (!life) return life;
  const auto locked = base::TryLock(life->get(), base::LockMode::kExclusive);
  if (!locked) return tl::unexpected(locked.error());
  if (!*locked) return base::Fail("the life line of a new share is held by somebody else");
  HAMI_TRY(base::WriteNewFile(folder + "/" + kRecordFile, EncodeRecord(record), 0600));
  return life;
}

base::Status StateLock::FinishCreate(const std::string& name, const std::string& folder) const {
  // The share appears whole or not at all.
  if (::rename(folder.c_str(), (shares_folder_ + "/" + name).c_str()) != 0) {
    return base::FailErrno("can not make the share " + name);
  }
  return {};
}

void StateLock::Abandon(const std::string& folder) {
  // What can not be removed now is removed by the next holder of the lock; the failure before is what matters.
  static_cast<void>(Remove(folder));
}

base::Status StateLock::Update(const ShareRecord& record) const {
  const std::string path = shares_folder_ + "/" + record.name + "/" + kRecordFile;
  return base::ReplaceFile(path, EncodeRecord(record), 0600);
}

base::Status StateLock::Collect(const std::string& name) {
  const std::string folder = shares_folder_ + "/" + name;
  return IsAlive(folder) ? base::Status{} : Remove(folder);
}

std::string StateLock::RegionPath(const std::string& name) const {
  return shares_folder_ + "/" + name + "/" + kRegionFile;
}

}  // namespace hami::cli
