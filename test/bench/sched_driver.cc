// SPDX-License-Identifier: Apache-2.0
//
// bench-sched: hami-scheduler as a program, driven over HTTPS as kube-scheduler drives it, beside a null extender in
// the same run. Prints a table with the targets, and JSON on request.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/flags.h"
#include "base/strings.h"
#include "net/testing/certificates.h"
#include "test/bench/sched_cell.h"
#include "test/bench/sched_null.h"
#include "test/bench/sched_pure.h"

namespace hami::bench {
namespace {

namespace json = base::json;

// The cell that the targets are about.
constexpr int kTargetNodes = 5000;
constexpr int kTargetRunning = 100'000;

struct Arguments {
  bool quick = false;
  bool locks = false;
  bool mixed = false;
  std::string output = "table";
  std::string scheduler;
  std::string cells;
  int pods = 9000;
  int binders = 4;
  int seconds = 20;
  int rounds = 0;  // 0: not said
};

struct Row {
  int nodes = 0;
  int running = 0;
  Phase null;
  Phase ours;
  double pure = 0;   // decisions a second, without a program around them
  double ratio = 0;  // of the pods a second
};

struct Measured {
  std::vector<Row> rows;
  double touched_per_event = 0;  // of the last cell
  double rss_scraped_mib = 0;    // highest of the last cell, a scrape of /metrics included
};

struct Verdict {
  std::string target;
  double measured = 0;
  double bound = 0;
  bool at_most = true;
  bool met() const { return at_most ? measured <= bound : measured >= bound; }
};

base::FlagSet FlagsFor(Arguments& arguments) {
  base::FlagSet flags;
  flags.Group("bench-sched");
  const auto number = [](int& out) {
    return [&out](const std::string& text) -> base::Status {
      const auto value = base::ParseNumber(text);
      if (!value || *value == 0 || *value > 1'000'000) return base::Fail("not a number from 1 to 1000000");
      out = static_cast<int>(*value);
      return {};
    };
  };
  flags.Bool("quick", arguments.quick, "two cells instead of six, fewer pods");
  flags.Bool("locks", arguments.locks,
             "nodes whose plugin needs HAMi's node lock (one pod at a time between bind and Allocate)");
  flags.Bool("mixed", arguments.mixed, "every vendor is configured, and each fourth node is AMD's, with its pods");
  flags.Custom(
      "output", "table|json", "table",
      [&arguments](const std::string& text) -> base::Status {
        if (text != "table" && text != "json") return base::Fail("must be table or json");
        arguments.output = text;
        return {};
      },
      "json: the figures as one document");
  flags.Text("scheduler", "FILE", arguments.scheduler, "the program to measure");
  flags.Text("cells", "NODESxPODS,...", arguments.cells, "these cells instead, like 5000x100000");
  flags.Custom("pods", "N", "9000, with --quick a third", number(arguments.pods),
               "pods to place in each phase, at most");
  flags.Custom("binders", "N", "4", number(arguments.binders),
               "bindings at once; there is always one Filter at a time");
  flags.Custom("seconds", "N", "20", number(arguments.seconds), "the longest that a phase may take");
  flags.Custom("rounds", "N", "5, with --quick 1", number(arguments.rounds),
               "each cell so often, on a new cluster, with the null extender or hami-scheduler first by turns; "
               "printed are the medians");
  return flags;
}

base::Result<std::vector<std::pair<int, int>>> CellsOf(const Arguments& arguments) {
  if (!arguments.cells.empty()) {
    std::vector<std::pair<int, int>> cells;
    for (const std::string& cell : base::Split(arguments.cells, ',')) {
      const auto parts = base::Split(cell, 'x');
      const auto nodes = parts.size() == 2 ? base::ParseNumber(parts[0]) : std::nullopt;
      const auto pods = parts.size() == 2 ? base::ParseNumber(parts[1]) : std::nullopt;
      if (!nodes || !pods || *nodes == 0 || *nodes > 20'000 || *pods > *nodes * 64) {
        return base::Fail("--cells: '" + cell + "' is not NODESxPODS with at most 64 pods a node");
      }
      cells.emplace_back(static_cast<int>(*nodes), static_cast<int>(*pods));
    }
    return cells;
  }
  if (arguments.quick) return std::vector<std::pair<int, int>>{{1000, 0}, {kTargetNodes, kTargetRunning}};
  // 100 nodes have 8,000 shares and 1,000 nodes 80,000: more pods than that can not run there.
  return std::vector<std::pair<int, int>>{
      {100, 0}, {1000, 0}, {1000, 40'000}, {kTargetNodes, 0}, {kTargetNodes, 40'000}, {kTargetNodes, kTargetRunning}};
}

base::Status PlaceBoth(Cell& cell, std::array<Row, 2>& rows, Phase Row::*which) {
  for (const bool every : {false, true}) {
    auto phase = cell.Place(every);
    if (!phase) return tl::unexpected(phase.error());
    rows[every].*which = *phase;
  }
  return {};
}

base::Status MeasureNull(Cell& cell, std::array<Row, 2>& rows) {
  HAMI_TRY(cell.StartNull());
  HAMI_TRY(PlaceBoth(cell, rows, &Row::null));
  cell.StopExtender();
  return {};
}

base::Status MeasureOurs(Cell& cell, std::array<Row, 2>& rows, Measured& measured) {
  HAMI_TRY(cell.StartScheduler());
  HAMI_TRY(PlaceBoth(cell, rows, &Row::ours));
  const auto counted = cell.Metrics({"hami_scheduler_books_events_total", "hami_scheduler_books_nodes_touched_total"});
  measured.touched_per_event = counted[0] > 0 ? counted[1] / counted[0] : 0;
  measured.rss_scraped_mib = cell.rss_mib("VmHWM:");
  cell.StopExtender();
  return {};
}

// One round: both extenders after each other on the same cluster, for either number of names. What the null extender
// binds has no grant, and so takes nothing from hami-scheduler's pods.
base::Status MeasureOnce(const CellOptions& options, bool null_first, std::array<Row, 2>& rows, Measured& measured) {
  Cell cell(options);
  if (null_first) HAMI_TRY(MeasureNull(cell, rows));
  HAMI_TRY(MeasureOurs(cell, rows, measured));
  if (!null_first) HAMI_TRY(MeasureNull(cell, rows));
  const auto pure = PureDecisions(options.nodes, options.running, {rows[0].ours.names, rows[1].ours.names});
  for (const bool every : {false, true}) {
    Row& row = rows[every];
    row.pure = pure[every];
    row.ratio = row.null.per_second > 0 ? row.ours.per_second / row.null.per_second : 0;
  }
  return {};
}

template <typename Value>
Value Median(const std::vector<Row>& rounds, Value Row::*figure) {
  std::vector<Value> values;
  for (const Row& row : rounds) values.push_back(row.*figure);
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Of each figure the median of all rounds, and whatever went wrong in any of them.
Phase MedianPhase(const std::vector<Row>& rounds, Phase Row::*which) {
  Phase median = rounds.front().*which;
  median.placed = median.failed = 0;
  for (const Row& row : rounds) {
    const Phase& phase = row.*which;
    median.placed += phase.placed;
    median.failed += phase.failed;
    if (median.first_failure.empty()) median.first_failure = phase.first_failure;
  }
  for (double Phase::*figure : {&Phase::per_second, &Phase::alone_p50_ms, &Phase::alone_p99_ms, &Phase::filter_p50_ms,
                                &Phase::filter_p99_ms, &Phase::cpu_ms, &Phase::calls, &Phase::rss_mib}) {
    std::vector<double> values;
    for (const Row& row : rounds) values.push_back((row.*which).*figure);
    std::sort(values.begin(), values.end());
    median.*figure = values[values.size() / 2];
  }
  return median;
}

// The speed of a machine that is not ours alone moves single rounds by a fifth: the ratio is taken round by round, on
// one cluster within seconds and with either first by turns, and its median is what counts.
base::Status Measure(const CellOptions& options, int rounds, Measured& measured) {
  std::array<std::vector<Row>, 2> rows;
  for (int round = 0; round < rounds; ++round) {
    std::array<Row, 2> seen;
    HAMI_TRY(MeasureOnce(options, round % 2 == 0, seen, measured));
    for (const bool every : {false, true}) rows[every].push_back(seen[every]);
  }
  for (const std::vector<Row>& all : rows) {
    measured.rows.push_back({.nodes = options.nodes,
                             .running = options.running,
                             .null = MedianPhase(all, &Row::null),
                             .ours = MedianPhase(all, &Row::ours),
                             .pure = Median(all, &Row::pure),
                             .ratio = Median(all, &Row::ratio)});
  }
  return {};
}

std::vector<Verdict> Judge(const Measured& measured) {
  std::vector<Verdict> verdicts;
  for (const Row& row : measured.rows) {
    if (row.nodes != kTargetNodes || row.running != kTargetRunning) continue;
    const bool every = row.ours.names == static_cast<std::size_t>(kTargetNodes);
    const std::string names = std::to_string(row.ours.names) + " names";
    if (every) verdicts.push_back({"filter p99 alone, " + names + ", ms", row.ours.alone_p99_ms, 2, true});
    verdicts.push_back({"filter+bind a second, " + names, row.ours.per_second, every ? 1000.0 : 2000.0, false});
    verdicts.push_back({"part of the null extender's, " + names, row.ratio, 0.6, false});
    verdicts.push_back({"CPU a pod, " + names + ", ms", row.ours.cpu_ms, 0.2, true});
    verdicts.push_back({"memory, " + names + ", MiB", row.ours.rss_mib, 300, true});
    verdicts.push_back({"pure decisions a second, " + names, row.pure, 100'000, false});
  }
  if (!verdicts.empty()) {
    verdicts.push_back({"nodes touched by an event of the books", measured.touched_per_event, 2, true});
  }
  return verdicts;
}

json::object ToJson(const Phase& phase) {
  return {{"names", phase.names},
          {"placed", phase.placed},
          {"failed", phase.failed},
          {"first_failure", phase.first_failure},
          {"per_second", phase.per_second},
          {"filter_alone_p50_ms", phase.alone_p50_ms},
          {"filter_alone_p99_ms", phase.alone_p99_ms},
          {"filter_p50_ms", phase.filter_p50_ms},
          {"filter_p99_ms", phase.filter_p99_ms},
          {"cpu_ms_per_pod", phase.cpu_ms},
          {"api_calls_per_pod", phase.calls},
          {"rss_mib", phase.rss_mib}};
}

void PrintJson(const Measured& measured) {
  json::array rows;
  for (const Row& row : measured.rows) {
    rows.push_back(json::object{{"nodes", row.nodes},
                                {"running", row.running},
                                {"pure_decisions_per_second", row.pure},
                                {"part_of_null", row.ratio},
                                {"null", ToJson(row.null)},
                                {"hami_scheduler", ToJson(row.ours)}});
  }
  json::array verdicts;
  for (const Verdict& verdict : Judge(measured)) {
    verdicts.push_back(json::object{{"target", verdict.target},
                                    {"measured", verdict.measured},
                                    {verdict.at_most ? "at_most" : "at_least", verdict.bound},
                                    {"met", verdict.met()}});
  }
  std::cout << base::Pretty(json::object{{"rows", rows},
                                         {"targets", verdicts},
                                         {"nodes_touched_per_event", measured.touched_per_event},
                                         {"peak_rss_with_scrape_mib", measured.rss_scraped_mib}});
}

void PrintRow(const Row& row) {
  std::printf("%6d %8d %6zu   %7.0f %7.0f %5.0f %%  %6.3f %8.3f %6.3f %8.3f %7.3f %7.3f %6.1f  %7.0f %8.0f\n",
              row.nodes, row.running, row.ours.names, row.null.per_second, row.ours.per_second, row.ratio * 100,
              row.ours.alone_p50_ms, row.ours.alone_p99_ms, row.ours.filter_p50_ms, row.ours.filter_p99_ms,
              row.null.cpu_ms, row.ours.cpu_ms, row.ours.calls, row.ours.rss_mib, row.pure);
  for (const Phase* phase : {&row.null, &row.ours}) {
    if (phase->failed > 0) {
      std::printf("       %d of %d pods failed: %s\n", phase->failed, phase->failed + phase->placed,
                  base::Printable(phase->first_failure).c_str());
    }
  }
  std::fflush(stdout);
}

void PrintTable(const Measured& measured) {
  for (const Verdict& verdict : Judge(measured)) {
    std::printf("%-48s %9.3f  %s %g  %s\n", verdict.target.c_str(), verdict.measured,
                verdict.at_most ? "<=" : ">=", verdict.bound, verdict.met() ? "met" : "MISSED");
  }
  std::printf("peak memory with a scrape of /metrics in the last cell: %.0f MiB\n", measured.rss_scraped_mib);
}

int Bench(const Arguments& arguments, const std::string& self) {
  const auto cells = CellsOf(arguments);
  if (!cells) {
    std::cerr << "bench-sched: error: " << cells.error().message << "\n";
    return 2;
  }
  std::string folder = std::filesystem::temp_directory_path() / "hami-bench-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  net::TestAuthority authority;
  const net::TestCertificate pair = authority.Issue("hami-scheduler", "DNS:localhost,IP:127.0.0.1");
  std::ofstream(folder + "/tls.crt") << pair.certificate_pem;
  std::ofstream(folder + "/tls.key") << pair.key_pem;

  const bool table = arguments.output != "json";
  if (table) {
    std::printf(
        "                           pods a second       filter alone, ms  with bindings   CPU ms a pod     API   "
        "memory     pure\n"
        " nodes  running  names      null    ours           p50      p99    p50      p99    null    ours  calls      "
        "MiB  a second\n");
  }
  const int rounds = arguments.rounds != 0 ? arguments.rounds : arguments.quick ? 1 : 5;
  Measured measured;
  int status = 0;
  for (const auto& [nodes, running] : *cells) {
    CellOptions options{nodes,
                        running,
                        arguments.quick ? arguments.pods / 3 : arguments.pods,
                        arguments.binders,
                        arguments.seconds,
                        arguments.locks,
                        arguments.mixed,
                        arguments.scheduler,
                        self,
                        folder};
    // Every pod of the four phases finds room: a hundred nodes have 8,000 shares.
    options.pods = std::min(options.pods, (nodes * 80 - running) / 6);
    const std::size_t before = measured.rows.size();
    const auto done = Measure(options, rounds, measured);
    if (!done) {
      std::cerr << "bench-sched: " << nodes << " nodes, " << running << " pods: " << done.error().message << "\n";
      status = 1;
      break;
    }
    for (std::size_t i = before; table && i < measured.rows.size(); ++i) PrintRow(measured.rows[i]);
  }
  if (table) {
    PrintTable(measured);
  } else {
    PrintJson(measured);
  }
  std::filesystem::remove_all(folder);
  return status;
}

int Main(const std::vector<std::string>& words, const std::string& self) {
  if (words.size() == 4 && words[0] == "--null-extender") return RunNullExtender(words[1], words[2], words[3]);
  Arguments arguments;
  arguments.scheduler = (std::filesystem::path(self).parent_path().parent_path() / "bin" / "hami-scheduler").string();
  const base::FlagSet flags = FlagsFor(arguments);
  const auto parsed = flags.Parse(words);
  if (!parsed || !parsed->words.empty()) {
    const std::string why = parsed ? "'" + parsed->words.front() + "' is no flag" : parsed.error().message;
    std::cerr << "bench-sched: error: " << base::Printable(why) << "\n" << flags.Help();
    return 2;
  }
  if (parsed->help) {
    std::cout << "Measures hami-scheduler beside a null extender (docs/operate/scheduler.md).\n" << flags.Help();
    return 0;
  }
  return Bench(arguments, self);
}

}  // namespace
}  // namespace hami::bench

int main(int argc, char** argv) {
  return hami::bench::Main({argv + 1, argv + argc}, std::filesystem::read_symlink("/proc/self/exe").string());
}
