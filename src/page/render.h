// SPDX-License-Identifier: Apache-2.0
//
// The parts of the page's document as JSON text (docs/operate/page.md has its members). Whatever a name holds, the text
// stays JSON. Nothing in it grows older by itself: the same state is the same text.

#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "page/snapshot.h"

namespace hami::page {

struct HealthEvent;

// A list that is written item by item.
class ListWriter {
 public:
  explicit ListWriter(std::string& out) : out_(out) { out_ += '['; }
  // Where the next item is to be written.
  std::string& Next() {
    if (!first_) out_ += ',';
    first_ = false;
    return out_;
  }
  void End() { out_ += ']'; }

 private:
  std::string& out_;
  bool first_ = true;
};

void AppendText(std::string& out, std::string_view text);
template <typename T>
void AppendNumber(std::string& out, T value) {
  char text[24];
  const auto written = std::to_chars(text, text + sizeof(text), value);
  out.append(text, written.ptr);
}

// The members of one object.
class Members {
 public:
  explicit Members(std::string& out) : out_(out) { out_ += '{'; }
  // Where the value of NAME is to be written.
  std::string& Name(std::string_view name);
  void Text(std::string_view name, std::string_view text) { AppendText(Name(name), text); }
  void Flag(std::string_view name, bool value) { Name(name) += value ? "true" : "false"; }
  template <typename T>
  void Count(std::string_view name, T value) {
    AppendNumber(Name(name), value);
  }
  void End() { out_ += '}'; }

 private:
  std::string& out_;
  bool first_ = true;
};

struct Head {
  std::string_view epoch;
  std::string_view version;
  std::uint64_t revision = 0;
  device::UnixSeconds now = 0;
  bool full = false;
};

// Begins the document; its members follow, each by AppendName.
void AppendHead(std::string& out, const Head& head);
// `,"NAME":` within an object that has a member already.
void AppendName(std::string& out, std::string_view name);

void AppendNode(std::string& out, const Node& node);
void AppendWaiting(std::string& out, const std::vector<WaitingPod>& waiting);
void AppendQuotas(std::string& out, const std::vector<sched::QuotaBooks::Line>& quotas);
// SINCE: when the health time-line begins; 0: it has not.
void AppendStatus(std::string& out, bool leading, bool complete, device::UnixSeconds since);
void AppendEvent(std::string& out, const HealthEvent& event);

}  // namespace hami::page
