// SPDX-License-Identifier: Apache-2.0
//
// The directory <HOOK_PATH>/containers and the region files in it. Everything below a container's directory belongs to
// a tenant, who may put there whatever is worst: so names are looked up relative to directories that are held open,
// links are not followed, nothing but regular files is opened, no listing and no file is read further than its bound,
// and files are read and written by pread and pwrite, never mapped. A look costs system calls only; nothing of a file
// or a directory is kept from one look to the next, so nothing of it can be out of date.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "monitor/directory.h"
#include "monitor/region_view.h"

namespace hami::monitor {

using WallTime = std::chrono::system_clock::time_point;

// One entry of containers/ that is a container's.
struct Entry {
  std::string name;
  ContainerName container;
  bool is_link = false;
  std::string directory;  // that holds the files: NAME, or where the link leads; empty when that is nowhere of ours
  std::uint64_t inode = 0;
  WallTime changed;  // when a file of the directory last came or went (which a tenant can not set back)
};

enum class Problem {
  kNone,
  kNoFile,       // nothing that could be a region, yet
  kUnsupported,  // a region of a layout that is not known
  kCorrupt,      // not a region, or not a file
  kUnreadable,   // errors, a directory that can not be opened, or a file that shrank while it was read
};
const char* ProblemName(Problem problem);

struct Reading {
  Problem problem = Problem::kNoFile;
  RegionView region;  // when there is no problem
  std::string file;   // its name in the directory
  std::uint64_t inode = 0;
  WallTime written;  // the file's own time
};

class Folder {
 public:
  // HOOK_PATH as in the environment.
  explicit Folder(const std::string& hook_path) : hook_path_(hook_path), path_(hook_path + "/containers") {}

  // Opens containers/ and lists it, sorted by name. An absent directory is empty: nothing was allocated yet; but not
  // where HOOK_PATH is absent, too.
  base::Result<std::vector<Entry>> List();

  // The region in ENTRY's directory: the newest valid one of at most 64.
  Reading Read(const Entry& entry);

  // Opens for writing the very file that READING is of.
  base::Result<base::Fd> OpenForWriting(const Entry& entry, const Reading& reading) const;

  // Removes ENTRY if it still is the directory (or link) that it was when listed. It disappears at once; its content
  // is deleted bit by bit by EmptyTrash.
  base::Status Remove(const Entry& entry);
  // Deletes what was removed, at most MOST_FILES files per call. True when nothing is left.
  bool EmptyTrash(int most_files);

  const std::string& path() const { return path_; }

 private:
  Reading ReadFile(int directory, const std::string& name) const;

  const std::string hook_path_;
  const std::string path_;
  base::Fd fd_;
  std::vector<std::string> trash_;
  const std::unique_ptr<region::Snapshot> snapshot_ = std::make_unique<region::Snapshot>();
};

}  // namespace hami::monitor
