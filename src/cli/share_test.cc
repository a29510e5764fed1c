// SPDX-License-Identifier: Apache-2.0

#include "cli/share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hami::cli {
namespace {

ShareRecord Sample() {
  ShareRecord record;
  record.name = "train-1";
  record.command = {"python3", "train.py", "--tag=\xff\x1b[31m"};
  record.grants = {{"GPU-aaaa", 3 << 20, 1 << 20, 30, 80}, {"GPU-bbbb", 5 << 20, 5 << 20, 0}};
  record.oversubscribe = true;
  record.priority = Priority::kHigh;
  record.created_at = 1'700'000'000;
  return record;
}

TEST(Records, GivenRecord_WhenWrittenAndRead_ThenTheSameButPrintable) {
  const auto read = DecodeRecord(EncodeRecord(Sample()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->name, "train-1");
  EXPECT_THAT(read->command, testing::ElementsAre("python3", "train.py", "--tag=??[31m"));
  ASSERT_EQ(read->grants.size(), 2u);
  EXPECT_EQ(read->grants[0].uuid, "GPU-aaaa");
  EXPECT_EQ(read->grants[0].limit_bytes, 3u << 20);
  EXPECT_EQ(read->grants[0].reserved_bytes, 1u << 20);
  EXPECT_EQ(read->grants[0].cores, 30u);
  EXPECT_EQ(read->grants[0].burst, 80u);
  EXPECT_TRUE(read->oversubscribe);
  EXPECT_EQ(read->priority, Priority::kHigh);
  EXPECT_EQ(read->created_at, 1'700'000'000);
}

std::string Replaced(const std::string& from, const std::string& to) {
  std::string text = EncodeRecord(Sample());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Records, GivenRecordOfBeforeThereWasABurst_WhenRead_ThenNone) {
  const auto read = DecodeRecord(Replaced("\"burst\": 80", "\"other\": 80"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->grants[0].burst, 0u);
}

TEST(Records, GivenAnyFieldWrong_WhenRead_ThenTheWholeRecordIsInvalid) {
  ASSERT_TRUE(DecodeRecord(Replaced("train-1", "train-2"))) << "the sample must be valid but for what a case breaks";
  const std::vector<std::pair<const char*, const char*>> cases{
      {"\"version\": 1", "\"version\": 2"},
      {"\"train-1\"", "\"../../etc\""},
      {"\"train-1\"", "7"},
      {"\"command\": [", "\"command\": [1, "},
      {"\"uuid\": \"GPU-aaaa\"", "\"uuid\": \"\""},
      {"\"limit_bytes\": 3145728", "\"limit_bytes\": 0"},
      {"\"limit_bytes\": 3145728", "\"limit_bytes\": -3"},
      {"\"limit_bytes\": 3145728", "\"limit_bytes\": 1"},
      {"\"cores\": 30", "\"cores\": 101"},
      {"\"burst\": 80", "\"burst\": 101"},
      {"\"burst\": 80", "\"burst\": \"80\""},
      {"\"oversubscribe\": true", "\"oversubscribe\": 1"},
      {"\"high\"", "\"urgent\""},
      {"1700000000", "-1"},
      {"1700000000", "9999999999999999"},
  };
  for (const auto& [from, to] : cases) EXPECT_FALSE(DecodeRecord(Replaced(from, to))) << from << " → " << to;
  EXPECT_FALSE(DecodeRecord("[]"));
  EXPECT_FALSE(DecodeRecord("{}"));
}

TEST(Names, GivenNames_WhenChecked_ThenOnlyHarmlessFolderNames) {
  for (const char* name : {"a", "train-1", "A.b_c-9", "0"}) EXPECT_TRUE(CheckShareName(name)) << name;
  EXPECT_TRUE(CheckShareName(std::string(63, 'x')));
  EXPECT_FALSE(CheckShareName(std::string(64, 'x')));
  for (const char* name : {"", ".", "..", ".new", "-x", "a/b", "a b", "a\n", "é", "_x"}) {
    EXPECT_FALSE(CheckShareName(name)) << name;
  }
}

TEST(Names, GivenPrograms_WhenNamed_ThenValidAndFree) {
  EXPECT_EQ(ChooseShareName("/usr/bin/python3", {}), "python3-1");
  EXPECT_EQ(ChooseShareName("python3", {"python3-1", "python3-2", "python3-4"}), "python3-3");
  for (const std::string& program : std::vector<std::string>{"", "/", "./a b;c", "-x", "ünï", std::string(300, 'y')}) {
    EXPECT_TRUE(CheckShareName(ChooseShareName(program, {}))) << program;
  }
}

}  // namespace
}  // namespace hami::cli
