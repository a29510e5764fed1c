// SPDX-License-Identifier: Apache-2.0
//
// Where one GPU's control daemon lives on the machine, and how it is known again: a folder of its own with
//
//     pipe/       CUDA_MPS_PIPE_DIRECTORY of the daemon and its clients
//     log/        CUDA_MPS_LOG_DIRECTORY
//     process     id and start time of the daemon that was started last
//
// Pure. A process is the daemon only when both numbers fit: an id alone may be another process's by now.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hami::mps {

struct Place {
  std::string program;  // nvidia-cuda-mps-control: a path, or a name that is looked up in $PATH
  std::string uuid;     // of the GPU
  std::string folder;

  std::string Pipe() const { return folder + "/pipe"; }
  std::string Log() const { return folder + "/log"; }
  std::string ProcessFile() const { return folder + "/process"; }
};

struct Process {
  int pid = 0;
  std::uint64_t start = 0;  // field 22 of /proc/<pid>/stat
  bool operator==(const Process&) const = default;
};

std::string ProcessFileText(const Process& process);
std::optional<Process> ParseProcessFile(std::string_view text);

// How many clients one GPU's daemon serves, by the GPU's compute capability.
int MostClients(int capability_major);

}  // namespace hami::mps
