// SPDX-License-Identifier: Apache-2.0
//
// What the command lines of all of `hami`'s commands have in common: a command with its flags and its help, how its
// words are read, and how a mistake is told. Which flags a command has is said in options.cc.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/flags.h"
#include "base/help_page.h"
#include "base/result.h"
#include "cli/options.h"

namespace hami::cli {

// A command and its flags, the words of its usage line, and the text below its flags.
struct Command {
  std::string name;
  std::string usage;
  std::string footer;
  base::FlagSet flags;

  Command(std::string command, std::string line, std::string text, base::FlagSet::Dialect dialect)
      : name(std::move(command)), usage(std::move(line)), footer(std::move(text)), flags(dialect) {
    flags.Group("Options");
  }
  bool runs() const { return name == "run" || name == "sim"; }
  std::string Help(base::HelpForm form) const;
};

// The words before `--`, those behind it, and whether it was there.
struct Words {
  std::vector<std::string> before;
  std::vector<std::string> after;
  bool separated = false;
};

// COMMAND: null where none was named.
Message Mistake(const Command* command, const base::Error& error);
Message UnknownArgument(const Command& command, const std::string& word);

// Reads the flags of COMMAND; nothing: there is something to print instead, in MESSAGE.
std::optional<base::FlagSet::Parsed> Read(const Command& command, const Words& words, Message& message);
// What is no flag, before `--` and behind it.
std::vector<std::string> AllWords(const base::FlagSet::Parsed& parsed, const Words& words);
// The command to run: behind `--`, or from the first word that is no flag. With `--` nothing may stand before it.
base::Status TakeCommand(const base::FlagSet::Parsed& parsed, const Words& words, std::vector<std::string>& out);

// Of `hami` itself; FORM is that of --help=FORM.
Message Overview(const std::string& form);
// Where the first word names no command.
Message NoCommand(const std::string& word);

}  // namespace hami::cli
