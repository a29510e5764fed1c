// SPDX-License-Identifier: Apache-2.0
#include "simgpu/driver/visible.h"

#include <gtest/gtest.h>

namespace simgpu {
namespace {

// Three GPUs, the second one the fastest, the third one in MIG mode with two instances.
std::vector<Candidate> Machine() {
  std::vector<Candidate> gpus(3);
  gpus[0] = {"GPU-aaaa0000-1", 1, {}, false};
  gpus[1] = {"GPU-aaaa1111-2", 3, {}, false};
  gpus[2] = {"GPU-bbbb2222-3", 2, {{"MIG-c1", 1, 0}, {"MIG-c2", 2, 0}}, true};
  return gpus;
}

std::string Text(const std::vector<Selected>& selected) {
  std::string text;
  for (const Selected& s : selected) {
    text += std::to_string(s.machine) + (s.instance < 0 ? "" : "." + std::to_string(s.instance)) + " ";
  }
  return text;
}

std::string Pci(const char* visible) { return Text(SelectDevices(Machine(), visible, true)); }

TEST(Visible, GivenNoListThenEveryGpuIsThereAndAMigGpuByItsFirstInstance) {
  EXPECT_EQ(Pci(nullptr), "0 1 2.0 ");
  EXPECT_EQ(Text(SelectDevices(Machine(), nullptr, false)), "1 2.0 0 ") << "the fastest first";
}

TEST(Visible, GivenIndicesThenTheirOrderCounts) {
  EXPECT_EQ(Pci("1,0"), "1 0 ");
  EXPECT_EQ(Pci(" 1 , 0 "), "1 0 ");
  EXPECT_EQ(Text(SelectDevices(Machine(), "0", false)), "1 ") << "an index counts in the chosen order";
}

TEST(Visible, GivenAnEntryThatNamesNothingThenTheListEndsThere) {
  EXPECT_EQ(Pci("1,-1,0"), "1 ");
  EXPECT_EQ(Pci("1,7,0"), "1 ");
  EXPECT_EQ(Pci("1,x,0"), "1 ");
  EXPECT_EQ(Pci("1,,0"), "1 ");
  EXPECT_EQ(Pci("1x"), "");
  EXPECT_EQ(Pci("NoDevFiles"), "");
  EXPECT_EQ(Pci("-1"), "");
  EXPECT_EQ(Pci(""), "");
}

TEST(Visible, GivenADeviceTwiceThenThereIsNone) {
  EXPECT_EQ(Pci("0,0"), "");
  EXPECT_EQ(Pci("0,GPU-aaaa0"), "");
}

TEST(Visible, GivenAPrefixOfAUuidThenItNamesOneGpuOrNone) {
  EXPECT_EQ(Pci("GPU-aaaa1"), "1 ");
  EXPECT_EQ(Pci("GPU-aaaa"), "") << "two fit";
  EXPECT_EQ(Pci("GPU-bbbb2222-3,GPU-aaaa0"), "2.0 0 ");
}

TEST(Visible, GivenAMigNameThenThatInstanceIsTheDevice) {
  EXPECT_EQ(Pci("MIG-c2"), "2.1 ");
  EXPECT_EQ(Pci("MIG-c"), "") << "not a prefix";
  EXPECT_EQ(Pci("MIG-GPU-bbbb2222-3/2/0"), "2.1 ");
  EXPECT_EQ(Pci("MIG-GPU-bbbb2222-3/3/0"), "");
  EXPECT_EQ(Pci("MIG-c1,MIG-c2"), "") << "a process uses one instance of a GPU";
}

TEST(Visible, GivenAMigGpuWithoutInstancesThenItIsAbsent) {
  auto gpus = Machine();
  gpus[2].instances.clear();
  EXPECT_EQ(Text(SelectDevices(gpus, nullptr, true)), "0 1 ");
  EXPECT_EQ(Text(SelectDevices(gpus, "1,2,0", true)), "1 ");
}

}  // namespace
}  // namespace simgpu
