// SPDX-License-Identifier: Apache-2.0
//
// Every annotation and label of the protocol, and whose word it is: one table, which admission, the admission policy in
// deploy/policy and docs/reference/annotations.md follow. Whatever begins with `hami.io/` or `hami-cpp/` belongs to
// HAMi's programs unless the table gives it to the tenant or the operator: a key that a later version adds is guarded
// before anybody lists it. Keys of other domains are never guarded, as other programs own them.

#pragma once

#include <span>
#include <string_view>

namespace hami::device {

enum class Author {
  kTenant,     // whoever may write the pod
  kOperator,   // whoever may write the node, or the scheduler's own pods
  kScheduler,  // and what stands below it: HAMi's programs
  kPlugin,
  kMonitor,
};

enum class Carrier { kPod, kNode, kLease };

struct KeyRule {
  std::string_view key;  // a * stands for a word
  Author author = Author::kTenant;
  Carrier carrier = Carrier::kPod;
  std::string_view text;  // what it says
};

std::span<const KeyRule> AnnotationTable();

// "tenant", "scheduler", …
std::string_view NameOf(Author author);

// Whether only HAMi's own programs may write KEY, an annotation or label, on a CARRIER.
bool IsGuarded(std::string_view key, Carrier carrier);

}  // namespace hami::device
