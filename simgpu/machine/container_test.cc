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
