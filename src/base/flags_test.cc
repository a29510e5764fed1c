// SPDX-License-Identifier: Apache-2.0

#include "base/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/strings.h"

namespace hami::base {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct Program {
  std::string name = "none";
  bool lead = false;
  bool force = true;
  int level = 0;
  FlagSet flags;

  Program() {
    flags.Group("Names");
    flags.Text("scheduler-name", "NAME", name, "what pods ask for");
    flags.Bool("lead", lead, "whether to lead");
    flags.Bool("force", force, "whether to force");
    flags.Custom("v", "LEVEL", "0", TakeNumber(level, 0, 10), "how much to say");
    flags.Shorthand('v');
    flags.Dead({"old-name"}, false, "the file decides");
    flags.Quiet({"logtostderr"}, true);
  }
};

TEST(Flags, EverySpellingOfPflagMeansTheSame) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--scheduler-name=a", "--v=4"},
                                             {"--scheduler-name", "a", "--v", "4"},
                                             {"-v=4", "--scheduler-name=a"},
                                             {"-v", "4", "--scheduler-name=a"},
                                             {"-v4", "--scheduler-name=x", "--scheduler-name=a"}}) {
    Program program;
    ASSERT_TRUE(program.flags.Parse(words)) << Join(words, " ");
    EXPECT_EQ(program.name, "a") << Join(words, " ");
    EXPECT_EQ(program.level, 4) << Join(words, " ");
  }
}

TEST(Flags, GivenNoNumberOrOneOutOfRange_ThenRefusedAndNothingStored) {
  for (const std::string value : {"11", "-1", "4x", "", " 4", "0x4", "99999999999999999999", "+4"}) {
    Program program;
    const auto parsed = program.flags.Parse({"--v=" + value});
    ASSERT_FALSE(parsed) << value;
    EXPECT_THAT(parsed.error().message, HasSubstr("must be a number from 0 to 10")) << value;
    EXPECT_EQ(program.level, 0) << value;
  }
  for (const int value : {0, 10}) {
    Program program;
    ASSERT_TRUE(program.flags.Parse({"--v=" + std::to_string(value)}));
    EXPECT_EQ(program.level, value);
  }
}

TEST(Flags, GivenParserThatRefuses_ThenItsWordsAreShownAndOldValueStays) {
  milliseconds patience(7);
  FlagSet flags;
  flags.Custom("patience", "DURATION", "7ms", TakeParsed(patience, ParseGoDuration), "how long to wait");

  const auto refused = flags.Parse({"--patience=soon"});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("--patience=soon: " + ParseGoDuration("soon").error().message));
  EXPECT_EQ(patience, milliseconds(7));

  ASSERT_TRUE(flags.Parse({"--patience=2s"}));
  EXPECT_EQ(patience, milliseconds(2000));
}

TEST(Flags, ABooleanTakesNoValueFromTheNextWord) {
  Program program;
  const auto parsed = program.flags.Parse({"--lead", "version", "--force=false", "--logtostderr"});
  ASSERT_TRUE(parsed);
  EXPECT_TRUE(program.lead);
  EXPECT_FALSE(program.force);
  EXPECT_THAT(parsed->words, ElementsAre("version"));
  EXPECT_THAT(parsed->warnings, IsEmpty());
}

TEST(Flags, AnEmptyValueIsAValue) {
  Program program;
  ASSERT_TRUE(program.flags.Parse({"--scheduler-name=", "--lead"}));
  EXPECT_EQ(program.name, "");
  EXPECT_TRUE(program.lead);
}

TEST(Flags, TheNextWordIsTheValueEvenIfItLooksLikeAFlag) {
  Program program;
  ASSERT_TRUE(program.flags.Parse({"--scheduler-name", "--lead"}));
  EXPECT_EQ(program.name, "--lead");
  EXPECT_FALSE(program.lead);
}

TEST(Flags, WordsAfterTwoDashesAreNoFlags) {
  Program program;
  const auto parsed = program.flags.Parse({"--", "--lead"});
  ASSERT_TRUE(parsed);
  EXPECT_THAT(parsed->words, ElementsAre("--lead"));
  EXPECT_FALSE(program.lead);
}

TEST(Flags, ADeadFlagIsAcceptedWithOneLine) {
  Program program;
  const auto parsed = program.flags.Parse({"--old-name", "x", "--old-name=y", "--lead"});
  ASSERT_TRUE(parsed);
  EXPECT_THAT(parsed->warnings, ElementsAre("--old-name is accepted and does nothing: the file decides",
                                            "--old-name is accepted and does nothing: the file decides"));
  EXPECT_THAT(parsed->words, IsEmpty());
  EXPECT_TRUE(program.lead);
  EXPECT_THAT(program.flags.Help(), Not(HasSubstr("old-name")));
}

TEST(Flags, AMistakeNamesTheFlagAndTheRemedy) {
  Program program;
  const auto unknown = program.flags.Parse({"--schedulr-name=a"});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "unknown flag --schedulr-name");
  EXPECT_EQ(unknown.error().hint, "did you mean --scheduler-name?");
  EXPECT_EQ(program.flags.Parse({"--lead=maybe"}).error().message, "--lead=maybe: neither true nor false");
  EXPECT_EQ(program.flags.Parse({"-v"}).error().message, "-v needs a value");
  EXPECT_EQ(program.flags.Parse({"-x"}).error().message, "unknown flag -x");
  EXPECT_EQ(program.flags.Parse({"-v=a b"}).error().message, "-v='a b': must be a number from 0 to 10");
}

