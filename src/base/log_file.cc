// SPDX-License-Identifier: Apache-2.0

#include "base/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/files.h"
#include "base/strings.h"

namespace hami::base {
namespace {

constexpr std::uint64_t kMiB = 1ULL << 20U;
constexpr unsigned kFileMode = 0644;

Status TakeThreshold(LogLevel& out, const std::string& text) {
  constexpr std::array<std::pair<std::string_view, LogLevel>, 8> kWords = {{{"0", LogLevel::kInfo},
                                                                            {"INFO", LogLevel::kInfo},
                                                                            {"1", LogLevel::kWarning},
                                                                            {"WARNING", LogLevel::kWarning},
                                                                            {"2", LogLevel::kError},
                                                                            {"ERROR", LogLevel::kError},
                                                                            {"3", LogLevel::kOff},
                                                                            {"FATAL", LogLevel::kOff}}};
  for (const auto& [word, level] : kWords) {
    if (text != word) continue;
    out = level;
    return {};
  }
  return Fail("must be INFO, WARNING, ERROR or FATAL");
}

Status TakeMebibytes(std::uint64_t& out, const std::string& text) {
  const auto number = ParseNumber(text);
  if (!number || *number > 1ULL << 20U) return Fail("must be a number of MiB from 0 to 1048576; 0: no limit");
  out = *number * kMiB;
  return {};
}

std::string HostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "unknown";
}

tl::unexpected<Error> Unwritable(const std::string& path, int error) {
  return Fail("cannot write the log file " + ShellQuote(path) + ": " + std::strerror(error),
              "mount a folder there that this program may write to, or leave --logtostderr=false out");
}

}  // namespace

void AddLogFileFlags(FlagSet& flags, LogFiles& files) {
  flags.Bool("logtostderr", files.to_stderr, "messages go to stderr; false: to --log_file or --log_dir");
  flags.Bool("alsologtostderr", files.also_to_stderr, "with --logtostderr=false: every message to stderr, too");
  flags.Custom(
      "stderrthreshold", "LEVEL", "ERROR",
      [&files](const std::string& text) { return TakeThreshold(files.stderr_from, text); },
      "with --logtostderr=false: messages of this level and above to stderr, too (INFO, WARNING, ERROR, FATAL)");
  flags.Text("log_file", "FILE", files.file,
             "with --logtostderr=false: where messages go. SIGHUP opens it anew, after it was renamed");
  flags.Text("log_dir", "DIR", files.folder,
             "with --logtostderr=false and no --log_file: a folder that gets a file for each start, named as klog "
             "does; empty: $TMPDIR, or /tmp");
  flags.Custom(
      "log_file_max_size", "MIB", "1800",
      [&files](const std::string& text) { return TakeMebibytes(files.most_bytes, text); },
      "a log file that is this large is begun anew; 0: never");
  flags.Dead({"add_dir_header", "one_output", "skip_headers", "skip_log_headers"}, true, "log lines have one form");
  flags.Dead({"log_backtrace_at", "vmodule"}, false, "there is one log, filtered by -v");
}

std::vector<std::string> LogFileWarnings(const FlagSet::Parsed& parsed, const LogFiles& files) {
  std::vector<std::string> warnings;
  if (!files.to_stderr) return warnings;
  for (const char* name : {"log_file", "log_dir", "log_file_max_size"}) {
    if (parsed.given.count(name) == 0) continue;
    warnings.push_back(Concat({"--", name, " has no effect without --logtostderr=false"}));
  }
  return warnings;
}

std::string LogFile::NewName() const {
  const char* const temporary = std::getenv("TMPDIR");
  std::string folder = files_.folder;
  if (folder.empty()) folder = temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
  const char* const user = std::getenv("USER");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 32> time{};
  std::strftime(time.data(), time.size(), "%Y%m%d-%H%M%S", &local);
  return Concat({folder, "/", program_, ".", HostName(), ".", user == nullptr ? "unknownuser" : user, ".log.INFO.",
                 time.data(), ".", std::to_string(::getpid())});
}

Status LogFile::OpenPath(bool anew) {
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (anew ? O_TRUNC : 0);
  Fd fd(::open(path_.c_str(), flags, kFileMode));
  if (!fd) return Unwritable(path_, errno);
  struct stat status {};
  bytes_ = ::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode) ? static_cast<std::uint64_t>(status.st_size) : 0;
  fd_ = std::move(fd);
  return {};
}

Status LogFile::Open() {
  fd_.Reset();
  path_ = files_.file.empty() ? NewName() : files_.file;
  HAMI_TRY(OpenPath(false));
  if (!files_.file.empty()) return {};
  const std::size_t slash = path_.rfind('/');
  // Where the link cannot be made the file is there all the same.
  (void)ReplaceLink(path_.substr(0, slash) + "/" + program_ + ".INFO", path_.substr(slash + 1));
  return {};
}

Status LogFile::Write(std::string_view line) {
  if (!fd_) return Fail("the log file is not open");
  if (files_.most_bytes > 0 && bytes_ > 0 && bytes_ + line.size() > files_.most_bytes) {
    HAMI_TRY(OpenPath(true));
  }
  const Status written = WriteAll(fd_.get(), line);
  if (written) {
    bytes_ += line.size();
    return {};
  }
  fd_.Reset();
  return Fail("cannot write the log file " + ShellQuote(path_) + ": " + written.error().message);
}

}  // namespace hami::base
