// SPDX-License-Identifier: Apache-2.0
#include "test/stress/harness.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "region/reader.h"
#include "simgpu/simgpu.h"

namespace stress {
namespace {

// Before the first look at the machine, whose variables are read once.
const std::string& MachineFolder() {
  static const std::string& folder = *[] {
    auto* const made = new std::string(std::filesystem::temp_directory_path() / "stress-XXXXXX");
    mkdtemp(made->data());
    std::ofstream(*made + "/simgpu.conf") << "gpus 1xH100\noption context_mib=" << (kContextBytes >> 20) << "\n";
    setenv("SIMGPU_CONFIG", (*made + "/simgpu.conf").c_str(), 1);
    setenv("SIMGPU_STATE", (*made + "/machine").c_str(), 1);
    setenv("SIMGPU_PROFILE", "ideal", 1);
    unsetenv("SIMGPU");
    std::atexit([] {
      std::error_code ignored;
      std::filesystem::remove_all(MachineFolder(), ignored);
    });
    return made;
  }();
  return folder;
}

std::string Number(uint64_t n) { return std::to_string(n); }

}  // namespace

uint64_t MonotonicNs() {
  timespec at{};
  clock_gettime(CLOCK_MONOTONIC, &at);
  return static_cast<uint64_t>(at.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(at.tv_nsec);
}

void SleepUs(uint64_t us) {
  const timespec nap{static_cast<time_t>(us / 1'000'000), static_cast<long>(us % 1'000'000) * 1000};
  nanosleep(&nap, nullptr);
}

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

Container::Container(uint64_t limit) : limit_(limit) {
  folder_ = MachineFolder() + "/container-XXXXXX";
  mkdtemp(folder_.data());
  region_ = folder_ + "/region.cache";
  board_fd_ = open((folder_ + "/board").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (ftruncate(board_fd_, sizeof(Board)) != 0) std::abort();
  board_ = MapBoard(board_fd_);
  if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, wire_) != 0) std::abort();
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, orders_) != 0) std::abort();
  simgpu_device_count();
}

