// SPDX-License-Identifier: Apache-2.0
#include "simgpu/mps/wire.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace simgpu::mps {
namespace {

TEST(MpsWireTest, BytesHaveUnitsOrNone) {
  EXPECT_EQ(ParseBytes("1G"), std::uint64_t{1} << 30);
  EXPECT_EQ(ParseBytes("512MB"), std::uint64_t{512} << 20);
  EXPECT_EQ(ParseBytes("7"), 7U);
  for (const char* text : {"", "G", "1T", "1GiB", "-1", "99999999999G"}) EXPECT_EQ(ParseBytes(text), 0U) << text;
}

TEST(MpsWireTest, LimitsAreByDevice) {
  const MemoryLimits limits = ParseMemoryLimits("0=1G,junk,1=512M,2=x,99=1G");
  EXPECT_EQ(limits, (MemoryLimits{{0, std::uint64_t{1} << 30}, {1, std::uint64_t{512} << 20}}));
}

TEST(MpsWireTest, APercentageIsFrom1To100) {
  EXPECT_EQ(ParsePercent("25"), 25);
  EXPECT_EQ(ParsePercent("33.3"), 33);
  for (const char* text : {"", "0", "101", "x", "25%"}) EXPECT_EQ(ParsePercent(text), 0) << text;
}

TEST(MpsWireTest, TermsAreReadBack) {
  const Terms terms{25, {{0, std::uint64_t{1} << 30}}, "GPU-1"};
  Terms read;
  std::string line = TermsText(terms);
  line.pop_back();
  ASSERT_TRUE(ParseTerms(line, &read));
  EXPECT_EQ(read.percent, 25);
  EXPECT_EQ(read.limits, terms.limits);
  EXPECT_EQ(read.devices, "GPU-1");
  EXPECT_FALSE(ParseTerms("error 807", &read));
  EXPECT_FALSE(ParseTerms("welcome 0 * ", &read));
  EXPECT_FALSE(ParseTerms("welcome", &read));
}

TEST(MpsWireTest, LinesAreReadWholeAndLongOnesRefused) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  LineReader reader;
  std::string line;
  EXPECT_EQ(reader.Next(ends[1], 0, &line), LineReader::Got::kNothing);
  ASSERT_TRUE(Send(ends[0], "one\ntw"));
  EXPECT_EQ(reader.Next(ends[1], 1000, &line), LineReader::Got::kLine);
  EXPECT_EQ(line, "one");
  EXPECT_EQ(reader.Next(ends[1], 0, &line), LineReader::Got::kNothing);
  ASSERT_TRUE(Send(ends[0], "o\n" + std::string(4000, 'x')));
  EXPECT_EQ(reader.Next(ends[1], 1000, &line), LineReader::Got::kLine);
  EXPECT_EQ(line, "two");
  EXPECT_EQ(reader.Next(ends[1], 1000, &line), LineReader::Got::kEnd);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace simgpu::mps
