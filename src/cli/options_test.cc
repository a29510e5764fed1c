// SPDX-License-Identifier: Apache-2.0

#include "cli/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hami::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
T Parsed(const std::vector<std::string>& arguments) {
  const Options options = ParseOptions(arguments);
  const auto* message = std::get_if<Message>(&options);
  EXPECT_TRUE(std::holds_alternative<T>(options)) << (message == nullptr ? "another command" : message->text);
  return std::holds_alternative<T>(options) ? std::get<T>(options) : T{};
}

Message Answer(const std::vector<std::string>& arguments) { return Parsed<Message>(arguments); }

TEST(RunOptionsParsing, GivenEveryOption_WhenParsed_ThenEveryValue) {
  const auto run = Parsed<RunOptions>({"run", "--gpus", "2", "--mem=3g", "--cores", "30%", "--policy", "binpack",
                                       "--priority=high", "--name", "n", "--oversubscribe", "--dry-run", "--output",
                                       "json", "--", "python3", "-c", "--mem"});
  EXPECT_EQ(std::get<AnyGpus>(run.request.gpus).count, 2u);
  EXPECT_EQ(std::get<base::Bytes>(*run.request.memory), base::Bytes{3 * base::kGiB});
  EXPECT_EQ(run.request.cores, 30u);
  EXPECT_EQ(run.request.policy, Policy::kBinpack);
  EXPECT_EQ(run.priority, Priority::kHigh);
  EXPECT_EQ(run.name, "n");
  EXPECT_TRUE(run.request.oversubscribe);
  EXPECT_TRUE(run.dry_run);
  EXPECT_EQ(run.output, Output::kJson);
  EXPECT_THAT(run.command, ElementsAre("python3", "-c", "--mem"));
}

TEST(RunOptionsParsing, GivenOnlyACommand_WhenParsed_ThenDefaults) {
  const auto run = Parsed<RunOptions>({"run", "--", "x"});
  EXPECT_EQ(std::get<AnyGpus>(run.request.gpus).count, 1u);
  EXPECT_FALSE(run.request.memory);
  EXPECT_EQ(run.request.cores, 0u);
  EXPECT_EQ(run.request.burst, 0u);
  EXPECT_EQ(run.request.policy, Policy::kSpread);
  EXPECT_EQ(run.priority, Priority::kLow);
  EXPECT_FALSE(run.dry_run);
}

TEST(RunOptionsParsing, GivenNoSeparator_WhenParsed_ThenFirstOtherWordBeginsCommand) {
  const auto run = Parsed<RunOptions>({"run", "--mem", "1g", "python3", "--mem", "9g"});
  EXPECT_EQ(std::get<base::Bytes>(*run.request.memory), base::Bytes{base::kGiB});
  EXPECT_THAT(run.command, ElementsAre("python3", "--mem", "9g"));
}

TEST(RunOptionsParsing, GivenUuids_WhenParsed_ThenNames) {
  const auto run = Parsed<RunOptions>({"run", "--gpus", "GPU-a,GPU-b", "--", "x"});
  EXPECT_THAT(std::get<std::vector<std::string>>(run.request.gpus), ElementsAre("GPU-a", "GPU-b"));
  const auto mig = Parsed<RunOptions>({"run", "--gpus", "MIG-a", "--", "x"});
  EXPECT_THAT(std::get<std::vector<std::string>>(mig.request.gpus), ElementsAre("MIG-a"));
}

struct MistakeCase {
  std::vector<std::string> arguments;
  const char* expected;
  int status;
};

class Mistakes : public testing::TestWithParam<MistakeCase> {};

TEST_P(Mistakes, GivenMistake_WhenParsed_ThenTold) {
  const Message message = Answer(GetParam().arguments);
  EXPECT_THAT(message.text, HasSubstr(GetParam().expected));
  EXPECT_EQ(message.exit_status, GetParam().status);
}

