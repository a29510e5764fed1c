// SPDX-License-Identifier: Apache-2.0

#include "base/exposition.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace hami::base {
namespace {

using Type = Exposition::Type;

TEST(Exposition, GivenAFamilyWithSamples_ThenItsHeadStandsOnceBeforeThem) {
  Exposition page;
  page.Family("a_bytes", Type::kGauge, "What \"a\" is\nand \\");
  page.Sample({{"x", "1"}, {"y", "2"}}, std::uint64_t{18446744073709551615U});
  page.Sample({}, 0.5);
  page.Line({{"x", "1"}}, 17179869184.0, {{"z", "3"}});
  page.Line({}, 0.25);
  page.Family("nothing", Type::kGauge, "Not on the page");
  page.Family("b_total", Type::kCounter, "What b is");
  page.Sample({{"x", "1"}}, 1e21);
  EXPECT_EQ(page.Take(),
            "# HELP a_bytes What \"a\" is\\nand \\\\\n# TYPE a_bytes gauge\n"
            "a_bytes{x=\"1\",y=\"2\"} 18446744073709551615\na_bytes 0.5\n"
            "a_bytes{x=\"1\",z=\"3\"} 17179869184\na_bytes 0.25\n"
            "# HELP b_total What b is\n# TYPE b_total counter\nb_total{x=\"1\"} 1e+21\n");
}

TEST(Exposition, GivenAHistogram_ThenItsBucketsAddUp) {
  Histogram histogram({0.0001, 0.25, 30});
  for (const double seconds : {0.00005, 0.0001, 0.2, 40.0}) histogram.Observe(seconds);
  Exposition page;
  page.Family("a_seconds", Type::kHistogram, "h");
  page.Sample({{"x", "1"}}, histogram);
  EXPECT_EQ(page.Take(),
            "# HELP a_seconds h\n# TYPE a_seconds histogram\n"
            "a_seconds_bucket{x=\"1\",le=\"0.0001\"} 2\na_seconds_bucket{x=\"1\",le=\"0.25\"} 3\n"
            "a_seconds_bucket{x=\"1\",le=\"30\"} 3\na_seconds_bucket{x=\"1\",le=\"+Inf\"} 4\n"
            "a_seconds_sum{x=\"1\"} 40.20015\na_seconds_count{x=\"1\"} 4\n");
}

TEST(Exposition, GivenValuesThatWouldBreakTheFormat_ThenTheyAreEscaped) {
  const char* hostile = "a\"b\\c\nd\xff\x1b";
  const std::string shown = "x=\"a\\\"b\\\\c\\nd??\"";
  EXPECT_EQ(LabelText({{"x", hostile}}).text(), shown);
  Exposition page;
  page.Family("m", Type::kGauge, "h");
  page.Line({{"x", hostile}}, 1);
  EXPECT_NE(page.Take().find("m{" + shown + "} 1\n"), std::string::npos);
}

TEST(Exposition, GivenNanAndInfinities_ThenSpelledAsPrometheusReadsThem) {
  Exposition page;
  page.Family("a", Type::kGauge, "h");
  page.Sample({}, std::nan(""));
  page.Sample({}, -std::numeric_limits<double>::infinity());
  page.Line({}, std::numeric_limits<double>::infinity());
  EXPECT_NE(page.Take().find("a NaN\na -Inf\na +Inf\n"), std::string::npos);
}

TEST(Exposition, GivenSink_WhenPageIsLong_ThenItComesInPiecesAndNothingIsLost) {
  std::string taken;
  int pieces = 0;
  {
    Exposition page([&](std::string_view piece) {
      taken += piece;
      return ++pieces > 0;
    });
    page.Family("m", Type::kGauge, "h");
    for (int i = 0; i < 20'000; ++i) page.Line({{"label", "a value that takes some room"}}, i);
  }
  EXPECT_GT(pieces, 5);
  EXPECT_EQ(std::count(taken.begin(), taken.end(), '\n'), 20'002);
  EXPECT_TRUE(taken.ends_with("} 19999\n"));
}

TEST(Exposition, GivenASinkThatNobodyReads_ThenItIsAskedOnce) {
  int pieces = 0;
  Exposition page([&](std::string_view) { return ++pieces < 1; });
  page.Family("m", Type::kGauge, "help");
  for (int i = 0; i < 100'000; ++i) page.Line({{"label", "a value that takes some room"}}, i);
  EXPECT_FALSE(page.good());
  EXPECT_EQ(pieces, 1);
}

}  // namespace
}  // namespace hami::base
