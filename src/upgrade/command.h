// SPDX-License-Identifier: Apache-2.0
//
// `hami upgrade`: its flags, and what it prints. Writes nothing without --apply.

#pragma once

#include <chrono>
#include <string>
#include <variant>
#include <vector>

#include "upgrade/carry.h"

namespace hami::upgrade {

struct Options {
  Names names;
  enum class What { kSurvey, kScheduler, kNodes };
  What what = What::kSurvey;
  std::vector<std::string> nodes;
  int replicas = 2;
  bool back = false;
  bool apply = false;
  bool json = false;
  std::chrono::seconds wait{300};
  std::string kubeconfig;
};

struct Message {
  std::string text;
  int exit_status = 0;
};

// ARGUMENTS without the program's name and the word `upgrade`.
std::variant<Options, Message> ParseOptions(const std::vector<std::string>& arguments);

// The exit status: 0, or 1 with the reason on stderr; 2 for a mistake on the command line.
int Main(const std::vector<std::string>& arguments);

}  // namespace hami::upgrade