TEST(Flags, HelpShowsGroupsDefaultsAndLetters) {
  Program program;
  EXPECT_EQ(program.flags.Help(),
            "\nNames:\n"
            "  --scheduler-name NAME  (default none)\n      what pods ask for\n"
            "  --lead  (default false)\n      whether to lead\n"
            "  --force  (default true)\n      whether to force\n"
            "  -v, --v LEVEL  (default 0)\n      how much to say\n");
  EXPECT_TRUE(program.flags.Parse({"--help", "--nonsense"})->help);
}

TEST(Flags, LettersStandTogetherAsInPflag) {
  bool watch = false;
  std::string output;
  FlagSet flags(FlagSet::Dialect::kCommand);
  flags.Group("Options");
  flags.Bool("watch", watch, "go on");
  flags.Shorthand('w');
  flags.Text("output", "FORMAT", output, "how");
  flags.Shorthand('o');
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"-wo", "json"}, {"-wojson"}, {"-wo=json"}, {"-w", "-ojson"}, {"-w=true", "-o", "json"}}) {
    watch = false;
    output.clear();
    const auto parsed = flags.Parse(words);
    ASSERT_TRUE(parsed) << Join(words, " ");
    EXPECT_TRUE(watch) << Join(words, " ");
    EXPECT_EQ(output, "json") << Join(words, " ");
    EXPECT_THAT(parsed->given, ElementsAre("output", "watch"));
  }
  EXPECT_EQ(flags.Parse({"-wx"}).error().message, "unknown flag -wx");
  EXPECT_EQ(flags.Parse({"-wo"}).error().message, "-o needs a value");
}

TEST(Flags, ACommandTakesAValueOnceAndADaemonTheLast) {
  std::string name;
  FlagSet command(FlagSet::Dialect::kCommand);
  command.Text("name", "NAME", name, "whose");
  EXPECT_EQ(command.Parse({"--name=a", "--name=b"}).error().message, "--name can be given only once");
  FlagSet daemon;
  daemon.Text("name", "NAME", name, "whose");
  ASSERT_TRUE(daemon.Parse({"--name=a", "--name=b"}));
  EXPECT_EQ(name, "b");
}

TEST(Flags, ARunnersFlagsEndAtTheFirstOtherWord) {
  std::string name;
  FlagSet flags(FlagSet::Dialect::kRunner);
  flags.Text("name", "NAME", name, "whose");
  const auto parsed = flags.Parse({"--name", "a", "program", "--name", "b", "--help"});
  ASSERT_TRUE(parsed);
  EXPECT_EQ(name, "a");
  EXPECT_THAT(parsed->words, ElementsAre("program", "--name", "b", "--help"));
}

TEST(Flags, AChoiceIsOneOfItsWords) {
  int chosen = 0;
  FlagSet flags(FlagSet::Dialect::kCommand);
  flags.Custom("policy", "one|two", "one", TakeChoice<int>(chosen, {{"one", 1}, {"two", 2}}), "which");
  ASSERT_TRUE(flags.Parse({"--policy", "two"}));
  EXPECT_EQ(chosen, 2);
  EXPECT_EQ(flags.Parse({"--policy", "three"}).error().message, "--policy: 'three' is none of: one, two");
  EXPECT_EQ(chosen, 2);
}

TEST(Flags, DurationsAsGoWritesThem) {
  EXPECT_EQ(*ParseGoDuration("5m"), milliseconds(300'000));
  EXPECT_EQ(*ParseGoDuration("1h30m"), milliseconds(5'400'000));
  EXPECT_EQ(*ParseGoDuration("1.5s"), milliseconds(1500));
  EXPECT_EQ(*ParseGoDuration("250ms"), milliseconds(250));
  EXPECT_EQ(*ParseGoDuration("0"), milliseconds(0));
  EXPECT_EQ(*ParseGoDuration("0s"), milliseconds(0));
  for (const char* wrong : {"", "5", "m", "-5m", "5 m", "1..2s", "5mm5", "1e3s", "9000000h", "99999999999999999999s"}) {
    EXPECT_FALSE(ParseGoDuration(wrong)) << wrong;
  }
}

TEST(Flags, DurationsAreShownAsGoShowsThem) {
  const std::pair<std::int64_t, const char*> cases[] = {
      {0, "0s"},         {250, "250ms"},       {1500, "1.5s"},        {28'000, "28s"},       {60'000, "1m0s"},
      {300'000, "5m0s"}, {90'050, "1m30.05s"}, {3'600'000, "1h0m0s"}, {5'400'000, "1h30m0s"}};
  for (const auto& [span, shown] : cases) EXPECT_EQ(FormatGoDuration(milliseconds(span)), shown);
}

TEST(Flags, AddressesWithAPort) {
  EXPECT_EQ(ParseHostPort(":9395")->host, "");
  EXPECT_EQ(ParseHostPort(":9395")->port, 9395);
  EXPECT_EQ(ParseHostPort("127.0.0.1:80")->host, "127.0.0.1");
  EXPECT_EQ(ParseHostPort("[::1]:443")->host, "::1");
  for (const char* wrong : {"", "80", "::1:443", "a:", "a:65536", "a:-1"}) EXPECT_FALSE(ParseHostPort(wrong)) << wrong;
}

}  // namespace
}  // namespace hami::base
