// SPDX-License-Identifier: Apache-2.0
// cuGetErrorName and cuGetErrorString. Numbers, not enumerators: the list is that of the newest toolkit, whatever the
// headers this is built with know.

#include "abi/cuda_abi.h"

namespace {

struct ErrorText {
  int code;
  const char* name;
  const char* text;
};

// clang-format off
constexpr ErrorText kErrors[] = {
#define SIMGPU_ERROR(code, name, text) {code, "CUDA_" #name, text},
#include "simgpu/driver/errors.inc"
#undef SIMGPU_ERROR
};
// clang-format on

const ErrorText* Find(CUresult error) {
  for (const ErrorText& entry : kErrors) {
    if (entry.code == static_cast<int>(error)) return &entry;
  }
  return nullptr;
}

CUresult Answer(const ErrorText* found, const char* ErrorText::*what, const char** out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = found != nullptr ? found->*what : nullptr;
  return found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** pStr) {
  return Answer(Find(error), &ErrorText::name, pStr);
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char** pStr) {
  return Answer(Find(error), &ErrorText::text, pStr);
}

}  // extern "C"
