// SPDX-License-Identifier: Apache-2.0
//
// The help of one command, from its flags: as text for a terminal, as JSON for programs (the reference, completions),
// and as a manual page. One list of flags is the source of all three. What a flag says is never written twice.

#pragma once

#include <string>

#include "base/build_info.h"
#include "base/flags.h"

namespace hami::base {

struct HelpPage {
  std::string program;  // as it is called: "hami run"
  int section = 1;      // of the manual: 1 for people's commands, 8 for daemons
  std::string summary;  // a few words, without a full stop
  std::string before;   // what stands before the flags
  std::string after;    // and behind them
};

// JSON: program, section, summary, before, after, and flags: name, letter, type, default, help, group, bool; dead: why
// it does nothing.
std::string Render(const HelpPage& page, const FlagSet& flags, HelpForm form, const BuildInfo& build);

}  // namespace hami::base
