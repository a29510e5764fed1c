// SPDX-License-Identifier: Apache-2.0
//
// The folders below <hook path>/vgpu that containers get to write to, each with its region and nothing else at first.
// `containers/<pod uid>_<container>` is where everybody looks for them; where that name was not known in time the
// folder is made as `shares/<id>`. Once the name is known the folder has it, and `shares/<id>` is a link to it: what
// was promised to a container stays where it was promised, and HAMi's monitor, which follows no links, finds a folder.
// Refuses to follow links that it did not make. A container may have filled its folder with whatever it liked, so what
// is removed only gets another name, which takes no time; EmptyTrash does the rest.

#pragma once

#include <string>

#include "plugin/allocation_parts.h"

namespace hami::plugin {

class DiskShareFolders final : public ShareFolders {
 public:
  // ROOT: <hook path>/vgpu.
  explicit DiskShareFolders(std::string root) : root_(std::move(root)) {}

  bool Has(const Record& record) override;
  base::Status Make(const Record& record, const RegionSettings& settings) override;
  base::Status Link(const Record& record) override;
  void Remove(const Record& record) override;
  void RemoveAllBut(const Records& records) override;

  // Deletes some of what was removed, in this life or an earlier one. May be called while the others are. True when
  // there is more.
  bool EmptyTrash();

 private:
  std::string PathOf(const Record& record) const { return root_ + "/" + record.folder; }
  std::string LinkOf(const Record& record) const;
  std::string NamedBy(const std::string& target) const;
  base::Status Unname(const std::string& place, const std::string& name) const;

  const std::string root_;
  std::string stuck_;  // of EmptyTrash: what could not be deleted, as it was told
};

// The records as one file, replaced as a whole.
class DiskRecordKeeper final : public RecordKeeper {
 public:
  explicit DiskRecordKeeper(std::string path) : path_(std::move(path)) {}
  // No file: no records. A file that can not be read whole is an error and stays as it is.
  base::Result<Records> Load() override;
  bool Changed() override;
  base::Status Save(const Records& records) override;

 private:
  const std::string path_;
  std::string stamp_;  // of the file as it was read or written
};

}  // namespace hami::plugin
