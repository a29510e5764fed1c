// SPDX-License-Identifier: Apache-2.0
// Time and utilisation, faults and events, and MIG of the machine.
#include "simgpu/machine/testing/machine.h"

namespace simgpu {
namespace {

class MachineTimeTest : public MachineTest {};

TEST_F(MachineTimeTest, GivenAVirtualClock_WhenOneSleeps_ThenTimeIsThereAtOnceForAll) {
  Config("option clock=virtual");
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              CHECK_OR(1, m.Now() == 0);
              m.SleepUntil(5'000'000'000);
              CHECK_OR(2, m.Now() == 5'000'000'000);
              m.SleepUntil(1);  // never back
              m.Advance(7);
              CHECK_OR(3, InChild([] { return Machine::Get().Now() == 5'000'000'007 ? 0 : 1; }) == 0);
              return 0;
            }));
}

TEST_F(MachineTimeTest, GivenGrants_WhenUtilisationAsked_ThenCoarseLateAndPerProcess) {
  Config("option clock=virtual nvml_lag_ms=100 nvml_period_ms=100 pid_offset=1000");
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              m.LockArbiter(0);
              const int ctx = m.arbiter(0).Attach(m.slot(), 0);
              m.arbiter(0).Advance(0, 0);
              m.arbiter(0).Raise(ctx, 25'000'000);  // 25 ms of work
              m.UnlockArbiter(0);
              m.SleepUntil(100'000'000);
              CHECK_OR(1, m.BusyNanos(0) == 25'000'000);
              CHECK_OR(2, m.BusyNanos(0, Busy::kSm, getpid()) == 25'000'000);
              CHECK_OR(3, m.BusyNanos(0, Busy::kSm, getpid() + 1000) == 25'000'000);
              CHECK_OR(4, m.BusyNanos(1) == 0);
              CHECK_OR(5, m.DeviceUtil(0).sm == 0);  // not old enough
              m.SleepUntil(200'000'000);
              CHECK_OR(6, m.DeviceUtil(0).sm == 25);
              UtilSample samples[8];
              CHECK_OR(7, m.ProcessUtil(0, m.slot(), 0, samples, 8) == 1);
              CHECK_OR(8, samples[0].sm == 25 && samples[0].when == 100'000'000);
              m.SleepUntil(300'000'000);
              CHECK_OR(9, m.DeviceUtil(0).sm == 0);
              CHECK_OR(10, m.ProcessUtil(0, m.slot(), 100'000'000, samples, 8) == 1);
              CHECK_OR(11, samples[0].sm == 0 && samples[0].when == 200'000'000);
              m.AddBusy(0, 300'000'000, 310'000'000, Busy::kMemory);
              m.SleepUntil(500'000'000);
              CHECK_OR(12, m.DeviceUtilHistory(0, 300'000'000, samples, 8) == 1 && samples[0].memory == 10);
              return 0;
            }));
}

TEST_F(MachineTimeTest, GivenDeadProcess_WhenBusyTimeAsked_ThenDeviceStillHasIt) {
  Config("option clock=virtual");
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              const int code = InChild([] {
                Machine& c = Machine::Get();
                c.LockArbiter(0);
                const int ctx = c.arbiter(0).Attach(c.slot(), 0);
                c.arbiter(0).Raise(ctx, 1'000'000);
                c.UnlockArbiter(0);
                c.SleepUntil(1'000'000);
                return 0;
              });
              CHECK_OR(1, code == 0);
              // Nobody gave out the dead one's time before it died: what it never got is not counted.
              m.Reap();
              CHECK_OR(2, m.BusyNanos(0) <= 1'000'000);
              CHECK_OR(3, m.arbiter(0).partitions[0].runnable == 0);
              return 0;
            }));
}

TEST_F(MachineTimeTest, GivenAFault_WhenTheNthMatchingCallComes_ThenOnlyItFails) {
  Config("fault call=cuMemAlloc* error=2 nth=2\nfault call=nvmlDeviceGetName error=lost device=1 count=1");
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              CHECK_OR(1, m.FaultFor("cuMemAlloc_v2") == 0);
              CHECK_OR(2, m.FaultFor("cuMemFree_v2") == 0);
              CHECK_OR(3, m.FaultFor("cuMemAllocAsync") == 2);
              CHECK_OR(4, m.FaultFor("cuMemAlloc_v2") == 0);
              CHECK_OR(5, m.FaultFor("nvmlDeviceGetName", 0) == 0);
              CHECK_OR(6, m.FaultFor("nvmlDeviceGetName", 1) == 15);
              CHECK_OR(7, m.FaultFor("nvmlDeviceGetName", 1) == 0);
              return 0;
            }));
}

