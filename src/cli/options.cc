// SPDX-License-Identifier: Apache-2.0

#include "cli/options.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "base/flags.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/command_line.h"
#include "cli/completion.h"

namespace hami::cli {
namespace {

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

constexpr const char* kClusterExamples =
    "Replays a list of pods on a list of nodes, once under each policy, and prints how much of the cards was\n"
    "given away, what was refused, and what is left in pieces. Nothing runs: time is virtual.\n\n"
    "Examples:\n"
    "  hami sim cluster --nodes nodes.csv --pods pods.csv\n"
    "  hami sim cluster --nodes nodes.csv --pods pods.csv --policy binpack,spread,fragmentation --demand 1.3\n"
    "  hami sim cluster --mix mostly-shares --demand 1.3 --output json\n"
    "  hami sim cluster --nodes nodes.csv --pods pods.csv --policy fragmentation --advise\n\n"
    "Exit status: 0, or 1 when a file cannot be read.";

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
    if (!name.starts_with("GPU-") && !name.starts_with("MIG-")) {
      return base::Fail("'" + name + "' is neither a number of GPUs from 1 to 16 nor a UUID",
                        "UUIDs look like GPU-5ef1… or MIG-c0de…; hami smi lists them");
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

using base::FlagSet;

void AddOutput(Command& command, Output& output) {
  command.flags.Custom("output", "table|json", "table",
                       base::TakeChoice<Output>(output, {{"table", Output::kTable}, {"json", Output::kJson}}),
                       "how the result is written");
  command.flags.Shorthand('o');
}

template <typename Out>
void AddPriority(Command& command, Out& out, const char* shown_default) {
  command.flags.Custom("priority", "high|low", shown_default,
                       base::TakeChoice<Priority>(out, {{"high", Priority::kHigh}, {"low", Priority::kLow}}),
                       "who gives way when compute time is short");
}

void AddRun(Command& command, RunOptions& run) {
  FlagSet& flags = command.flags;
  Request& request = run.request;
  flags.Custom("gpus", "N|UUID,...", "1", base::TakeParsed(request.gpus, ParseGpus),
               "how many GPUs, or which (UUIDs or their unique beginnings)");
  flags.Custom("mem", "SIZE|N%", "", base::TakeParsed(request.memory, ParseMemory),
               "memory of each GPU (3g, 512m, 30%); all that is free on it if left out");
  flags.Custom("cores", "N", "", base::TakeParsed(request.cores, base::ParsePercent),
               "percent of each GPU's compute time; no limit if left out");
  flags.Custom("burst", "N", "", base::TakeParsed(request.burst, ParseBurst),
               "percent up to which --cores may be exceeded while others leave the GPU's time unused");
  flags.Custom("policy", "spread|binpack", "spread",
               base::TakeChoice<Policy>(request.policy, {{"spread", Policy::kSpread}, {"binpack", Policy::kBinpack}}),
               "spread: the emptiest GPU; binpack: the fullest that still fits");
  AddPriority(command, run.priority, "low");
  const auto name = [](const std::string& text) -> base::Result<std::string> {
    if (auto valid = CheckShareName(text); !valid) return tl::unexpected(std::move(valid).error());
    return text;
  };
  flags.Custom("name", "NAME", "", base::TakeParsed(run.name, name),
               "name of the share; made from COMMAND if left out");
  flags.Bool("oversubscribe", request.oversubscribe,
             "let the limit exceed what is free: what does not fit on the GPU spills to host memory");
  flags.Custom("mode", "hami-core|mps", "hami-core",
               base::TakeChoice<bool>(run.mps, {{"hami-core", false}, {"mps", true}}),
               "how shares of a GPU get its time: in turns, or side by side by NVIDIA's MPS");
  flags.Text("mps-control", "PROGRAM", run.mps_control, "of --mode mps: a path, or a name in $PATH");
  flags.Bool("dry-run", run.dry_run, "show the plan and the environment, run nothing");
  AddOutput(command, run.output);
}

void AddSet(Command& command, SetOptions& set) {
  FlagSet& flags = command.flags;
  flags.Custom("mem", "SIZE|N%", "", base::TakeParsed(set.memory, ParseMemory),
               "memory of each of its GPUs (6g, 512m, 30%)");
  flags.Custom("cores", "N", "", base::TakeParsed(set.cores, base::ParsePercent),
               "percent of each GPU's compute time; 100 is all of it");
  flags.Custom("burst", "N", "", base::TakeParsed(set.burst, ParseBurst),
               "percent up to which its cores may be exceeded while others leave the GPU's time unused; 0: not at all");
  AddPriority(command, set.priority, "");
}

void AddPs(Command& command, PsOptions& ps) {
  command.flags.Bool("watch", ps.watch, "go on until interrupted; redraws in place on a terminal");
  command.flags.Shorthand('w');
  command.flags.Custom("interval", "SECONDS", "1", base::TakeParsed(ps.interval_seconds, ParseInterval),
                       "time between two looks of --watch, 0.1 to 3600");
  AddOutput(command, ps.output);
}

base::Status CheckBurst(const Request& request) {
  if (request.burst != 0 && request.cores == 0) {
    return base::Fail("--burst goes beyond --cores, which is not given", "name both, --burst the larger");
  }
  if (request.burst != 0 && request.burst <= request.cores) {
    return base::Fail(
        "--burst " + std::to_string(request.burst) + " is not more than --cores " + std::to_string(request.cores),
        "it goes beyond --cores: make it the larger, or leave it out");
  }
  return {};
}

base::Status CheckMode(const RunOptions& run) {
  if (!run.mps) return {};
  const auto* count = std::get_if<AnyGpus>(&run.request.gpus);
  const std::size_t gpus =
      count != nullptr ? count->count : std::get<std::vector<std::string>>(run.request.gpus).size();
  if (gpus > 1) return base::Fail("--mode mps is for one GPU: a program can be the client of one MPS daemon only");
  if (run.request.burst != 0) {
    return base::Fail("--burst is not for --mode mps, whose percentages are fixed", "leave --burst or --mode out");
  }
  return {};
}

Options ParseRun(const Words& words) {
  RunOptions run;
  Command command("run", "[OPTIONS] -- COMMAND [ARGUMENT...]", kRunExamples, FlagSet::Dialect::kRunner);
  AddRun(command, run);
  Message message;
  const auto parsed = Read(command, words, message);
  if (!parsed) return message;
  base::Status good = CheckBurst(run.request);
  if (good) good = CheckMode(run);
  if (good) good = TakeCommand(*parsed, words, run.command);
  if (!good) return Mistake(&command, good.error());
  return run;
}

base::Result<double> ParseDemand(const std::string& text) {
  double demand = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, demand);
  if (error == std::errc{} && stop == end && demand > 0 && demand <= 100) return demand;
  return base::Fail("'" + text + "' is no part of the cards; 1.3 is 130 % of them");
}

Options ParseSimCluster(const Words& words) {
  ClusterOptions cluster;
  std::string policies = "binpack/spread,fragmentation";
  Command command("sim cluster", "--nodes FILE --pods FILE [OPTIONS]", kClusterExamples, FlagSet::Dialect::kCommand);
  command.flags.Text("nodes", "FILE", cluster.nodes, "CSV: sn, cpu_milli, memory_mib, gpu, model");
  command.flags.Text("pods", "FILE", cluster.pods,
                     "CSV: name, cpu_milli, memory_mib, num_gpu, gpu_milli; gpu_spec, creation_time, deletion_time");
  command.flags.Text("mix", "NAME", cluster.mix,
                     "in place of the files: a made-up workload on 6,182 cards; `list` names them");
  command.flags.Text("policy", "LIST", policies, "binpack, spread, fragmentation, or NODE/CARD, divided by commas");
  command.flags.Custom("demand", "PART", "", base::TakeParsed(cluster.demand, ParseDemand),
                       "submit pods until they ask for this part of all cards, e.g. 1.3");
  command.flags.Custom("seed", "N", "1", base::TakeNumber(cluster.seed, 0, 1 << 30), "order of nodes in requests");
  command.flags.Custom("sample", "PERCENT", "100", base::TakeNumber(cluster.sample_percent, 1, 100),
                       "of the nodes that fit, how many kube-scheduler names");
  command.flags.Text("workload", "FILE", cluster.workload,
                     "what pods usually ask for, as for hami-scheduler --workload-file; without it that is learnt");
  command.flags.Bool("advise", cluster.advise, "also list which shares, if moved, would free whole cards");
  AddOutput(command, cluster.output);
  Message message;
  const auto parsed =
      Read(command, {{words.before.begin() + 1, words.before.end()}, words.after, words.separated}, message);
  if (!parsed) return message;
  if (const auto all = AllWords(*parsed, words); !all.empty()) return UnknownArgument(command, all.front());
  const bool files = !cluster.nodes.empty() && !cluster.pods.empty();
  if (files == !cluster.mix.empty()) {
    return Mistake(&command, {"name --nodes and --pods, or a --mix", "`hami sim cluster --mix list` names the mixes"});
  }
  cluster.policies = base::Split(policies, ',');
  return cluster;
}

Options ParseSim(const Words& words) {
  if (!words.before.empty() && words.before.front() == "cluster") return ParseSimCluster(words);
  SimOptions sim;
  Command command("sim", "[--gpus SPEC] -- COMMAND [ARGUMENT...]", kSimExamples, FlagSet::Dialect::kRunner);
  command.flags.Text("gpus", "SPEC", sim.gpus, "which GPUs to simulate, e.g. 2xH100 or 2xT4,1xA100-80");
  Message message;
  const auto parsed = Read(command, words, message);
  if (!parsed) return message;
  if (const auto good = TakeCommand(*parsed, words, sim.command); !good) return Mistake(&command, good.error());
  return sim;
}

Options ParseSet(const Words& words) {
  SetOptions set;
  Command command("set", "NAME [OPTIONS]",
                  "NAME is the share, as `hami ps` names it. Programs of the share follow at once, while they run. "
                  "Memory below\nwhat they hold refuses only new requests.",
                  FlagSet::Dialect::kCommand);
  AddSet(command, set);
  Message message;
  const auto parsed = Read(command, words, message);
  if (!parsed) return message;
  const std::vector<std::string> names = AllWords(*parsed, words);
  if (names.empty()) return Mistake(&command, {"no share is named", "`hami ps` lists them"});
  if (names.size() > 1) return UnknownArgument(command, names[1]);
  set.name = names.front();
  if (!set.memory && !set.cores && !set.burst && !set.priority) {
    return Mistake(&command, {"nothing to change; name --mem, --cores, --burst or --priority", ""});
  }
  return set;
}

Options ParsePs(const Words& words) {
  PsOptions ps;
  Command command("ps", "[OPTIONS]",
                  "USED is what the share's limit counts, PEAK the most ever set aside at once, calls under way "
                  "included;\nREFUSED is how often it said no.",
                  FlagSet::Dialect::kCommand);
  AddPs(command, ps);
  Message message;
  const auto parsed = Read(command, words, message);
  if (!parsed) return message;
  if (const auto all = AllWords(*parsed, words); !all.empty()) return UnknownArgument(command, all.front());
  if (parsed->given.count("interval") != 0 && !ps.watch) {
    return Mistake(&command, {"--interval says how often --watch looks, which is not given", ""});
  }
  return ps;
}

Options ParseSmi(const Words& words) {
  SmiOptions smi;
  Command command("smi", "[OPTIONS]", "", FlagSet::Dialect::kCommand);
  AddOutput(command, smi.output);
  Message message;
  const auto parsed = Read(command, words, message);
  if (!parsed) return message;
  if (const auto all = AllWords(*parsed, words); !all.empty()) return UnknownArgument(command, all.front());
  return smi;
}

Options ParseConfig(const Words& words) {
  ConfigOptions config;
  Command command("config check", "[--for hami] FILE",
                  "Examples:\n"
                  "  hami config check device-config.yaml              what our programs would do with it\n"
                  "  hami config check --for hami device-config.yaml   before a cluster goes back to HAMi\n\n"
                  "Exit status: 0 when nothing ends a program, 1 when something does or FILE cannot be read.",
                  FlagSet::Dialect::kCommand);
  command.flags.Custom("for", "ours|hami", "ours",
                       base::TakeChoice<bool>(config.for_hami, {{"ours", false}, {"hami", true}}),
                       "whose programs: hami-scheduler and hami-device-plugin, or those of HAMi 2.10");
  AddOutput(command, config.output);
  Message message;
  const auto parsed = Read(command, words, message);
  if (!parsed) return message;
  const std::vector<std::string> rest = AllWords(*parsed, words);
  if (rest.empty() || rest.front() != "check") return Mistake(&command, {"the only thing it does is `check`", ""});
  if (rest.size() == 1) return Mistake(&command, {"no file is named", "write `hami config check device-config.yaml`"});
  if (rest.size() > 2) return UnknownArgument(command, rest[2]);
  config.file = rest[1];
  return config;
}

Options ParseCompletion(const Words& words) {
  Command command("completion", "bash|zsh|fish",
                  "Examples:\n"
                  "  hami completion bash > /etc/bash_completion.d/hami\n"
                  "  source <(hami completion zsh)\n"
                  "  hami completion fish > ~/.config/fish/completions/hami.fish",
                  FlagSet::Dialect::kCommand);
  Message message;
  const auto parsed = Read(command, words, message);
  if (!parsed) return message;
  const std::vector<std::string> rest = AllWords(*parsed, words);
  if (rest.empty()) return Mistake(&command, {"no shell is named", "bash, zsh or fish"});
  if (rest.size() > 1) return UnknownArgument(command, rest[1]);
  const auto script = CompletionScript(rest.front());
  if (!script) return Mistake(&command, script.error());
  return Message{*script, 0};
}

struct Entry {
  const char* name;
  Options (*parse)(const Words& words);
};
constexpr std::array<Entry, 7> kEntries = {{{"run", ParseRun},
                                            {"set", ParseSet},
                                            {"ps", ParsePs},
                                            {"smi", ParseSmi},
                                            {"sim", ParseSim},
                                            {"config", ParseConfig},
                                            {"completion", ParseCompletion}}};

}  // namespace

std::span<const CommandName> CommandNames() {
  static constexpr CommandName kNames[] = {
      {"run", "run a program with a share of the GPUs"},
      {"set", "change the limits of a running share"},
      {"ps", "show the shares and their processes"},
      {"smi", "show the GPUs with the shares drawn in"},
      {"sim", "run a program on simulated GPUs"},
      {"sim cluster", "replay a list of pods under several placement policies"},
      {"config check", "what programs would do with a device-config.yaml"},
      {"cluster", "who has what in a cluster, and why a pod waits"},
      {"doctor", "what is wrong with a machine or a cluster, and what to do about it"},
      {"cert", "keep the certificate of hami-scheduler's webhook"},
      {"upgrade", "take a cluster over from HAMi, and give it back"},
      {"completion", "completion of these commands for bash, zsh or fish"},
  };
  return kNames;
}

Options ParseOptions(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments.front() == "help") {  // as people ask other programs
    std::vector<std::string> asked(arguments.begin() + 1, arguments.end());
    if (asked == std::vector<std::string>{"cert"} || asked == std::vector<std::string>{"upgrade"}) {
      return Message{HelpOf(asked.front(), "text"), 0};
    }
    asked.emplace_back("--help");
    return ParseOptions(asked);
  }
  if (arguments.empty()) return Message{Overview("").text, kUsage};
  const auto entry =
      std::find_if(kEntries.begin(), kEntries.end(), [&](const Entry& one) { return arguments.front() == one.name; });
  if (entry == kEntries.end()) return NoCommand(arguments.front());
  const auto separator = std::find(arguments.begin(), arguments.end(), "--");
  Words words{{arguments.begin() + 1, separator}, {}, separator != arguments.end()};
  if (words.separated) words.after.assign(separator + 1, arguments.end());
  return entry->parse(words);
}

}  // namespace hami::cli
