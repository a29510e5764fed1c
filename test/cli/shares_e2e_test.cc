// SPDX-License-Identifier: Apache-2.0
//
// hami run as a book-keeper: nothing sold twice, nothing left behind.

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <memory>
#include <tuple>

#include "base/strings.h"
#include "harness.h"
#include "region/layout.h"

namespace hami::e2e {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Shares = Machine;

std::uint64_t Number(const base::json::value& value) { return value.to_number<std::uint64_t>(); }

TEST_F(Shares, GivenRunsAtOnce_WhenMoreThanFit_ThenExactlyWhatFitsIsGranted) {
  constexpr int kRuns = 32;
  constexpr std::uint64_t kEach = 20ULL << 30;
  std::uint64_t fitting = 0;
  const auto before = Json({"smi", "--output", "json"});
  for (const auto& gpu : before.at("gpus").as_array()) fitting += Number(gpu.at("free_bytes")) / kEach;
  ASSERT_GT(fitting, 0u);
  ASSERT_LT(fitting, kRuns);

  Gate gate;
  std::vector<Process> runs;
  for (int i = 0; i < kRuns; ++i) {
    runs.push_back(Start({"run", "--mem", "20g", "--", "sh", "-c", "echo granted; exec cat"}, gate.reader.get()));
  }
  std::vector<Process> granted;
  std::vector<Outcome> refused;
  ASSERT_TRUE(Eventually([&] {
    std::erase_if(runs, [&](const Process& run) {
      if (Output(run) == "granted\n") {
        granted.push_back(run);
        return true;
      }
      if (IsRunning(run.pid)) return false;
      refused.push_back(Wait(run));
      return true;
    });
    return runs.empty();
  }));
  EXPECT_EQ(granted.size(), fitting);
  for (const Outcome& outcome : refused) {
    EXPECT_EQ(outcome.exit_status(), 125);
    EXPECT_THAT(outcome.err, HasSubstr("no GPU has room"));
    EXPECT_THAT(outcome.err, HasSubstr("TAKEN BY"));
  }
  EXPECT_EQ(ShareNames().size(), fitting);
  const auto during = Json({"smi", "--output", "json"});
  for (const auto& gpu : during.at("gpus").as_array()) {
    EXPECT_LT(Number(gpu.at("free_bytes")), kEach);
  }
  gate.writer.Reset();
  for (const Process& run : granted) EXPECT_EQ(Wait(run).exit_status(), 0);
  EXPECT_THAT(Folders(), IsEmpty());
}

TEST_F(Shares, GivenSupervisorKilled_WhenLookedAt_ThenCommandAndShareGone) {
  const Process run = Start({"run", "--mem", "1g", "--name", "victim", "--", "sh", "-c", "echo $$; exec sleep 1000"});
  ASSERT_TRUE(Eventually([&] { return Output(run).ends_with("\n"); }));
  const auto command = static_cast<pid_t>(*base::ParseNumber(base::Trim(Output(run))));
  EXPECT_THAT(ShareNames(), ElementsAre("victim"));
  ASSERT_EQ(::kill(run.pid, SIGKILL), 0);
  EXPECT_EQ(Wait(run).exit_status(), 128 + SIGKILL);
  EXPECT_TRUE(Eventually([&] { return !IsRunning(command); }));
  EXPECT_THAT(ShareNames(), IsEmpty());
  EXPECT_THAT(Folders(), IsEmpty());
}

TEST_F(Shares, GivenCommandClosedDescriptors_WhenLookedAt_ThenShareIsThere) {
  Gate gate;
  const Process run = Start({"run", "--mem", "70g", "--name", "server", "--", "python3", "-c",
                             "import os, sys; os.closerange(3, 4096); print('up', flush=True); sys.stdin.read()"},
                            gate.reader.get());
  ASSERT_TRUE(Eventually([&] { return Output(run) == "up\n"; }));
  EXPECT_THAT(ShareNames(), ElementsAre("server"));
  EXPECT_THAT(ShareNames(), ElementsAre("server")) << "the first look collects what is dead";
  EXPECT_THAT(Folders(), ElementsAre("server"));
  gate.writer.Reset();
  Wait(run);
  EXPECT_THAT(Folders(), IsEmpty());
}

TEST_F(Shares, GivenCommandKilled_WhenHamiEnds_ThenNothingIsLeftAtOnce) {
  const Process run = Start({"run", "--mem", "1g", "--", "sh", "-c", "echo $$; exec sleep 1000"});
  ASSERT_TRUE(Eventually([&] { return Output(run).ends_with("\n"); }));
  ASSERT_EQ(::kill(static_cast<pid_t>(*base::ParseNumber(base::Trim(Output(run)))), SIGKILL), 0);
  EXPECT_EQ(Wait(run).exit_status(), 128 + SIGKILL);
  EXPECT_THAT(Folders(), IsEmpty()) << "without another hami command";
}

TEST_F(Shares, GivenBackgroundProcess_WhenCommandEnds_ThenShareLivesWithIt) {
  const Outcome outcome =
      Hami({"run", "--mem", "1g", "--name", "bg", "--", "sh", "-c", "sleep 1000 >/dev/null & echo $!"});
  EXPECT_EQ(outcome.exit_status(), 0);
  EXPECT_THAT(ShareNames(), ElementsAre("bg"));
  const auto background = static_cast<pid_t>(*base::ParseNumber(base::Trim(outcome.out)));
  ASSERT_EQ(::kill(background, SIGKILL), 0);
  ASSERT_TRUE(Eventually([&] { return !IsRunning(background); }));
  EXPECT_THAT(ShareNames(), IsEmpty());
}

TEST_F(Shares, GivenNameInUse_WhenAskedAgain_ThenRefusedUntilItIsFree) {
  Gate gate;
  const Process first =
      Start({"run", "--mem", "1g", "--name", "n", "--", "sh", "-c", "echo up; exec cat"}, gate.reader.get());
  ASSERT_TRUE(Eventually([&] { return Output(first) == "up\n"; }));
  const Outcome second = Hami({"run", "--mem", "1g", "--name", "n", "--", "true"});
  EXPECT_EQ(second.exit_status(), 125);
  EXPECT_THAT(second.err, HasSubstr("already"));
  gate.writer.Reset();
  EXPECT_EQ(Wait(first).exit_status(), 0);
  EXPECT_EQ(Hami({"run", "--mem", "1g", "--name", "n", "--", "true"}).exit_status(), 0);
}

TEST_F(Shares, GivenCoresTaken_WhenMoreThanHundred_ThenRefused) {
  Gate gate;
  std::vector<Process> runs;
  for (int i = 0; i < 2; ++i) {
    runs.push_back(
        Start({"run", "--mem", "1g", "--cores", "60", "--", "sh", "-c", "echo up; exec cat"}, gate.reader.get()));
    ASSERT_TRUE(Eventually([&] { return Output(runs.back()) == "up\n"; }));
  }
  const Outcome third = Hami({"run", "--mem", "1g", "--cores", "60", "--", "true"});
  EXPECT_EQ(third.exit_status(), 125) << "each of the two GPUs has 40 % left";
  EXPECT_THAT(third.err, HasSubstr("40 % free"));
  EXPECT_EQ(Hami({"run", "--mem", "1g", "--cores", "40", "--", "true"}).exit_status(), 0);
}

TEST_F(Shares, GivenAllCoresOfAGpuGranted_WhenMoreAreAsked_ThenRefused) {
  Gate gate;
  const Process all =
      Start({"run", "--gpus", "2", "--mem", "1g", "--cores", "100", "--", "sh", "-c", "echo up; exec cat"},
            gate.reader.get());
  ASSERT_TRUE(Eventually([&] { return Output(all) == "up\n"; }));
  const Outcome second = Hami({"run", "--mem", "1g", "--cores", "1", "--", "true"});
  EXPECT_EQ(second.exit_status(), 125);
  EXPECT_THAT(second.err, HasSubstr("0 % free"));
  EXPECT_EQ(Hami({"run", "--mem", "1g", "--", "true"}).exit_status(), 0) << "no part of the cores is asked for";
}

TEST_F(Shares, GivenRunningShare_WhenSet_ThenItsProgramsAndTheBooksSeeIt) {
  Gate gate;
  const Process run = Start(
      {"run", "--mem", "1g", "--cores", "30", "--burst", "80", "--name", "n", "--", "sh", "-c", "echo up; exec cat"},
      gate.reader.get());
  ASSERT_TRUE(Eventually([&] { return Output(run) == "up\n"; }));
  const auto device = [&] { return Json({"ps", "-o", "json"}).at("shares").at(0).at("devices").at(0); };
  EXPECT_EQ(Number(device().at("burst_percent")), 80u);
  const Outcome set = Hami({"set", "n", "--mem", "2g", "--cores", "40", "--burst", "90"});
  EXPECT_EQ(set.exit_status(), 0) << set.err;
  EXPECT_THAT(set.out, HasSubstr("2 GiB, 40-90 % of the cores"));
  EXPECT_EQ(Number(device().at("limit_bytes")), 2ULL << 30);
  EXPECT_EQ(Number(device().at("cores_percent")), 40u);
  EXPECT_EQ(Number(device().at("burst_percent")), 90u);
  EXPECT_EQ(Hami({"set", "n", "--burst", "0"}).exit_status(), 0);
  EXPECT_EQ(Number(device().at("burst_percent")), 0u);
  EXPECT_THAT(Hami({"set", "n", "--priority", "high"}).out, HasSubstr("high priority"));
  EXPECT_EQ(Json({"ps", "-o", "json"}).at("shares").at(0).at("priority").as_string(), "high");
  const Outcome refused = Hami({"set", "n", "--mem", "500g"});
  EXPECT_EQ(refused.exit_status(), 1);
  EXPECT_THAT(refused.err, HasSubstr("can be had"));
  EXPECT_EQ(Number(device().at("limit_bytes")), 2ULL << 30) << "as before";
  EXPECT_EQ(Hami({"set", "other", "--mem", "2g"}).exit_status(), 1);
  EXPECT_EQ(Hami({"set", "n", "--mem", "30%"}).exit_status(), 0);
  EXPECT_EQ(Number(device().at("limit_bytes")) % (1 << 20), 0u);
}

// A region without its private area, as after a crash of whoever made it longer: it takes no burst, the last word that
// is written.
TEST_F(Shares, GivenRegionTakingPartOfChange_WhenSet_ThenNothingChanges) {
  Gate gate;
  const Process run = Start(
      {"run", "--mem", "1g", "--cores", "30", "--name", "n", "--", "sh", "-c", "echo up; exec cat"}, gate.reader.get());
  ASSERT_TRUE(Eventually([&] { return Output(run) == "up\n"; }));
  const std::string share = folder_ + "/state/shares/n";
  ASSERT_EQ(::truncate((share + "/region.cache").c_str(), region::kRegionBytes), 0);
  const auto words = [&] {
    const auto seen = std::make_unique<region::Region>();
    std::ifstream(share + "/region.cache", std::ios::binary).read(reinterpret_cast<char*>(seen.get()), sizeof *seen);
    return std::tuple(seen->priority, seen->limit[0], seen->sm_limit[0]);
  };
  const auto record = [&] {
    std::ifstream file(share + "/share.json");
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const auto before = std::pair(words(), record());
  ASSERT_EQ(std::get<2>(before.first), 30u);
  const Outcome set = Hami({"set", "n", "--mem", "2g", "--cores", "40", "--priority", "high"});
  EXPECT_EQ(set.exit_status(), 1);
  EXPECT_THAT(set.err, HasSubstr("can not write the region"));
  EXPECT_EQ(std::pair(words(), record()), before);
}

TEST_F(Shares, GivenUnreadableShare_WhenAnotherIsSet_ThenNoBlindGrant) {
  Gate gate;
  for (const char* name : {"n", "spoilt"}) {
    const Process run =
        Start({"run", "--mem", "1g", "--name", name, "--", "sh", "-c", "echo up; exec cat"}, gate.reader.get());
    ASSERT_TRUE(Eventually([&] { return Output(run) == "up\n"; }));
  }
  const std::string record = folder_ + "/state/shares/spoilt/share.json";
  ASSERT_EQ(::unlink(record.c_str()), 0);
  const Outcome refused = Hami({"set", "n", "--mem", "2g"});
  EXPECT_EQ(refused.exit_status(), 1);
  EXPECT_THAT(refused.err, HasSubstr("spoilt"));
  const Outcome spoilt = Hami({"set", "spoilt", "--mem", "2g"});
  EXPECT_EQ(spoilt.exit_status(), 1);
  EXPECT_THAT(spoilt.err, HasSubstr("share 'spoilt'")) << "says whose record";
  EXPECT_THAT(spoilt.err, HasSubstr("record"));
}

TEST_F(Shares, GivenPolicies_WhenRun_ThenSpreadOrBinpack) {
  Gate gate;
  const auto gpu_of = [&](const char* name) {
    const auto document = Json({"ps", "--output", "json"});
    for (const auto& share : document.at("shares").as_array()) {
      if (share.at("name").as_string() == name) return Number(share.at("devices").at(0).at("gpu"));
    }
    return ~std::uint64_t{0};
  };
  for (const auto& [name, policy] : {std::pair{"a", "spread"}, {"b", "spread"}, {"c", "binpack"}, {"d", "binpack"}}) {
    const Process run =
        Start({"run", "--mem", "1g", "--name", name, "--policy", policy, "--", "sh", "-c", "echo up; exec cat"},
              gate.reader.get());
    ASSERT_TRUE(Eventually([&] { return Output(run) == "up\n"; }));
  }
  EXPECT_NE(gpu_of("a"), gpu_of("b"));
  EXPECT_EQ(gpu_of("c"), gpu_of("d"));
}

TEST_F(Shares, GivenOversubscription_WhenPastTheCard_ThenGrantedOnlyIfAsked) {
  EXPECT_EQ(Hami({"run", "--mem", "500g", "--", "true"}).exit_status(), 125);
  const Outcome outcome = Hami({"run", "--mem", "500g", "--oversubscribe", "--", "env"});
  EXPECT_EQ(outcome.exit_status(), 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("CUDA_OVERSUBSCRIBE=true\n"));
}

TEST_F(Shares, GivenStateFolderFullOfRubbish_WhenUsed_ThenNoHarm) {
  EXPECT_EQ(Hami({"ps"}).exit_status(), 0);
  const std::string shares = folder_ + "/state/shares/";
  ASSERT_EQ(::mkdir((shares + "junk").c_str(), 0700), 0);
  ASSERT_TRUE(base::WriteNewFile(shares + "junk/region.cache", std::string(3'000'000, '\xff'), 0600));
  ASSERT_TRUE(base::WriteNewFile(shares + "junk/share.json", "[[[[", 0600));
  ASSERT_EQ(::mkfifo((shares + "pipe").c_str(), 0600), 0);
  EXPECT_EQ(Hami({"run", "--mem", "1g", "--", "true"}).exit_status(), 0);
  EXPECT_THAT(ShareNames(), IsEmpty());
}

}  // namespace
}  // namespace hami::e2e
