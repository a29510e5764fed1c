// SPDX-License-Identifier: Apache-2.0
//
// Prometheus' text format, written as it comes: a page has up to hundreds of thousands of samples, and none of them is
// an object. The samples of a family have to be added together, between one Family and the next; a family without
// samples leaves nothing on the page. Whatever a value holds, the page stays in the format.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hami::base {

// `name="value",…`, rendered once and used for many samples. What is not UTF-8 becomes '?'.
class LabelText {
 public:
  LabelText() = default;
  LabelText(std::initializer_list<std::pair<std::string_view, std::string_view>> labels);
  LabelText& Add(std::string_view name, std::string_view value);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// How many observations were at most so large, and their sum. Thread-safe; a reader may see an observation in a bucket
// and not yet in the sum.
class Histogram {
 public:
  // BOUNDS rise; what is above the last is counted all the same.
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void Observe(double value);

 private:
  friend class Exposition;
  const std::vector<double> bounds_;
  std::vector<std::atomic<std::uint64_t>> counts_;  // of each bucket alone; the last has no bound
  std::atomic<double> sum_ = 0;
};

class Exposition {
 public:
  enum class Type { kGauge, kCounter, kHistogram };
  using Label = std::pair<std::string_view, std::string_view>;
  // Takes a piece of the page; false: nobody reads any more.
  using Sink = std::function<bool(std::string_view piece)>;

  // Without a sink the page is kept for Take. EXPECTED_BYTES: room that is made at once; a guess.
  explicit Exposition(std::size_t expected_bytes = 0) { text_.reserve(expected_bytes); }
  explicit Exposition(Sink sink) : sink_(std::move(sink)) {}
  ~Exposition() { Flush(); }
  Exposition(const Exposition&) = delete;
  Exposition& operator=(const Exposition&) = delete;

  // NAME and HELP must outlive the family.
  void Family(std::string_view name, Type type, std::string_view help);
  void Sample(const LabelText& labels, std::uint64_t value);
  void Sample(const LabelText& labels, double value);
  // All samples of a histogram, behind LABELS.
  void Sample(const LabelText& labels, const Histogram& histogram);
  // A sample whose labels are used once. EXTRA stands behind LABELS.
  void Line(std::initializer_list<Label> labels, double value, std::initializer_list<Label> extra = {});
  std::string Take() { return std::move(text_); }
  bool good() const { return good_; }

 private:
  void Begin();
  void Begin(const LabelText& labels);
  void Part(std::string_view suffix, const LabelText& labels);
  void AddLabels(std::initializer_list<Label> labels, bool& first);
  void AddValue(double value);
  void End();
  void Flush();

  const Sink sink_;
  std::string text_;
  std::string_view name_;
  std::string_view help_;
  Type type_ = Type::kGauge;
  bool headed_ = false;
  bool good_ = true;
};

}  // namespace hami::base
