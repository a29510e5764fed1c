// SPDX-License-Identifier: Apache-2.0

#include "cli/completion.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/strings.h"
#include "cert/command.h"
#include "cli/doctor.h"
#include "cli/options.h"
#include "cluster/command.h"
#include "upgrade/command.h"

namespace hami::cli {
namespace {

struct Flag {
  std::string name;
  std::string letter;
  std::string type;
  std::string help;
  bool takes_value = false;
  std::vector<std::string> choices;  // of its value; none: anything
};

struct Command {
  std::string name;
  std::string summary;
  std::vector<Flag> flags;
};

// "spread|binpack" names words; "SIZE|N%" names kinds of values, which are written in capitals.
std::vector<std::string> ChoicesOf(const std::string& type) {
  if (type.find('|') == std::string::npos || type.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ%,.") != std::string::npos) {
    return {};
  }
  return base::Split(type, '|');
}

std::vector<Command> AllCommands() {
  std::vector<Command> all;
  for (const CommandName& known : CommandNames()) {
    Command& command = all.emplace_back(Command{std::string(known.name), std::string(known.summary), {}});
    const auto described = base::ParseJson(HelpOf(known.name, "json"));
    if (!described || !described->is_object()) continue;
    const base::json::array* flags = base::GetArray(described->as_object(), "flags");
    if (flags == nullptr) continue;
    for (const base::json::value& value : *flags) {
      const base::json::object& one = value.as_object();
      if (one.contains("dead")) continue;
      const auto text = [&](const char* key) { return base::GetString(one, key).value_or(""); };
      const bool is_bool = base::GetBool(one, "bool").value_or(false);
      command.flags.push_back(
          {text("name"), text("letter"), text("type"), text("help"), !is_bool, ChoicesOf(text("type"))});
    }
    command.flags.push_back({"help", "h", "", "more of this command", false, {}});
  }
  return all;
}

std::string Joined(const std::vector<std::string>& words, const char* between) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

// TEXT inside '…'.
std::string Quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// First words, and the second words of those that have some.
std::vector<std::string> FirstWords(const std::vector<Command>& commands) {
  std::vector<std::string> words{"help"};
  for (const Command& command : commands) {
    std::string first = command.name.substr(0, command.name.find(' '));
    if (std::find(words.begin(), words.end(), first) == words.end()) words.push_back(std::move(first));
  }
  return words;
}

std::vector<std::string> SecondWords(const std::vector<Command>& commands, const std::string& first) {
  std::vector<std::string> words;
  for (const Command& command : commands) {
    if (command.name.starts_with(first + " ")) words.push_back(command.name.substr(first.size() + 1));
  }
  return words;
}

constexpr const char* kBashHead = R"(# bash completion of hami; made by `hami completion bash`
_hami() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev='' name='' words='' values='' seconds='' i
  ((COMP_CWORD > 0)) && prev=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  # Behind `--` stands the command line of another program.
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      if declare -F _command_offset >/dev/null; then
        _command_offset $((i + 1))
      elif ((i + 1 == COMP_CWORD)); then
        mapfile -t COMPREPLY < <(compgen -c -- "$cur")
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      fi
      return
    fi
  done
  # bash takes `=` for a word of its own.
  if [[ $cur == = ]]; then cur=''
  elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
)";

constexpr const char* kBashTail = R"(  if [[ -n $values ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$cur")
  elif [[ $values == '' && $takes == *" $prev "* ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  elif [[ $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
  else
    mapfile -t COMPREPLY < <(compgen -W "$seconds" -- "$cur"; [[ $files == yes ]] && compgen -f -- "$cur")
  fi
}
complete -o filenames -F _hami hami
)";

std::string Bash(const std::vector<Command>& commands) {
  std::string out = kBashHead;
  out += "  if ((COMP_CWORD == 1)); then\n    mapfile -t COMPREPLY < <(compgen -W " +
         Quoted(Joined(FirstWords(commands), " ") + " --help --version") + " -- \"$cur\")\n    return\n  fi\n";
  out += "  local takes=' ' files=no\n  name=${COMP_WORDS[1]}\n";
  out += "  if ((COMP_CWORD > 2)); then\n    case \"$name ${COMP_WORDS[2]}\" in\n";
  for (const Command& command : commands) {
    if (command.name.find(' ') != std::string::npos) {
      out += "      " + Quoted(command.name) + ") name=" + Quoted(command.name) + " ;;\n";
    }
  }
  out += "    esac\n  fi\n  case \"$name\" in\n";
  out += "    help) seconds=" + Quoted(Joined(FirstWords(commands), " ")) + " ;;\n";
  out += "    completion) seconds='bash zsh fish' words='--help' ;;\n";
  out += "    config) seconds='check' words='--help' ;;\n";
  for (const Command& command : commands) {
    if (command.name == "completion") continue;
    std::string words;
    std::string takes = " ";
    for (const Flag& flag : command.flags) {
      words += (words.empty() ? "--" : " --") + flag.name;
      if (!flag.takes_value) continue;
      takes += "--" + flag.name + " ";
      if (!flag.letter.empty()) takes += "-" + flag.letter + " ";
    }
    out +=
        "    " + Quoted(command.name) + ")\n      words=" + Quoted(words) + " takes=" + Quoted(takes) + " files=yes\n";
    if (command.name == "upgrade") out += "      seconds='scheduler node'\n";
    if (const auto second = SecondWords(commands, command.name); !second.empty()) {
      out += "      seconds=" + Quoted(Joined(second, " ")) + "\n";
    }
    out += "      case \"$prev\" in\n";
    for (const Flag& flag : command.flags) {
      if (flag.choices.empty()) continue;
      const std::string letter = flag.letter.empty() ? "" : " | -" + flag.letter;
      out += "        --" + flag.name + letter + ") values=" + Quoted(Joined(flag.choices, " ")) + " ;;\n";
    }
    out += "      esac ;;\n";
  }
  return out + "  esac\n" + kBashTail;
}

// A text for zsh's _arguments: brackets and colons mean something there.
std::string ZshText(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string ZshFlags(const Command& command) {
  std::string out;
  for (const Flag& flag : command.flags) {
    std::string value;
    if (flag.takes_value) {
      value = ":" + ZshText(flag.type.empty() ? "value" : flag.type) + ":" +
              (flag.choices.empty() ? "_files" : "(" + Joined(flag.choices, " ") + ")");
    }
    const std::string text = "[" + ZshText(flag.help) + "]" + value;
    out += " \\\n        " + Quoted("--" + flag.name + (flag.takes_value ? "=" : "") + text);
    if (!flag.letter.empty()) out += " \\\n        " + Quoted("-" + flag.letter + text);
  }
  return out;
}

std::string Zsh(const std::vector<Command>& commands) {
  std::string out =
      "#compdef hami\n# zsh completion of hami; made by `hami completion zsh`\n_hami() {\n"
      "  local name=$words[2]\n"
      "  if ((CURRENT == 2)); then\n    local -a all=(\n";
  for (const Command& command : commands) {
    if (command.name.find(' ') != std::string::npos) continue;
    out += "      " + Quoted(command.name + ":" + command.summary) + "\n";
  }
  out +=
      "      'config:check a device-config.yaml' 'help:of a command')\n    _describe command all\n    return\n  fi\n";
  out += "  ((CURRENT > 3)) && case \"$words[2] $words[3]\" in\n";
  for (const Command& command : commands) {
    if (command.name.find(' ') != std::string::npos) {
      out += "    " + Quoted(command.name) + ") name=" + Quoted(command.name) + " ;;\n";
    }
  }
  out += "  esac\n  case \"$name\" in\n    help) _values command " + Joined(FirstWords(commands), " ") +
         " ;;\n    config) _values command check ;;\n    completion) _values shell bash zsh fish ;;\n";
  for (const Command& command : commands) {
    if (command.name == "completion") continue;
    out += "    " + Quoted(command.name) + ")\n      _arguments" + ZshFlags(command) +
           " \\\n        '*::argument:_normal -p hami' ;;\n";
  }
  return out + "  esac\n}\nif [[ $funcstack[1] == _hami ]]; then _hami \"$@\"; else compdef _hami hami; fi\n";
}

std::string Fish(const std::vector<Command>& commands) {
  std::string out = "# fish completion of hami; made by `hami completion fish`\n";
  const std::string none = "not __fish_seen_subcommand_from " + Joined(FirstWords(commands), " ");
  for (const Command& command : commands) {
    const std::size_t space = command.name.find(' ');
    const std::string first = command.name.substr(0, space);
    std::string when = "__fish_seen_subcommand_from " + first;
    if (space == std::string::npos) {
      out += "complete -c hami -n " + Quoted(none) + " -a " + first + " -d " + Quoted(command.summary) + "\n";
    } else {
      const std::string second = command.name.substr(space + 1);
      out += "complete -c hami -n " + Quoted(when) + " -a " + second + " -d " + Quoted(command.summary) + "\n";
      when += "; and __fish_seen_subcommand_from " + second;
    }
    for (const Flag& flag : command.flags) {
      out += "complete -c hami -n " + Quoted(when) + " -l " + flag.name;
      if (!flag.letter.empty()) out += " -s " + flag.letter;
      if (flag.takes_value) out += " -r";
      if (!flag.choices.empty()) out += " -f -a " + Quoted(Joined(flag.choices, " "));
      out += " -d " + Quoted(flag.help) + "\n";
    }
  }
  out += "complete -c hami -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'\n";
  return out;
}

}  // namespace

std::string HelpOf(std::string_view command, std::string_view form) {
  const std::string flag = base::Concat({"--help=", form});
  if (command == "cert") {
    const auto answer = cert::ParseOptions({flag});
    const auto* message = std::get_if<cert::Message>(&answer);
    return message == nullptr ? "" : message->text;
  }
  if (command == "upgrade") {
    const auto answer = upgrade::ParseOptions({flag});
    const auto* message = std::get_if<upgrade::Message>(&answer);
    return message == nullptr ? "" : message->text;
  }
  if (command == "cluster") {
    const auto answer = cluster::ParseOptions({"--help=json"});
    const auto* message = std::get_if<cluster::Message>(&answer);
    return message == nullptr ? "" : message->text;
  }
  if (command == "doctor") {
    const auto answer = ParseDoctor({"--help=json"});
    const auto* message = std::get_if<Message>(&answer);
    return message == nullptr ? "" : message->text;
  }
  std::vector<std::string> words = base::Split(command, ' ');
  words.push_back(flag);
  const Options answer = ParseOptions(words);
  const auto* message = std::get_if<Message>(&answer);
  return message == nullptr ? "" : message->text;
}

base::Result<std::string> CompletionScript(const std::string& shell) {
  if (shell != "bash" && shell != "zsh" && shell != "fish") {
    return base::Fail("'" + shell + "' is none of: bash, zsh, fish");
  }
  const std::vector<Command> commands = AllCommands();
  return shell == "bash" ? Bash(commands) : shell == "zsh" ? Zsh(commands) : Fish(commands);
}

}  // namespace hami::cli
