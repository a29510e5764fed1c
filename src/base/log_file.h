// SPDX-License-Identifier: Apache-2.0
//
// Where a daemon's messages go when not to stderr, in klog's terms, and the flags that say so: --logtostderr,
// --alsologtostderr, --stderrthreshold, --log_file, --log_dir, --log_file_max_size. A file is appended to at the start
// and begun anew when it is full; it is opened anew on demand, for whatever renames it. A file that cannot be opened is
// refused at the start; one that cannot be written to later is given up for stderr, with a line, until it is opened
// anew.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/flags.h"
#include "base/log.h"
#include "base/result.h"

namespace hami::base {

struct LogFiles {
  bool to_stderr = true;  // then nothing below has an effect
  bool also_to_stderr = false;
  LogLevel stderr_from = LogLevel::kError;    // messages of this level and above go to stderr, too
  std::string file;                           // wins over the folder
  std::string folder;                         // empty: $TMPDIR, or /tmp
  std::uint64_t most_bytes = 1800ULL << 20U;  // 0: no limit
};

// The flags above into FILES, under the group that is open, and those of klog's that have no effect here.
void AddLogFileFlags(FlagSet& flags, LogFiles& files);
// What was given and has no effect, one line each.
std::vector<std::string> LogFileWarnings(const FlagSet::Parsed& parsed, const LogFiles& files);

class LogFile {
 public:
  // PROGRAM names files in a folder, as klog does: PROGRAM.HOST.USER.log.INFO.TIME.PID, with the link PROGRAM.INFO.
  LogFile(LogFiles files, std::string program) : files_(std::move(files)), program_(std::move(program)) {}

  // Appends to the file, or makes it.
  Status Open();
  // One whole line. An error: it was not written, and nothing is until the file is opened anew.
  Status Write(std::string_view line);
  const std::string& path() const { return path_; }

 private:
  Status OpenPath(bool anew);
  std::string NewName() const;

  const LogFiles files_;
  const std::string program_;
  std::string path_;
  Fd fd_;
  std::uint64_t bytes_ = 0;
};

}  // namespace hami::base
