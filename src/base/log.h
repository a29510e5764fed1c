// SPDX-License-Identifier: Apache-2.0
//
// Messages of a program to the person who started it, on stderr, one line each: "hami: warning: …"; those of a daemon
// begin with the time, or are JSON documents for whatever collects them. Results go to stdout and never through here.
// Levels follow the usual meaning; kInfo is shown unless lowered. A daemon's messages may go to a file (log_file.h).

#pragma once

#include <string_view>

#include "base/result.h"

namespace hami::base {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// kDaemon: every line begins with the time, for programs whose lines are read long afterwards.
// kJson: every message is an object of time, program, level and message, on a line of its own.
enum class LogStyle { kPerson, kDaemon, kJson };

// What --logging-format of a daemon says: text or json.
Result<LogStyle> ReadLoggingFormat(std::string_view text);

// Names the program that speaks; the first call makes the logger. Safe to call again.
void StartLog(std::string_view program, LogLevel level = LogLevel::kInfo, LogStyle style = LogStyle::kPerson);

// As StartLog, to where FILES say. Fails where a file that is to be written cannot be.
struct LogFiles;
Status StartLogTo(const LogFiles& files, std::string_view program, LogLevel level, LogStyle style);
// Opens the log file, if there is one, anew; for SIGHUP. A file that cannot be opened is told to stderr, which is
// written to until then.
void ReopenLog();

void Log(LogLevel level, std::string_view message);
inline void LogDebug(std::string_view message) { Log(LogLevel::kDebug, message); }
inline void LogInfo(std::string_view message) { Log(LogLevel::kInfo, message); }
inline void LogWarning(std::string_view message) { Log(LogLevel::kWarning, message); }
inline void LogError(std::string_view message) { Log(LogLevel::kError, message); }
// The message, then its hint on lines of its own.
void LogError(const Error& error);

}  // namespace hami::base
