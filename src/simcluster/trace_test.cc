// SPDX-License-Identifier: Apache-2.0

#include "simcluster/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simcluster/workloads.h"

namespace hami::simcluster {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPodHeader = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n";

std::string PodError(const std::string& lines) {
  const auto pods = ReadPods(kPodHeader + lines, "pods.csv");
  return pods ? "" : pods.error().message;
}

TEST(TraceTest, ColumnsMayComeInAnyOrder) {
  const auto nodes = ReadNodes("model,gpu,extra,sn,memory_mib,cpu_milli\nT4,2,x,n1,1024,96000\n", "nodes.csv");
  ASSERT_TRUE(nodes) << nodes.error().message;
  ASSERT_EQ(nodes->size(), 1U);
  EXPECT_EQ((*nodes)[0].name, "n1");
  EXPECT_EQ((*nodes)[0].cards, 2);
  EXPECT_EQ((*nodes)[0].host, (sched::HostAmounts{96000, 1024}));
}

TEST(TraceTest, ReadsModelsAndTimes) {
  const auto pods = ReadPods(
      "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"
      "p,1000,1,1,500,V100M16|V100M32,7,12.0\n",
      "pods.csv");
  ASSERT_TRUE(pods) << pods.error().message;
  EXPECT_EQ((*pods)[0].models, (std::vector<std::string>{"V100M16", "V100M32"}));
  EXPECT_EQ((*pods)[0].arrives, 7);
  EXPECT_EQ((*pods)[0].ends, 12);
}

TEST(TraceTest, ErrorsNameFileAndLine) {
  EXPECT_THAT(PodError("a,1,1,1,500\nb,1,1,1\n"), HasSubstr("pods.csv:3: 4 fields, where the header has 5"));
  EXPECT_THAT(PodError("a,1,1,1,1500\n"), HasSubstr("pods.csv:2: gpu_milli 1500 is more than a card"));
  EXPECT_THAT(PodError("a,x,1,1,500\n"), HasSubstr("pods.csv:2: column cpu_milli holds 'x'"));
  EXPECT_THAT(PodError("a,-1,1,1,500\n"), HasSubstr("which is no amount"));
  EXPECT_THAT(PodError("a,nan,1,1,500\n"), HasSubstr("which is no amount"));
  EXPECT_THAT(PodError("a,1,1,1,0\n"), HasSubstr("one is 0 and the other is not"));
  EXPECT_THAT(PodError("a,1,1,1,500\na,1,1,1,500\n"), HasSubstr("pods.csv:3: the name 'a' again"));
  EXPECT_THAT(PodError("\"a,1,1,1,500\n"), HasSubstr("a quote is not closed"));
}

TEST(TraceTest, AMissingColumnIsNamed) {
  const auto nodes = ReadNodes("sn,cpu_mili,memory_mib,gpu,model\n", "nodes.csv");
  ASSERT_FALSE(nodes);
  EXPECT_THAT(nodes.error().message, HasSubstr("nodes.csv:1: the column cpu_milli is missing (is it cpu_mili?)"));
  EXPECT_FALSE(ReadNodes("", "nodes.csv"));
}

TEST(TraceTest, WhatIsWrittenIsReadAgain) {
  const std::vector<TraceNode> nodes = UsualNodes(1);
  const std::vector<TracePod> pods = MakePods(*FindMix("eighths-typed"), 100000, 1);
  EXPECT_EQ(*ReadNodes(WriteNodes(nodes), "nodes"), nodes);
  EXPECT_EQ(*ReadPods(WritePods(pods), "pods"), pods);
}

}  // namespace
}  // namespace hami::simcluster
