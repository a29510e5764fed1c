// SPDX-License-Identifier: Apache-2.0

#include "plugin/xid_policy.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/strings.h"

namespace hami::plugin {
namespace {

struct KnownXid {
  std::uint64_t code;
  const char* meaning;
};

// NVIDIA's catalogue of XID errors, those that operators meet.
constexpr std::array<KnownXid, 24> kKnown = {{
    {13, "graphics engine exception"},
    {31, "memory page fault of an application"},
    {32, "invalid push buffer"},
    {43, "an application stopped the GPU's processing"},
    {45, "work of a dead application was removed"},
    {48, "double-bit ECC error"},
    {61, "microcontroller breakpoint or warning"},
    {62, "microcontroller halted"},
    {63, "a row is remapped or a page retired"},
    {64, "a row could not be remapped or a page retired"},
    {68, "video processor exception"},
    {69, "graphics engine class error"},
    {74, "NVLink error"},
    {79, "fell off the bus"},
    {92, "many single-bit ECC errors"},
    {94, "contained ECC error"},
    {95, "uncontained ECC error"},
    {109, "context switch timeout"},
    {119, "GPU system processor does not answer"},
    {120, "GPU system processor error"},
    {121, "error of the link to the CPU"},
    {136, "reset of an engine failed"},
    {140, "unrecovered ECC error"},
    {143, "initialisation failed"},
}};

// Faults of a program, not of the GPU.
constexpr std::array<std::uint64_t, 6> kOfApplications = {13, 31, 43, 45, 68, 109};
// The hardware kept the damage to one program or repaired it; whether it needs a reset is for the GPU to say.
constexpr std::array<std::uint64_t, 4> kContained = {63, 64, 92, 94};

template <typename List>
bool Has(const List& list, std::uint64_t code) {
  return std::find(list.begin(), list.end(), code) != list.end();
}

struct Words {
  bool all = false;
  bool xids = false;
  std::set<std::uint64_t> codes;
  std::vector<std::string> unknown;
};

Words ReadWords(std::string_view text) {
  Words words;
  for (const std::string& part : base::Split(text, ',')) {
    const std::string word = base::ToLower(base::Trim(part));
    if (word == "all") {
      words.all = true;
    } else if (word == "xids") {
      words.xids = true;
    } else if (const auto code = base::ParseNumber(word)) {
      words.codes.insert(*code);
    } else if (!word.empty()) {
      words.unknown.push_back(word);
    }
  }
  return words;
}

}  // namespace

std::string MistakeInEnabled(std::string_view list) {
  Words words = ReadWords(list);
  if (words.xids) words.unknown.emplace_back("xids");
  if (words.unknown.empty()) return {};
  return base::ShellQuote(words.unknown.front()) + " is not all or the number of an XID";
}

std::string MistakeInDisabled(std::string_view list) {
  const Words words = ReadWords(list);
  if (words.unknown.empty()) return {};
  return base::ShellQuote(words.unknown.front()) + " is not all, xids or the number of an XID";
}

XidPolicy::XidPolicy(std::string_view disabled, std::string_view enabled) {
  const Words off = ReadWords(disabled);
  const Words on = ReadWords(enabled);
  ignored_.insert(kOfApplications.begin(), kOfApplications.end());
  ignored_.insert(off.codes.begin(), off.codes.end());
  all_ignored_ = off.all || off.xids;
  readings_count_ = !off.all;
  enabled_ = on.codes;
  all_enabled_ = on.all;
}

XidClass XidPolicy::Judge(std::uint64_t code) const {
  const bool counts = all_enabled_ || enabled_.contains(code) || (!all_ignored_ && !ignored_.contains(code));
  if (!counts) return XidClass::kIgnored;
  return Has(kContained, code) ? XidClass::kSuspicious : XidClass::kFatal;
}

std::string XidText(std::uint64_t code) {
  const auto known =
      std::find_if(kKnown.begin(), kKnown.end(), [&](const KnownXid& entry) { return entry.code == code; });
  const std::string number = "XID " + std::to_string(code);
  return known == kKnown.end() ? number : base::Concat({number, " (", known->meaning, ")"});
}

}  // namespace hami::plugin
