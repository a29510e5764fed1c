// SPDX-License-Identifier: Apache-2.0
//
// What the other end of a stream can show, and text laid out for it: colours only where they are seen (a terminal, and
// NO_COLOR unset), block characters only under a UTF-8 locale, tables aligned by what is visible, and a screen that is
// redrawn in place without flicker. Whatever is put into a cell must be printable (strings.h: Printable).

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hami::base {

struct Terminal {
  bool is_terminal = false;
  bool colour = false;
  bool utf8 = false;
  std::size_t width = 0;   // columns; 0 = unbounded (not a terminal)
  std::size_t height = 0;  // rows; 0 = unbounded
};

// Asks FD and the environment (NO_COLOR, TERM, LC_ALL, LC_CTYPE, LANG).
Terminal ExamineTerminal(int fd);

enum class Style { kPlain, kBold, kDim, kRed, kGreen, kYellow, kBlue, kCyan };

// TEXT in STYLE, or as it is where colours are not shown.
std::string Paint(const Terminal& terminal, Style style, std::string_view text);

// Columns that TEXT takes: escape sequences none, one per code point. (East Asian double width is not considered.)
std::size_t DisplayWidth(std::string_view text);

// The first WIDTH visible columns of TEXT, with an ellipsis where something was cut, and styles closed.
std::string Clip(std::string_view text, std::size_t width);

// A bar of CELLS characters, FRACTION (0 … 1) of them filled. Something rather than nothing shows at least one cell.
std::string Bar(const Terminal& terminal, double fraction, std::size_t cells);

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  struct Cell {
    // Implicit on purpose: rows are written as lists of texts, a few of them with a style.
    Cell(std::string cell_text) : text(std::move(cell_text)) {}  // NOLINT(google-explicit-constructor)
    Cell(const char* cell_text) : text(cell_text) {}             // NOLINT(google-explicit-constructor)
    Cell(std::string cell_text, Style cell_style) : text(std::move(cell_text)), style(cell_style) {}
    std::string text;
    Style style = Style::kPlain;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Exactly one cell per column.
  void Add(std::vector<Cell> row);
  bool empty() const { return rows_.empty(); }
  // One string per line, no line breaks, no wider than the terminal: the widest columns are cut first.
  std::vector<std::string> Lines(const Terminal& terminal) const;
  std::string Render(const Terminal& terminal) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// Draws frames over one another. On a terminal every frame replaces the one before with a single write; elsewhere
// frames follow each other, apart by a blank line. The cursor is hidden while a screen lives.
class Screen {
 public:
  enum class Kind {
    kWhole,   // the alternate screen: what was there before comes back at the end
    kInline,  // below the prompt; the last frame stays
  };
  Screen(int fd, Kind kind);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // False when nobody reads any more.
  bool Draw(const std::vector<std::string>& lines);

 private:
  int fd_;
  Kind kind_;
  bool is_terminal_;
  std::size_t drawn_ = 0;  // lines of the frame on the screen
  bool first_ = true;
};

}  // namespace hami::base
