// SPDX-License-Identifier: Apache-2.0

#include "base/terminal.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>

#include "base/fd.h"

namespace hami::base {
namespace {

Terminal Coloured() {
  Terminal terminal;
  terminal.is_terminal = terminal.colour = terminal.utf8 = true;
  terminal.width = 40;
  return terminal;
}

Table Sample() {
  Table table({{"NAME"}, {"USED", Table::Align::kRight}});
  table.Add({"a", {"1 GiB", Style::kGreen}});
  table.Add({"longer", "12.5 GiB"});
  return table;
}

TEST(Tables, GivenPipe_WhenRendered_ThenAlignedAndWithoutEscapes) {
  EXPECT_EQ(Sample().Render(Terminal{}),
            "NAME        USED\n"
            "a          1 GiB\n"
            "longer  12.5 GiB\n");
}

TEST(Tables, GivenColourTerminal_WhenRendered_ThenAlignmentIgnoresEscapes) {
  const auto lines = Sample().Lines(Coloured());
  ASSERT_EQ(lines.size(), 3u);
  for (const std::string& line : lines) EXPECT_EQ(DisplayWidth(line), 16u) << line;
  EXPECT_NE(lines[1].find("\x1b[32m1 GiB\x1b[0m"), std::string::npos);
}

TEST(Tables, GivenNarrowTerminal_WhenRendered_ThenClippedToItsWidth) {
  Terminal narrow = Coloured();
  narrow.width = 10;
  for (const std::string& line : Sample().Lines(narrow)) EXPECT_LE(DisplayWidth(line), 10u) << line;
}

TEST(Tables, GivenNarrowTerminal_WhenRendered_ThenTextsCutAndFiguresStay) {
  Table table({{"NAME"}, {"USED", Table::Align::kRight}, {"COMMAND"}});
  table.Add({std::string(63, 'n'), "810 MiB", "python3 train.py --epochs 100 --and so on"});
  table.Add({"b", "7 B", "x"});
  Terminal narrow;
  narrow.width = 40;
  const auto lines = table.Lines(narrow);
  EXPECT_EQ(lines[1], "nnnnnnnnnnn...  810 MiB  python3 trai...");
  EXPECT_EQ(lines[2], "b                   7 B  x");
  narrow.width = 12;
  for (const std::string& line : table.Lines(narrow)) EXPECT_LE(DisplayWidth(line), 12u);
}

TEST(Clipping, GivenStyledText_WhenClipped_ThenStyleClosedCharactersWhole) {
  EXPECT_EQ(Clip("abcdef", 6), "abcdef");
  EXPECT_EQ(Clip("abcdefg", 6), "abc...");
  EXPECT_EQ(Clip("ééééé", 4), "é...");
  EXPECT_EQ(Clip("\x1b[31mabcdefg\x1b[0m", 6), "\x1b[31mabc...\x1b[0m");
  EXPECT_EQ(Clip("abcdef", 2), "..");
  EXPECT_EQ(Clip("abc", 0), "");
}

TEST(Bars, GivenFractions_WhenDrawn_ThenSomethingIsNeverNothing) {
  const Terminal plain;
  EXPECT_EQ(Bar(plain, 0.0, 10), "..........");
  EXPECT_EQ(Bar(plain, 0.001, 10), "#.........");
  EXPECT_EQ(Bar(plain, 0.5, 10), "#####.....");
  EXPECT_EQ(Bar(plain, 7.0, 10), "##########");
  EXPECT_EQ(DisplayWidth(Bar(Coloured(), 0.3, 10)), 10u);
}

TEST(Screens, GivenPipe_WhenFramesAreDrawn_ThenPlainBlocksApart) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  {
    Screen screen(writer.get(), Screen::Kind::kWhole);
    EXPECT_TRUE(screen.Draw({"one", "two"}));
    EXPECT_TRUE(screen.Draw({"three"}));
  }
  writer.Reset();
  std::string text(100, '\0');
  const ssize_t got = ::read(reader.get(), text.data(), text.size());
  ASSERT_GT(got, 0);
  EXPECT_EQ(text.substr(0, static_cast<std::size_t>(got)), "one\ntwo\n\nthree\n");
}

TEST(Screens, GivenTerminal_WhenFramesAreDrawn_ThenInPlaceAndCursorReturns) {
  const Fd any(::posix_openpt(O_RDWR | O_NOCTTY));
  if (!any) GTEST_SKIP() << "this system has no pseudo-terminals (is /dev/pts mounted?)";
  int controller = -1;
  int terminal = -1;
  const winsize size{10, 20, 0, 0};
  ASSERT_EQ(::openpty(&controller, &terminal, nullptr, nullptr, &size), 0);
  const Fd reader(controller);
  const Fd writer(terminal);
  {
    Screen screen(writer.get(), Screen::Kind::kInline);
    EXPECT_TRUE(screen.Draw({"one", "two"}));
    EXPECT_TRUE(screen.Draw({"a line wider than the twenty columns there are"}));
    EXPECT_TRUE(screen.Draw(std::vector<std::string>(30, "row")));
  }
  std::array<char, 512> buffer{};
  std::string text;
  while (text.find("\x1b[?25h") == std::string::npos) {
    const ssize_t got = ::read(reader.get(), buffer.data(), buffer.size());
    ASSERT_GT(got, 0);
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  EXPECT_TRUE(text.starts_with("\x1b[?25l")) << "the cursor is hidden first";
  EXPECT_THAT(text, testing::HasSubstr("one\x1b[K\r\ntwo\x1b[K\r\n"));
  EXPECT_THAT(text, testing::HasSubstr("\x1b[2Aa line wider than..."));
  EXPECT_THAT(text, testing::HasSubstr("row\x1b[K\r\n(22 more lines)\x1b[K\r\n")) << "nine rows of ten are drawn";
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("\x1b[2J"))) << "clearing everything is what flickers";
}

}  // namespace
}  // namespace hami::base
