// SPDX-License-Identifier: Apache-2.0
//
// Completion of `hami` in a shell, made of what each command says of its own flags (`--help=json`): a command that is
// added later is completed without a line here.

#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hami::cli {

// Refuses shells other than bash, zsh and fish.
base::Result<std::string> CompletionScript(const std::string& shell);

// `hami COMMAND --help=FORM`, whichever part of the program has COMMAND ("sim cluster", "cert").
std::string HelpOf(std::string_view command, std::string_view form);

}  // namespace hami::cli
