// SPDX-License-Identifier: Apache-2.0

#include "cli/paths.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

namespace hami::cli {
namespace {

namespace fs = std::filesystem;

// The first of the candidates in which FILE exists ("" = the candidate itself).
base::Result<std::string> Find(const char* variable, const std::vector<std::string>& candidates,
                               const std::string& file, const std::string& what) {
  std::vector<std::string> places = candidates;
  if (const char* chosen = std::getenv(variable); chosen != nullptr && *chosen != '\0') places = {chosen};
  std::string tried;
  for (const std::string& place : places) {
    std::error_code error;
    const fs::path path = fs::weakly_canonical(place, error);
    if (!error && fs::is_regular_file(file.empty() ? path : path / file, error)) return path.string();
    tried += (tried.empty() ? "looked at " : ", ") + place;
  }
  return base::Fail(what + " is not there", tried + "; " + variable + " can say where it is");
}

}  // namespace

std::string ExecutablePath() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  return error ? "./hami" : path.string();
}

std::string ExecutableFolder() { return fs::path(ExecutablePath()).parent_path().string(); }

base::Result<std::string> FindVgpuLibrary() {
  const std::string here = ExecutableFolder();
  return Find("HAMI_LIBVGPU", {here + "/../lib/libvgpu.so", here + "/../lib/hami/libvgpu.so"}, "",
              "the library that keeps the limits, libvgpu.so,");
}

base::Result<std::string> FindSimgpuFolder() {
  const std::string here = ExecutableFolder();
  return Find("HAMI_SIMGPU", {here + "/../simgpu", here + "/../lib/hami/simgpu"}, "libcuda.so.1",
              "the simulated driver");
}

}  // namespace hami::cli
