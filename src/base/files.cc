// SPDX-License-Identifier: Apache-2.0

#include "base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <random>
#include <sstream>

#include "base/fd.h"

namespace hami::base {
namespace {

constexpr std::time_t kOldDraftSeconds = 60;

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

Status SyncFolder(const std::string& folder) {
  const auto fd = Open(folder, O_RDONLY | O_DIRECTORY);
  if (!fd) return tl::unexpected(fd.error());
  if (::fsync(fd->get()) != 0) return FailErrno("can not write " + folder);
  return {};
}

// Of this call alone: another thread, or another process in a container of its own, may replace the same file, and each
// must put a whole one in place.
std::string DraftOf(const std::string& path) {
  std::random_device random;
  std::ostringstream name;
  name << path << '.' << std::hex << random() << random() << ".new";
  return name.str();
}

// Drafts of those that died while they wrote: a draft is there for moments.
void RemoveOldDrafts(const std::string& path) {
  const std::string prefix = path.substr(path.rfind('/') + 1) + ".";
  std::error_code failed;
  auto entry = std::filesystem::directory_iterator(FolderOf(path), failed);
  for (; !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed)) {
    const std::string name = entry->path().filename();
    if (!name.starts_with(prefix) || !name.ends_with(".new")) continue;
    struct stat status {};
    if (::lstat(entry->path().c_str(), &status) != 0 || status.st_mtime > ::time(nullptr) - kOldDraftSeconds) continue;
    ::unlink(entry->path().c_str());
  }
}

// It takes the old one's place when it is complete and on disk.
Status PutInPlace(const std::string& draft, const std::string& path, Status made) {
  if (made && ::rename(draft.c_str(), path.c_str()) != 0) made = FailErrno("can not replace " + path);
  RemoveOldDrafts(path);
  if (made) return SyncFolder(FolderOf(path));
  ::unlink(draft.c_str());
  return made;
}

}  // namespace

Status ReplaceFile(const std::string& path, std::string_view content, unsigned mode) {
  const std::string draft = DraftOf(path);
  return PutInPlace(draft, path, WriteDraft(draft, content, mode));
}

Status ReplaceLink(const std::string& path, const std::string& target) {
  const std::string draft = DraftOf(path);
  const bool made = ::symlink(target.c_str(), draft.c_str()) == 0;
  return PutInPlace(draft, path, made ? Status() : FailErrno("can not make the link " + draft));
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
