// SPDX-License-Identifier: Apache-2.0
#include "simgpu/mps/wire.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace simgpu::mps {
namespace {

constexpr std::size_t kMostLine = 1024;
constexpr int kBacklog = 128;

bool AddressOf(const std::string& path, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  if (path.size() >= sizeof address->sun_path) {
    errno = ENAMETOOLONG;
    return false;
  }
  std::memcpy(address->sun_path, path.data(), path.size());
  return true;
}

int CloseWith(int fd, int error) {
  close(fd);
  errno = error;
  return -1;
}

bool TakeNumber(std::string_view* text, std::uint64_t* out) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *out);
  if (error != std::errc() || end == text->data()) return false;
  text->remove_prefix(static_cast<std::size_t>(end - text->data()));
  return true;
}

}  // namespace

std::string PipeFolder() {
  const char* folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  return folder != nullptr && *folder != 0 ? folder : "/tmp/nvidia-mps";
}

int Connect(const std::string& path) {
  sockaddr_un address;
  if (!AddressOf(path, &address)) return -1;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return CloseWith(fd, errno);
  return fd;
}

int Listen(const std::string& path) {
  sockaddr_un address;
  if (!AddressOf(path, &address)) return -1;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  unlink(path.c_str());
  constexpr mode_t kForAll = 0666;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || chmod(path.c_str(), kForAll) != 0 ||
      listen(fd, kBacklog) != 0) {
    return CloseWith(fd, errno);
  }
  return fd;
}

bool Send(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

LineReader::Got LineReader::Next(int fd, int limit_ms, std::string* line) {
  for (;;) {
    if (const std::size_t end = held_.find('\n'); end != std::string::npos) {
      *line = held_.substr(0, end);
      held_.erase(0, end + 1);
      return Got::kLine;
    }
    if (held_.size() > kMostLine) return Got::kEnd;
    pollfd look = {fd, POLLIN, 0};
    const int ready = poll(&look, 1, limit_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return ready == 0 ? Got::kNothing : Got::kEnd;
    char buffer[kMostLine];
    const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Got::kEnd;
    held_.append(buffer, static_cast<std::size_t>(got));
  }
}

std::uint64_t ParseBytes(std::string_view text) {
  std::uint64_t number = 0;
  if (!TakeNumber(&text, &number)) return 0;
  int shift = 0;
  if (!text.empty()) {
    constexpr std::string_view kUnits = "KMG";
    const std::size_t unit = kUnits.find(text.front());
    if (unit == std::string_view::npos) return 0;
    shift = 10 * (static_cast<int>(unit) + 1);
    text.remove_prefix(1);
    if (!text.empty() && text != "B") return 0;
  }
  return number > (UINT64_MAX >> shift) ? 0 : number << shift;
}

MemoryLimits ParseMemoryLimits(std::string_view text) {
  MemoryLimits limits;
  while (!text.empty()) {
    const std::size_t end = text.find(',');
    std::string_view word = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    std::uint64_t device = 0;
    if (!TakeNumber(&word, &device) || device > 64 || word.empty() || word.front() != '=') continue;
    const std::uint64_t bytes = ParseBytes(word.substr(1));
    if (bytes > 0) limits[static_cast<int>(device)] = bytes;
  }
  return limits;
}

std::string MemoryLimitsText(const MemoryLimits& limits) {
  std::string text;
  for (const auto& [device, bytes] : limits) {
    if (!text.empty()) text += ',';
    text += std::to_string(device) + "=" + std::to_string(bytes);
  }
  return text;
}

int ParsePercent(std::string_view text) {
  std::uint64_t number = 0;
  if (!TakeNumber(&text, &number) || number < 1 || number > 100) return 0;
  // Fractions are allowed and mean whole SMs all the same.
  if (!text.empty() && text.front() != '.') return 0;
  return static_cast<int>(number);
}

std::string TermsText(const Terms& terms) {
  return "welcome " + std::to_string(terms.percent) + " " + (terms.devices.empty() ? "*" : terms.devices) + " " +
         MemoryLimitsText(terms.limits) + "\n";
}

bool ParseTerms(std::string_view line, Terms* terms) {
  constexpr std::string_view kWord = "welcome ";
  if (line.substr(0, kWord.size()) != kWord) return false;
  line.remove_prefix(kWord.size());
  const std::size_t first = line.find(' ');
  const std::size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos) return false;
  terms->percent = ParsePercent(line.substr(0, first));
  terms->devices = line.substr(first + 1, second - first - 1);
  terms->limits = ParseMemoryLimits(line.substr(second + 1));
  return terms->percent > 0;
}

}  // namespace simgpu::mps
