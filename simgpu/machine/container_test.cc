// SPDX-License-Identifier: Apache-2.0
#include "simgpu/machine/container.h"

#include <string>

#include "simgpu/machine/testing/machine.h"

namespace simgpu {
namespace {

std::string Text(const Present& present) {
  std::string text;
  for (int i = 0; i < present.count; ++i) text += std::to_string(present.dev[i]) + " ";
  return text;
}

bool OnlyOne(unsigned minor) { return minor == 1; }

std::string For(const char* visible) { return Text(DevicesFor(Machine::Get(), visible, &OnlyOne)); }

TEST_F(MachineTest, ContainersList_ThenWhatTheRuntimeWouldLetIn) {
  setenv("SIMGPU", "4xH100", 1);
  EXPECT_EQ(0, InChild([] {
              char uuid[64];
              FormatUuid("GPU-", Machine::Get().spec(2).uuid, uuid);
              const std::string both = std::string(uuid) + ",0";
              CHECK_OR(1, For("all") == "0 1 2 3 ");
              CHECK_OR(2, For("none").empty());
              CHECK_OR(3, For("3,1") == "1 3 ");
              CHECK_OR(4, For(uuid) == "2 ");
              CHECK_OR(5, For(both.c_str()) == "0 2 ");
              CHECK_OR(6, For("GPU-unknown").empty());
              CHECK_OR(7, For("void") == "1 " && For("") == "1 " && For(nullptr) == "1 ");
              return 0;
            }));
}

TEST_F(MachineTest, ContainerOfAnInstance_OthersOfItsGpuAreNotThere) {
  setenv("SIMGPU", "1xH100", 1);
  EXPECT_EQ(0, InChild([] {
              Machine& machine = Machine::Get();
              MigInstance gpu[2] = {}, compute[2] = {};
              CHECK_OR(1, machine.SetMigMode(0, true) == MigError::kOk);
              for (int i = 0; i < 2; ++i) {
                CHECK_OR(2, machine.CreateGpuInstance(0, 0, i, &gpu[i]) == MigError::kOk);
                CHECK_OR(3, machine.CreateComputeInstance(0, gpu[i].gpu_instance, 1, -1, &compute[i]) == MigError::kOk);
              }
              char uuid[64];
              FormatUuid("MIG-", compute[1].uuid, uuid);
              CHECK_OR(4, For(uuid) == "0 " && IsLetIn(machine, 0, compute[1], uuid));
              CHECK_OR(5, !IsLetIn(machine, 0, compute[0], uuid));
              CHECK_OR(6, IsLetIn(machine, 0, compute[0], "0") && IsLetIn(machine, 0, compute[0], "all"));
              return 0;
            }));
}

TEST_F(MachineTest, NoContainer_ThenEveryGpuWhateverTheVariableSays) {
  EXPECT_EQ(0, InChild([] {
              setenv("NVIDIA_VISIBLE_DEVICES", "1", 1);
              const Present all = PresentDevices(Machine::Get());
              CHECK_OR(1, all.count == 2 && all.IndexOf(1) == 1);
              setenv("SIMGPU_CONTAINER", "1", 1);
              const Present one = PresentDevices(Machine::Get());
              CHECK_OR(2, one.count == 1 && one.IndexOf(1) == 0 && one.IndexOf(0) == -1);
              return 0;
            }));
}

}  // namespace
}  // namespace simgpu
