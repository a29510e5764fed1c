// SPDX-License-Identifier: Apache-2.0

#include "base/log.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/paths.h"
#include "cli/supervise.h"

namespace hami::cli {

int Sim(const SimOptions& options) {
  const auto folder = FindSimgpuFolder();
  if (!folder) {
    base::LogError(folder.error());
    return kRunFailed;
  }
  Environment environment = CurrentEnvironment();
  if (!options.gpus.empty()) environment["SIMGPU"] = options.gpus;
  std::string& path = environment["LD_LIBRARY_PATH"];
  path = path.empty() ? *folder : *folder + ":" + path;
  // `hami sim -- hami run …` should work before hami is installed, and not shadow anything of the user's.
  std::string& programs = environment["PATH"];
  programs = programs.empty() ? ExecutableFolder() : programs + ":" + ExecutableFolder();
  const StartFailure failure = Replace(options.command, environment);
  base::LogError(failure.error);
  return failure.exit_status;
}

}  // namespace hami::cli
