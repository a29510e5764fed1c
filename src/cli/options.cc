// SPDX-License-Identifier: Apache-2.0

#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <memory>
#include <sstream>

#include "base/build_info.h"
#include "base/strings.h"
#include "base/units.h"

namespace hami::cli {
namespace {

constexpr const char* kOverview =
    "Share the GPUs of this machine between programs, with limits that hold.\n\n"
    "  hami run --mem 3g -- python3 train.py     run a program with 3 GiB of a GPU\n"
    "  hami ps --watch                           who holds what, live\n"
    "  hami set NAME --mem 6g                    new limits for a share that runs\n"
    "  hami smi                                  the GPUs, with the shares drawn in\n"
    "  hami sim --gpus 2xH100 -- hami run …      all of this without a GPU\n"
    "  hami cert --help                          the certificate of hami-scheduler's webhook\n";

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

// Less can not even hold a context: who writes --mem 3 means 3g.
constexpr std::uint64_t kLeastMemory = base::kMiB;

base::Result<GpuChoice> ParseGpus(const std::string& text) {
  if (const auto count = base::ParseNumber(text)) {
    if (*count == 0 || *count > 16)
      return base::Fail("'" + text + "' is not a number of GPUs from 1 to 16",
                        "one GPU in particular is named by its UUID; hami smi lists them");
    return AnyGpus{static_cast<unsigned>(*count)};
  }
  std::vector<std::string> names = base::Split(text, ',');
  if (names.size() > 16) return base::Fail("at most 16 GPUs fit into a share");
  if (names.empty()) names.emplace_back();
  for (const std::string& name : names) {
    if (name.starts_with("MIG-"))
      return base::Fail("MIG devices can not be shared yet", "name a whole GPU (hami smi lists them)");
    if (!name.starts_with("GPU-")) {
      return base::Fail("'" + name + "' is neither a number of GPUs from 1 to 16 nor a UUID",
                        "UUIDs look like GPU-5ef1…; hami smi lists them");
    }
  }
  return GpuChoice(std::move(names));
}

base::Result<base::Portion> ParseMemory(const std::string& text) {
  auto portion = base::ParsePortion(text);
  const auto* bytes = portion ? std::get_if<base::Bytes>(&*portion) : nullptr;
  if (bytes != nullptr && base::Count(*bytes) < kLeastMemory) {
    const bool has_unit =
        std::any_of(text.begin(), text.end(), [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; });
    return base::Fail("'" + text + "' is " + base::FormatBytes(base::Count(*bytes)) + ", too little for any program",
                      has_unit ? "it must be at least 1 MiB: 1m, 512m, 3g" : "write a unit: 512m, 3g");
  }
  return portion;
}

base::Result<unsigned> ParseBurst(const std::string& text) {
  return text == "0" ? base::Result<unsigned>(0) : base::ParsePercent(text);
}

base::Result<double> ParseInterval(const std::string& text) {
  double seconds = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seconds);
  if (error == std::errc{} && stop == end && seconds >= 0.1 && seconds <= 3600) return seconds;
  return base::Fail("'" + text + "' is not a number of seconds from 0.1 to 3600");
}

// An option whose value is understood by PARSE; a mistake names the option, the value and what to write.
template <typename Out, typename Parse>
CLI::Option* AddParsed(CLI::App* command, const char* name, const char* type, const char* help, Out& out, Parse parse) {
  const auto take = [name, &out, parse](const std::string& text) {
    auto value = parse(text);
    if (!value) {
      const base::Error& error = value.error();
      throw CLI::ValidationError(name, error.hint.empty() ? error.message : error.message + "\n  " + error.hint);
    }
    out = *std::move(value);
  };
  return command->add_option_function<std::string>(name, take, help)->type_name(type);
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

template <typename Out>
void AddPriority(CLI::App* command, Out& out, const char* help) {
  const auto take = [&out](const std::string& text) { out = text == "high" ? Priority::kHigh : Priority::kLow; };
  command->add_option_function<std::string>("--priority", take, help)
      ->check(CLI::IsMember({"high", "low"}))
      ->type_name("PRIORITY");
}

void Parser::AddRun() {
  Request& request = run.request;
  AddParsed(run_command, "--gpus", "N|UUID,...",
            "how many GPUs, or which (UUIDs or their unique beginnings); 1 if left out", request.gpus, ParseGpus);
  AddParsed(run_command, "--mem", "SIZE|N%", "memory of each GPU (3g, 512m, 30%); all that is free on it if left out",
            request.memory, ParseMemory);
  AddParsed(run_command, "--cores", "N", "percent of each GPU's compute time; no limit if left out", request.cores,
            base::ParsePercent);
  AddParsed(run_command, "--burst", "N",
            "percent up to which --cores may be exceeded while others leave the GPU's time unused", request.burst,
            ParseBurst);
  run_command
      ->add_option_function<std::string>(
          "--policy",
          [this](const std::string& text) {
            run.request.policy = text == "binpack" ? Policy::kBinpack : Policy::kSpread;
          },
          "spread: the emptiest GPU (default); binpack: the fullest that still fits")
      ->check(CLI::IsMember({"binpack", "spread"}))
      ->type_name("POLICY");
  AddPriority(run_command, run.priority, "high or low (default): who gives way when compute time is short");
  AddParsed(run_command, "--name", "NAME", "name of the share; made from COMMAND if left out", run.name,
            [](const std::string& text) -> base::Result<std::string> {
              if (auto valid = CheckShareName(text); !valid) return tl::unexpected(std::move(valid).error());
              return text;
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
  AddParsed(set_command, "--mem", "SIZE|N%", "memory of each of its GPUs (6g, 512m, 30%)", set.memory, ParseMemory);
  AddParsed(set_command, "--cores", "N", "percent of each GPU's compute time; 100 is all of it", set.cores,
            base::ParsePercent);
  AddParsed(set_command, "--burst", "N",
            "percent up to which its cores may be exceeded while others leave the GPU's time unused; 0: not at all",
            set.burst, ParseBurst);
  AddPriority(set_command, set.priority, "high or low: who gives way when compute time is short");
  set_command->footer(
      "Programs of the share follow at once, while they run. Memory below what they hold refuses only new requests.");
}

void Parser::AddPs() {
  CLI::Option* watch =
      ps_command->add_flag("--watch,-w", ps.watch, "go on until interrupted; redraws in place on a terminal");
  AddParsed(ps_command, "--interval", "SECONDS", "time between two looks of --watch, 0.1 to 3600; 1 if left out",
            ps.interval_seconds, ParseInterval)
      ->needs(watch);
  AddOutput(ps_command, ps.output);
  ps_command->footer(
      "USED is what the share's limit counts, PEAK the most ever set aside at once, calls under way included; REFUSED "
      "is how often it said no.");
}

Parser::Parser() {
  app.set_version_flag("--version,-V", base::VersionOf("hami"));
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

// What a mistake quotes can not command the terminal.
std::string PrintableLines(const std::string& text) {
  std::string lines;
  for (const std::string& line : base::Split(text, '\n')) lines += (lines.empty() ? "" : "\n") + base::Printable(line);
  return lines;
}

// CLI11 counts; people would rather know what is missing.
std::string InWords(const CLI::ParseError& error) {
  const std::string text = error.what();
  const std::string option = text.substr(0, text.find(':'));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) == nullptr || !option.starts_with("-")) return text;
  return text.ends_with("missing") ? option + " needs a value" : option + " can be given only once";
}

Message Mistake(const CLI::App& command, const std::string& text) {
  const bool top = command.get_parent() == nullptr;
  const std::string& name = command.get_name();
  const std::string help = top ? "hami --help" : "hami " + name + " --help";
  return {"hami: error: " + PrintableLines(text) + "\n  try: " + help + "\n",
          name == "run" || name == "sim" ? kRunFailed : kUsage};
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
                     " '" + word + "'";
  if (const auto near = base::Nearest(word.substr(0, word.find('=')), candidates))
    text += "; did you mean " + *near + "?";
  return Mistake(command, text);
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
    if (const auto extras = app.remaining(); !extras.empty()) return UnknownWord(app, extras.front());
    std::ostringstream out;
    app.exit(success, out, out);
    return Message{out.str(), 0};
  } catch (const CLI::ParseError& error) {
    find_chosen();
    return Mistake(*chosen, InWords(error));
  }
  if (const auto extras = app.remaining(); !extras.empty()) return UnknownWord(app, extras.front());
  if (chosen == &app) return Message{app.help(), before.empty() ? kUsage : 0};
  const std::vector<std::string> rest = chosen->remaining();
  if (chosen == run_command && run.request.burst != 0 && run.request.burst <= run.request.cores) {
    return Mistake(*chosen, "--burst " + std::to_string(run.request.burst) + " is not more than --cores " +
                                std::to_string(run.request.cores) +
                                "\n  it goes beyond --cores: make it the larger, or leave it out");
  }
  if (chosen == run_command && run.request.burst != 0 && run.request.cores == 0) {
    return Mistake(*chosen, "--burst goes beyond --cores, which is not given\n  name both, --burst the larger");
  }
  if (chosen == set_command || chosen == ps_command || chosen == smi_command) {
    if (has_separator) after.insert(after.begin(), rest.begin(), rest.end());
    const std::vector<std::string>& extra = has_separator ? after : rest;
    if (!extra.empty()) return UnknownWord(*chosen, extra.front());
    if (chosen == set_command) {
      if (!set.memory && !set.cores && !set.burst && !set.priority) {
        return Mistake(*chosen, "nothing to change; name --mem, --cores, --burst or --priority");
      }
      return set;
    }
    return chosen == ps_command ? Options(ps) : Options(smi);
  }
  // Without "--" the command begins at the first word that is not an option; with it nothing may stand before.
  if (!rest.empty() && (has_separator || rest.front().starts_with("-"))) return UnknownWord(*chosen, rest.front());
  std::vector<std::string> command = has_separator ? after : rest;
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
  if (!arguments.empty() && arguments.front() == "help") {  // as people ask other programs
    std::vector<std::string> asked(arguments.begin() + 1, arguments.end());
    asked.emplace_back("--help");
    return ParseOptions(asked);
  }
  const auto separator = std::find(arguments.begin(), arguments.end(), "--");
  const bool has_separator = separator != arguments.end();
  std::vector<std::string> after;
  if (has_separator) after.assign(separator + 1, arguments.end());
  Parser parser;
  return parser.Parse({arguments.begin(), separator}, std::move(after), has_separator);
}

}  // namespace hami::cli
