// SPDX-License-Identifier: Apache-2.0
//
// Puts libvgpu.so where containers get it from. A library that a running container has mapped is never written to: each
// build is a file of its own, named by its content, and comes by rename; older ones stay while a record names them, for
// a container that is restarted in place mounts the same path again. The list of libraries to preload comes last, so
// that it never names what is not there. Files that are not ours (HAMi's libvgpu.so.<version>) are left alone.

#pragma once

#include <set>
#include <string>

#include "base/result.h"

namespace hami::plugin {

// Installs SOURCE below FOLDER (<hook path>/vgpu) and returns the path that containers are to mount. The plain name
// libvgpu.so becomes a link to it, for whoever looks for HAMi's name.
base::Result<std::string> InstallLibrary(const std::string& source, const std::string& folder);

// Why what containers mount of FOLDER is not as InstallLibrary left it; empty: it is. LIBRARY is what that returned.
std::string MissingFrom(const std::string& folder, const std::string& library);

// Removes libraries that InstallLibrary put into FOLDER, except CURRENT and those IN_USE.
void RemoveOldLibraries(const std::string& folder, const std::string& current, const std::set<std::string>& in_use);

}  // namespace hami::plugin
