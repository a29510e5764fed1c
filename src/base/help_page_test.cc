// SPDX-License-Identifier: Apache-2.0

#include "base/help_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace hami::base {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr BuildInfo kBuild{"1.2.3", "abc", "2026-01-02T03:04:05Z"};

struct Sample {
  std::string name = "x";
  FlagSet flags;
  HelpPage page{"hami see", 1, "look at it", "Usage: hami see\n\n.dotted \\ line\n", "\nExit status: 0.\n"};
  Sample() {
    flags.Group("What");
    flags.Text("name", "NAME", name, "which one");
    flags.Shorthand('n');
    flags.Dead({"old"}, false, "the file decides");
  }
  std::string As(HelpForm form) const { return Render(page, flags, form, kBuild); }
};

TEST(HelpPage, GivenText_ThenFlagsStandBetweenTheTexts) {
  const Sample sample;
  EXPECT_EQ(sample.As(HelpForm::kText), sample.page.before + sample.flags.Help() + sample.page.after);
}

TEST(HelpPage, GivenJson_ThenEveryFlagIsInIt_DeadOnesToo) {
  const auto read = ParseJson(Sample().As(HelpForm::kJson));
  ASSERT_TRUE(read);
  const json::array& flags = read->at("flags").as_array();
  ASSERT_EQ(flags.size(), 2U);
  EXPECT_EQ(flags[0].at("name"), "name");
  EXPECT_EQ(flags[0].at("letter"), "n");
  EXPECT_EQ(flags[0].at("default"), "x");
  EXPECT_FALSE(flags[0].as_object().contains("dead"));
  EXPECT_EQ(flags[1].at("dead"), "the file decides");
}

TEST(HelpPage, GivenMan_ThenNothingIsTakenForAMacro) {
  const std::string man = Sample().As(HelpForm::kMan);
  EXPECT_THAT(man, HasSubstr(".TH HAMI-SEE 1 2026-01-02 \"hami-cpp 1.2.3\"\n"));
  EXPECT_THAT(man, HasSubstr("hami\\-see \\- look at it\n"));
  EXPECT_THAT(man, HasSubstr("\n\\&.dotted \\e line\n"));
  EXPECT_THAT(man, HasSubstr("\\fB\\-n\\fR, \\fB\\-\\-name\\fR \\fINAME\\fR (default x)\nwhich one\n"));
  EXPECT_THAT(man, Not(HasSubstr("old")));
}

TEST(HelpPage, GivenAFormOfHelp_WhenParsed_ThenItIsKnown) {
  const Sample sample;
  EXPECT_EQ(sample.flags.Parse({"--help=json"})->form, HelpForm::kJson);
  EXPECT_EQ(sample.flags.Parse({"--help=man"})->form, HelpForm::kMan);
  EXPECT_TRUE(sample.flags.Parse({"--help=man"})->help);
  const auto wrong = sample.flags.Parse({"--help=html"});
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("text, json, man"));
}

}  // namespace
}  // namespace hami::base
