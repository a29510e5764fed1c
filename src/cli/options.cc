// SPDX-License-Identifier: Apache-2.0

#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <sstream>

#include "base/strings.h"
#include "base/units.h"

#ifndef HAMI_VERSION
#define HAMI_VERSION "unknown"
#endif

namespace hami::cli {
namespace {

constexpr const char* kOverview =
    "Share the GPUs of this machine between programs, with limits that hold.\n\n"
    "  hami run --mem 3g -- python3 train.py     run a program with 3 GiB of a GPU\n"
    "  hami ps --watch                           who holds what, live\n"
    "  hami smi                                  the GPUs, with the shares drawn in\n"
    "  hami sim --gpus 2xH100 -- hami run …      all of this without a GPU";

constexpr const char* kRunExamples =
    "Examples:\n"
    "  hami run --mem 3g -- python3 train.py            3 GiB of the emptiest GPU\n"
    "  hami run --mem 30% --cores 30 -- ./serve         30 % of its memory and of its compute time\n"
    "  hami run --gpus 2 --mem 20g -- torchrun …        20 GiB of each of two GPUs\n"
    "  hami run --gpus GPU-5ef1 -- ./job                all that is free of one particular GPU\n"
    "  hami run --mem 3g --dry-run -- ./job             show the plan and the environment only\n\n"
    "Exit status: that of COMMAND; 125 when hami itself fails or there is no room, 126 when COMMAND\n"
    "can not be run, 127 when it is not found.";

constexpr const char* kSimExamples =
    "Examples:\n"
    "  hami sim -- hami smi                             one simulated H100\n"
    "  hami sim --gpus 2xH100 -- hami run --mem 3g -- ./program\n"
    "  hami sim --gpus 2xT4,1xA100-80 -- bash           a shell on a machine with three GPUs\n\n"
    "Programs that use the CUDA driver API or NVML run on it; kernels take time and compute nothing.";

// A mistake in the value of an option, told in the words of the part that understands values.
void Check(const base::Error& error) {
  throw CLI::ValidationError(error.hint.empty() ? error.message : error.message + "\n  " + error.hint);
}

GpuChoice ParseGpus(const std::string& text) {
  if (const auto count = base::ParseNumber(text)) {
    if (*count == 0 || *count > 16) Check({"--gpus must be from 1 to 16", "or a list of UUIDs"});
    return AnyGpus{static_cast<unsigned>(*count)};
  }
  std::vector<std::string> names = base::Split(text, ',');
  for (const std::string& name : names) {
    if (name.starts_with("MIG-"))
      Check({"MIG devices can not be shared yet", "name a whole GPU (hami smi lists them)"});
    if (!name.starts_with("GPU-")) {
      Check(
          {"'" + name + "' is neither a number of GPUs nor a UUID", "UUIDs look like GPU-5ef1…; hami smi lists them"});
    }
  }
  if (names.size() > 16) Check({"at most 16 GPUs fit into a share", ""});
  return names;
}

// CLI11's help with a usage line that shows where the command goes.
class CommandHelp : public CLI::Formatter {
 public:
  explicit CommandHelp(std::string usage) : usage_(std::move(usage)) { column_width(26); }
  std::string make_usage(const CLI::App*, std::string) const override { return "Usage: " + usage_ + "\n"; }

 private:
  std::string usage_;
};

struct Parser {
  CLI::App app{kOverview, "hami"};
  RunOptions run;
  SetOptions set;
  PsOptions ps;
  SmiOptions smi;
  SimOptions sim;
  CLI::App* run_command = nullptr;
  CLI::App* set_command = nullptr;
  CLI::App* ps_command = nullptr;
  CLI::App* smi_command = nullptr;
  CLI::App* sim_command = nullptr;

