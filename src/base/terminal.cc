// SPDX-License-Identifier: Apache-2.0

#include "base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/fd.h"
#include "base/strings.h"

namespace hami::base {
namespace {

constexpr std::string_view kReset = "\x1b[0m";

std::string_view Escape(Style style) {
  switch (style) {
    case Style::kBold:
      return "\x1b[1m";
    case Style::kDim:
      return "\x1b[2m";
    case Style::kRed:
      return "\x1b[31m";
    case Style::kGreen:
      return "\x1b[32m";
    case Style::kYellow:
      return "\x1b[33m";
    case Style::kBlue:
      return "\x1b[34m";
    case Style::kCyan:
      return "\x1b[36m";
    case Style::kPlain:
      break;
  }
  return "";
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool LocaleIsUtf8() {
  std::string locale = Variable("LC_ALL");
  if (locale.empty()) locale = Variable("LC_CTYPE");
  if (locale.empty()) locale = Variable("LANG");
  locale = ToLower(locale);
  return locale.ends_with("utf-8") || locale.ends_with("utf8");
}

// Bytes of the piece at the start of TEXT (an escape sequence or one character) and the columns it takes.
struct Piece {
  std::size_t bytes;
  std::size_t columns;
};
Piece NextPiece(std::string_view text) {
  if (text.starts_with("\x1b[")) {
    std::size_t end = 2;
    while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
    return {std::min(end + 1, text.size()), 0};
  }
  std::size_t end = 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  return {end, 1};
}

constexpr std::size_t kGap = 2;          // between columns
constexpr std::size_t kLeastColumn = 8;  // below that a column tells nothing

// Where the terminal is too narrow, the widest columns give way first: figures are short, names and commands long.
void Narrow(std::vector<std::size_t>& widths, std::size_t room) {
  std::size_t total = widths.empty() ? 0 : (widths.size() - 1) * kGap;
  for (const std::size_t width : widths) total += width;
  while (total > room) {
    const auto widest = std::max_element(widths.begin(), widths.end());
    if (widest == widths.end() || *widest <= kLeastColumn) return;
    --*widest;
    --total;
  }
}

}  // namespace

Terminal ExamineTerminal(int fd) {
  Terminal terminal;
  terminal.is_terminal = ::isatty(fd) == 1;
  terminal.utf8 = LocaleIsUtf8();
  if (!terminal.is_terminal) return terminal;
  const std::string term = Variable("TERM");
  terminal.colour = Variable("NO_COLOR").empty() && !term.empty() && term != "dumb";
  winsize size{};
  const bool known = ::ioctl(fd, TIOCGWINSZ, &size) == 0;
  terminal.width = known && size.ws_col > 0 ? size.ws_col : 80;
  terminal.height = known && size.ws_row > 0 ? size.ws_row : 24;
  return terminal;
}

std::string Paint(const Terminal& terminal, Style style, std::string_view text) {
  if (!terminal.colour || style == Style::kPlain || text.empty()) return std::string(text);
  return std::string(Escape(style)) + std::string(text) + std::string(kReset);
}

std::size_t DisplayWidth(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const Piece piece = NextPiece(text);
    columns += piece.columns;
    text.remove_prefix(piece.bytes);
  }
  return columns;
}

std::string Clip(std::string_view text, std::size_t width) {
  if (DisplayWidth(text) <= width) return std::string(text);
  constexpr std::string_view kEllipsis = "...";
  const std::size_t room = width > kEllipsis.size() ? width - kEllipsis.size() : 0;
  std::string clipped;
  bool styled = false;
  for (std::size_t columns = 0; !text.empty();) {
    const Piece piece = NextPiece(text);
    if (columns + piece.columns > room) break;
    clipped += text.substr(0, piece.bytes);
    styled = styled || piece.columns == 0;
    columns += piece.columns;
    text.remove_prefix(piece.bytes);
  }
  clipped += kEllipsis.substr(0, width - room);
  if (styled) clipped += kReset;
  return clipped;
}

std::string Bar(const Terminal& terminal, double fraction, std::size_t cells) {
  fraction = std::clamp(fraction, 0.0, 1.0);
  auto filled = static_cast<std::size_t>(std::lround(fraction * static_cast<double>(cells)));
  if (fraction > 0 && filled == 0) filled = std::min<std::size_t>(1, cells);
  std::string bar;
  for (std::size_t i = 0; i < cells; ++i) {
    bar += i < filled ? (terminal.utf8 ? "█" : "#") : (terminal.utf8 ? "░" : ".");
  }
  return bar;
}

void Table::Add(std::vector<Cell> row) {
  if (row.size() != columns_.size()) std::abort();  // a mistake of the caller, not of the data
  rows_.push_back(std::move(row));
}

std::vector<std::string> Table::Lines(const Terminal& terminal) const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = DisplayWidth(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, DisplayWidth(row[c].text));
    widths.push_back(width);
  }
  if (terminal.width != 0) Narrow(widths, terminal.width);
  const auto lay_out = [&](const auto& text_of, const auto& style_of) {
    std::string line;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string text = Clip(text_of(c), widths[c]);
      const std::string padding(widths[c] - DisplayWidth(text), ' ');
      const bool right = columns_[c].align == Align::kRight;
      const bool last = c + 1 == columns_.size();
      if (right) line += padding;
      line += Paint(terminal, style_of(c), text);
      if (!right && !last) line += padding;
      if (!last) line.append(kGap, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return terminal.width == 0 ? line : Clip(line, terminal.width);
  };
  std::vector<std::string> lines;
  lines.push_back(lay_out([&](std::size_t c) { return columns_[c].title; }, [](std::size_t) { return Style::kBold; }));
  for (const auto& row : rows_) {
    lines.push_back(lay_out([&](std::size_t c) { return row[c].text; }, [&](std::size_t c) { return row[c].style; }));
  }
  return lines;
}

