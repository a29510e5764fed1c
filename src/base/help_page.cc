// SPDX-License-Identifier: Apache-2.0

#include "base/help_page.h"

#include <cctype>

#include "base/json.h"
#include "base/strings.h"

namespace hami::base {
namespace {

// TEXT as roff takes it literally.
std::string Roff(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    line_begins = c == '\n';
  }
  return out;
}

std::string Upper(std::string text) {
  for (char& c : text) c = c == ' ' ? '-' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// Lines as they are, under HEADING; nothing for no text.
std::string Literally(const std::string& heading, const std::string& text) {
  const std::string trimmed(Trim(text));
  if (trimmed.empty()) return "";
  std::string out = ".SH " + heading + "\n.nf\n";
  bool was_blank = false;
  for (const std::string& line : Split(trimmed, '\n')) {
    const bool blank = Trim(line).empty();
    if (!blank) out += Roff(line) + "\n";
    if (blank && !was_blank) out += ".sp\n";
    was_blank = blank;
  }
  return out + ".fi\n";
}

std::string Man(const HelpPage& page, const FlagSet& flags, const BuildInfo& build) {
  const std::string dashed = [&] {
    std::string name = page.program;
    for (char& c : name) c = c == ' ' ? '-' : c;
    return name;
  }();
  std::string out = Concat({".TH ", Upper(page.program), " ", std::to_string(page.section), " ",
                            std::string_view(build.date).substr(0, 10), " \"hami-cpp ", build.version, "\"\n.SH NAME\n",
                            Roff(dashed), " \\- ", Roff(page.summary), "\n"});
  out += Literally("DESCRIPTION", page.before);
  std::string group;
  bool first = true;
  for (const FlagSet::Flag& flag : flags.flags()) {
    if (!flag.take) continue;
    if (first) out += ".SH OPTIONS\n";
    if (first || flag.group != group) out += ".SS " + Roff(flag.group) + "\n";
    first = false;
    group = flag.group;
    out += ".TP\n";
    if (flag.letter != 0) out += std::string("\\fB\\-") + flag.letter + "\\fR, ";
    out += "\\fB\\-\\-" + Roff(flag.name) + "\\fR";
    if (!flag.type.empty()) out += " \\fI" + Roff(flag.type) + "\\fR";
    if (!flag.shown_default.empty()) out += " (default " + Roff(flag.shown_default) + ")";
    out += "\n" + Roff(flag.help) + "\n";
  }
  return out + Literally("NOTES", page.after);
}

std::string Json(const HelpPage& page, const FlagSet& flags) {
  json::array all;
  for (const FlagSet::Flag& flag : flags.flags()) {
    json::object one{{"name", flag.name},   {"letter", flag.letter == 0 ? "" : std::string(1, flag.letter)},
                     {"type", flag.type},   {"default", flag.shown_default},
                     {"help", flag.help},   {"group", flag.group},
                     {"bool", flag.is_bool}};
    if (!flag.take) one["dead"] = flag.dead;
    all.emplace_back(std::move(one));
  }
  return Pretty(json::object{{"program", page.program},
                             {"section", page.section},
                             {"summary", page.summary},
                             {"before", page.before},
                             {"after", page.after},
                             {"flags", std::move(all)}});
}

}  // namespace

std::string Render(const HelpPage& page, const FlagSet& flags, HelpForm form, const BuildInfo& build) {
  switch (form) {
    case HelpForm::kText:
      break;
    case HelpForm::kJson:
      return Json(page, flags);
    case HelpForm::kMan:
      return Man(page, flags, build);
  }
  return page.before + flags.Help() + page.after;
}

}  // namespace hami::base
