// SPDX-License-Identifier: Apache-2.0
// Shares that hold some of a machine's devices: what programs see of them, by which numbers and names.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "region/region.h"
#include "test/preload/harness.h"

namespace preload {
namespace {

// A machine with four GPUs. The share holds the third, which is its number 0, and the first, its number 1.
class Share : public Preload {
 protected:
  void SetUp() override {
    environment_["SIMGPU"] = "4xH100";
    environment_["CUDA_DEVICE_MEMORY_LIMIT"] = "-";
    const Outcome listed = Run({"print_uuids"}, {{"LD_PRELOAD", "-"}});
    ASSERT_TRUE(listed.ok()) << listed.err;
    std::istringstream lines(listed.out);
    std::array<std::string, 4> all;
    for (std::string& uuid : all) ASSERT_TRUE(std::getline(lines, uuid));
    granted_ = {all[2], all[0]};
    others_ = {all[1], all[3]};
  }
  void MakeRegion() {
    hami::region::Config config;
    config.device_count = 2;
    config.flags = hami::region::kFlagFixedDevices;
    for (size_t i = 0; i < 2; ++i) {
      std::strncpy(config.devices[i].uuid, granted_[i].c_str(), hami::region::kUuidBytes - 1);
      config.devices[i].memory_limit = uint64_t{2 - i} << 30;
    }
    ASSERT_EQ(hami::region::Create(region().c_str(), config), hami::region::Status::kOk);
  }
  // "A" and "B" stand for the granted UUIDs, "a" and "b" for beginnings of them, "X" for one that was not granted.
  std::string Spelled(std::string list) const {
    std::string out;
    for (const char c : list) {
      const size_t i = c == 'A' || c == 'a' ? 0 : 1;
      if (c == 'A' || c == 'B') {
        out += granted_[i];
      } else if (c == 'a' || c == 'b') {
        out += granted_[i].substr(0, Differ() + 1);
      } else if (c == 'X') {
        out += others_[0];
      } else {
        out += c;
      }
    }
    return out;
  }
  size_t Differ() const {
    const auto [a, b] = std::mismatch(granted_[0].begin(), granted_[0].end(), granted_[1].begin());
    return static_cast<size_t>(a - granted_[0].begin());
  }
  // The scenario's words: its name, and the UUIDs that these letters stand for.
  std::vector<std::string> Words(std::vector<std::string> words, const std::string& letters) const {
    for (const char c : letters) words.push_back(granted_[c == 'A' ? 0 : 1]);
    return words;
  }
  std::array<std::string, 2> granted_, others_;
};

struct ListCase {
  const char* name;
  const char* list;  // "-": unset
  const char* shown;
};

class VisibleList : public Share, public testing::WithParamInterface<ListCase> {};

TEST_P(VisibleList, NamesGrantedDevicesOnly) {
  MakeRegion();
  const ListCase& c = GetParam();
  environment_["CUDA_VISIBLE_DEVICES"] = Spelled(c.list);
  for (const char* order : {"-", "PCI_BUS_ID", "FASTEST_FIRST"}) {
    Pass(Words({"visible"}, c.shown), {{"CUDA_DEVICE_ORDER", order}});
  }
  Pass(Words({"visible_set", Spelled(c.list)}, c.shown));
  Pass(Words({"nvml_visible"}, "AB"));
}

INSTANTIATE_TEST_SUITE_P(Lists, VisibleList,
                         testing::Values(ListCase{"unset", "-", "AB"}, ListCase{"first", "0", "A"},
                                         ListCase{"second", "1", "B"}, ListCase{"reversed", "1,0", "BA"},
                                         ListCase{"blanks", " 1 ,\t0 ", "BA"}, ListCase{"beyond", "0,1,2", "AB"},
                                         ListCase{"number_of_machine", "2", ""}, ListCase{"ended", "0,-1,1", "A"},
                                         ListCase{"empty", "", ""}, ListCase{"minus_one", "-1", ""},
                                         ListCase{"none_at_all", "none", ""}, ListCase{"twice", "0,0", ""},
                                         ListCase{"twice_by_name", "0,A", ""}, ListCase{"half_number", "0x,1", ""},
                                         ListCase{"uuid", "B", "B"}, ListCase{"uuids", "B,A", "BA"},
                                         ListCase{"mixed", "1,A", "BA"}, ListCase{"beginning", "b", "B"},
                                         ListCase{"ambiguous", "GPU-", ""}, ListCase{"not_granted", "X", ""},
                                         ListCase{"not_granted_ends", "0,X,1", "A"},
                                         ListCase{"huge_number", "99999999999999999999", ""}),
                         [](const testing::TestParamInfo<ListCase>& list) { return std::string(list.param.name); });

TEST_F(Share, LimitsAreThoseOfTheNumbers) {
  MakeRegion();
  Pass({"limits", "2048", "1024"});
  Pass({"limits", "1024", "2048"}, {{"CUDA_VISIBLE_DEVICES", "1,0"}});
  Pass({"limits", "1024"}, {{"CUDA_VISIBLE_DEVICES", "1"}});
}

TEST_F(Share, ChildrenReadTheirOwnList) {
  MakeRegion();
  environment_["CUDA_VISIBLE_DEVICES"] = "0";
  Pass(Words({"visible_in_child", "1"}, "B"));
  Pass(Words({"visible_in_child", granted_[1]}, "B"));
}

// Where the region cannot be had, the names of what was granted are known from the variable beside the limits.
TEST_F(Share, WithoutARegionTheVariableNamesTheDevices) {
  const std::string limits = granted_[0] + "=2048m:0," + granted_[1] + "=1024m:50";
  for (const std::string& place : {region(), folder() + "/no/such/folder/region"}) {
    environment_["HAMI_DEVICE_LIMITS"] = limits;
    environment_["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = place;
    EXPECT_EQ(Run(Words({"visible"}, "AB")).status, 0) << place;
    EXPECT_EQ(Run(Words({"visible"}, "A"), {{"CUDA_VISIBLE_DEVICES", "0"}}).status, 0) << place;
    EXPECT_EQ(Run(Words({"nvml_visible"}, "AB")).status, 0) << place;
    const Outcome limited = Run({"limits", "2048", "1024"});
    EXPECT_EQ(limited.status, 0) << place << limited.err;
  }
}

// What NVIDIA's runtime lets into a container is all that CUDA and NVML know there, and the limits go by number.
TEST_F(Share, ContainerOfTwoOfFour_ThenTheLimitsByNumberAreTheirs) {
  environment_["SIMGPU_CONTAINER"] = "1";
  environment_["NVIDIA_VISIBLE_DEVICES"] = granted_[0] + "," + granted_[1];
  environment_["CUDA_DEVICE_MEMORY_LIMIT_0"] = "1g";
  environment_["CUDA_DEVICE_MEMORY_LIMIT_1"] = "2g";
  // In the machine's order.
  Pass(Words({"nvml_visible"}, "BA"));
  Pass(Words({"visible"}, "BA"));
  Pass({"limits", "1024", "2048"});
  Pass({"limits", "2048"}, {{"CUDA_VISIBLE_DEVICES", "1"}});
  Pass({"limits", "2048", "1024"}, {{"CUDA_VISIBLE_DEVICES", granted_[0] + "," + granted_[1]}});
}

// HAMi's plugin and a privileged container: NVML lists the whole machine, the limits go by number.
TEST_F(Share, WhatTheRuntimeNamesIsAllThereIs) {
  environment_["NVIDIA_VISIBLE_DEVICES"] = granted_[0] + "," + granted_[1];
  environment_["CUDA_DEVICE_MEMORY_LIMIT_0"] = "1g";
  environment_["CUDA_DEVICE_MEMORY_LIMIT_1"] = "1g";
  Pass({"limits", "1024", "1024"});
  Pass(Words({"nvml_visible"}, "AB"));
}

}  // namespace
}  // namespace preload
