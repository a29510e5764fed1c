// SPDX-License-Identifier: Apache-2.0

#include "device/use_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hami::device {
namespace {

using testing::HasSubstr;

constexpr const char* kShare =
    R"({"namespace":"team","pod":"p","container":"c","uuid":"GPU-1","used_mib":5,"limit_mib":9,"core_limit":30,)";

TEST(UseReport, WhatIsWrittenIsRead) {
  const UseReport report{
      "node-1",
      {{"team", "p", "c", "GPU-1", 1500, 3000, 30, 27}, {"team", "q", "main", "MIG-2", 0, 0, 100, std::nullopt}}};
  const auto read = ReadUse(WriteUse(report));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->node, "node-1");
  EXPECT_EQ(read->shares, report.shares);
  EXPECT_TRUE(ReadUse(WriteUse({"idle", {}}))->shares.empty());
}

TEST(UseReport, ADocumentThatIsNotWholeIsRefusedWithAReason) {
  const auto reason = [](const std::string& text) {
    const auto read = ReadUse(text);
    return read ? "read" : read.error().message;
  };
  EXPECT_THAT(reason("# HELP hami_vgpu_memory_used_bytes"), HasSubstr("no JSON"));
  EXPECT_THAT(reason("[]"), HasSubstr("schema 1"));
  EXPECT_THAT(reason(R"({"schema":2,"node":"n","shares":[]})"), HasSubstr("schema 1"));
  EXPECT_THAT(reason(R"({"schema":1,"shares":[]})"), HasSubstr("no node"));
  EXPECT_THAT(reason(R"({"schema":1,"node":"n","shares":[{}]})"), HasSubstr("share 0"));
  for (const char* percent : {"\"core_percent\":-1}", "\"core_percent\":\"x\"}", "\"x\":1}"}) {
    EXPECT_THAT(reason(std::string(R"({"schema":1,"node":"n","shares":[)") + kShare + percent + "]}"),
                HasSubstr("share 0"))
        << percent;
  }
  EXPECT_THAT(reason(std::string(kMostUseBytes + 1, ' ')), HasSubstr("1 MiB"));
}

TEST(UseReport, AmountsThatNoGpuHasAreBounded) {
  const auto read =
      ReadUse(R"({"schema":1,"node":"n","shares":[{"namespace":"a","pod":"b","container":"c","uuid":"u\u001b[2J",)"
              R"("used_mib":18446744073709551615,"limit_mib":0,"core_limit":0,"core_percent":18446744073709551615}]})");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->shares[0].used, kMostUseMiB);
  EXPECT_EQ(read->shares[0].core_limit, 100);
  EXPECT_EQ(read->shares[0].core_percent, 10'000);
  EXPECT_EQ(read->shares[0].uuid, "u?[2J");
}

}  // namespace
}  // namespace hami::device
