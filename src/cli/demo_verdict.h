// SPDX-License-Identifier: Apache-2.0
//
// What the demo measured, and the judgement over it: pure functions. A program passes only if neither the share's own
// account nor the GPU's ever showed a byte more than its limit, it saw its limit as the size of the card, it ended as
// it should, and its memory came back.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace hami::cli {

// Everything known of one program at the end.
struct Evidence {
  std::string name;
  std::uint64_t limit_bytes = 0;
  std::uint64_t peak_in_share = 0;  // exact: kept by the library with every allocation
  std::uint64_t peak_on_gpu = 0;    // the largest sum over its processes in the GPU's own list
  std::uint64_t refusals = 0;
  std::size_t most_processes = 0;
  std::optional<int> wait_status;  // of `hami run`; absent: had to be stopped
  std::map<std::string, std::uint64_t> report;
  bool must_be_refused = false;  // it asks for more than it may have
  bool must_be_killed = false;
  std::uint64_t held_when_killed = 0;         // on the GPU, just before
  std::optional<std::int64_t> back_after_ms;  // until the GPU listed none of its processes
};

struct Verdict {
  std::vector<std::string> faults;  // empty: passed
  std::string summary;              // what happened, in a few words
};

Verdict Judge(const Evidence& evidence);

}  // namespace hami::cli
