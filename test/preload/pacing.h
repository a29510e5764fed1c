// SPDX-License-Identifier: Apache-2.0
//
// What the tests of GPU time have in common: programs at work, their shares, and orders to them. Bounds are generous,
// as the machine that runs this may have better things to do; `make bench-sm` is the exact one.
#pragma once

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "region/region.h"
#include "test/preload/harness.h"

namespace preload {

class Pacing : public Preload {
 protected:
  Pacing() {
    environment_["CUDA_DEVICE_MEMORY_LIMIT"] = "8g";
    tries_ = 3;
  }
  ~Pacing() override {  // who is at work after a failure
    for (const auto& [_, pid] : at_work_) {
      kill(pid, SIGKILL);
      Wait(pid);
    }
  }
  void WaitFor(const char* name) {
    for (int i = 0; i < 10'000 && !std::filesystem::exists(folder() + "/" + name); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(std::filesystem::exists(folder() + "/" + name)) << name;
  }
  void Touch(const std::string& name) { std::ofstream(folder() + "/" + name) << "x"; }
  // A program that is at work until End(name).
  void Begin(const std::string& name, const Environment& settings = {}, const char* scenario = "paced_worker",
             const char* shape = "ex") {
    std::filesystem::remove(folder() + "/" + name + "_ends");
    at_work_[name] = Start({scenario, name + "_ends", shape}, settings);
  }
  void End(const std::string& name) {
    Touch(name + "_ends");
    EXPECT_EQ(Wait(at_work_.at(name)), 0) << name;
    at_work_.erase(name);
  }
  // Of one that is at work, or of all together.
  void ExpectShare(const std::string& name, const char* delay, const char* percent, const char* tolerance,
                   const char* seconds = "1") {
    std::vector<std::string> observer{"paced_share_of", delay, seconds, percent, tolerance};
    observer.push_back(name == "all" ? "0" : std::to_string(at_work_.at(name)));
    for (const auto& [_, pid] : at_work_) observer.push_back(std::to_string(pid));
    Pass(observer, {{"LD_PRELOAD", "-"}});
  }
  template <typename Change>
  void InRegion(Change change) {
    hami::region::Attachment attachment;
    ASSERT_EQ(hami::region::Open(&attachment, region().c_str()), hami::region::Status::kOk);
    change(attachment.region);
    hami::region::Detach(&attachment);
  }
  // A `paced_stop` whose region is changed after `ms` has at most so many ms of the GPU's time in the 100 ms after it.
  // A library that does not obey has too many every time, a host that has no processor for it now and then: three
  // tries.
  template <typename Change>
  void ExpectObeyed(const char* shape, const char* limit, double most, int ms, Change change, int peers = 0) {
    constexpr int kTries = 3;
    double least = 100;
    for (int i = 0; i < kTries && least > most && !HasFatalFailure(); ++i) {
      least = std::min(least, MsAfterOrder(shape, limit, ms, change, peers));
    }
    EXPECT_LE(least, most) << "ms on the GPU after the order, " << shape << " limited to " << limit;
  }
  template <typename Change>
  double MsAfterOrder(const char* shape, const char* limit, int ms, Change change, int peers) {
    for (const char* name : {"running", "ordered", "done"}) std::filesystem::remove(folder() + "/" + name);
    std::filesystem::remove(region());
    const Environment settings{{"CUDA_DEVICE_SM_LIMIT", limit}};
    std::vector<std::string> stop{"paced_stop", shape};
    for (int i = 0; i < peers; ++i) {
      const std::string name = "peer" + std::to_string(i);
      Begin(name, settings);
      stop.push_back(std::to_string(at_work_.at(name)));
    }
    const pid_t program = Start(stop, settings);
    WaitFor("running");
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    std::chrono::nanoseconds now{};
    InRegion([&](auto* r) {
      change(r);
      now = std::chrono::steady_clock::now().time_since_epoch();
    });
    std::ofstream(folder() + "/new") << now.count();
    std::filesystem::rename(folder() + "/new", folder() + "/ordered");
    WaitFor("done");
    InRegion([](auto* r) { hami::region::Store(r->recent_kernel, 0); });
    EXPECT_EQ(Wait(program), 0) << shape << " " << limit;
    for (int i = 0; i < peers; ++i) End("peer" + std::to_string(i));
    double ns = 1e9;
    std::ifstream(folder() + "/done") >> ns;
    return ns / 1e6;
  }
  std::map<std::string, pid_t> at_work_;
};

}  // namespace preload