  Parser();
  void AddRun();
  void AddSet();
  void AddPs();
  void AddOutput(CLI::App* command, Output& output);
  Options Parse(const std::vector<std::string>& before, std::vector<std::string> after, bool has_separator);
};

void Parser::AddOutput(CLI::App* command, Output& output) {
  command
      ->add_option_function<std::string>(
          "--output,-o",
          [&output](const std::string& text) { output = text == "json" ? Output::kJson : Output::kTable; },
          "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->type_name("FORMAT");
}

void Parser::AddRun() {
  const auto text_option = [this](const char* name, const char* type, const char* help,
                                  std::function<void(const std::string&)> parse) {
    run_command->add_option_function<std::string>(name, std::move(parse), help)->type_name(type);
  };
  text_option("--gpus", "N|UUID,...", "how many GPUs, or which (UUIDs or their unique beginnings); 1 if left out",
              [this](const std::string& text) { run.request.gpus = ParseGpus(text); });
  text_option("--mem", "SIZE|N%", "memory of each GPU (3g, 512m, 30%); all that is free on it if left out",
              [this](const std::string& text) {
                const auto portion = base::ParsePortion(text);
                if (!portion) Check(portion.error());
                run.request.memory = *portion;
              });
  text_option("--cores", "N", "percent of each GPU's compute time; no limit if left out",
              [this](const std::string& text) {
                const auto percent = base::ParsePercent(text);
                if (!percent) Check(percent.error());
                run.request.cores = *percent;
              });
  text_option("--burst", "N", "percent up to which --cores may be exceeded while others leave the GPU's time unused",
              [this](const std::string& text) {
                const auto percent = base::ParsePercent(text);
                if (!percent) Check(percent.error());
                run.burst = *percent;
              });
  run_command
      ->add_option_function<std::string>(
          "--policy",
          [this](const std::string& text) {
            run.request.policy = text == "binpack" ? Policy::kBinpack : Policy::kSpread;
          },
          "spread: the emptiest GPU (default); binpack: the fullest that still fits")
      ->check(CLI::IsMember({"binpack", "spread"}))
      ->type_name("POLICY");
  run_command
      ->add_option_function<std::string>(
          "--priority",
          [this](const std::string& text) { run.priority = text == "high" ? Priority::kHigh : Priority::kLow; },
          "high or low (default): who gives way when compute time is short")
      ->check(CLI::IsMember({"high", "low"}))
      ->type_name("PRIORITY");
  text_option("--name", "NAME", "name of the share; made from COMMAND if left out", [this](const std::string& text) {
    if (const auto valid = CheckShareName(text); !valid) Check(valid.error());
    run.name = text;
  });
  run_command->add_flag("--oversubscribe", run.request.oversubscribe,
                        "let the limit exceed what is free: what does not fit on the GPU spills to host memory");
  run_command->add_flag("--dry-run", run.dry_run, "show the plan and the environment, run nothing");
  AddOutput(run_command, run.output);
  run_command->footer(kRunExamples);
  run_command->formatter(std::make_shared<CommandHelp>("hami run [OPTIONS] -- COMMAND [ARGUMENT...]"));
}

void Parser::AddSet() {
  set_command->add_option("NAME", set.name, "the share, as `hami ps` names it")->required()->type_name("");
  set_command
      ->add_option_function<std::string>(
          "--mem",
          [this](const std::string& text) {
            const auto portion = base::ParsePortion(text);
            if (!portion) Check(portion.error());
            set.memory = *portion;
          },
          "memory of each of its GPUs (6g, 512m, 30%)")
      ->type_name("SIZE|N%");
  set_command
      ->add_option_function<std::string>(
          "--cores",
          [this](const std::string& text) {
            const auto percent = base::ParsePercent(text);
            if (!percent) Check(percent.error());
            set.cores = *percent;
          },
          "percent of each GPU's compute time; 100 is all of it")
      ->type_name("N");
  set_command->footer(
      "Programs of the share follow at once, while they run. Memory below what they hold refuses only new requests.");
}

void Parser::AddPs() {
  ps_command->add_flag("--watch,-w", ps.watch, "go on until interrupted; redraws in place on a terminal");
  ps_command->add_option("--interval", ps.interval_seconds, "seconds between two looks")
      ->check(CLI::Range(0.1, 3600.0))
      ->type_name("SECONDS");
  AddOutput(ps_command, ps.output);
  ps_command->footer("USED and PEAK are what the share's limit counts; REFUSED is how often it said no.");
}

Parser::Parser() {
  app.set_version_flag("--version,-V", std::string("hami ") + HAMI_VERSION);
  app.require_subcommand(0, 1);
  run_command = app.add_subcommand("run", "Run COMMAND with a share of the GPUs");
  set_command = app.add_subcommand("set", "Change the limits of a running share");
  ps_command = app.add_subcommand("ps", "Show the shares and their processes");
  smi_command = app.add_subcommand("smi", "Show the GPUs with the shares drawn in");
  sim_command = app.add_subcommand("sim", "Run COMMAND on simulated GPUs");
  AddRun();
  AddSet();
  AddPs();
  AddOutput(smi_command, smi.output);
  sim_command->add_option("--gpus", sim.gpus, "which GPUs to simulate, e.g. 2xH100 or 2xT4,1xA100-80")
      ->type_name("SPEC");
  sim_command->footer(kSimExamples);
  sim_command->formatter(std::make_shared<CommandHelp>("hami sim [--gpus SPEC] -- COMMAND [ARGUMENT...]"));
  for (CLI::App* command : {run_command, sim_command}) command->prefix_command();
  for (CLI::App* command : {set_command, ps_command, smi_command}) command->allow_extras();
  app.allow_extras();
}

std::vector<std::string> OptionNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

Message Mistake(const CLI::App& command, std::string text) {
  const bool top = command.get_parent() == nullptr;
  const std::string name = command.get_name();
  const std::string help = top ? "hami --help" : "hami " + name + " --help";
  return {"hami: error: " + text + "\n  try: " + help + "\n", name == "run" || name == "sim" ? kRunFailed : kUsage};
}

Message UnknownWord(const CLI::App& command, const std::string& word) {
  const bool is_option = word.starts_with("-");
  std::vector<std::string> candidates = OptionNames(command);
  const bool top = command.get_parent() == nullptr;
  if (!is_option && top) candidates = {"run", "set", "ps", "smi", "sim"};
  std::string text = std::string("unknown ") +
                     (is_option ? "option"
                      : top     ? "command"
                                : "argument") +
                     " '" + base::Printable(word) + "'";
  if (const auto near = base::Nearest(word.substr(0, word.find('=')), candidates))
    text += "; did you mean " + *near + "?";
  return Mistake(command, std::move(text));
}

Options Parser::Parse(const std::vector<std::string>& before, std::vector<std::string> after, bool has_separator) {
  std::vector<std::string> reversed(before.rbegin(), before.rend());  // as CLI11 takes them
  const CLI::App* chosen = &app;
  const auto find_chosen = [&] {
    for (const CLI::App* command : {run_command, set_command, ps_command, smi_command, sim_command}) {
      if (*command) chosen = command;
    }
  };
  try {
    app.parse(reversed);
    find_chosen();
  } catch (const CLI::Success& success) {  // help or version
    std::ostringstream out;
    app.exit(success, out, out);
    return Message{out.str(), 0};
  } catch (const CLI::ParseError& error) {
    find_chosen();
    return Mistake(*chosen, error.what());
  }
  if (const auto extras = app.remaining(); !extras.empty()) return UnknownWord(app, extras.front());
  if (chosen == &app) return Message{app.help(), before.empty() ? kUsage : 0};
  const std::vector<std::string> rest = chosen->remaining();
  if (chosen == run_command && run.burst != 0 && (run.request.cores == 0 || run.burst <= run.request.cores)) {
    return Mistake(*chosen, "--burst goes beyond --cores: name both, --burst the larger");
  }
  if (chosen == set_command || chosen == ps_command || chosen == smi_command) {
    if (has_separator) after.insert(after.begin(), rest.begin(), rest.end());
    const std::vector<std::string>& extra = has_separator ? after : rest;
    if (!extra.empty()) return UnknownWord(*chosen, extra.front());
    if (chosen == set_command) {
      if (!set.memory && !set.cores) return Mistake(*chosen, "nothing to change; name --mem or --cores");
      return set;
    }
    return chosen == ps_command ? Options(ps) : Options(smi);
  }
  // Without "--" the command begins at the first word that is not an option; with it nothing may stand before.
  if (!rest.empty() && (has_separator || rest.front().starts_with("-"))) return UnknownWord(*chosen, rest.front());
  std::vector<std::string> command = has_separator ? std::move(after) : rest;
  if (command.empty() || command.front().empty()) return Mistake(*chosen, "no command to run; write it after --");
  if (chosen == run_command) {
    run.command = std::move(command);
    return run;
  }
  sim.command = std::move(command);
  return sim;
}

}  // namespace

Options ParseOptions(const std::vector<std::string>& arguments) {
  const auto separator = std::find(arguments.begin(), arguments.end(), "--");
  const bool has_separator = separator != arguments.end();
  std::vector<std::string> after;
  if (has_separator) after.assign(separator + 1, arguments.end());
  Parser parser;
  return parser.Parse({arguments.begin(), separator}, std::move(after), has_separator);
}

}  // namespace hami::cli