Container::~Container() {
  munmap(board_, sizeof(Board));
  for (const int fd : {board_fd_, wire_[0], wire_[1], orders_[0], orders_[1]}) close(fd);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

pid_t Container::Start(const std::string& mode, const std::vector<std::pair<std::string, uint64_t>>& arguments,
                       bool under_library) {
  std::vector<std::string> words = {STRESS_GUEST, mode, "board=" + std::to_string(board_fd_), "limit=" + Number(limit_),
                                    "context=" + Number(kContextBytes)};
  for (const auto& [name, value] : arguments) words.push_back(name + "=" + Number(value));
  std::vector<std::string> variables = {
      "LD_LIBRARY_PATH=" STRESS_DRIVER_FOLDER,        "SIMGPU_CONFIG=" + MachineFolder() + "/simgpu.conf",
      "SIMGPU_STATE=" + MachineFolder() + "/machine", "SIMGPU_PROFILE=ideal",
      "CUDA_DEVICE_MEMORY_SHARED_CACHE=" + region_,   "CUDA_DEVICE_MEMORY_LIMIT=" + Number(limit_)};
  if (under_library) variables.emplace_back("LD_PRELOAD=" STRESS_LIBRARY);
  std::vector<char*> argv;
  std::vector<char*> envp;
  for (std::string& word : words) argv.push_back(word.data());
  for (std::string& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  for (const int fd : {board_fd_, wire_[0], wire_[1], orders_[1]}) fcntl(fd, F_SETFD, 0);
  execve(argv[0], argv.data(), envp.data());
  _exit(127);
}

Finished Container::Wait(pid_t pid) {
  Finished finished;
  rusage usage{};
  if (wait4(pid, &finished.status, 0, &usage) != pid) return finished;
  const auto us = [](const timeval& at) {
    return static_cast<uint64_t>(at.tv_sec) * 1'000'000 + static_cast<uint64_t>(at.tv_usec);
  };
  finished.cpu_us = us(usage.ru_utime) + us(usage.ru_stime);
  return finished;
}

Finished Container::Run(const std::string& mode, const std::vector<std::pair<std::string, uint64_t>>& arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const int kept = dup(STDOUT_FILENO);
  dup2(ends[1], STDOUT_FILENO);
  const pid_t pid = Start(mode, arguments);
  dup2(kept, STDOUT_FILENO);
  close(kept);
  close(ends[1]);
  std::string out;
  char text[256];
  for (ssize_t n = read(ends[0], text, sizeof text); n > 0; n = read(ends[0], text, sizeof text)) {
    out.append(text, static_cast<size_t>(n));
  }
  close(ends[0]);
  Finished finished = Wait(pid);
  finished.out = out;
  return finished;
}

std::string Container::AwaitBarrier(const std::map<pid_t, int>& cells, int seconds) {
  const uint64_t deadline = MonotonicNs() + static_cast<uint64_t>(seconds) * 1'000'000'000;
  const uint32_t wanted = board_->generation + 1;
  for (;;) {
    std::string missing;
    for (const auto& [pid, cell] : cells) {
      if (board_->cells[cell].reached == wanted) continue;
      int status = 0;
      if (waitpid(pid, &status, WNOHANG) == pid) {
        return "process " + std::to_string(pid) + " ended early, status " + std::to_string(status);
      }
      if (kill(pid, 0) != 0 && errno == ESRCH) return "process " + std::to_string(pid) + " is gone";
      missing += " " + std::to_string(pid);
    }
    if (missing.empty()) return "";
    if (MonotonicNs() > deadline) return "not at the barrier in time:" + missing;
    SleepUs(200);
  }
}

std::map<pid_t, uint64_t> Container::RegionBooks() const {
  const auto snapshot = std::make_unique<hami::region::Snapshot>();
  std::map<pid_t, uint64_t> books;
  if (hami::region::ReadSnapshotFile(region_.c_str(), true, snapshot.get()) != hami::region::Status::kOk) return books;
  for (int i = 0; i < snapshot->slot_count; ++i) {
    const hami::region::SnapshotSlot& slot = snapshot->slots[i];
    if (slot.liveness != hami::region::Liveness::kDead) books[slot.pid] = slot.memory[0].total;
  }
  return books;
}

uint64_t Container::RegionUsed() const {
  const auto snapshot = std::make_unique<hami::region::Snapshot>();
  const auto status = hami::region::ReadSnapshotFile(region_.c_str(), true, snapshot.get());
  return status == hami::region::Status::kOk ? snapshot->devices[0].used : 0;
}

std::string Container::Compare(const std::map<pid_t, int>& cells, uint64_t patience_ns) {
  const std::map<pid_t, uint64_t> region = RegionBooks();
  uint64_t counted_in_all = 0;
  std::string wrong;
  for (const auto& [pid, cell] : cells) {
    const auto slot = region.find(pid);
    const uint64_t counted = slot == region.end() ? 0 : slot->second;
    const uint64_t truth = simgpu_process_bytes(0, pid);
    // What several hold one of them pays for, and not always whom the driver shows.
    const uint64_t imported = board_->cells[cell].imported;
    counted_in_all += counted;
    if (counted + imported >= truth && counted <= truth + imported) continue;
    wrong += "process " + std::to_string(pid) + ": counted " + Number(counted) + ", the driver's books " +
             Number(truth) + ", imported " + Number(imported) + "\n";
  }
  for (const auto& [pid, bytes] : region) {
    if (cells.count(pid) == 0 && bytes != 0) {
      wrong += "process " + std::to_string(pid) + " is not in the container but holds " + Number(bytes) + "\n";
    }
  }
  // All together hold what the driver says they hold, however much of it they share, and also when one of them was
  // killed while another one looked at what it holds.
  const uint64_t deadline = MonotonicNs() + patience_ns;
  uint64_t used = RegionUsed();
  uint64_t truth_in_all = simgpu_used_bytes(0);
  while (used > truth_in_all && MonotonicNs() < deadline) {
    SleepUs(10'000);
    used = RegionUsed();
    truth_in_all = simgpu_used_bytes(0);
  }
  if (used != truth_in_all) {
    wrong += "the region's sum " + Number(used) + ", the driver's " + Number(truth_in_all) + "\n";
    for (const auto& [pid, bytes] : RegionBooks()) {
      wrong += "  process " + std::to_string(pid) + ": counted " + Number(bytes) + ", the driver's books " +
               Number(simgpu_process_bytes(0, pid)) + "\n";
    }
  }
  if (counted_in_all > limit_) wrong += "counted in all: " + Number(counted_in_all) + "\n";
  for (const auto& [pid, cell] : cells) {
    // What each was told at its barrier may be older than the end of another's last free, never smaller than the truth.
    const uint64_t seen = board_->cells[cell].seen_used;
    if (seen > limit_) wrong += "process " + std::to_string(pid) + " was told " + Number(seen) + "\n";
  }
  return wrong;
}

Watcher::Watcher()
    : thread_([this] {
        while (!stop_) {
          const bool blind = blind_;
          const uint64_t used = simgpu_used_bytes(0);
          ++samples_;
          if (!blind && !blind_ && used > highest_) highest_ = used;
          SleepUs(100);
        }
      }) {}

Watcher::~Watcher() {
  stop_ = true;
  thread_.join();
}

}  // namespace stress
