// SPDX-License-Identifier: Apache-2.0
// The texts of the result codes, held against the enumerators that the headers know.

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "abi/cuda_abi.h"

namespace {

struct Row {
  int code;
  const char* name;
};

constexpr Row kRows[] = {
#define SIMGPU_ERROR(code, name, text) {code, "CUDA_" #name},
#include "simgpu/driver/errors.inc"
#undef SIMGPU_ERROR
};

#define EXPECT_NAMED(code)                                \
  do {                                                    \
    const char* name = nullptr;                           \
    ASSERT_EQ(cuGetErrorName(code, &name), CUDA_SUCCESS); \
    EXPECT_STREQ(name, #code);                            \
  } while (false)

TEST(Errors, GivenEnumeratorsWhenNamedThenNumberAndNameBelongTogether) {
  EXPECT_NAMED(CUDA_SUCCESS);
  EXPECT_NAMED(CUDA_ERROR_INVALID_VALUE);
  EXPECT_NAMED(CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NAMED(CUDA_ERROR_STUB_LIBRARY);
  EXPECT_NAMED(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
  EXPECT_NAMED(CUDA_ERROR_INVALID_IMAGE);
  EXPECT_NAMED(CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_NAMED(CUDA_ERROR_INVALID_PTX);
  EXPECT_NAMED(CUDA_ERROR_CONTAINED);
  EXPECT_NAMED(CUDA_ERROR_FILE_NOT_FOUND);
  EXPECT_NAMED(CUDA_ERROR_INVALID_HANDLE);
  EXPECT_NAMED(CUDA_ERROR_NOT_FOUND);
  EXPECT_NAMED(CUDA_ERROR_NOT_READY);
  EXPECT_NAMED(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_NAMED(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_NAMED(CUDA_ERROR_TENSOR_MEMORY_LEAK);
  EXPECT_NAMED(CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_NAMED(CUDA_ERROR_CDP_VERSION_MISMATCH);
  EXPECT_NAMED(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  EXPECT_NAMED(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_NAMED(CUDA_ERROR_KEY_ROTATION);
  EXPECT_NAMED(CUDA_ERROR_UNKNOWN);
}

TEST(Errors, GivenEveryCode_ThenNameAndTextExistAndNamesAreUnique) {
  std::set<std::string> names;
  int previous = -1;
  for (const Row& row : kRows) {
    EXPECT_GT(row.code, previous);
    previous = row.code;
    const char* name = nullptr;
    const char* text = nullptr;
    EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(row.code), &name), CUDA_SUCCESS);
    EXPECT_EQ(cuGetErrorString(static_cast<CUresult>(row.code), &text), CUDA_SUCCESS);
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_FALSE(std::string(text).empty());
  }
}

TEST(Errors, GivenUnknownCodeWhenAskedThenItIsInvalidAndTheAnswerIsNull) {
  const char* text = "left over";
  EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(98), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
  EXPECT_EQ(cuGetErrorString(CUDA_SUCCESS, nullptr), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
