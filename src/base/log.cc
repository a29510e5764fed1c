// SPDX-License-Identifier: Apache-2.0

#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <string>

#include "base/json.h"
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

}  // namespace

Result<LogStyle> ReadLoggingFormat(std::string_view text) {
  if (text == "text") return LogStyle::kDaemon;
  if (text == "json") return LogStyle::kJson;
  return Fail("must be text or json");
}

void StartLog(std::string_view program, LogLevel level, LogStyle style) {
  auto logger =
      std::make_shared<spdlog::logger>(std::string(program), std::make_shared<spdlog::sinks::stderr_sink_mt>());
  g_json = style == LogStyle::kJson;
  logger->set_pattern(Pattern(style));
  logger->set_level(ToSpdlog(level));
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
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