TEST_F(MachineTimeTest, GivenAFaultByAPlainName_WhenAnyVersionIsCalled_ThenItFails) {
  Config("fault call=cuMemFree error=2\nfault call=cuMemcpyHtoD error=3\nfault call=cuMemAlloc_v2 error=4");
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              CHECK_OR(1, m.FaultFor("cuMemFree") == 2 && m.FaultFor("cuMemFree_v2") == 2);
              CHECK_OR(2, m.FaultFor("cuMemFreeAsync") == 0 && m.FaultFor("cuMemFreeHost") == 0);
              CHECK_OR(3, m.FaultFor("cuMemcpyHtoD_v2_ptds") == 3 && m.FaultFor("cuMemcpyHtoDAsync_v2_ptsz") == 0);
              CHECK_OR(4, m.FaultFor("cuMemAlloc_v2") == 4 && m.FaultFor("cuMemAlloc") == 0);
              return 0;
            }));
}

TEST_F(MachineTimeTest, GivenInjectedText_WhenItIsWrong_ThenNothingIsApplied) {
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              std::string error;
              CHECK_OR(1, m.NothingInjected() && !m.Inject("lost device=0\nlost device=9", &error));
              CHECK_OR(2, error.find(":2:") != std::string::npos && !m.Lost(0));
              CHECK_OR(3, m.NothingInjected() && m.Inject("lost device=0", &error) && m.Lost(0) && !m.Lost(1));
              CHECK_OR(7, !m.NothingInjected());
              CHECK_OR(4, m.FaultFor("nvmlDeviceGetName", 0) == 15 && m.FaultFor("cuMemAlloc_v2", 0) == 46);
              CHECK_OR(5, m.FaultFor("cuMemAlloc_v2", 1) == 0);
              CHECK_OR(6, m.Inject("recover device=0", &error) && !m.Lost(0) && m.FaultFor("x", 0) == 0);
              CHECK_OR(8,
                       m.NothingInjected() && m.Inject("fault call=cuMemFree error=2", &error) && !m.NothingInjected());
              return 0;
            }));
}

TEST_F(MachineTimeTest, GivenSlowCallOnVirtualClock_WhenCalled_ThenItTakesItsTime) {
  Config("option clock=virtual\nfault call=cuLaunch* delay_us=250");
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              CHECK_OR(1, m.FaultFor("cuLaunchKernel") == 0 && m.Now() == 250'000);
              return 0;
            }));
}

TEST_F(MachineTimeTest, GivenAnXidFromAnotherProcess_WhenWaited_ThenItArrivesOnce) {
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              std::uint64_t mask[kMaxDevices] = {8, 8}, after = m.EventSequence();
              Event event = {};
              CHECK_OR(1, !m.WaitEvent(&after, mask, 0, &event));
              CHECK_OR(2, InChild([] {
                            std::string error;
                            return Machine::Get().Inject("xid device=1 code=48 gi=2 ci=0", &error) ? 0 : 1;
                          }) == 0);
              CHECK_OR(3, m.WaitEvent(&after, mask, 5000, &event));
              CHECK_OR(4, event.dev == 1 && event.data == 48 && event.gpu_instance == 2 && event.compute_instance == 0);
              CHECK_OR(5, !m.WaitEvent(&after, mask, 1, &event));
              return 0;
            }));
}

TEST_F(MachineTimeTest, GivenClient_WhenMigModeIsSet_ThenItWaitsUntilClientIsGone) {
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              Victim client([] { Machine::Get().AddContext(0); });
              CHECK_OR(1, m.SetMigMode(0, true) == MigError::kInUse);
              CHECK_OR(2, !m.MigEnabled(0) && m.MigPending(0));
              client.Kill();
              CHECK_OR(3, m.MigEnabled(0));
              return 0;
            }));
}

