// SPDX-License-Identifier: Apache-2.0

#include "base/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "base/fd.h"
#include "base/json.h"
#include "base/log_file.h"
#include "base/strings.h"

namespace hami::base {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

std::atomic<bool> g_json = false;

const char* Pattern(LogStyle style) {
  switch (style) {
    case LogStyle::kDaemon:
      return "%Y-%m-%dT%H:%M:%S.%e%z %n: %v";
    case LogStyle::kJson:
      return R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","program":"%n",%v})";
    case LogStyle::kPerson:
      break;
  }
  return "%n: %v";
}

std::string_view Name(LogLevel level) {
  const spdlog::string_view_t name = spdlog::level::to_string_view(ToSpdlog(level));
  return {name.data(), name.size()};
}

// The members of a JSON object that are the message's own.
std::string Members(LogLevel level, const std::string& text) {
  return Concat({R"("level":")", Name(level), R"(","message":)", json::serialize(json::string(text))});
}

std::string_view Prefix(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug: ";
    case LogLevel::kWarning:
      return "warning: ";
    case LogLevel::kError:
      return "error: ";
    default:
      return "";
  }
}

// A log file with what goes to stderr beside it.
class FileSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  FileSink(const LogFiles& files, std::string program) : files_(files), program_(program), file_(files, program) {}

  // Before the first message.
  Status Open() { return file_.Open(); }
  void Reopen() {
    const std::scoped_lock lock(mutex_);
    const Status opened = file_.Open();
    failed_ = !opened;
    if (failed_) Complain(opened.error());
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    const std::string_view line(text.data(), text.size());
    bool shown = files_.also_to_stderr || message.level >= ToSpdlog(files_.stderr_from);
    if (!failed_) {
      const Status written = file_.Write(line);
      failed_ = !written;
      if (failed_) Complain(written.error());
    }
    shown = shown || failed_;
    if (shown) (void)WriteAll(STDERR_FILENO, line);
  }
  void flush_() override {}
  void Complain(const Error& error) const {
    (void)WriteAll(STDERR_FILENO, Concat({program_, ": error: ", Printable(error.message),
                                          "; messages go to stderr until SIGHUP opens the file anew\n"}));
  }

  const LogFiles files_;
  const std::string program_;
  LogFile file_;
  bool failed_ = false;
};

std::shared_ptr<FileSink>& CurrentFile() {
  static std::shared_ptr<FileSink> current;
  return current;
}

void Use(std::string_view program, LogLevel level, LogStyle style, const spdlog::sink_ptr& sink) {
  auto logger = std::make_shared<spdlog::logger>(std::string(program), sink);
  g_json = style == LogStyle::kJson;
  logger->set_pattern(Pattern(style));
  logger->set_level(ToSpdlog(level));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace

Result<LogStyle> ReadLoggingFormat(std::string_view text) {
  if (text == "text") return LogStyle::kDaemon;
  if (text == "json") return LogStyle::kJson;
  return Fail("must be text or json");
}

void StartLog(std::string_view program, LogLevel level, LogStyle style) {
  Use(program, level, style, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  CurrentFile().reset();
}

Status StartLogTo(const LogFiles& files, std::string_view program, LogLevel level, LogStyle style) {
  StartLog(program, level, style);
  if (files.to_stderr) return {};
  auto file = std::make_shared<FileSink>(files, std::string(program));
  HAMI_TRY(file->Open());
  Use(program, level, style, file);
  CurrentFile() = std::move(file);
  return {};
}

void ReopenLog() {
  if (CurrentFile()) CurrentFile()->Reopen();
}

void Log(LogLevel level, std::string_view message) {
  const bool as_json = g_json;
  std::string text(as_json ? "" : Prefix(level));
  // Each line is checked by itself: line breaks of ours stay, what a message quotes can not command the terminal.
  const auto lines = Split(message, '\n');
  for (const std::string& part : lines) {
    if (&part != lines.data()) text += as_json ? "\n" : "\n  ";
    text += Printable(part);
  }
  spdlog::default_logger_raw()->log(ToSpdlog(level), "{}", as_json ? Members(level, text) : text);
}

void LogError(const Error& error) {
  Log(LogLevel::kError, error.hint.empty() ? error.message : error.message + "\n" + error.hint);
}

}  // namespace hami::base
