// SPDX-License-Identifier: Apache-2.0

#include "plugin/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "base/fd.h"

namespace hami::plugin {
namespace {

std::string FolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// FILL writes the new file; it takes the old one's place when it is complete and on disk.
template <typename Fill>
base::Status Replace(const std::string& path, unsigned mode, const Fill& fill) {
  const std::string draft = path + ".new";
  if (::unlink(draft.c_str()) != 0 && errno != ENOENT) return base::FailErrno("can not remove " + draft);
  {
    const auto fd = base::Open(draft, O_WRONLY | O_CREAT | O_EXCL, mode);
    if (!fd) return tl::unexpected(fd.error());
    HAMI_TRY(fill(fd->get()));
    // The mode is to be what was asked for, whatever the umask.
    if (::fchmod(fd->get(), mode) != 0 || ::fsync(fd->get()) != 0) return base::FailErrno("can not write " + draft);
  }
  if (::rename(draft.c_str(), path.c_str()) != 0) return base::FailErrno("can not replace " + path);
  return SyncFolder(FolderOf(path));
}

}  // namespace

base::Status SyncFolder(const std::string& folder) {
  const auto fd = base::Open(folder, O_RDONLY | O_DIRECTORY);
  if (!fd) return tl::unexpected(fd.error());
  if (::fsync(fd->get()) != 0) return base::FailErrno("can not write " + folder);
  return {};
}

base::Status ReplaceFile(const std::string& path, std::string_view content, unsigned mode) {
  return Replace(path, mode, [&](int fd) { return base::WriteAll(fd, content); });
}

base::Status ReplaceByCopy(const std::string& path, const std::string& source, unsigned mode) {
  const auto from = base::Open(source, O_RDONLY);
  if (!from) return tl::unexpected(from.error());
  return Replace(path, mode, [&](int fd) -> base::Status {
    std::array<char, 65536> buffer;
    while (true) {
      const ssize_t got = ::read(from->get(), buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return base::FailErrno("can not read " + source);
      if (got == 0) return {};
      HAMI_TRY(base::WriteAll(fd, {buffer.data(), static_cast<std::size_t>(got)}));
    }
  });
}

base::Status ReplaceLink(const std::string& path, const std::string& target) {
  const std::string draft = path + ".new";
  if (::unlink(draft.c_str()) != 0 && errno != ENOENT) return base::FailErrno("can not remove " + draft);
  if (::symlink(target.c_str(), draft.c_str()) != 0) return base::FailErrno("can not make the link " + draft);
  if (::rename(draft.c_str(), path.c_str()) != 0) return base::FailErrno("can not replace " + path);
  return SyncFolder(FolderOf(path));
}

base::Status MakeFolders(const std::string& folder, unsigned mode) {
  for (std::size_t slash = folder.find('/', 1);; slash = folder.find('/', slash + 1)) {
    const std::string part = folder.substr(0, slash);
    if (::mkdir(part.c_str(), mode) == 0) {
      if (::chmod(part.c_str(), mode) != 0) return base::FailErrno("can not set the mode of " + part);
    } else if (errno != EEXIST) {
      return base::FailErrno("can not make the folder " + part);
    }
    if (slash == std::string::npos) return {};
  }
}

}  // namespace hami::plugin
