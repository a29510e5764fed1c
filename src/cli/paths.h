// SPDX-License-Identifier: Apache-2.0
//
// Where the parts of an installation are: beside the running program, in a build folder (bin, lib, simgpu) or under a
// prefix (bin, lib/hami). HAMI_LIBVGPU and HAMI_SIMGPU override. Refuses to go on with a part that is not there.

#pragma once

#include <string>

#include "base/result.h"

namespace hami::cli {

std::string ExecutablePath();
std::string ExecutableFolder();

// The library that is preloaded into the programs of a share.
base::Result<std::string> FindVgpuLibrary();

// The folder with the simulated libcuda.so.1 and libnvidia-ml.so.1.
base::Result<std::string> FindSimgpuFolder();

}  // namespace hami::cli
