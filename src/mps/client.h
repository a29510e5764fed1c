// SPDX-License-Identifier: Apache-2.0
//
// What a client of a daemon finds in its environment. Pure. The daemon serves one GPU, so that its clients have one and
// number it 0.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace hami::mps {

struct ClientLimits {
  std::uint64_t memory_mib = 0;  // 0: none
  int percent = 0;               // of the SMs; 0: none
};

inline constexpr const char* kPipeVariable = "CUDA_MPS_PIPE_DIRECTORY";
inline constexpr const char* kMemoryVariable = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
inline constexpr const char* kPercentVariable = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
// Where the driver looks without the variable: there a program that has lost its environment finds the daemon, too.
inline constexpr const char* kDefaultPipe = "/tmp/nvidia-mps";

// By name.
std::vector<std::pair<std::string, std::string>> ClientEnvironment(const std::string& pipe, const ClientLimits& limits);

}  // namespace hami::mps
