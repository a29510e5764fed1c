// SPDX-License-Identifier: Apache-2.0

#include "mps/replies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mps/place.h"

namespace hami::mps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;

TEST(MpsRepliesTest, AListIsOneProcessIdALine) {
  EXPECT_THAT(ParsePids("123\n4567\n"), Optional(ElementsAre(123, 4567)));
  EXPECT_THAT(ParsePids("\n"), Optional(IsEmpty()));
  EXPECT_THAT(ParsePids(""), Optional(IsEmpty()));
}

TEST(MpsRepliesTest, AListWithAnythingElseIsNone) {
  for (const char* text : {"Server is not found\n", "-1\n", "0\n", "12 13\n", "99999999999\n", "12\nx\n"}) {
    EXPECT_EQ(ParsePids(text), std::nullopt) << text;
  }
}

TEST(MpsRepliesTest, APercentageIsFrom0To100) {
  EXPECT_EQ(ParsePercentage("100.0\n"), 100.0);
  EXPECT_EQ(ParsePercentage("25"), 25.0);
  for (const char* text : {"", "101", "-1", "nan", "inf", "25%", "1e1", "x"}) {
    EXPECT_EQ(ParsePercentage(text), std::nullopt) << text;
  }
}

TEST(MpsRepliesTest, AStatusIsOneOfThree) {
  EXPECT_EQ(ParseServerStatus("ACTIVE\n"), ServerStatus::kActive);
  EXPECT_EQ(ParseServerStatus("INITIALIZING"), ServerStatus::kStarting);
  EXPECT_EQ(ParseServerStatus("fault\n"), ServerStatus::kFault);
  EXPECT_EQ(ParseServerStatus("Unrecognized command\n"), std::nullopt);
}

TEST(MpsPlaceTest, AProcessIsReadBackWhole) {
  const Process process{4711, 123456};
  EXPECT_EQ(ParseProcessFile(ProcessFileText(process)), process);
  for (const char* text : {"", "4711\n", "4711 123456", "0 1\n", "1 0\n", "a b\n", "99999999999 1\n"}) {
    EXPECT_EQ(ParseProcessFile(text), std::nullopt) << text;
  }
}

TEST(MpsPlaceTest, ClientsAreCountedByTheGpusGeneration) {
  EXPECT_EQ(MostClients(7), 48);
  EXPECT_EQ(MostClients(9), 48);
  EXPECT_EQ(MostClients(10), 60);
  EXPECT_EQ(MostClients(12), 60);
}

}  // namespace
}  // namespace hami::mps
