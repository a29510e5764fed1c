// SPDX-License-Identifier: Apache-2.0
//
// The command line of every program, spelled as Go programs spell it (pflag), because the manifests that start our
// daemons were written for those: `--x=y`, `--x y`, `-v=4`, `-v4`, `-ab`, `--on`, `--on=false`; the last of several
// wins. A table of flags that also is the help text. Refuses unknown flags, with what was probably meant; accepts flags
// that no longer do anything, with one line that says so. A command that a person types has a dialect of its own.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace hami::base {

// What `--help` is written as: `--help`, `--help=json`, `--help=man`.
enum class HelpForm { kText, kJson, kMan };

class FlagSet {
 public:
  enum class Dialect {
    kDaemon,   // written by manifests, which repeat flags to override them
    kCommand,  // typed by a person: a value is given once, and the message about it shows it by itself
    kRunner,   // as kCommand; the first word that is no flag begins a command line that is not ours
  };
  explicit FlagSet(Dialect dialect = Dialect::kDaemon) : dialect_(dialect) {}

  // Stores VALUE, or says why it can not be meant; the flag's name is added to the message.
  using Take = std::function<Status(const std::string& value)>;

  // Flags added from here on stand under TITLE in the help.
  void Group(std::string title) { group_ = std::move(title); }

  // What the variables hold when their flags are added is shown as the default.
  void Text(std::string name, std::string type, std::string& out, std::string help);
  void Bool(std::string name, bool& out, std::string help);
  void Custom(std::string name, std::string type, std::string shown_default, Take take, std::string help);
  // One more letter for the flag added last.
  void Shorthand(char letter);
  // Flags that are accepted and do nothing; IS_BOOL: they take no value unless it is written with `=`.
  void Dead(const std::vector<std::string>& names, bool is_bool, const std::string& why);
  // Accepted without a word.
  void Quiet(const std::vector<std::string>& names, bool is_bool);

  struct Parsed {
    bool help = false;                // -h or --help was there; the rest was not looked at
    HelpForm form = HelpForm::kText;  // of the help
    bool version = false;             // --version was there; the rest was not looked at
    std::vector<std::string> words;   // just `version` where --version was there
    std::vector<std::string> warnings;
    std::set<std::string> given;  // the names of the flags that were there
  };
  // ARGUMENTS without the program's name.
  Result<Parsed> Parse(const std::vector<std::string>& arguments) const;

  // Every flag that does something, by group.
  std::string Help() const;

  struct Flag {
    std::string name;
    std::string type;
    std::string shown_default;
    std::string help;
    std::string group;
    Take take;         // empty: dead
    std::string dead;  // why; empty in a dead flag: no word about it
    bool is_bool = false;
    char letter = 0;
  };
  // In the order in which they were added, those that do nothing included.
  const std::vector<Flag>& flags() const { return flags_; }

 private:
  struct Given {
    const Flag* flag;
    std::string spelled;  // as the user wrote it
    std::optional<std::string> value;
  };
  Flag& Add(std::string name);
  const Flag* Find(std::string_view name) const;
  const Flag* FindLetter(char letter) const;
  Result<Given> ReadLong(const std::string& word) const;
  Status ReadShort(const std::string& word, std::vector<Given>& given) const;
  Status Use(const Given& given, Parsed& parsed) const;

  const Dialect dialect_;
  std::vector<Flag> flags_;
  std::string group_;
};

// Stores what PARSE makes of the value, or refuses it with PARSE's own words.
template <typename T, typename Parse>
FlagSet::Take TakeParsed(T& out, Parse parse) {
  return [&out, parse](const std::string& value) -> Status {
    auto parsed = parse(value);
    if (!parsed) return tl::unexpected(parsed.error());
    out = *std::move(parsed);
    return {};
  };
}

// Stores what the word stands for; another word is refused with all that are understood.
template <typename T, typename Out>
FlagSet::Take TakeChoice(Out& out, std::initializer_list<std::pair<const char*, T>> choices) {
  return [&out, choices = std::vector<std::pair<std::string, T>>(choices.begin(), choices.end())](
             const std::string& value) -> Status {
    std::string words;
    for (const auto& [word, meaning] : choices) {
      if (word == value) {
        out = meaning;
        return {};
      }
      words += (words.empty() ? "" : ", ") + word;
    }
    return Fail("'" + value + "' is none of: " + words);
  };
}

// Stores a whole number from LEAST to MOST.
FlagSet::Take TakeNumber(int& out, int least, int most);

// true, false, 1, 0, t, f and their capitals, as Go reads them.
Result<bool> ParseGoBool(std::string_view text);

// "5m", "1h30m", "28s", "1.5s", "250ms", "0": a Go duration. Refuses what is negative or longer than a year.
Result<std::chrono::milliseconds> ParseGoDuration(std::string_view text);

// As Go prints it: "28s", "5m0s", "1h30m0s", "1.5s", "250ms". SPAN is not negative.
std::string FormatGoDuration(std::chrono::milliseconds span);

// What PROGRAM ("hami cert") says of a mistake on its command line: a line, and its hint as a second one.
std::string MistakeText(std::string_view program, const Error& error);

struct HostPort {
  std::string host;  // empty: every interface
  std::uint16_t port = 0;
};
// "127.0.0.1:8080", ":9395", "[::1]:443".
Result<HostPort> ParseHostPort(std::string_view text);

}  // namespace hami::base
