// SPDX-License-Identifier: Apache-2.0
//
// How the GPUs of a node are divided, and the rules for changing it:
//
//     mig ◄──► hami-core ◄──► mps
//
// Pure. A mode holds until nothing uses the GPUs by it: containers, processes, instances. Refuses the step from mig to
// mps and back: each of the two leaves its own traces on the GPUs, and only hami-core is sure to find none of either.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hami::plugin {

enum class OperatingMode { kHamiCore, kMig, kMps };

// As it is configured and registered: "hami-core", "mig", "mps".
const char* ModeName(OperatingMode mode);
std::optional<OperatingMode> ParseMode(std::string_view name);

// Whether TO may follow FROM in one step.
bool MayFollow(OperatingMode from, OperatingMode to);

struct ModeVerdict {
  OperatingMode mode = OperatingMode::kHamiCore;  // that holds from now on
  std::string refusal;                            // why it is not the one that is wanted; empty: it is

  bool operator==(const ModeVerdict&) const = default;
};

// IN_FORCE holds, WANTED is configured. HOLDERS are what uses the GPUs by IN_FORCE, each a noun with its name ("pod
// ns/name", "process 4711 on GPU-…"): with one of them there is no change.
ModeVerdict NextMode(OperatingMode in_force, OperatingMode wanted, const std::vector<std::string>& holders);

// The mode in force as it is kept on disk, so that a plugin that starts knows what its predecessor left behind.
// Nothing: the text is no such record.
std::string EncodeModeFile(OperatingMode mode);
std::optional<OperatingMode> DecodeModeFile(std::string_view text);

}  // namespace hami::plugin
