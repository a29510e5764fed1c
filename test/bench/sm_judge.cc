// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "sm_board.h"

namespace sm {
namespace {

struct Sample {
  Nanos at;
  std::uint64_t busy_all;
  std::vector<std::uint64_t> busy;
  std::vector<std::pair<Nanos, Nanos>> work;
};

std::pair<Nanos, Nanos> ReadWork(const BoardSlot& slot) {
  for (;;) {
    const std::uint32_t before = slot.sequence.load(std::memory_order_acquire);
    const std::pair<Nanos, Nanos> seen{slot.work.load(std::memory_order_acquire),
                                       slot.at.load(std::memory_order_acquire)};
    if (before % 2 == 0 && slot.sequence.load(std::memory_order_acquire) == before) return seen;
  }
}

}  // namespace

// One line a sample: time, busy time of the device, then for each slot busy time of its process, work, time of that.
int Watch(Board& board, std::size_t slots, double seconds, double interval_ms) {
  const auto busy_ns = Find<std::uint64_t(int, int)>("simgpu_busy_ns");
  std::vector<Sample> samples;
  samples.reserve(static_cast<std::size_t>(seconds * 1e3 / interval_ms) + 2);
  const Nanos begin = Now();
  const auto interval = static_cast<Nanos>(interval_ms * 1e6);
  for (Nanos due = begin; due <= begin + static_cast<Nanos>(seconds * kSecond); due += interval) {
    SleepUntil(due);
    Sample sample;
    const Nanos before = Now();
    sample.busy_all = busy_ns(0, 0);
    sample.at = before + (Now() - before) / 2;  // the device was asked somewhere in between
    for (std::size_t i = 0; i < slots; ++i) {
      const int pid = board.slots[i].pid.load();
      // A device with one guest has nobody else on it, and the books' lock need not be taken twice.
      sample.busy.push_back(slots == 1 ? sample.busy_all : pid == 0 ? 0 : busy_ns(0, pid));
      sample.work.push_back(ReadWork(board.slots[i]));
    }
    samples.push_back(std::move(sample));
  }
  for (const Sample& sample : samples) {
    std::printf("%lld %llu", static_cast<long long>(sample.at), static_cast<unsigned long long>(sample.busy_all));
    for (std::size_t i = 0; i < slots; ++i) {
      std::printf(" %llu %lld %lld", static_cast<unsigned long long>(sample.busy[i]),
                  static_cast<long long>(sample.work[i].first), static_cast<long long>(sample.work[i].second));
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace sm
