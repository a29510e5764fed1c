// SPDX-License-Identifier: Apache-2.0
//
// Writes Prometheus' text format. Labels are rendered once and used for many samples, which is what makes a page of
// thousands of series cheap; so there is no object per sample, and a family's samples have to be added together,
// between one Family and the next. A family without samples leaves nothing on the page.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hami::monitor {

// `name="value",…` with the values escaped; what is not UTF-8 becomes '?'.
class LabelText {
 public:
  LabelText() = default;
  LabelText(std::initializer_list<std::pair<std::string_view, std::string_view>> labels);
  LabelText& Add(std::string_view name, std::string_view value);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class Page {
 public:
  enum class Type { kGauge, kCounter };
  // EXPECTED_BYTES: room that is made at once; a guess.
  explicit Page(std::size_t expected_bytes = 0) { text_.reserve(expected_bytes); }
  // NAME and HELP must outlive the page.
  void Family(std::string_view name, Type type, std::string_view help);
  void Sample(const LabelText& labels, std::uint64_t value);
  void Sample(const LabelText& labels, double value);
  std::string Take() { return std::move(text_); }

 private:
  void Begin(const LabelText& labels);

  std::string text_;
  std::string_view name_;
  std::string_view help_;
  Type type_ = Type::kGauge;
  bool headed_ = false;
};

}  // namespace hami::monitor
