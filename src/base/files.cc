// SPDX-License-Identifier: Apache-2.0

#include "base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "base/fd.h"

namespace hami::base {
namespace {

std::string FolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Status WriteDraft(const std::string& draft, std::string_view content, unsigned mode) {
  const auto fd = Open(draft, O_WRONLY | O_CREAT | O_EXCL, mode);
  if (!fd) return tl::unexpected(fd.error());
  if (const Status filled = WriteAll(fd->get(), content); !filled) return Fail(draft + ": " + filled.error().message);
  // The mode is to be what was asked for, whatever the umask.
  if (::fchmod(fd->get(), mode) != 0 || ::fsync(fd->get()) != 0) return FailErrno("can not write " + draft);
  return {};
}

}  // namespace

Status SyncFolder(const std::string& folder) {
  const auto fd = Open(folder, O_RDONLY | O_DIRECTORY);
  if (!fd) return tl::unexpected(fd.error());
  if (::fsync(fd->get()) != 0) return FailErrno("can not write " + folder);
  return {};
}

Status ReplaceFile(const std::string& path, std::string_view content, unsigned mode) {
  const std::string draft = path + ".new";
  if (::unlink(draft.c_str()) != 0 && errno != ENOENT) return FailErrno("can not remove " + draft);
  Status written = WriteDraft(draft, content, mode);
  // It takes the old one's place when it is complete and on disk.
  if (written && ::rename(draft.c_str(), path.c_str()) != 0) written = FailErrno("can not replace " + path);
  if (written) return SyncFolder(FolderOf(path));
  ::unlink(draft.c_str());
  return written;
}

Status ReplaceLink(const std::string& path, const std::string& target) {
  const std::string draft = path + ".new";
  if (::unlink(draft.c_str()) != 0 && errno != ENOENT) return FailErrno("can not remove " + draft);
  if (::symlink(target.c_str(), draft.c_str()) != 0) return FailErrno("can not make the link " + draft);
  if (::rename(draft.c_str(), path.c_str()) != 0) return FailErrno("can not replace " + path);
  return SyncFolder(FolderOf(path));
}

Status MakeFolders(const std::string& folder, unsigned mode) {
  for (std::size_t slash = folder.find('/', 1);; slash = folder.find('/', slash + 1)) {
    const std::string part = folder.substr(0, slash);
    if (::mkdir(part.c_str(), mode) == 0) {
      if (::chmod(part.c_str(), mode) != 0) return FailErrno("can not set the mode of " + part);
    } else if (errno != EEXIST) {
      return FailErrno("can not make the folder " + part);
    }
    if (slash == std::string::npos) return {};
  }
}

}  // namespace hami::base
