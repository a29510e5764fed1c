// SPDX-License-Identifier: Apache-2.0

#include "plugin/lock_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "base/files.h"
#include "base/strings.h"

namespace hami::plugin {
namespace {

constexpr unsigned kOpenToAll = 0777;
constexpr unsigned kOpenButSticky = 01777;  // as /tmp is

constexpr const char* kRestart = "this program ends, so that it is mounted anew";

}  // namespace

bool IsRemoved(const std::string& folder) {
  struct stat status {};
  return ::stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_nlink == 0;
}

base::Status MakeLockFolder(const std::string& path) {
  HAMI_TRY(base::MakeFolders(path.substr(0, path.rfind('/')), kOpenButSticky));
  if (::mkdir(path.c_str(), kOpenToAll) != 0 && errno != EEXIST) {
    return base::FailErrno("can not make the folder " + path);
  }
  const std::string hint = "every container gets to write to it; remove it, and this program makes it anew";
  const base::Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder) {
    const bool other = errno == ENOTDIR || errno == ELOOP;
    return other ? base::Fail(path + " is no folder", hint) : base::FailErrno("can not open " + path);
  }
  struct stat status {};
  if (::fstat(folder.get(), &status) != 0) return base::FailErrno("can not examine " + path);
  // A mount of what was removed on the node: nothing that is done to it here shows there.
  if (status.st_nlink == 0) return base::Fail(path + " was removed on the node while it was mounted here", kRestart);
  if (status.st_uid != 0 && status.st_uid != ::geteuid()) {
    return base::Fail(base::Concat({path, " belongs to user ", std::to_string(status.st_uid)}), hint);
  }
  // Whatever the umask, and whatever it was before.
  if (::fchmod(folder.get(), kOpenToAll) != 0) return base::FailErrno("can not set the mode of " + path);
  return {};
}

}  // namespace hami::plugin