std::string Table::Render(const Terminal& terminal) const {
  std::string text;
  for (const std::string& line : Lines(terminal)) text += line + "\n";
  return text;
}

Screen::Screen(int fd, Kind kind) : fd_(fd), kind_(kind), is_terminal_(::isatty(fd) == 1) {
  if (!is_terminal_) return;
  // A terminal that went away is noticed by the next Draw.
  static_cast<void>(WriteAll(fd_, kind_ == Kind::kWhole ? "\x1b[?1049h\x1b[?25l" : "\x1b[?25l"));
}

Screen::~Screen() {
  if (is_terminal_) static_cast<void>(WriteAll(fd_, kind_ == Kind::kWhole ? "\x1b[?25h\x1b[?1049l" : "\x1b[?25h"));
}

bool Screen::Draw(const std::vector<std::string>& lines) {
  std::string frame;
  if (!is_terminal_) {
    if (!first_) frame += "\n";
    for (const std::string& line : lines) frame += line + "\n";
    first_ = false;
    return WriteAll(fd_, frame).has_value();
  }
  const Terminal terminal = ExamineTerminal(fd_);
  const bool too_many = lines.size() > terminal.height - 1;
  const std::size_t shown = too_many ? terminal.height - 1 : lines.size();
  if (kind_ == Kind::kWhole) {
    frame += "\x1b[H";
  } else if (drawn_ > 0) {
    frame += "\r\x1b[" + std::to_string(drawn_) + "A";
  }
  // Every line is overwritten and then erased to its end, so that no cell is ever blank in between.
  for (std::size_t i = 0; i < shown; ++i) {
    const bool stands_for_rest = too_many && i + 1 == shown;
    const std::string rest = "(" + std::to_string(lines.size() - i) + " more lines)";
    frame += Clip(stands_for_rest ? rest : lines[i], terminal.width) + "\x1b[K\n";
  }
  frame += "\x1b[J";
  drawn_ = shown;
  return WriteAll(fd_, frame).has_value();
}

}  // namespace hami::base
