// SPDX-License-Identifier: Apache-2.0
//
// How the simulated MPS speaks: lines over unix sockets in the pipe folder. `control` takes commands and clients that
// look for a server; each server has a socket of its own, which its clients keep open for as long as they live. Pure
// parsers, and the few socket calls that the driver and the control program share. No function blocks for longer than
// its limit.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace simgpu::mps {

// Codes of the driver API that travel in answers.
inline constexpr int kConnectionFailed = 805;
inline constexpr int kRpcFailure = 806;
inline constexpr int kServerNotReady = 807;
inline constexpr int kMaxClients = 808;
inline constexpr int kClientTerminated = 810;

// $CUDA_MPS_PIPE_DIRECTORY, or NVIDIA's default.
std::string PipeFolder();
inline std::string ControlSocket(const std::string& pipe) { return pipe + "/control"; }

int Connect(const std::string& path);  // -1: errno says why
int Listen(const std::string& path);   // for every user; -1: errno says why
bool Send(int fd, std::string_view text);

// Lines as they arrive on a socket. Refuses one that is longer than a kilobyte: the peer is dropped.
class LineReader {
 public:
  enum class Got { kLine, kNothing, kEnd };
  // The next line, waiting for it up to LIMIT_MS.
  Got Next(int fd, int limit_ms, std::string* line);

 private:
  std::string held_;
};

// "0=1G,1=512M": bytes by device. What is not of that form is left out, as the driver leaves it out.
using MemoryLimits = std::map<int, std::uint64_t>;
MemoryLimits ParseMemoryLimits(std::string_view text);
// "1G", "512M", "512MB", "100K" or bytes; 0: none of these.
std::uint64_t ParseBytes(std::string_view text);
std::string MemoryLimitsText(const MemoryLimits& limits);

// A percentage from 1 to 100; 0: no such.
int ParsePercent(std::string_view text);

// What a server grants a client that connects.
struct Terms {
  int percent = 100;
  MemoryLimits limits;
  std::string devices;  // of the daemon's CUDA_VISIBLE_DEVICES; "*": all
};
std::string TermsText(const Terms& terms);
bool ParseTerms(std::string_view line, Terms* terms);

}  // namespace simgpu::mps
