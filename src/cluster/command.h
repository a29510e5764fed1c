// SPDX-License-Identifier: Apache-2.0
//
// `hami cluster` and `hami doctor cluster`: their flags, and what they print. They read, and change nothing.

#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/flags.h"
#include "cluster/document.h"
#include "cluster/tables.h"

namespace hami::cluster {

enum class Output { kTable, kJson, kYaml };

struct Options {
  Source source;
  Look look;
  bool watch = false;
  int interval_seconds = 2;
  Output output = Output::kTable;
};

struct Message {
  std::string text;
  int exit_status = 0;
};

// ARGUMENTS without the program's name and the word `cluster`.
std::variant<Options, Message> ParseOptions(const std::vector<std::string>& arguments);

// The exit status: 0, 1 when the cluster cannot be read or holds no such pod, 2 for a mistake.
int Main(const std::vector<std::string>& arguments);

// Those of a source, for commands that have one.
void AddSourceFlags(base::FlagSet& flags, Source& source);

}  // namespace hami::cluster
