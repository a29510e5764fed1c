// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "region/ledger.h"
#include "test/preload/harness.h"

namespace preload {
namespace {

constexpr const char* k400MiB = "419430400";

class ProcessScenario : public Preload, public testing::WithParamInterface<const char*> {};

TEST_P(ProcessScenario, GivenLimitOf1GiB_ThenHolds) { Pass({GetParam()}); }

INSTANTIATE_TEST_SUITE_P(Lives, ProcessScenario,
                         testing::Values("threads", "fork_then_free", "fork_leaks_nothing", "fork_chain_leaks_nothing",
                                         "fork_amid_calls", "exec_again", "vfork_and_system", "good_guest",
                                         "no_descriptors"),
                         [](const testing::TestParamInfo<const char*>& scenario) {
                           return std::string(scenario.param);
                         });

TEST_F(Preload, GivenForkBeforeInit_ThenParentAndChildShareTheLimit) {
  Pass({"fork_before_init"}, {{"CUDA_DEVICE_MEMORY_LIMIT", "2g"}});
}

TEST_F(Preload, GivenAnAccountOfItsOwn_WhenForked_ThenTheChildsIsEmpty) {
  const Outcome outcome =
      Run({"fork_counts_anew"}, {{"CUDA_DEVICE_MEMORY_SHARED_CACHE", folder() + "/no/such/folder/region"}});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST_F(Preload, GivenStaticDestructorsThatCallCuda_ThenTheProcessEnds) {
  const Outcome outcome = Run({"static_destructors"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "late\n");
}

// The file appears as soon as the guest is where it should be; a guest that fails never makes it.
void Await(const std::string& file) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!std::filesystem::exists(file) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ASSERT_TRUE(std::filesystem::exists(file));
}

TEST_F(Preload, GivenHolder_ThenRefused_WhenKilled_ThenItsMemoryIsFreeAtOnce) {
  const pid_t holder = Start({"hold", k400MiB, folder() + "/held"});
  Await(folder() + "/held");
  Pass({"refused", k400MiB}, {{"CUDA_DEVICE_MEMORY_LIMIT", "-"}});  // the file's limit wins over the environment
  Pass({"refused_without_descriptors", k400MiB});
  kill(holder, SIGKILL);
  Wait(holder);
  Pass({"take", k400MiB});
}

TEST_F(Preload, GivenHolderKilled_ThenQueriesShowItWithinASecond) {
  const pid_t holder = Start({"hold", k400MiB, folder() + "/held"});
  Await(folder() + "/held");
  kill(holder, SIGKILL);
  Wait(holder);
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  Pass({"total_is_limit"});
  Pass({"nvml_alone"});
}

TEST_F(Preload, GivenContainersContendingForOneLimit_ThenItIsNeverPassed) {
  // 2 GiB, three processes with a context of 300 MiB each.
  environment_["CUDA_DEVICE_MEMORY_LIMIT"] = "2g";
  std::vector<pid_t> processes;
  for (const char* done : {"/done0", "/done1", "/done2"}) {
    processes.push_back(Start({"contend", folder() + done, folder() + "/stop"}));
  }
  for (const char* done : {"/done0", "/done1", "/done2"}) Await(folder() + done);
  std::ofstream(folder() + "/stop").put('\n');
  for (const pid_t pid : processes) EXPECT_EQ(Wait(pid), 0);
  Pass({"context_counts"});
}

TEST_F(Preload, GivenProcessesKilledAtRandom_ThenTheSumsAreRightAfterwards) {
  for (int i = 0; i < 20; ++i) {
    const pid_t pid = Start({"die_allocating", std::to_string(3000 + 997 * i)});
    EXPECT_TRUE(WIFSIGNALED(Wait(pid)));
  }
  Pass({"context_counts"});
  Pass({"plain_limit"});
}

TEST_F(Preload, GivenOomKillerOn_WhenRequestDoesNotFit_ThenRequesterIsKilled) {
  const pid_t other = Start({"hold", k400MiB, folder() + "/held"}, {{"ACTIVE_OOM_KILLER", "true"}});
  Await(folder() + "/held");
  const Outcome outcome = Run({"refused", k400MiB}, {{"ACTIVE_OOM_KILLER", "true"}});
  EXPECT_TRUE(WIFSIGNALED(outcome.status));
  EXPECT_EQ(WTERMSIG(outcome.status), SIGKILL);
  EXPECT_NE(outcome.err.find("ACTIVE_OOM_KILLER"), std::string::npos);
  EXPECT_EQ(kill(other, 0), 0);  // nobody else
  kill(other, SIGKILL);
  Wait(other);
}

// Nobody knows yet what a context costs, and what is held in reserve for the first must not refuse the others.
TEST_F(Preload, GivenFirstContextsAtOnce_WhenAllFit_ThenNoneIsRefused) {
  for (int round = 0; round < 3; ++round) {
    std::filesystem::remove(region());
    std::vector<pid_t> processes;
    for (int i = 0; i < 3; ++i) {
      processes.push_back(Start({"hold", "1048576", folder() + "/held" + std::to_string(10 * round + i)}));
    }
    for (int i = 0; i < 3; ++i) Await(folder() + "/held" + std::to_string(10 * round + i));
    for (const pid_t pid : processes) {
      kill(pid, SIGKILL);
      Wait(pid);
    }
  }
}

// The room that nobody needs in the end is held in reserve for as long as the first one takes.
TEST_F(Preload, GivenSlowFirstContext_ThenFittingOthersWaitAndNoneIsRefused) {
  const pid_t slow = Start({"hold_slowly", folder() + "/begun", folder() + "/held"});
  Await(folder() + "/begun");
  std::vector<pid_t> others;
  for (const char* held : {"/held1", "/held2"}) others.push_back(Start({"hold", "1048576", folder() + held}));
  for (const char* held : {"/held", "/held1", "/held2"}) Await(folder() + held);
  others.push_back(slow);
  for (const pid_t pid : others) {
    kill(pid, SIGKILL);
    Wait(pid);
  }
}

// The library may die with a thread of the program nowhere.
TEST_F(Preload, GivenCancelledThreads_ThenTheirCallsReturnAndOthersGoOn) {
  Pass({"cancel_start"});
  Pass({"cancel_sweep", "plain"});
  Pass({"cancel_sweep", "pooled"});
  Pass({"cancel_awaiting_frees"});
  Pass({"cancel_launch"}, {{"CUDA_DEVICE_SM_LIMIT", "50"}, {"HAMI_COMMON_AREA", folder()}});
}

TEST_F(Preload, GivenManyStartsAtOnce_ThenAllAttach) {
  environment_["CUDA_DEVICE_MEMORY_LIMIT"] = "70g";
  std::vector<pid_t> processes;
  for (int i = 0; i < 40; ++i) processes.push_back(Start({"start"}));
  for (const pid_t pid : processes) EXPECT_EQ(Wait(pid), 0);
  Pass({"take", "68719476736"});  // 64 GiB: all of them gave back what they held
}

}  // namespace
}  // namespace preload
