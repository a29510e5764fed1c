// SPDX-License-Identifier: Apache-2.0
//
// What an XID, the driver's number for a trouble, says about the GPU. Application errors say nothing; errors that the
// hardware contained ask for a look; all others, unknown ones included, mean that the GPU is not to be given out. The
// node's owner changes that with DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS; what is enabled by number wins
// over what is disabled, also over "all". Pure.

#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace hami::plugin {

enum class XidClass {
  kIgnored,
  kSuspicious,  // the next reading of the GPU decides
  kFatal,
};

// Why LIST, as a whole of what is enabled or of what is disabled, can not be meant as it stands; empty: it can.
std::string MistakeInEnabled(std::string_view list);
std::string MistakeInDisabled(std::string_view list);

class XidPolicy {
 public:
  // Comma-separated: "all", "xids" (disabled only), or numbers. What is neither is skipped, as HAMi does.
  XidPolicy(std::string_view disabled, std::string_view enabled);
  XidPolicy() : XidPolicy("", "") {}

  XidClass Judge(std::uint64_t code) const;
  // Whether what the driver says when it is asked (lost, reset required) counts. XIDs may count without.
  bool readings_count() const { return readings_count_; }

 private:
  std::set<std::uint64_t> ignored_;
  std::set<std::uint64_t> enabled_;
  bool all_ignored_ = false;
  bool all_enabled_ = false;
  bool readings_count_ = true;
};

// "XID 48 (double-bit ECC error)".
std::string XidText(std::uint64_t code);

}  // namespace hami::plugin
