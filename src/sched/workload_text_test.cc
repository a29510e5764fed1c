// SPDX-License-Identifier: Apache-2.0

#include "sched/workload_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sched/testing/samples.h"

namespace hami::sched {
namespace {

using ::testing::HasSubstr;

const device::Vendors& Vendors() {
  static const device::Vendors vendors = testing::NvidiaOnly();
  return vendors;
}

std::string Refused(const std::string& text) {
  const auto read = ReadWorkload(text, "w.csv", Vendors());
  return read ? "(read)" : read.error().message;
}

TEST(WorkloadText, AClassIsAPodAsAUserWritesIt) {
  const auto read = ReadWorkload(
      "# what comes\n"
      "weight, nvidia.com/gpu,nvidia.com/gpumem,nvidia.com/gpucores,cpu,memory,nvidia.com/use-gputype\n"
      "3,1,8000,50,1500m,1Gi,\r\n"
      "\n"
      "1,8,,100,64,,A100|H100\n",
      "w.csv", Vendors());
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), 2U);
  const RequestClass& share = read->front();
  EXPECT_EQ(share.weight, 3);
  EXPECT_EQ(share.ask.request.count, 1);
  EXPECT_EQ(share.ask.request.memory, 8000);
  EXPECT_EQ(share.ask.request.cores, 50);
  EXPECT_EQ(share.host, (HostAmounts{1500, 1024}));
  const RequestClass& whole = read->back();
  EXPECT_EQ(whole.ask.request.count, 8);
  EXPECT_EQ(whole.rules.use_types, (std::vector<std::string>{"a100", "h100"}));
}

TEST(WorkloadText, WhatCannotBeMeantIsNamedByItsLine) {
  EXPECT_EQ(Refused(""), "w.csv: no class of pods is in it");
  EXPECT_EQ(Refused("weight,nvidia.com/gpu\n"), "w.csv: no class of pods is in it");
  EXPECT_EQ(Refused("weight,gpus\n1,1\n"), "w.csv:1: column 'gpus' is no resource and no annotation");
  EXPECT_EQ(Refused("weight,nvidia.com/gpu\n1,1\n2\n"), "w.csv:3: 1 values for 2 columns");
  for (const char* weight : {"0", "-1", "x", "nan", "1e300"}) {
    EXPECT_THAT(Refused(std::string("weight,nvidia.com/gpu\n") + weight + ",1\n"), HasSubstr("is no number above 0"));
  }
  EXPECT_EQ(Refused("weight,nvidia.com/gpu\n1,0\n"), "w.csv:2: it asks for no device");
  EXPECT_THAT(Refused("nvidia.com/gpu\n1.5\n"), HasSubstr("w.csv:2: "));
  std::string many = "nvidia.com/gpu\n";
  for (int i = 0; i < 257; ++i) many += "1\n";
  EXPECT_EQ(Refused(many), "w.csv:258: more than 256 classes");
}

TEST(WorkloadText, WhatIsGivenIsNotChangedByWhatIsSeen) {
  const auto read = ReadWorkload("nvidia.com/gpu,nvidia.com/gpumem\n1,8000\n", "w.csv", Vendors());
  ASSERT_TRUE(read);
  WorkloadBook book;
  book.Fix(*read);
  const std::uint64_t version = book.Current().version;
  for (int i = 0; i < 1000; ++i) {
    const device::Pod pod = testing::PodOf(std::to_string(i), testing::Wants(1, 4000));
    book.See(pod.uid, *MakePlan(pod, Vendors(), {}));
  }
  EXPECT_EQ(book.Current().version, version);
  ASSERT_EQ(book.Current().classes.size(), 1U);
  EXPECT_EQ(book.Current().classes.front().ask.request.memory, 8000);
}

}  // namespace
}  // namespace hami::sched
