// SPDX-License-Identifier: Apache-2.0

#include "base/flags.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/strings.h"

namespace hami::base {
namespace {

constexpr std::size_t kHelpColumn = 6;
constexpr std::size_t kHelpWidth = 100;

// TEXT in lines of at most kHelpWidth columns, each behind kHelpColumn blanks.
std::string Wrapped(std::string_view text) {
  const std::string indent(kHelpColumn, ' ');
  std::string out;
  std::string line = indent;
  for (const std::string& word : Split(text, ' ')) {
    if (line.size() > kHelpColumn && line.size() + 1 + word.size() > kHelpWidth) {
      out += line + "\n";
      line = indent;
    }
    if (line.size() > kHelpColumn) line += ' ';
    line += word;
  }
  return out + line + "\n";
}

struct Unit {
  std::string_view name;
  double milliseconds;
};
// Longer names first: "ms" is no "m".
constexpr std::array<Unit, 6> kUnits{{{"ns", 1e-6}, {"us", 1e-3}, {"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}}};

const Unit* TakeUnit(std::string_view& text) {
  for (const Unit& unit : kUnits) {
    if (text.starts_with(unit.name)) {
      text.remove_prefix(unit.name.size());
      return &unit;
    }
  }
  return nullptr;
}

}  // namespace

FlagSet::Flag& FlagSet::Add(std::string name) {
  Flag flag;
  flag.name = std::move(name);
  flag.group = group_;
  return flags_.emplace_back(std::move(flag));
}

void FlagSet::Text(std::string name, std::string type, std::string& out, std::string help) {
  Custom(
      std::move(name), std::move(type), out,
      [&out](const std::string& value) {
        out = value;
        return Status();
      },
      std::move(help));
}

void FlagSet::Bool(std::string name, bool& out, std::string help) {
  Custom(
      std::move(name), "",
      dialect_ != Dialect::kDaemon ? ""
      : out                        ? "true"
                                   : "false",
      [&out](const std::string& value) {
        const auto parsed = ParseGoBool(value);
        if (!parsed) return Status(tl::unexpected(parsed.error()));
        out = *parsed;
        return Status();
      },
      std::move(help));
  flags_.back().is_bool = true;
}

void FlagSet::Custom(std::string name, std::string type, std::string shown_default, Take take, std::string help) {
  Flag& flag = Add(std::move(name));
  flag.type = std::move(type);
  flag.shown_default = std::move(shown_default);
  flag.take = std::move(take);
  flag.help = std::move(help);
}

void FlagSet::Shorthand(char letter) { flags_.back().letter = letter; }

void FlagSet::Dead(const std::vector<std::string>& names, bool is_bool, const std::string& why) {
  for (const std::string& name : names) {
    Flag& flag = Add(name);
    flag.dead = why;
    flag.is_bool = is_bool;
  }
}

void FlagSet::Quiet(const std::vector<std::string>& names, bool is_bool) { Dead(names, is_bool, ""); }

const FlagSet::Flag* FlagSet::Find(std::string_view name) const {
  const auto found = std::find_if(flags_.begin(), flags_.end(), [&](const Flag& flag) { return flag.name == name; });
  return found == flags_.end() ? nullptr : &*found;
}

const FlagSet::Flag* FlagSet::FindLetter(char letter) const {
  const auto found =
      std::find_if(flags_.begin(), flags_.end(), [&](const Flag& flag) { return flag.letter == letter; });
  return found == flags_.end() ? nullptr : &*found;
}

Result<FlagSet::Given> FlagSet::ReadLong(const std::string& word) const {
  const std::size_t equals = word.find('=');
  const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
  const Flag* flag = Find(name);
  if (flag == nullptr) {
    std::vector<std::string> names{"help", "version"};
    for (const Flag& known : flags_) names.push_back(known.name);
    const auto nearest = Nearest(name, names);
    return Fail("unknown flag --" + name, nearest ? "did you mean --" + *nearest + "?" : "--help lists every flag");
  }
  Given given{flag, "--" + name, std::nullopt};
  if (equals != std::string::npos) given.value = word.substr(equals + 1);
  return given;
}

Status FlagSet::ReadShort(const std::string& word, std::vector<Given>& given) const {
  for (std::size_t i = 1; i < word.size(); ++i) {
    const Flag* flag = FindLetter(word[i]);
    if (flag == nullptr) return Fail("unknown flag " + word, "--help lists every flag");
    Given& one = given.emplace_back(Given{flag, std::string("-") + word[i], std::nullopt});
    const bool has_value = i + 1 < word.size() && (word[i + 1] == '=' || !flag->is_bool);
    if (!has_value) continue;
    one.value = word.substr(word[i + 1] == '=' ? i + 2 : i + 1);
    break;
  }
  return {};
}

Status FlagSet::Use(const Given& given, Parsed& parsed) const {
  if (!given.flag->take) {
    if (!given.flag->dead.empty()) {
      parsed.warnings.push_back(given.spelled + " is accepted and does nothing: " + given.flag->dead);
    }
    return {};
  }
  const bool first = parsed.given.insert(given.flag->name).second;
  if (!first && !given.flag->is_bool && dialect_ != Dialect::kDaemon) {
    return Fail(given.spelled + " can be given only once");
  }
  const std::string value = given.value.value_or("true");
  const Status taken = given.flag->take(value);
  if (taken) return {};
  const std::string shown = dialect_ == Dialect::kDaemon || given.flag->is_bool ? "=" + ShellQuote(value) : "";
  return Fail(given.spelled + shown + ": " + taken.error().message, taken.error().hint);
}

Result<FlagSet::Parsed> FlagSet::Parse(const std::vector<std::string>& arguments) const {
  Parsed parsed;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--help" || word == "-h") {
      parsed.help = true;
      return parsed;
    }
    if (word.starts_with("--help=")) {
      parsed.help = true;
      HAMI_TRY(TakeChoice<HelpForm>(
          parsed.form,
          {{"text", HelpForm::kText}, {"json", HelpForm::kJson}, {"man", HelpForm::kMan}})(word.substr(7)));
      return parsed;
    }
    if (word == "--version") {
      parsed.version = true;
      parsed.words = {"version"};
      return parsed;
    }
    if (word == "--") {
      parsed.words.insert(parsed.words.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
      break;
    }
    if (word.size() < 2 || word[0] != '-') {
      if (dialect_ == Dialect::kRunner) {
        parsed.words.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
        break;
      }
      parsed.words.push_back(word);
      continue;
    }
    std::vector<Given> all;
    if (word[1] == '-') {
      auto given = ReadLong(word);
      if (!given) return tl::unexpected(given.error());
      all.push_back(*std::move(given));
    } else {
      HAMI_TRY(ReadShort(word, all));
    }
    // What follows is the value whatever it looks like, as in pflag.
    if (!all.back().value && !all.back().flag->is_bool) {
      if (i + 1 == arguments.size()) return Fail(all.back().spelled + " needs a value");
      all.back().value = arguments[++i];
    }
    for (const Given& given : all) HAMI_TRY(Use(given, parsed));
  }
  return parsed;
}

std::string FlagSet::Help() const {
  std::string out;
  std::string group;
  for (const Flag& flag : flags_) {
    if (!flag.take) continue;
    if (flag.group != group || out.empty()) out += "\n" + flag.group + ":\n";
    group = flag.group;
    out += flag.letter == 0 ? "  " : std::string("  -") + flag.letter + ", ";
    out += "--" + flag.name;
    if (!flag.type.empty()) out += " " + flag.type;
    if (!flag.shown_default.empty()) out += "  (default " + flag.shown_default + ")";
    out += "\n" + Wrapped(flag.help);
  }
  return out;
}

FlagSet::Take TakeNumber(int& out, int least, int most) {
  return [&out, least, most](const std::string& text) -> Status {
    int value = 0;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, value);
    if (read.ec != std::errc() || read.ptr != end || value < least || value > most) {
      return Fail("must be a number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    out = value;
    return {};
  };
}

Result<bool> ParseGoBool(std::string_view text) {
  for (const std::string_view yes : {"1", "t", "T", "true", "TRUE", "True"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"0", "f", "F", "false", "FALSE", "False"}) {
    if (text == no) return false;
  }
  return Fail("neither true nor false");
}

Result<std::chrono::milliseconds> ParseGoDuration(std::string_view text) {
  constexpr const char* kHint = "durations are written like 28s, 5m or 1h30m";
  constexpr double kMost = 366.0 * 24 * 3600e3;
  if (text == "0") return std::chrono::milliseconds(0);
  if (text.empty()) return Fail("not a duration", kHint);
  double sum = 0;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find_first_not_of("0123456789."), text.size());
    double number = 0;
    const auto read = std::from_chars(text.data(), text.data() + length, number, std::chars_format::fixed);
    if (length == 0 || read.ec != std::errc() || read.ptr != text.data() + length) return Fail("not a duration", kHint);
    text.remove_prefix(length);
    const Unit* unit = TakeUnit(text);
    if (unit == nullptr) return Fail("not a duration", kHint);
    sum += number * unit->milliseconds;
    if (!(sum <= kMost)) return Fail("longer than a year", kHint);
  }
  return std::chrono::milliseconds(std::llround(sum));
}

std::string FormatGoDuration(std::chrono::milliseconds span) {
  const std::int64_t all = span.count();
  if (all > 0 && all < 1000) return std::to_string(all) + "ms";
  const std::int64_t minutes = all / 60'000;
  std::string text;
  if (minutes >= 60) text += std::to_string(minutes / 60) + "h";
  if (minutes > 0) text += std::to_string(minutes % 60) + "m";
  text += std::to_string(all % 60'000 / 1000);
  if (const std::int64_t rest = all % 1000; rest != 0) {
    std::string digits = std::to_string(1000 + rest).substr(1);
    while (digits.back() == '0') digits.pop_back();
    text += "." + digits;
  }
  return text + "s";
}

Result<HostPort> ParseHostPort(std::string_view text) {
  constexpr const char* kHint = "addresses are written like 127.0.0.1:8080, :9395 or [::1]:443";
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Fail("no port", kHint);
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":[]") != std::string_view::npos) {
    return Fail("an IPv6 address without brackets", kHint);
  }
  const auto port = ParseNumber(text.substr(colon + 1));
  if (!port || *port > 65535) return Fail("no port from 0 to 65535", kHint);
  return HostPort{std::string(host), static_cast<std::uint16_t>(*port)};
}

std::string MistakeText(std::string_view program, const Error& error) {
  std::string text = Concat({program, ": error: ", Printable(error.message), "\n"});
  if (!error.hint.empty()) text += Concat({"  ", Printable(error.hint), "\n"});
  return text;
}

}  // namespace hami::base
