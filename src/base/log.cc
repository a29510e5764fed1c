// SPDX-License-Identifier: Apache-2.0

#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>

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

}  // namespace

void StartLog(std::string_view program, LogLevel level, LogStyle style) {
  auto logger =
      std::make_shared<spdlog::logger>(std::string(program), std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern(style == LogStyle::kDaemon ? "%Y-%m-%dT%H:%M:%S.%e%z %n: %v" : "%n: %v");
  logger->set_level(ToSpdlog(level));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
}

void Log(LogLevel level, std::string_view message) {
  std::string line(Prefix(level));
  // Each line is checked by itself: line breaks of ours stay, what a message quotes can not command the terminal.
  const auto lines = Split(message, '\n');
  for (const std::string& part : lines) {
    if (&part != lines.data()) line += "\n  ";
    line += Printable(part);
  }
  spdlog::default_logger_raw()->log(ToSpdlog(level), "{}", line);
}

void LogError(const Error& error) {
  Log(LogLevel::kError, error.hint.empty() ? error.message : error.message + "\n" + error.hint);
}

}  // namespace hami::base
