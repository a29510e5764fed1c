// SPDX-License-Identifier: Apache-2.0

#include "monitor/exposition.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/strings.h"

namespace hami::monitor {
namespace {

template <typename T>
void AppendNumber(std::string& text, T value) {
  std::array<char, 64> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  text.append(digits.data(), end.ptr);
}

}  // namespace

LabelText::LabelText(std::initializer_list<std::pair<std::string_view, std::string_view>> labels) {
  for (const auto& [name, value] : labels) Add(name, value);
}

LabelText& LabelText::Add(std::string_view name, std::string_view value) {
  if (!text_.empty()) text_ += ',';
  text_.append(name).append("=\"");
  for (const char c : base::Printable(value)) {
    if (c == '\\' || c == '"') text_ += '\\';
    text_ += c;
  }
  text_ += '"';
  return *this;
}

void Page::Family(std::string_view name, Type type, std::string_view help) {
  name_ = name;
  help_ = help;
  type_ = type;
  headed_ = false;
}

void Page::Begin(const LabelText& labels) {
  if (!headed_) {
    text_.append("# HELP ").append(name_).append(" ").append(help_).append("\n# TYPE ").append(name_);
    text_.append(type_ == Type::kGauge ? " gauge\n" : " counter\n");
    headed_ = true;
  }
  text_.append(name_);
  if (!labels.text().empty()) text_.append("{").append(labels.text()).append("}");
  text_ += ' ';
}

void Page::Sample(const LabelText& labels, std::uint64_t value) {
  Begin(labels);
  AppendNumber(text_, value);
  text_ += '\n';
}

void Page::Sample(const LabelText& labels, double value) {
  Begin(labels);
  if (std::isnan(value)) {
    text_ += "NaN";
  } else if (std::isinf(value)) {
    text_ += value > 0 ? "+Inf" : "-Inf";
  } else {
    AppendNumber(text_, value);
  }
  text_ += '\n';
}

}  // namespace hami::monitor
