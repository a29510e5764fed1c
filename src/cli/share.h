// SPDX-License-Identifier: Apache-2.0
//
// The record of one share as `hami run` writes it beside the region: name, command, grants. Owns its JSON form. The
// record says what was promised; the region says what is used. A record is read as if a stranger had written it: what
// is missing, of another type or out of range makes the whole record invalid.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/plan.h"

namespace hami::cli {

enum class Priority { kHigh = 0, kLow = 1 };  // the numbers of CUDA_TASK_PRIORITY

struct ShareRecord {
  std::string name;
  std::vector<std::string> command;
  std::vector<Grant> grants;
  bool oversubscribe = false;
  Priority priority = Priority::kLow;
  std::int64_t created_at = 0;  // unix seconds
  bool mps = false;             // mode mps; else hami-core
};

// A name is also the name of a folder: letters, digits, '.', '_' and '-', the first a letter or a digit, at most 63.
base::Status CheckShareName(std::string_view name);

// A name for a share that was given none: the program's, made valid, with the first number that is not TAKEN.
std::string ChooseShareName(const std::string& program, const std::vector<std::string>& taken);

std::string EncodeRecord(const ShareRecord& record);
base::Result<ShareRecord> DecodeRecord(std::string_view text);

}  // namespace hami::cli