TEST_F(MachineTimeTest, GivenMig_WhenInstancesLiveAndDie_ThenPlacementsFollowGuide) {
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              MigInstance gi = {}, other = {}, ci = {};
              CHECK_OR(1, m.CreateGpuInstance(0, 4, -1, &gi) == MigError::kModeOff);
              CHECK_OR(2, m.SetMigMode(0, true) == MigError::kOk && m.MigEnabled(0) && !m.MigEnabled(1));
              CHECK_OR(3, m.CreateGpuInstance(0, 4, 4, &gi) == MigError::kOk);  // 3g at slice 4
              CHECK_OR(4, m.CreateGpuInstance(0, 4, 4, &other) == MigError::kNoRoom);
              CHECK_OR(5, m.CreateGpuInstance(0, 4, 3, &other) == MigError::kInvalid);
              std::uint32_t starts[kMaxMigPlacements];
              CHECK_OR(6, m.FreePlacements(0, 0, starts) == 4 && starts[3] == 3);  // 1g: slices 0 to 3
              CHECK_OR(7, m.CreateComputeInstance(0, gi.gpu_instance, 2, -1, &ci) == MigError::kOk);
              CHECK_OR(8, m.CreateComputeInstance(0, gi.gpu_instance, 2, -1, &other) == MigError::kNoRoom);
              CHECK_OR(9, m.DestroyGpuInstance(0, gi.gpu_instance) == MigError::kInUse);
              CHECK_OR(10, m.UseInstance(0, gi.gpu_instance, ci.compute_instance));
              CHECK_OR(11, m.TotalBytes(0) == gi.memory_bytes && m.FreeBytes(0) == gi.memory_bytes);
              CHECK_OR(12, !m.Charge(0, gi.memory_bytes + 1, Use::kData) && m.Charge(0, 9, Use::kData));
              CHECK_OR(13, m.InstanceUsedBytes(0, gi.gpu_instance) == 9);
              CHECK_OR(14, m.DestroyComputeInstance(0, gi.gpu_instance, ci.compute_instance) == MigError::kInUse);
              CHECK_OR(15, m.SetMigMode(0, false) == MigError::kInUse);
              return 0;
            }));
}

TEST_F(MachineTimeTest, GivenContextInPlaceOfAnother_WhenItWorks_ThenAllTimeCounted) {
  Config("option clock=virtual");
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              for (int round = 1; round <= 3; ++round) {
                m.LockArbiter(0);
                const int ctx = m.arbiter(0).Attach(m.slot(), 0);
                m.arbiter(0).Advance(0, m.Now());
                m.arbiter(0).Raise(ctx, round * 1'000'000);
                m.UnlockArbiter(0);
                m.Advance(10'000'000);
                m.LockArbiter(0);
                m.arbiter(0).Advance(0, m.Now());
                m.arbiter(0).Detach(ctx);
                m.UnlockArbiter(0);
              }
              CHECK_OR(1, m.BusyNanos(0) == 6'000'000);
              return 0;
            }));
}

TEST_F(MachineTimeTest, GivenManyContexts_WhenOneIsGranted_ThenOnlyItIsLookedAtAgain) {
  Config("option clock=virtual");
  EXPECT_EQ(0, InChild([] {
              Machine& m = Machine::Get();
              ArbiterState& arbiter = m.arbiter(0);
              const auto changed = [&] {
                int count = 0;
                for (const std::uint64_t word : arbiter.changed) count += __builtin_popcountll(word);
                return count;
              };
              m.LockArbiter(0);
              for (int i = 0; i < 100; ++i) arbiter.Attach(m.slot(), 0);
              CHECK_OR(1, changed() == 100);
              m.UnlockArbiter(0);
              CHECK_OR(2, changed() == 0);
              m.LockArbiter(0);
              arbiter.Raise(70, 1'000'000);
              CHECK_OR(3, changed() == 0);
              m.Advance(5'000'000);
              arbiter.Advance(0, m.Now());
              CHECK_OR(4, changed() == 1 && arbiter.changed[1] == std::uint64_t{1} << 6);
              m.UnlockArbiter(0);
              CHECK_OR(5, changed() == 0 && m.BusyNanos(0) == 1'000'000);
              return 0;
            }));
}

}  // namespace
}  // namespace simgpu
