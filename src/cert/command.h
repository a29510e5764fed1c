// SPDX-License-Identifier: Apache-2.0
//
// `hami cert`: its flags, and what it prints.

#pragma once

#include <string>
#include <variant>
#include <vector>

#include "cert/keeper.h"

namespace hami::cert {

struct Options {
  Place place;
  std::string service;
  std::vector<std::string> more_names;
  int days = 365;
  int renew_before_days = 90;
  Times times;
  std::string kubeconfig;
  bool check = false;
  bool json = false;

  Wanted wanted() const;
};

struct Message {
  std::string text;
  int exit_status = 0;
};

// ARGUMENTS without the program's name and the word `cert`.
std::variant<Options, Message> ParseOptions(const std::vector<std::string>& arguments);

// The exit status: 0, or 1 with the reason on stderr.
int Carry(const Options& options);

// Both, for `hami`.
int Main(const std::vector<std::string>& arguments);

}  // namespace hami::cert
