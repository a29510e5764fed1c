// SPDX-License-Identifier: Apache-2.0
//
// hami run --mode mps: the GPU's control daemon comes with the first share and goes with the last.

#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>

#include "base/fd.h"
#include "base/strings.h"
#include "harness.h"

namespace hami::e2e {
namespace {

using testing::HasSubstr;

class MpsShares : public Machine {
 protected:
  Process Share(const std::string& name, const std::string& mode, int input) {
    std::vector<std::string> words = {"run", "--gpus",  Card(), "--name", name, "--mem",
                                      "1g",  "--cores", "25",   "--mode", mode};
    if (mode == "mps") words.insert(words.end(), {"--mps-control", HAMI_SIMGPU_FOLDER "/simgpu-mps-control"});
    words.insert(words.end(), {"--", "sh", "-c", "env | grep -e ^CUDA_MPS -e ^GPU_CORE; echo granted; exec cat"});
    return Start(words, input);
  }
  std::string Card() {
    if (card_.empty()) {
      card_ = Json({"smi", "--output", "json"}).at("gpus").as_array().at(0).at("uuid").as_string().c_str();
    }
    return card_;
  }
  int DaemonPid() {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      if (entry.path().filename() != "nvidia-cuda-mps-control.pid") continue;
      const auto text = base::ReadFile(entry.path(), 32);
      const auto pid = text ? base::ParseNumber(base::Trim(*text)) : std::nullopt;
      if (pid && IsRunning(static_cast<pid_t>(*pid))) return static_cast<int>(*pid);
    }
    return 0;
  }
  bool Granted(const Process& share) {
    return Eventually([&] { return Output(share).find("granted") != std::string::npos; });
  }

  std::string card_;
};

TEST_F(MpsShares, TheDaemonComesWithTheFirstShareAndGoesWithTheLast) {
  Gate gate;
  const Process first = Share("first", "mps", gate.reader.get());
  const Process second = Share("second", "mps", gate.reader.get());
  ASSERT_TRUE(Granted(first)) << Wait(first).err;
  ASSERT_TRUE(Granted(second)) << Wait(second).err;
  EXPECT_THAT(Output(first), HasSubstr("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25\n"));
  EXPECT_THAT(Output(first), HasSubstr("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1024M\n"));
  EXPECT_THAT(Output(first), HasSubstr("GPU_CORE_UTILIZATION_POLICY=disable\n"));
  const int daemon = DaemonPid();
  EXPECT_GT(daemon, 0);
  EXPECT_EQ(Json({"ps", "--output", "json"}).at("shares").as_array().at(0).at("mode").as_string(), "mps");

  ::kill(daemon, SIGKILL);
  EXPECT_TRUE(Eventually([&] {
    const int now = DaemonPid();
    return now > 0 && now != daemon;
  })) << "it is started anew";

  const Process other = Share("other", "hami-core", gate.reader.get());
  const Outcome refused = Wait(other);
  EXPECT_NE(refused.exit_status(), 0);
  EXPECT_THAT(refused.err, HasSubstr("uses it in mode mps"));

  gate.writer.Reset();
  EXPECT_EQ(Wait(first).exit_status(), 0);
  EXPECT_EQ(Wait(second).exit_status(), 0);
  EXPECT_TRUE(Eventually([&] { return DaemonPid() == 0; }));
}

TEST_F(MpsShares, WhatCannotBeIsRefused) {
  const Outcome two = Hami({"run", "--gpus", "2", "--mode", "mps", "--", "true"});
  EXPECT_NE(two.exit_status(), 0);
  EXPECT_THAT(two.err, HasSubstr("one MPS daemon only"));
  const Outcome none =
      Hami({"run", "--mem", "1g", "--mode", "mps", "--mps-control", "no-such-mps-control", "--", "true"});
  EXPECT_NE(none.exit_status(), 0);
  EXPECT_THAT(none.err, HasSubstr("no-such-mps-control is not in $PATH"));
  EXPECT_TRUE(ShareNames().empty());
}

}  // namespace
}  // namespace hami::e2e
