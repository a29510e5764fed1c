// SPDX-License-Identifier: Apache-2.0
//
// What the driver of a stress test and its workers share: one page-aligned file that all of them map. It holds the
// barrier at which the books are compared, what each worker says about itself, and a few mailboxes for IPC handles.
// Invariant: a worker writes only its own cell; whatever a killed worker leaves behind is safe to read.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstdint>

namespace stress {

inline constexpr int kMaxWorkers = 512;
inline constexpr int kBoxes = 8;

struct Cell {
  std::atomic<int32_t> pid;
  std::atomic<uint32_t> reached;     // the generation whose barrier this worker waits at
  std::atomic<uint64_t> calls;       // finished operations
  std::atomic<uint64_t> longest_ns;  // of one operation
  std::atomic<uint64_t> seen_used;   // cuMemGetInfo at the barrier
  std::atomic<uint64_t> imported;    // bytes of others' memory: any of its holders may pay for it
};

// A plain allocation that others may open. The lock holds the worker's pid; nobody waits for it.
struct Box {
  std::atomic<int32_t> lock;
  int32_t owner;
  uint64_t bytes;
  uint8_t handle[64];
};

struct Board {
  std::atomic<uint32_t> generation;
  std::atomic<uint32_t> pause;   // workers come to the barrier at their next operation
  std::atomic<uint32_t> go;      // a start signal
  std::atomic<uint32_t> failed;  // the driver found the books wrong: print what was done
  std::atomic<uint32_t> stop;
  std::atomic<uint32_t> blind;  // somebody is dying: the driver and the region learn of it at different times
  Cell cells[kMaxWorkers];
  Box boxes[kBoxes];
};

inline Board* MapBoard(int fd) {
  void* const at = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<Board*>(at);
}

}  // namespace stress
