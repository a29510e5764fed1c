// SPDX-License-Identifier: Apache-2.0

#include "monitor/exposition.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace hami::monitor {
namespace {

TEST(Exposition, GivenAFamilyWithSamples_ThenItsHeadStandsOnceBeforeThem) {
  Page page;
  page.Family("a_bytes", Page::Type::kGauge, "What a is");
  page.Sample({{"x", "1"}, {"y", "2"}}, std::uint64_t{18446744073709551615U});
  page.Sample({}, 0.5);
  page.Family("nothing", Page::Type::kGauge, "Not on the page");
  page.Family("b_total", Page::Type::kCounter, "What b is");
  page.Sample({{"x", "1"}}, 1e21);
  EXPECT_EQ(
      page.Take(),
      "# HELP a_bytes What a is\n# TYPE a_bytes gauge\na_bytes{x=\"1\",y=\"2\"} 18446744073709551615\na_bytes 0.5\n"
      "# HELP b_total What b is\n# TYPE b_total counter\nb_total{x=\"1\"} 1e+21\n");
}

TEST(Exposition, GivenValuesThatWouldBreakTheFormat_ThenTheyAreEscaped) {
  EXPECT_EQ(LabelText({{"x", "a\"b\\c\nd\xff"}}).text(), "x=\"a\\\"b\\\\c?d?\"");
}

TEST(Exposition, GivenNumbersThatAreNone_ThenTheyAreSpelledAsPrometheusReadsThem) {
  Page page;
  page.Family("a", Page::Type::kGauge, "h");
  page.Sample({}, std::nan(""));
  page.Sample({}, -std::numeric_limits<double>::infinity());
  EXPECT_NE(page.Take().find("a NaN\na -Inf\n"), std::string::npos);
}

}  // namespace
}  // namespace hami::monitor
