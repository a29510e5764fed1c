// SPDX-License-Identifier: Apache-2.0
//
// The driver's side of a stress test: it starts guests under the library, and compares three books that no guest can
// shape: the simulated driver's own (simgpu.h, in this process, which is not under the library), the region file read
// from outside, and what a guest is told by cuMemGetInfo. The simulated machine is one per test program.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "test/stress/board.h"

namespace stress {

inline constexpr uint64_t kContextBytes = uint64_t{8} << 20;

struct Finished {
  int status = -1;
  uint64_t cpu_us = 0;
  std::string out;
};

// One container: a region with a limit, and the guests in it.
class Container {
 public:
  explicit Container(uint64_t limit);
  ~Container();
  Container(const Container&) = delete;
  Container& operator=(const Container&) = delete;

  // Starts `stress_guest mode arguments…`; the board is argument enough for every mode.
  pid_t Start(const std::string& mode, const std::vector<std::pair<std::string, uint64_t>>& arguments,
              bool under_library = true);
  static Finished Wait(pid_t pid);
  // Runs one to its end and returns what it printed.
  Finished Run(const std::string& mode, const std::vector<std::pair<std::string, uint64_t>>& arguments);

  Board& board() { return *board_; }
  const std::string& region() const { return region_; }
  uint64_t limit() const { return limit_; }
  int wire(int end) const { return wire_[end]; }
  int orders() const { return orders_[0]; }
  int orders_of_guest() const { return orders_[1]; }

  // Waits until each pid stands at the barrier. The cell of a pid is its place in the list of `cells`.
  // Empty, or who is missing.
  std::string AwaitBarrier(const std::map<pid_t, int>& cells, int seconds);
  void OpenBarrier() { ++board_->generation; }
  // Compares the books of the living at a barrier. Empty, or what is wrong. What is counted too much in all has
  // `patience_ns` to go; too little is wrong at once.
  std::string Compare(const std::map<pid_t, int>& cells, uint64_t patience_ns = 0);
  // The region's account of the living: bytes by pid.
  std::map<pid_t, uint64_t> RegionBooks() const;
  // What the region counts for all of them, heirs of shared memory included.
  uint64_t RegionUsed() const;

 private:
  uint64_t limit_;
  std::string folder_, region_;
  int board_fd_ = -1;
  int wire_[2] = {-1, -1};
  int orders_[2] = {-1, -1};
  Board* board_ = nullptr;
};

// Looks at the driver's books all the time.
class Watcher {
 public:
  Watcher();
  ~Watcher();
  uint64_t highest() const { return highest_; }
  uint64_t samples() const { return samples_; }
  // The dead are in the driver's books for a moment: what is seen meanwhile says nothing.
  void Blind(bool blind) { blind_ = blind; }

 private:
  std::atomic<uint64_t> highest_{0}, samples_{0};
  std::atomic<bool> stop_{false}, blind_{false};
  std::thread thread_;
};

uint64_t MonotonicNs();
void SleepUs(uint64_t us);
// A number from the environment; `otherwise` when it is unset.
uint64_t FromEnvironment(const char* name, uint64_t otherwise);

}  // namespace stress
