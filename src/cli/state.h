// SPDX-License-Identifier: Apache-2.0
//
// The shares of this machine, on disk: one folder per share with its region, its record and its life line. There is no
// daemon; whoever holds the state lock is the machine's book-keeper for that moment, and plan + create happen under one
// hold, so that concurrent runs never sell the same memory twice.
//
// A share lives as long as its life line is locked: `hami run` locks it and every process it starts inherits that lock,
// which the kernel drops when the last of them is gone, however they died. A program that closed all its descriptors
// is still known by its slot in the region. A share that has neither is dead, and its folder is removed by the next
// one to take the state lock. Refuses a state folder that another user could write to.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "cli/share.h"

namespace hami::cli {

struct StoredShare {
  std::string name;  // of the folder
  std::string region_path;
  base::Result<ShareRecord> record;  // unreadable records are reported, not hidden
};

// HAMI_STATE_DIR; else /var/lib/hami for root and /tmp/hami-<uid> for others. One for a user on a machine: nothing that
// differs between a session, a cron job and a service has a part in it.
std::string DefaultStateFolder(uid_t user);

class State {
 public:
  // The default folder of this user; made if missing.
  static base::Result<State> Open();
  static base::Result<State> OpenAt(const std::string& folder);

  const std::string& folder() const { return folder_; }

  // While the descriptor is open, here or in what inherited it, systemd-tmpfiles leaves the folder and all in it alone,
  // however old that is. Empty where it cannot be had.
  base::Fd KeepFromCleaners() const;

  // Where shares tell each other about the time of their GPUs (region/common_area.h).
  std::string CommonAreaPath() const { return folder_ + "/gpu-time"; }

 private:
  friend class StateLock;
  explicit State(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

// The right to read and change the set of shares; given back at the end of its life.
class StateLock {
 public:
  // Waits its turn (others hold it for milliseconds) and removes what is dead.
  static base::Result<StateLock> Take(const State& state);

  // Living shares by name.
  const std::vector<StoredShare>& shares() const { return shares_; }

  // Refuses a name that can not be one, or that is taken.
  base::Status CheckNameIsFree(const std::string& name) const;

  // Makes the folder of a new share whose name is not taken, and returns its life line, locked. The region file does
  // not exist yet when PREPARE is called with its path; if that fails nothing remains.
  template <typename Prepare>
  base::Result<base::Fd> Create(const ShareRecord& record, Prepare prepare);

  // Replaces the record of a living share, whole or not at all.
  base::Status Update(const ShareRecord& record) const;

  // Removes NAME if it is dead by now.
  base::Status Collect(const std::string& name);

  // Where the region of a share of this name is (to be).
  std::string RegionPath(const std::string& name) const;

 private:
  StateLock(std::string shares_folder, base::Fd lock)
      : shares_folder_(std::move(shares_folder)), lock_(std::move(lock)) {}
  base::Status Load();
  base::Result<base::Fd> BeginCreate(const ShareRecord& record, const std::string& folder) const;
  base::Status FinishCreate(const std::string& name, const std::string& folder) const;
  static void Abandon(const std::string& folder);

  std::string shares_folder_;
  base::Fd lock_;
  std::vector<StoredShare> shares_;
};

// The folder in which a share is made before it gets its name.
inline constexpr const char* kNewFolder = ".new";
inline constexpr const char* kRegionFile = "region.cache";

template <typename Prepare>
base::Result<base::Fd> StateLock::Create(const ShareRecord& record, Prepare prepare) {
  const std::string folder = shares_folder_ + "/" + kNewFolder;
  auto life = BeginCreate(record, folder);
  if (!life) {
    Abandon(folder);
    return life;
  }
  base::Status made = prepare(folder + "/" + kRegionFile);
  if (made) made = FinishCreate(record.name, folder);
  if (made) return life;
  Abandon(folder);
  return tl::unexpected(std::move(made).error());
}

}  // namespace hami::cli