INSTANTIATE_TEST_SUITE_P(
    CommandLine, Mistakes,
    testing::Values(MistakeCase{{"run", "--mme", "3g", "--", "x"}, "did you mean --mem?", 125},
                    MistakeCase{{"run", "--mem", "3x", "--", "x"}, "--mem: '3x' is not an amount", 125},
                    MistakeCase{{"run", "--mem", "0", "--", "x"}, "--mem: an amount of memory can not be zero", 125},
                    MistakeCase{{"run", "--mem", "3", "--", "x"}, "--mem: '3' is 3 B, too little", 125},
                    MistakeCase{{"run", "--mem", "3", "--", "x"}, "write a unit: 512m, 3g", 125},
                    MistakeCase{{"run", "--mem", "512k", "--", "x"}, "at least 1 MiB", 125},
                    MistakeCase{{"run", "--mem", "1g", "--mem", "2g", "--", "x"}, "--mem can be given only once", 125},
                    MistakeCase{{"run", "--mem"}, "--mem needs a value", 125},
                    MistakeCase{{"run", "--cores", "101", "--", "x"}, "--cores: '101' is not a percentage", 125},
                    MistakeCase{{"run", "--burst", "x", "--", "x"}, "--burst: 'x' is not a percentage", 125},
                    MistakeCase{{"run", "--burst", "80", "--", "x"}, "--burst goes beyond --cores", 125},
                    MistakeCase{{"run", "--cores", "80", "--burst", "80", "--", "x"}, "--burst 80 is not more", 125},
                    MistakeCase{{"run", "--gpus", "0", "--", "x"}, "--gpus: '0' is not a number of GPUs", 125},
                    MistakeCase{{"run", "--gpus", "0,1", "--", "x"}, "--gpus: '0' is neither", 125},
                    MistakeCase{{"run", "--gpus", "", "--", "x"}, "--gpus: '' is neither", 125},
                    MistakeCase{{"run", "--gpus", "first", "--", "x"}, "--gpus: 'first' is neither", 125},
                    MistakeCase{
                        {"run", "--policy", "pack", "--", "x"}, "--policy: 'pack' is none of: spread, binpack", 125},
                    MistakeCase{{"run", "--name", "../x", "--", "x"}, "--name: '../x' can not be the name", 125},
                    MistakeCase{{"set", "x"}, "name --mem, --cores, --burst or --priority", 2},
                    MistakeCase{{"set", "x", "--mem", "3x"}, "--mem: '3x' is not an amount", 2},
                    MistakeCase{{"run"}, "no command", 125}, MistakeCase{{"run", "--"}, "no command", 125},
                    MistakeCase{{"run", "word", "--", "x"}, "unknown argument 'word'", 125},
                    MistakeCase{{"sim", "--gpus"}, "--gpus", 125}, MistakeCase{{"sim"}, "no command", 125},
                    MistakeCase{{"rnu", "--", "x"}, "did you mean run?", 2},
                    MistakeCase{{"top", "--help"}, "unknown command 'top'", 2},
                    MistakeCase{{"help", "me"}, "unknown command 'me'", 2},
                    MistakeCase{{"run", "--mem", "0", "--", "x"}, "a unit: 512m, 3g", 125},
                    MistakeCase{{"set", "x", "--mem", "0"}, "a unit: 512m, 3g", 2},
                    MistakeCase{{"ps", "--wacth"}, "did you mean --watch?", 2},
                    MistakeCase{{"ps", "-w", "--interval", "0"}, "--interval: '0' is not a number of seconds", 2},
                    MistakeCase{{"ps", "-w", "--interval", "nan"}, "--interval: 'nan' is not a number", 2},
                    MistakeCase{{"ps", "--interval", "5"}, "--watch", 2},
                    MistakeCase{{"ps", "x"}, "unknown argument", 2},
                    MistakeCase{{"ps", "--", "x"}, "unknown argument", 2},
                    MistakeCase{{"smi", "--output", "xml"}, "json", 2}, MistakeCase{{}, "hami run", 2},
                    MistakeCase{{"set"}, "no share is named", 2}, MistakeCase{{"--vresion"}, "mean --version?", 2},
                    MistakeCase{{"set", "x", "y", "--mem", "1g"}, "unknown argument 'y'", 2},
                    MistakeCase{{"run", "--dry-run=maybe", "--", "x"}, "--dry-run=maybe: neither", 125}));

TEST(RunOptionsParsing, GivenMistakeWithTerminalCommands_WhenTold_ThenShownHarmless) {
  for (const char* option : {"--mem", "--cores", "--name", "--gpus", "--policy", "--output"}) {
    const Message message = Answer({"run", option, "\x1b[2J\n", "--", "x"});
    EXPECT_EQ(message.exit_status, 125) << option;
    EXPECT_THAT(message.text, testing::Not(HasSubstr("\x1b"))) << option;
  }
  EXPECT_THAT(Answer({"\x1b[2J"}).text, testing::Not(HasSubstr("\x1b")));
}

TEST(SetOptionsParsing, GivenBurst_WhenParsed_ThenNumberAndZeroForNone) {
  EXPECT_EQ(Parsed<SetOptions>({"set", "x", "--burst", "80"}).burst, 80u);
  EXPECT_EQ(Parsed<SetOptions>({"set", "x", "--burst", "0"}).burst, 0u);
  EXPECT_FALSE(Parsed<SetOptions>({"set", "x", "--cores", "30"}).burst);
  EXPECT_EQ(Parsed<RunOptions>({"run", "--cores", "30", "--burst", "80", "--", "x"}).request.burst, 80u);
}

