// SPDX-License-Identifier: Apache-2.0
//
// A thread that looks after something: soon after it was called, sooner and sooner again while there is something left
// to do, and every now and then in any case.

#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "net/time.h"

namespace hami::plugin {

struct TenderTimes {
  net::Duration soon = std::chrono::milliseconds(20);  // after a call; several calls in this time are one
  net::Duration later = std::chrono::seconds(5);       // the longest pause while something is left to do
  net::Duration always = std::chrono::seconds(30);
};

class Tender {
 public:
  // LOOK says whether something is left to do.
  explicit Tender(std::function<bool()> look, TenderTimes times = {}) : look_(std::move(look)), times_(times) {}
  ~Tender() { Stop(); }
  Tender(const Tender&) = delete;
  Tender& operator=(const Tender&) = delete;

  void Start() {
    thread_ = std::thread([this] { Run(); });
  }
  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  void Call() {
    {
      const std::lock_guard lock(mutex_);
      called_ = true;
    }
    changed_.notify_all();
  }

 private:
  void Run() {
    net::Duration pause = times_.soon;
    bool left = true;
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      changed_.wait_for(lock, left ? pause : times_.always, [&] { return stopping_ || called_; });
      if (called_) {
        changed_.wait_for(lock, times_.soon, [&] { return stopping_; });
        pause = times_.soon;
      }
      if (stopping_) return;
      called_ = false;
      lock.unlock();
      left = look_();
      lock.lock();
      pause = std::min(pause * 2, times_.later);
    }
  }

  const std::function<bool()> look_;
  const TenderTimes times_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool called_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hami::plugin
