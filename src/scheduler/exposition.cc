// SPDX-License-Identifier: Apache-2.0

#include "scheduler/exposition.h"

#include <array>
#include <charconv>
#include <cmath>

namespace hami::scheduler {
namespace {

constexpr std::size_t kPieceBytes = 64U << 10U;

void AppendEscaped(std::string& out, std::string_view text, bool quotes) {
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quotes) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
}

void AppendNumber(std::string& out, double value) {
  std::array<char, 32> text{};
  // Whole numbers in full: bytes of memory stay readable and exact.
  constexpr double kWhole = 9007199254740992.0;
  const bool whole = std::trunc(value) == value && std::abs(value) < kWhole;
  const auto end = whole ? std::to_chars(text.data(), text.data() + text.size(), static_cast<long long>(value)).ptr
                         : std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  out.append(text.data(), end);
}

}  // namespace

void Exposition::Begin(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  buffer_.append("# HELP ").append(name).append(" ");
  AppendEscaped(buffer_, help, false);
  buffer_.append("\n# TYPE ").append(name).append(" ").append(type).append("\n");
}

void Exposition::Labels(std::initializer_list<Label> labels, bool& first) {
  for (const auto& [name, value] : labels) {
    buffer_ += first ? '{' : ',';
    first = false;
    buffer_.append(name).append("=\"");
    AppendEscaped(buffer_, value, true);
    buffer_ += '"';
  }
}

void Exposition::Line(std::initializer_list<Label> labels, double value, std::initializer_list<Label> extra) {
  if (!good_) return;
  buffer_ += name_;
  bool first = true;
  Labels(labels, first);
  Labels(extra, first);
  buffer_ += first ? " " : "} ";
  AppendNumber(buffer_, value);
  buffer_ += '\n';
  if (buffer_.size() >= kPieceBytes) Flush();
}

void Exposition::Raw(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= kPieceBytes) Flush();
}

void Exposition::Flush() {
  if (good_ && !buffer_.empty()) good_ = out_.Write(buffer_);
  buffer_.clear();
}

}  // namespace hami::scheduler