TEST(SetOptionsParsing, GivenPriority_WhenParsed_ThenHighOrLowOrNotSaid) {
  EXPECT_EQ(std::get<SetOptions>(ParseOptions({"set", "n", "--priority", "high"})).priority, Priority::kHigh);
  EXPECT_EQ(std::get<SetOptions>(ParseOptions({"set", "n", "--priority", "low"})).priority, Priority::kLow);
  EXPECT_FALSE(std::get<SetOptions>(ParseOptions({"set", "n", "--cores", "5"})).priority.has_value());
  EXPECT_EQ(std::get<Message>(ParseOptions({"set", "n", "--priority", "urgent"})).exit_status, kUsage);
}

TEST(Help, GivenHelpOrVersion_WhenAsked_ThenPrintedWithStatusZero) {
  EXPECT_THAT(Answer({"--help"}).text, HasSubstr("hami sim --gpus 2xH100"));
  EXPECT_EQ(Answer({"--help"}).exit_status, 0);
  EXPECT_THAT(Answer({"run", "--help"}).text, HasSubstr("Examples:"));
  EXPECT_THAT(Answer({"--version"}).text, testing::StartsWith("hami "));
  EXPECT_EQ(Answer({"help"}).text, Answer({"--help"}).text);
  EXPECT_EQ(Answer({"help"}).exit_status, 0);
  EXPECT_EQ(Answer({"help", "run"}).text, Answer({"run", "--help"}).text);
  EXPECT_THAT(Answer({"help", "cert"}).text, HasSubstr("Usage: hami cert"));
  EXPECT_THAT(Answer({"help", "upgrade"}).text, HasSubstr("Usage: hami upgrade"));
  EXPECT_THAT(Answer({"upgrad"}).text, HasSubstr("did you mean upgrade?"));
  EXPECT_EQ(Answer({"-V"}).text, Answer({"--version"}).text);
  for (const char* command : {"run", "set", "ps", "smi", "sim"}) {
    EXPECT_EQ(Answer({command, "-h"}).exit_status, 0) << command;
    EXPECT_THAT(Answer({command, "-h"}).text, testing::StartsWith(std::string("Usage: hami ") + command)) << command;
    EXPECT_THAT(Answer({"--help"}).text, HasSubstr(std::string("\n  ") + command + " ")) << command;
  }
}

TEST(Help, GivenTheCommandsOwnFlags_WhenParsed_ThenTheyAreLeftToIt) {
  EXPECT_THAT(Parsed<RunOptions>({"run", "x", "--help", "--version"}).command, ElementsAre("x", "--help", "--version"));
  EXPECT_THAT(Parsed<SimOptions>({"sim", "--", "x", "-h"}).command, ElementsAre("x", "-h"));
}

TEST(OtherCommands, GivenAConfigToCheck_WhenParsed_ThenFileAndPrograms) {
  const auto ours = Parsed<ConfigOptions>({"config", "check", "f"});
  EXPECT_EQ(ours.file, "f");
  EXPECT_FALSE(ours.for_hami);
  EXPECT_TRUE(Parsed<ConfigOptions>({"config", "check", "--for", "hami", "f"}).for_hami);
  EXPECT_THAT(Answer({"config", "check", "--for", "hmai", "f"}).text, HasSubstr("none of: ours, hami"));
  EXPECT_THAT(Answer({"config", "check"}).text, HasSubstr("no file is named"));
  EXPECT_EQ(Answer({"config", "show"}).exit_status, 2);
}

TEST(OtherCommands, GivenOptions_WhenParsed_ThenValues) {
  const auto ps = Parsed<PsOptions>({"ps", "-w", "--interval", "0.5", "-o", "json"});
  EXPECT_TRUE(ps.watch);
  EXPECT_EQ(ps.interval_seconds, 0.5);
  EXPECT_EQ(ps.output, Output::kJson);
  EXPECT_EQ(Parsed<SmiOptions>({"smi"}).output, Output::kTable);
  const auto sim = Parsed<SimOptions>({"sim", "--gpus", "2xH100", "--", "hami", "run", "--", "x"});
  EXPECT_EQ(sim.gpus, "2xH100");
  EXPECT_THAT(sim.command, ElementsAre("hami", "run", "--", "x"));
}

}  // namespace
}  // namespace hami::cli
