// SPDX-License-Identifier: Apache-2.0
//
// The text format of Prometheus, written line by line: a cluster has hundreds of thousands of lines, and none of them
// is kept. The caller keeps the lines of one metric together, as the format wants it.

#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "net/http.h"

namespace hami::scheduler {

class Exposition {
 public:
  using Label = std::pair<std::string_view, std::string_view>;

  explicit Exposition(net::BodyWriter& out) : out_(out) {}
  ~Exposition() { Flush(); }
  Exposition(const Exposition&) = delete;
  Exposition& operator=(const Exposition&) = delete;

  // Begins a metric. TYPE: "gauge", "counter".
  void Begin(std::string_view name, std::string_view type, std::string_view help);
  // One line of the metric begun last. EXTRA stands behind LABELS.
  void Line(std::initializer_list<Label> labels, double value, std::initializer_list<Label> extra = {});
  // Text that is in the format already.
  void Raw(std::string_view text);
  // False: nobody reads any more.
  bool good() const { return good_; }

 private:
  void Labels(std::initializer_list<Label> labels, bool& first);
  void Flush();

  net::BodyWriter& out_;
  std::string name_;
  std::string buffer_;
  bool good_ = true;
};

}  // namespace hami::scheduler
