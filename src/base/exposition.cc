// SPDX-License-Identifier: Apache-2.0

#include "base/exposition.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/strings.h"

namespace hami::base {
namespace {

constexpr std::size_t kPieceBytes = 64U << 10U;

template <typename T>
void AppendNumber(std::string& out, T value) {
  std::array<char, 64> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  out.append(digits.data(), end.ptr);
}

// QUOTES: inside of quotation marks.
void AppendEscaped(std::string& out, std::string_view text, bool quotes) {
  const auto plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  if (std::all_of(text.begin(), text.end(), plain)) {
    out += text;
    return;
  }
  while (true) {
    const std::size_t line = text.find('\n');
    for (const char c : Printable(text.substr(0, line))) {
      if (c == '\\' || (c == '"' && quotes)) out += '\\';
      out += c;
    }
    if (line == std::string_view::npos) return;
    out += "\\n";
    text.remove_prefix(line + 1);
  }
}

void AppendLabel(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append("=\"");
  AppendEscaped(out, value, true);
  out += '"';
}

std::string_view TypeName(Exposition::Type type) {
  switch (type) {
    case Exposition::Type::kGauge:
      return "gauge";
    case Exposition::Type::kCounter:
      return "counter";
    case Exposition::Type::kHistogram:
      break;
  }
  return "histogram";
}

}  // namespace

void Histogram::Observe(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<std::size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

LabelText::LabelText(std::initializer_list<std::pair<std::string_view, std::string_view>> labels) {
  for (const auto& [name, value] : labels) Add(name, value);
}

LabelText& LabelText::Add(std::string_view name, std::string_view value) {
  if (!text_.empty()) text_ += ',';
  AppendLabel(text_, name, value);
  return *this;
}

void Exposition::Family(std::string_view name, Type type, std::string_view help) {
  name_ = name;
  help_ = help;
  type_ = type;
  headed_ = false;
}

void Exposition::Begin() {
  if (!headed_) {
    text_.append("# HELP ").append(name_).append(" ");
    AppendEscaped(text_, help_, false);
    text_.append("\n# TYPE ").append(name_).append(" ").append(TypeName(type_)).append("\n");
    headed_ = true;
  }
  text_ += name_;
}

void Exposition::Part(std::string_view suffix, const LabelText& labels) {
  Begin();
  text_.append(suffix);
  if (!labels.text().empty()) text_.append("{").append(labels.text()).append("}");
  text_ += ' ';
}

void Exposition::Begin(const LabelText& labels) {
  Begin();
  if (!labels.text().empty()) text_.append("{").append(labels.text()).append("}");
  text_ += ' ';
}

void Exposition::AddLabels(std::initializer_list<Label> labels, bool& first) {
  for (const auto& [name, value] : labels) {
    text_ += first ? '{' : ',';
    first = false;
    AppendLabel(text_, name, value);
  }
}

void Exposition::AddValue(double value) {
  // Whole numbers in full, as far as they are exact: bytes of memory stay readable.
  constexpr double kExact = 9007199254740992.0;
  if (std::isnan(value)) {
    text_ += "NaN";
  } else if (std::isinf(value)) {
    text_ += value > 0 ? "+Inf" : "-Inf";
  } else if (std::trunc(value) == value && std::abs(value) < kExact) {
    AppendNumber(text_, static_cast<std::int64_t>(value));
  } else {
    AppendNumber(text_, value);
  }
}

void Exposition::Sample(const LabelText& labels, std::uint64_t value) {
  Begin(labels);
  AppendNumber(text_, value);
  End();
}

void Exposition::Sample(const LabelText& labels, double value) {
  Begin(labels);
  AddValue(value);
  End();
}

void Exposition::Sample(const LabelText& labels, const Histogram& histogram) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < histogram.counts_.size(); ++i) {
    count += histogram.counts_[i].load(std::memory_order_relaxed);
    std::array<char, 32> bound{};
    const bool last = i == histogram.bounds_.size();
    if (!last) std::snprintf(bound.data(), bound.size(), "%g", histogram.bounds_[i]);
    Part("_bucket", LabelText(labels).Add("le", last ? "+Inf" : bound.data()));
    AppendNumber(text_, count);
    End();
  }
  Part("_sum", labels);
  AddValue(histogram.sum_.load(std::memory_order_relaxed));
  End();
  Part("_count", labels);
  AppendNumber(text_, count);
  End();
}

void Exposition::Line(std::initializer_list<Label> labels, double value, std::initializer_list<Label> extra) {
  if (!good_) return;
  Begin();
  bool first = true;
  AddLabels(labels, first);
  AddLabels(extra, first);
  text_ += first ? " " : "} ";
  AddValue(value);
  End();
}

void Exposition::End() {
  text_ += '\n';
  if (text_.size() >= kPieceBytes) Flush();
}

void Exposition::Flush() {
  if (!sink_) return;
  if (good_ && !text_.empty()) good_ = sink_(text_);
  text_.clear();
}

}  // namespace hami::base
