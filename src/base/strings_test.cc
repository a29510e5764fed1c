// SPDX-License-Identifier: Apache-2.0

#include "base/strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hami::base {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Splitting, GivenSeparators_WhenSplit_ThenEmptyPartsAreKept) {
  EXPECT_THAT(Split("", ','), IsEmpty());
  EXPECT_THAT(Split("a", ','), ElementsAre("a"));
  EXPECT_THAT(Split("a,b,,c,", ','), ElementsAre("a", "b", "", "c", ""));
}

TEST(Numbers, GivenText_WhenParsed_ThenOnlyPlainDigits) {
  EXPECT_EQ(ParseNumber("42"), 42u);
  EXPECT_EQ(ParseNumber("18446744073709551615"), 18446744073709551615ULL);
  for (const char* text : {"", "-1", "+1", " 1", "1 ", "0x1", "18446744073709551616", "1.0"}) {
    EXPECT_FALSE(ParseNumber(text)) << text;
  }
}

TEST(Suggestions, GivenTypingError_WhenNearest_ThenTheOptionMeant) {
  const std::vector<std::string> options{"--mem", "--cores", "--policy", "--name", "--gpus"};
  EXPECT_EQ(Nearest("--core", options), "--cores");
  EXPECT_EQ(Nearest("--polciy", options), "--policy");
  EXPECT_EQ(Nearest("--memory", options), std::nullopt) << "three letters away of eight is too far to be sure";
  EXPECT_EQ(Nearest("--frobnicate", options), std::nullopt);
}

TEST(Quoting, GivenWords_WhenJoined_ThenAShellReadsThemBack) {
  EXPECT_EQ(ShellJoin({"python3", "train.py", "--lr=0.1"}), "python3 train.py --lr=0.1");
  EXPECT_EQ(ShellJoin({"echo", "a b", "", "it's", "$HOME"}), "echo 'a b' '' 'it'\\''s' '$HOME'");
}

TEST(Printing, GivenHostileText_WhenMadePrintable_ThenNoTerminalCommands) {
  EXPECT_EQ(Printable("plain é ✓"), "plain é ✓");
  EXPECT_EQ(Printable("\x1b[31mred\n"), "?[31mred?");
  EXPECT_EQ(Printable("\xff\xc3"), "??");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "?31m")
      << "C1 control sequence introducer";
  EXPECT_EQ(Printable("\xed\xa0\x80"), "???") << "a surrogate is not a character";
}

}  // namespace
}  // namespace hami::base
