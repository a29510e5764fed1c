// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/mps_client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace simgpu {
namespace {

constexpr int kAnswerWithin = 5'000;  // ms

constinit std::atomic<int> g_server{-1};
constinit std::atomic<int> g_trouble{0};

mps::Terms& Terms() {
  static mps::Terms& terms = *new mps::Terms;
  return terms;
}

CUresult ErrorIn(const std::string& line) {
  constexpr std::string_view kWord = "error ";
  if (line.rfind(kWord, 0) != 0) return CUDA_ERROR_MPS_RPC_FAILURE;
  return static_cast<CUresult>(std::atoi(line.c_str() + kWord.size()));
}

// Asks PATH one question; -1 with `*error` when there is no good answer.
int Ask(const std::string& path, const std::string& question, std::string* answer) {
  const int fd = mps::Connect(path);
  if (fd < 0) return -1;
  mps::LineReader reader;
  if (mps::Send(fd, question) && reader.Next(fd, kAnswerWithin, answer) == mps::LineReader::Got::kLine) return fd;
  close(fd);
  *answer = "silence";
  return -1;
}

void LowerByEnvironment(mps::Terms* terms) {
  if (const char* text = std::getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")) {
    if (const int percent = mps::ParsePercent(text); percent > 0) terms->percent = std::min(terms->percent, percent);
  }
  if (const char* text = std::getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")) {
    for (const auto& [device, bytes] : mps::ParseMemoryLimits(text)) {
      auto [limit, added] = terms->limits.try_emplace(device, bytes);
      if (!added) limit->second = std::min(limit->second, bytes);
    }
  }
}

}  // namespace

CUresult JoinMps(int capability_major) {
  std::string answer;
  const int control = Ask(mps::ControlSocket(mps::PipeFolder()), "server\n", &answer);
  if (control < 0) return answer.empty() ? CUDA_SUCCESS : CUDA_ERROR_MPS_CONNECTION_FAILED;
  close(control);
  constexpr std::string_view kServer = "server ";
  if (answer.rfind(kServer, 0) != 0) return ErrorIn(answer);
  std::string welcome;
  // Its name in the folder of `control`, as this process sees it.
  const std::string socket = mps::PipeFolder() + "/" + answer.substr(kServer.size());
  const int server = Ask(socket, "hello " + std::to_string(capability_major) + "\n", &welcome);
  if (server < 0) return CUDA_ERROR_MPS_CONNECTION_FAILED;
  if (!mps::ParseTerms(welcome, &Terms())) {
    close(server);
    return ErrorIn(welcome);
  }
  LowerByEnvironment(&Terms());
  g_server.store(server, std::memory_order_release);
  return CUDA_SUCCESS;
}

bool IsMpsClient() { return g_server.load(std::memory_order_acquire) >= 0; }

const mps::Terms& MpsTerms() { return Terms(); }

CUresult MpsTrouble() {
  const int server = g_server.load(std::memory_order_acquire);
  if (server < 0) return CUDA_SUCCESS;
  if (const int trouble = g_trouble.load(std::memory_order_acquire); trouble != 0)
    return static_cast<CUresult>(trouble);
  char first = 0;
  const ssize_t got = recv(server, &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return CUDA_SUCCESS;
  // The server says nothing to a client that it has welcomed but that it is terminated.
  const CUresult trouble = got > 0 ? CUDA_ERROR_MPS_CLIENT_TERMINATED : CUDA_ERROR_MPS_RPC_FAILURE;
  int none = 0;
  g_trouble.compare_exchange_strong(none, static_cast<int>(trouble));
  return trouble;
}

void TellMpsFault() {
  if (const int server = g_server.load(std::memory_order_acquire); server >= 0) mps::Send(server, "fault\n");
}

void ForgetMps() {
  if (const int server = g_server.exchange(-1); server >= 0) close(server);
}

}  // namespace simgpu
