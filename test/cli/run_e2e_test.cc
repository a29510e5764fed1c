// SPDX-License-Identifier: Apache-2.0
//
// hami run as a way to start a program: its environment, its status, its signals.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <csignal>
#include <thread>

#include "harness.h"

namespace hami::e2e {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;

using RunCommand = Machine;

TEST_F(RunCommand, GivenCommand_WhenRun_ThenItsEnvironmentIsTheShares) {
  const Outcome outcome = Hami({"run", "--mem", "3g", "--cores", "30", "--name", "n", "--", "env"});
  EXPECT_EQ(outcome.exit_status(), 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\nCUDA_VISIBLE_DEVICES=0\n")) << "programs call int() on it";
  EXPECT_THAT(outcome.out, ContainsRegex("HAMI_DEVICE_LIMITS=GPU-[0-9a-f-]{36}=3072m:30\n"));
  EXPECT_THAT(outcome.out, HasSubstr("CUDA_DEVICE_MEMORY_LIMIT_0=3072m\n"));
  EXPECT_THAT(outcome.out, HasSubstr("CUDA_DEVICE_SM_LIMIT=30\n"));
  EXPECT_THAT(outcome.out, HasSubstr("CUDA_DEVICE_MEMORY_SHARED_CACHE=" + folder_ + "/state/shares/n/region.cache\n"));
  EXPECT_THAT(outcome.out, ContainsRegex("LD_PRELOAD=/.*/libvgpu.so\n"));
  EXPECT_THAT(outcome.err, IsEmpty());
  EXPECT_THAT(Folders(), IsEmpty());
}

TEST_F(RunCommand, GivenCommand_WhenItEnds_ThenItsStatusIsHamis) {
  EXPECT_EQ(Hami({"run", "--mem", "1g", "--", "sh", "-c", "exit 37"}).exit_status(), 37);
  const Outcome killed = Hami({"run", "--mem", "1g", "--", "sh", "-c", "kill -9 $$"});
  EXPECT_TRUE(WIFSIGNALED(killed.wait_status));
  EXPECT_EQ(killed.exit_status(), 128 + SIGKILL);
  EXPECT_THAT(Folders(), IsEmpty());
}

TEST_F(RunCommand, GivenNoSuchProgram_WhenRun_ThenStatusOfEnvAndNothingLeft) {
  const Outcome missing = Hami({"run", "--mem", "1g", "--", "no-such-program"});
  EXPECT_EQ(missing.exit_status(), 127);
  EXPECT_THAT(missing.err, HasSubstr("no-such-program"));
  EXPECT_EQ(Hami({"run", "--mem", "1g", "--", "/"}).exit_status(), 126);
  EXPECT_THAT(Folders(), IsEmpty());
}

TEST_F(RunCommand, GivenSignal_WhenSentToHami_ThenTheCommandDecides) {
  const Process run =
      Start({"run", "--mem", "1g", "--", "sh", "-c", "trap 'exit 42' TERM; echo ready; while :; do sleep 0.01; done"});
  ASSERT_TRUE(Eventually([&] { return Output(run) == "ready\n"; }));
  ASSERT_EQ(::kill(run.pid, SIGTERM), 0);
  EXPECT_EQ(Wait(run).exit_status(), 42);
  EXPECT_THAT(Folders(), IsEmpty());
}

// `timeout hami run …`, Ctrl-C in scripts, a service that is stopped.
TEST_F(RunCommand, SignalToTheGroup_ThenTheCommandGetsItOnce) {
  const Process run = Start({"run", "--mem", "1g", "--", "sh", "-c",
                             "trap 'n=x$n; echo $n' TERM; echo ready; while [ ${#n} -lt 2 ]; do sleep 0.05; done"});
  ASSERT_TRUE(Eventually([&] { return Output(run) == "ready\n"; }));
  ASSERT_EQ(::kill(-run.pid, SIGTERM), 0);
  ASSERT_TRUE(Eventually([&] { return Output(run) != "ready\n"; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(Output(run), "ready\nx\n");
  ASSERT_EQ(::kill(run.pid, SIGTERM), 0);
  EXPECT_EQ(Wait(run).out, "ready\nx\nxx\n");
  EXPECT_THAT(Folders(), IsEmpty());
}

TEST_F(RunCommand, GivenDryRun_WhenAsked_ThenPlanShownAndNothingMade) {
  const Outcome outcome = Hami({"run", "--dry-run", "--mem", "30%", "--", "sh", "-c", "echo ran"});
  EXPECT_EQ(outcome.exit_status(), 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("CUDA_DEVICE_MEMORY_LIMIT_0="));
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("ran\n")));
  EXPECT_THAT(Folders(), IsEmpty());
  const auto json = Json({"run", "--dry-run", "--output", "json", "--mem", "3g", "--", "x"});
  EXPECT_TRUE(json.at("granted").as_bool());
  EXPECT_EQ(json.at("share").at("grants").at(0).at("limit_bytes").to_number<std::uint64_t>(), 3ULL << 30);
}

TEST_F(RunCommand, GivenDryRunUnderNameInUse_WhenAsked_ThenRefusedAsRunWouldBe) {
  Gate gate;
  const Process run =
      Start({"run", "--mem", "1g", "--name", "n", "--", "sh", "-c", "echo up; exec cat"}, gate.reader.get());
  ASSERT_TRUE(Eventually([&] { return Output(run) == "up\n"; }));
  const Outcome dry = Hami({"run", "--dry-run", "--mem", "1g", "--name", "n", "--", "true"});
  EXPECT_EQ(dry.exit_status(), 125);
  EXPECT_THAT(dry.err, HasSubstr("already"));
  EXPECT_THAT(dry.out, IsEmpty());
}

TEST_F(RunCommand, GivenAGpuThatIsLost_WhenRun_ThenTheOthersAreGranted) {
  environment_.erase("SIMGPU");
  const std::string config = folder_ + "/lost.conf";
  ASSERT_TRUE(base::WriteNewFile(config, "gpus 2xH100\nlost device=0\n", 0600));
  environment_["SIMGPU_CONFIG"] = config;
  const Outcome one = Hami({"run", "--mem", "1g", "--", "sh", "-c", "echo ran"});
  EXPECT_EQ(one.exit_status(), 0) << one.err;
  EXPECT_EQ(one.out, "ran\n");
  // Not even who takes more than there is gets the lost one.
  for (const std::string extra : {"--dry-run", "--oversubscribe"}) {
    const Outcome both = Hami({"run", "--gpus", "2", "--mem", "1g", extra, "--", "true"});
    EXPECT_EQ(both.exit_status(), 125) << extra;
    EXPECT_THAT(both.err, HasSubstr("does not answer")) << extra;
  }
  const Outcome smi = Hami({"smi"});
  EXPECT_EQ(smi.exit_status(), 0) << smi.err;
  EXPECT_THAT(smi.out, ContainsRegex("GPU 0  does not answer"));
  EXPECT_THAT(smi.out, ContainsRegex("GPU 1  .*H100"));
}

TEST_F(RunCommand, GivenLostGpu_WhenUnknownGpuIsNamed_ThenTableTellsAllThereIs) {
  environment_.erase("SIMGPU");
  const std::string config = folder_ + "/lost.conf";
  ASSERT_TRUE(base::WriteNewFile(config, "gpus 2xH100\nlost device=1\n", 0600));
  environment_["SIMGPU_CONFIG"] = config;
  const Outcome outcome = Hami({"run", "--mem", "1g", "--gpus", "GPU-none", "--", "true"});
  EXPECT_EQ(outcome.exit_status(), 125);
  EXPECT_THAT(outcome.err, HasSubstr("GPU 1 does not answer"));
  EXPECT_THAT(outcome.err, ContainsRegex("\n0 +GPU-[0-9a-f-]{36} ")) << "the UUIDs that would be right";
  EXPECT_THAT(outcome.err, ContainsRegex("\n1 +[?] .*does not answer: ")) << "why not";
}

TEST_F(RunCommand, GivenJson_WhenRefusedForAnyReason_ThenTheAnswerIsJson) {
  const auto refusal = [this](const std::vector<std::string>& words) {
    std::vector<std::string> arguments = {"run", "-o", "json", "--mem", "1g"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const Outcome outcome = Hami(arguments);
    EXPECT_EQ(outcome.exit_status(), 125);
    const auto json = base::ParseJson(outcome.out);
    EXPECT_TRUE(json) << outcome.out << outcome.err;
    if (!json) return std::string();
    EXPECT_FALSE(json->at("granted").as_bool());
    return std::string(json->at("refusal").as_string());
  };
  Gate gate;
  const Process run =
      Start({"run", "--mem", "1g", "--name", "n", "--", "sh", "-c", "echo up; exec cat"}, gate.reader.get());
  ASSERT_TRUE(Eventually([&] { return Output(run) == "up\n"; }));
  EXPECT_THAT(refusal({"--name", "n", "--", "true"}), HasSubstr("already"));
  EXPECT_THAT(refusal({"--gpus", "GPU-none", "--", "true"}), HasSubstr("no GPU 'GPU-none'"));
  const base::Fd record = base::Open(folder_ + "/state/shares/n/share.json", O_WRONLY | O_TRUNC).value();
  EXPECT_THAT(refusal({"--", "true"}), HasSubstr("nobody can tell what it holds"));
  environment_["SIMGPU"] = "2xFoo";
  EXPECT_THAT(refusal({"--", "true"}), HasSubstr("driver"));
}

TEST_F(RunCommand, GivenBadSimulatedMachine_WhenAsked_ThenNoHintToSimulate) {
  environment_["SIMGPU"] = "2xFoo";
  const Outcome outcome = Hami({"run", "--mem", "1g", "--", "true"});
  EXPECT_EQ(outcome.exit_status(), 125);
  EXPECT_THAT(outcome.err, HasSubstr("SIMGPU=2xFoo is set"));
  EXPECT_THAT(outcome.err, testing::Not(HasSubstr("Without a GPU, use")));
}

TEST_F(RunCommand, GivenNoStandardDescriptors_ThenNothingIsWrittenIntoOurFiles) {
  const std::string program = HAMI_PROGRAM;
  const Outcome smi = Hami({"sim", "--", "sh", "-c", program + " smi >&-"});
  EXPECT_NE(smi.exit_status(), 0);
  EXPECT_THAT(smi.err, HasSubstr("can not write"));
  Hami({"sim", "--", "sh", "-c", program + " run --mem 500g -- true <&- >&- 2>&-"});
  EXPECT_EQ(base::ReadFile(folder_ + "/state/lock", 1000).value(), "");
  const Outcome closed =
      Hami({"sim", "--", "sh", "-c", program + " run --mem 1g -- sh -c 'test -e /proc/self/fd/0 || exit 3' <&-"});
  EXPECT_EQ(closed.exit_status(), 3) << "what was closed for us is closed for the command";
}

TEST_F(RunCommand, GivenAShare_WhenLookedAtFromInside_ThenTheMachineIsShown) {
  const std::string program = HAMI_PROGRAM;
  const auto outside = Json({"smi", "-o", "json"}).at("gpus");
  const Outcome inside = Hami({"run", "--mem", "2g", "--name", "n", "--", program, "smi", "-o", "json"});
  ASSERT_EQ(inside.exit_status(), 0) << inside.err;
  const auto gpus = base::ParseJson(inside.out).value().at("gpus");
  ASSERT_EQ(gpus.as_array().size(), outside.as_array().size());
  EXPECT_EQ(gpus.at(0).at("total_bytes"), outside.at(0).at("total_bytes"));
  const Outcome set = Hami({"run", "--mem", "2g", "--name", "n", "--", program, "set", "n", "--mem", "4g"});
  EXPECT_EQ(set.exit_status(), 0) << set.err;
  const Outcome ps = Hami({"run", "--mem", "2g", "--name", "n", "--", program, "ps", "-o", "json"});
  EXPECT_THAT(base::ParseJson(ps.out).value().at("shares").at(0).at("processes").as_array(), IsEmpty())
      << "to look is not to use a GPU";
}

TEST_F(RunCommand, GivenShareInsideAShare_WhenAsked_ThenRefused) {
  const Outcome outcome = Hami({"run", "--mem", "2g", "--", HAMI_PROGRAM, "run", "--mem", "1g", "--", "true"});
  EXPECT_EQ(outcome.exit_status(), 125);
  EXPECT_THAT(outcome.err, HasSubstr("nested"));
}

TEST_F(RunCommand, GivenNoDriver_WhenAsked_ThenTheErrorTeaches) {
  environment_["LD_LIBRARY_PATH"] = "/nonexistent";
  const Outcome outcome = Hami({"run", "--mem", "1g", "--", "true"});
  if (outcome.exit_status() == 0) GTEST_SKIP() << "this machine has a driver of its own";
  EXPECT_EQ(outcome.exit_status(), 125);
  EXPECT_THAT(outcome.err, HasSubstr("hami sim"));
}

TEST_F(RunCommand, GivenSim_WhenRun_ThenTheCommandHasTheSimulatedGpus) {
  environment_.erase("LD_LIBRARY_PATH");
  environment_.erase("SIMGPU");
  const Outcome outcome = Hami({"sim", "--gpus", "3xT4", "--", "hami", "smi", "--output", "json"});
  ASSERT_EQ(outcome.exit_status(), 0) << outcome.err;
  EXPECT_EQ(base::ParseJson(outcome.out).value().at("gpus").as_array().size(), 3u);
}

TEST_F(RunCommand, GivenGuestWithinLimit_WhenRun_ThenItSeesTheLimitEverywhere) {
  const Outcome outcome = Hami({"run", "--mem", "3g", "--", HAMI_GUESTS "/guest_steady", "0.1", "500", "100"});
  EXPECT_EQ(outcome.exit_status(), 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("cuda_total 3221225472\n"));
  EXPECT_THAT(outcome.out, HasSubstr("nvml_total 3221225472\n"));
}

// What a script loses on its way (env -i, sudo, a scheduler of its own) does not lift the limit while the library is
// there.
TEST_F(RunCommand, GuestWithAnotherEnvironment_ThenTheLimitHolds) {
  const std::string guest = HAMI_GUESTS "/guest_steady 0.1 1025 1";
  const std::string names = "CUDA_DEVICE_MEMORY_LIMIT_0 CUDA_DEVICE_MEMORY_SHARED_CACHE HAMI_DEVICE_LIMITS";
  const std::vector<std::string> lines{
      "unset " + names + "; exec " + guest,
      "CUDA_DEVICE_MEMORY_LIMIT_0=0 HAMI_DEVICE_LIMITS= CUDA_DEVICE_MEMORY_SHARED_CACHE=" + folder_ + "/own exec " +
          guest};
  for (const std::string& line : lines) {
    const Outcome outcome = Hami({"run", "--mem", "1g", "--", "sh", "-c", line});
    EXPECT_EQ(outcome.exit_status(), 1) << line;
    EXPECT_THAT(outcome.err, HasSubstr("failed with 2")) << line;
  }
  EXPECT_FALSE(base::ReadFile(folder_ + "/own", 1)) << "a region of its own";
}

TEST_F(RunCommand, GivenGuestThatWantsMore_WhenRun_ThenOutOfMemory) {
  const Outcome outcome = Hami({"run", "--mem", "1g", "--", HAMI_GUESTS "/guest_steady", "0.1", "1025", "1"});
  EXPECT_EQ(outcome.exit_status(), 1);
  EXPECT_THAT(outcome.err, HasSubstr("failed with 2")) << "CUDA_ERROR_OUT_OF_MEMORY";
}

}  // namespace
}  // namespace hami::e2e
