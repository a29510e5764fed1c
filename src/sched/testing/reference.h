// SPDX-License-Identifier: Apache-2.0
//
// A second opinion for tests: the rules of placement for the plain case (one container, policies binpack and spread,
// cards that are not MIG, no lists, no quota), written as directly as they can be said and sharing no code with the
// scheduler's own. Says nothing about pods outside of that.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sched/ledger.h"

namespace hami::sched {

struct ReferenceAnswer {
  std::string node;       // empty: none fits
  std::string allocated;  // the annotation's text
};

std::optional<ReferenceAnswer> AskReference(const Ledger& ledger, const device::Pod& pod,
                                            std::span<const std::string_view> names);

}  // namespace hami::sched
