// SPDX-License-Identifier: Apache-2.0
//
// What a program was built from. The values stand in one small file that cmake/build_info.cmake writes, so that a new
// commit compiles that file and nothing else.

#pragma once

#include <string>

namespace hami::base {

struct BuildInfo {
  const char* version;
  const char* revision;  // as `git describe` says it; "unknown" outside of a checkout
  const char* date;      // RFC 3339, of the commit or SOURCE_DATE_EPOCH; or "unknown"
};
extern const BuildInfo kBuildInfo;

// "hami-scheduler 0.1.0 (3a86b720e0f4, 2026-11-22T10:00:00Z)"
inline std::string VersionOf(const char* program) {
  return std::string(program) + " " + kBuildInfo.version + " (" + kBuildInfo.revision + ", " + kBuildInfo.date + ")";
}

}  // namespace hami::base
