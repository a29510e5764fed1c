// SPDX-License-Identifier: Apache-2.0
//
// Completion as a real bash carries it out; what zsh and fish read is parsed by them where they are installed.

#include "cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "base/command.h"
#include "base/strings.h"
#include "cli/options.h"
#include "cli/reference.h"

namespace hami::cli {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Completion : public testing::Test {
 protected:
  static std::string FileWith(const std::string& shell) {
    const std::string path = testing::TempDir() + "hami-completion-" + std::to_string(::getpid()) + "." + shell;
    std::ofstream(path) << CompletionScript(shell).value();
    return path;
  }
  // What bash offers for the last of WORDS.
  static std::vector<std::string> Offered(const std::vector<std::string>& words) {
    const std::string path = FileWith("bash");
    std::string script = "source " + path + "; COMP_WORDS=(";
    for (const std::string& word : words) script += " " + (word.empty() ? std::string("''") : base::ShellQuote(word));
    script += "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _hami; printf '%s\\n' \"${COMPREPLY[@]}\"";
    const auto done = base::RunCommand({{"bash", "--norc", "-c", script}, {}, {}});
    EXPECT_TRUE(done) << done.error().message;
    EXPECT_EQ(done->err, "");
    std::vector<std::string> lines;
    for (const std::string& line : base::Split(done->out, '\n')) {
      if (!line.empty()) lines.push_back(line);
    }
    return lines;
  }
};

TEST_F(Completion, GivenABeginning_WhenBashCompletes_ThenCommands) {
  EXPECT_THAT(Offered({"hami", "s"}), testing::UnorderedElementsAre("set", "smi", "sim"));
  EXPECT_THAT(Offered({"hami", ""}), AllOf(Contains("run"), Contains("cert"), Contains("completion")));
  EXPECT_THAT(Offered({"hami", "sim", "cl"}), Contains("cluster"));
  EXPECT_THAT(Offered({"hami", "config", ""}), Contains("check"));
}

TEST_F(Completion, GivenACommand_WhenBashCompletes_ThenItsFlagsAndTheirValues) {
  EXPECT_THAT(Offered({"hami", "run", "--pr"}), ElementsAre("--priority"));
  EXPECT_THAT(Offered({"hami", "run", "--policy", ""}), ElementsAre("spread", "binpack"));
  EXPECT_THAT(Offered({"hami", "run", "--policy", "=", "b"}), ElementsAre("binpack"));
  EXPECT_THAT(Offered({"hami", "ps", "-o", "j"}), ElementsAre("json"));
  EXPECT_THAT(Offered({"hami", "sim", "cluster", "--dem"}), ElementsAre("--demand"));
  EXPECT_THAT(Offered({"hami", "config", "check", "--fo"}), ElementsAre("--for"));
  EXPECT_THAT(Offered({"hami", "cert", "--renew"}), ElementsAre("--renew-before"));
  EXPECT_THAT(Offered({"hami", "completion", "z"}), ElementsAre("zsh"));
  EXPECT_THAT(Offered({"hami", "upgrade", "sch"}), ElementsAre("scheduler"));
}

TEST_F(Completion, GivenTheDashes_WhenBashCompletes_ThenTheOtherProgramsWords) {
  EXPECT_THAT(Offered({"hami", "run", "--", "bas"}), Contains("bash"));
  EXPECT_THAT(Offered({"hami", "run", "--", "bash", "--po"}), Not(Contains("--policy")));
}

// A command that is added and describes no flags would be completed as if it had none.
TEST_F(Completion, GivenEveryCommand_ThenItDescribesItself) {
  for (const CommandName& command : CommandNames()) {
    EXPECT_THAT(HelpOf(command.name, "json"), HasSubstr("\"program\": \"hami " + std::string(command.name) + "\""))
        << command.name;
    EXPECT_FALSE(command.summary.empty());
  }
}

TEST_F(Completion, GivenZshAndFish_WhenTheyReadTheirs_ThenTheyUnderstandIt) {
  for (const char* shell : {"zsh", "fish"}) {
    const auto done = base::RunCommand({{shell, "-n", FileWith(shell)}, {}, {}});
    if (!done) continue;  // not installed here; tools/setup --check installs both
    EXPECT_EQ(done->status, 0) << shell << ": " << done->err;
  }
}

TEST_F(Completion, GivenAnotherShell_ThenARefusalThatNamesThose) {
  const auto script = CompletionScript("csh");
  ASSERT_FALSE(script);
  EXPECT_THAT(script.error().message, HasSubstr("bash, zsh, fish"));
}

// The tables are written by hand: a name twice, or a row without a text, is a mistake.
TEST(Reference, EveryRowHasATextAndStandsOnce) {
  std::set<std::string> seen;
  for (const VariableRow& row : VariableTable()) {
    EXPECT_FALSE(row.text.empty() || row.reader.empty()) << row.name;
    EXPECT_TRUE(seen.insert(std::string(row.name)).second) << row.name;
  }
  for (const EventRow& row : EventTable()) {
    EXPECT_FALSE(row.text.empty()) << row.reason;
    EXPECT_TRUE(seen.insert(std::string(row.reason)).second) << row.reason;
  }
  for (const KeyRow& row : KeyTable()) {
    EXPECT_FALSE(row.text.empty()) << row.key;
    EXPECT_TRUE(seen.insert(base::Concat({row.file, "/", row.section, "/", row.key})).second) << row.key;
  }
}

}  // namespace
}  // namespace hami::cli
