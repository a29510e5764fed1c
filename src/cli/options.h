// SPDX-License-Identifier: Apache-2.0
//
// The command line of `hami`, parsed into plain values: one struct per command. Owns the help texts. A mistake is
// answered with what was probably meant. Nothing is carried out here.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cli/plan.h"
#include "cli/share.h"
#include "cli/status.h"

namespace hami::cli {

enum class Output { kTable, kJson };

struct RunOptions {
  Request request;
  Priority priority = Priority::kLow;
  std::string name;  // empty: choose one
  bool mps = false;  // mode mps; else hami-core
  std::string mps_control = "nvidia-cuda-mps-control";
  bool dry_run = false;
  Output output = Output::kTable;
  std::vector<std::string> command;
};

struct SetOptions {
  std::string name;  // of the share
  std::optional<base::Portion> memory;
  std::optional<unsigned> cores;
  std::optional<unsigned> burst;  // 0: no more than the cores
  std::optional<Priority> priority;
};

struct PsOptions {
  bool watch = false;
  double interval_seconds = 1.0;
  Output output = Output::kTable;
};

struct SmiOptions {
  Output output = Output::kTable;
};

struct SimOptions {
  std::string gpus;  // empty: whatever SIMGPU says, or one H100
  std::vector<std::string> command;
};

struct ConfigOptions {
  std::string file;
  bool for_hami = false;  // else what our programs do with it
  Output output = Output::kTable;
};

// A cluster on paper: lists of nodes and pods replayed under several policies.
struct ClusterOptions {
  std::string nodes;  // files
  std::string pods;
  std::string mix;       // instead of the files: a made-up workload
  std::string workload;  // file; empty: it is learnt
  std::vector<std::string> policies;
  double demand = 0;  // part of all cards; 0: every pod of the list
  int seed = 1;
  int sample_percent = 100;
  bool advise = false;
  Output output = Output::kTable;
};

// Text to print, and the status to end with: help, version, or a mistake.
struct Message {
  std::string text;
  int exit_status = 0;
};

using Options =
    std::variant<RunOptions, SetOptions, PsOptions, SmiOptions, SimOptions, ConfigOptions, ClusterOptions, Message>;

// Every command of `hami`, in the order in which a newcomer meets them.
struct CommandName {
  std::string_view name;  // "sim cluster"
  std::string_view summary;
};
std::span<const CommandName> CommandNames();

// ARGUMENTS without the program's name.
Options ParseOptions(const std::vector<std::string>& arguments);

}  // namespace hami::cli
