// SPDX-License-Identifier: Apache-2.0
//
// PTX text: its entries with their parameters, bounds and shared memory, and its global, constant and managed variables
// with their initial bytes. Instructions are skipped, not checked, so text that ptxas would refuse for its code is
// accepted here; declarations that can not be understood are refused. Initial values that are addresses of other
// symbols read as zero, because nothing runs that could follow them.
#pragma once

#include "simgpu/image/image.h"

namespace simgpu {

// Whether the text starts, after space and comments, with the directive that every PTX file starts with.
bool LooksLikePtx(std::string_view text);

ParseStatus ParsePtx(std::string_view text, Image* out, std::string* log);

}  // namespace simgpu
