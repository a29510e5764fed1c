// SPDX-License-Identifier: Apache-2.0
//
// What a share says of itself where the environment does not: processes of a login over ssh, of MPI between pods, of
// cron or of php-fpm find an empty one, and some clear their own. Looked at, the first that is there: the file
// share.env beside this library, which the device plugin mounts; the one beside the life line that a process of `hami
// run` has inherited; the environment that this process was started with. Where none of these names a region, the only
// one beside the library is taken: HAMi's plugin mounts it there. The text is that of the environment, a NAME=value a
// line, none empty. Refused, with a line: a file that is there and cannot be read. Then nothing is granted.
#pragma once

#include "vgpu/runtime/settings.h"

namespace hami::vgpu {

// Applies it to what the environment says.
void KeepToOwnShare(Settings* environment);

// As much of it as needs no process around it. False: there is no such file.
bool KeepToShareFile(Settings* environment, const char* path);

}  // namespace hami::vgpu
