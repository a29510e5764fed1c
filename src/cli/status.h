// SPDX-License-Identifier: Apache-2.0
//
// The statuses that `hami` ends with. `hami run` and `hami sim` keep to those of env(1), so that the command's own
// status can be told from theirs.

#pragma once

namespace hami::cli {

inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kRunFailed = 125;  // hami run's and hami sim's own failures
inline constexpr int kCannotRun = 126;
inline constexpr int kNotFound = 127;

}  // namespace hami::cli
