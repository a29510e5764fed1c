// SPDX-License-Identifier: Apache-2.0
//
// What a share's programs find in their environment: a pure function from the share to the variables to set and to
// remove, and from an environment to the changed one. The names are those of HAMi. Refuses library paths that the
// dynamic linker could not tell apart in LD_PRELOAD.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/share.h"

namespace hami::cli {

using Environment = std::map<std::string, std::string>;

// This process's. Of a name that occurs twice the first counts, as for getenv.
Environment CurrentEnvironment();

// A variable to set, or (without a value) to remove.
struct Setting {
  std::string name;
  std::optional<std::string> value;
};

// Sorted by name. BASE is looked at for what LD_PRELOAD holds already and for limits of another share to remove.
base::Result<std::vector<Setting>> ShareSettings(const ShareRecord& record, const std::string& region_path,
                                                 const std::string& library_path, const Environment& base);

// Adds where the share meets others on its GPUs, and how far it may go beyond its cores; 0: not at all.
void AddGpuTime(std::vector<Setting>* settings, const std::string& common_area, unsigned burst);

// What of SETTINGS holds for a program of the share that does not find them in its environment: the text of the file
// beside its life line (region/layout.h). Empty where it cannot be written a line each.
std::string ShareFileText(const std::vector<Setting>& settings);

Environment Apply(Environment environment, const std::vector<Setting>& settings);

// "NAME=value" each, for exec.
std::vector<std::string> Flatten(const Environment& environment);

// ENVIRONMENT without our library among what is preloaded: for who is to see the machine and not its share.
Environment WithoutLibrary(Environment environment);

// True when this process already runs inside a share: shares can not be nested.
bool IsInsideShare(const Environment& environment);

}  // namespace hami::cli
