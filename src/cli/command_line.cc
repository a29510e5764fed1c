// SPDX-License-Identifier: Apache-2.0

#include "cli/command_line.h"

#include <algorithm>

#include "base/build_info.h"
#include "base/strings.h"
#include "cli/reference.h"

namespace hami::cli {

using base::FlagSet;

namespace {

constexpr const char* kOverview =
    "Share the GPUs of this machine between programs, with limits that hold.\n\n"
    "  hami run --mem 3g -- python3 train.py     run a program with 3 GiB of a GPU\n"
    "  hami ps --watch                           who holds what, live\n"
    "  hami set NAME --mem 6g                    new limits for a share that runs\n"
    "  hami smi                                  the GPUs, with the shares drawn in\n"
    "  hami sim --gpus 2xH100 -- hami run …      all of this without a GPU\n"
    "  hami cluster top                          the same of a Kubernetes cluster\n"
    "  hami doctor                               what is wrong, and what to do about it\n"
    "  hami cert --help                          the certificate of hami-scheduler's webhook\n";

constexpr const char* kGeneralOptions =
    "Options:\n"
    "  -h, --help     this; hami COMMAND --help says more of a command, --help=man a manual page\n"
    "  -V, --version  the version of this program\n";

// What a mistake quotes can not command the terminal.
std::string PrintableLines(const std::string& text) {
  std::string lines;
  for (const std::string& line : base::Split(text, '\n')) {
    lines += (lines.empty() ? "" : "\n  ") + base::Printable(line);
  }
  return lines;
}

std::string CommandList() {
  std::string text = "\nUsage: hami COMMAND [OPTIONS]\n\nCommands:\n";
  for (const CommandName& command : CommandNames()) {
    std::string name(command.name);
    name.resize(std::max<std::size_t>(name.size() + 1, 15), ' ');
    text += base::Concat({"  ", name, command.summary, "\n"});
  }
  return text + "\n";
}

}  // namespace

Message Mistake(const Command* command, const base::Error& error) {
  std::string text = "hami: error: " + PrintableLines(error.message) + "\n";
  if (!error.hint.empty()) text += "  " + PrintableLines(error.hint) + "\n";
  text += "  try: hami " + (command == nullptr ? "" : command->name + " ") + "--help\n";
  return {text, command != nullptr && command->runs() ? kRunFailed : kUsage};
}

Message UnknownArgument(const Command& command, const std::string& word) {
  return Mistake(&command, {"unknown argument '" + word + "'", ""});
}

std::optional<FlagSet::Parsed> Read(const Command& command, const Words& words, Message& message) {
  auto parsed = command.flags.Parse(words.before);
  if (!parsed) {
    message = Mistake(&command, parsed.error());
  } else if (parsed->help) {
    message = {command.Help(parsed->form), 0};
  } else if (parsed->version) {
    message = {base::VersionOf("hami") + "\n", 0};
  } else {
    return *std::move(parsed);
  }
  return std::nullopt;
}

std::vector<std::string> AllWords(const FlagSet::Parsed& parsed, const Words& words) {
  std::vector<std::string> all = parsed.words;
  all.insert(all.end(), words.after.begin(), words.after.end());
  return all;
}

base::Status TakeCommand(const FlagSet::Parsed& parsed, const Words& words, std::vector<std::string>& out) {
  if (words.separated && !parsed.words.empty()) {
    return base::Fail("unknown argument '" + parsed.words.front() + "'");
  }
  out = words.separated ? words.after : parsed.words;
  if (out.empty() || out.front().empty()) return base::Fail("no command to run; write it after --");
  return {};
}

std::string Command::Help(base::HelpForm form) const {
  base::HelpPage page{"hami " + name, 1, "", "Usage: hami " + name + " " + usage + "\n",
                      footer.empty() ? "" : "\n" + footer + "\n"};
  for (const CommandName& command : CommandNames()) {
    if (command.name == name) page.summary = command.summary;
  }
  return base::Render(page, flags, form, base::kBuildInfo);
}

Message Overview(const std::string& form) {
  if (form == "reference") return {ReferenceText(), 0};
  FlagSet none;
  const auto parsed = none.Parse({form.empty() ? "--help" : "--help=" + form});
  if (!parsed) return Mistake(nullptr, parsed.error());
  const base::HelpPage page{"hami", 1, "share the GPUs of this machine between programs, with limits that hold",
                            kOverview + CommandList() + kGeneralOptions, ""};
  return {base::Render(page, none, parsed->form, base::kBuildInfo), 0};
}

Message NoCommand(const std::string& word) {
  if (word == "-h" || word == "--help") return Overview("");
  if (word.starts_with("--help=")) return Overview(word.substr(7));
  if (word == "-V" || word == "--version") return {base::VersionOf("hami") + "\n", 0};
  const bool option = word.starts_with("-");
  std::vector<std::string> candidates;
  if (option) candidates = {"--help", "--version"};
  if (!option) {
    for (const CommandName& command : CommandNames()) candidates.emplace_back(command.name);
  }
  const auto near = base::Nearest(word.substr(0, word.find('=')), candidates);
  return Mistake(nullptr, {std::string("unknown ") + (option ? "option" : "command") + " '" + word + "'" +
                               (near ? "; did you mean " + *near + "?" : ""),
                           ""});
}

}  // namespace hami::cli
