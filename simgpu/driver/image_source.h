// SPDX-License-Identifier: Apache-2.0
//
// From what an application passes (a pointer of unknown length, a file name) to bytes of our own that can be parsed.
// Memory is read through the kernel, so that a pointer or a length that lies is an error and not a crash. Refuses what
// is no image.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "abi/cuda_abi.h"
#include "simgpu/image/image.h"

namespace simgpu {

// One image, or the several that a fatbin wrapper of version 2 holds.
using ImageParts = std::vector<std::vector<std::byte>>;

// Copies the image at `start`. CUDA_ERROR_INVALID_VALUE for null, CUDA_ERROR_INVALID_IMAGE for what is none.
CUresult CopyImage(const void* start, ImageParts* out);
CUresult CopyImage(const void* start, std::size_t size, ImageParts* out);
// CUDA_ERROR_FILE_NOT_FOUND when it can not be read.
CUresult ReadImageFile(const char* path, ImageParts* out);

// Parses and merges the parts for one device.
CUresult ParseParts(const ImageParts& parts, const Target& target, std::shared_ptr<const Image>* out, std::string* log);

CUresult ResultOf(ParseStatus status);

}  // namespace simgpu
