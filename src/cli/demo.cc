// SPDX-License-Identifier: Apache-2.0
//
// hami-demo: four programs share two simulated GPUs, live, and a verdict at the end. Exit status 0 only if no limit was
// exceeded by a byte and the memory of the one that was killed came back. What is shown is read where anybody could:
// the shares' regions, and the GPUs' own process lists, seen from outside any share.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <iostream>
#include <string_view>

#include "base/fd.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/terminal.h"
#include "base/units.h"
#include "cli/demo_stage.h"
#include "cli/demo_verdict.h"
#include "cli/inventory.h"
#include "cli/state.h"
#include "cli/view.h"

namespace hami::cli {
namespace {

using base::FormatBytes;
using base::kGiB;
using base::Style;
using base::Table;
using Clock = std::chrono::steady_clock;

constexpr const char* kGpus = "2xH100";
constexpr auto kTick = std::chrono::milliseconds(50);
constexpr auto kKillAfter = std::chrono::seconds(5);
constexpr auto kPatience = std::chrono::seconds(25);        // then something hangs
constexpr auto kPlainFrameEvery = std::chrono::seconds(2);  // in a pipe

std::vector<Role> Roles() {
  return {{"steady", "guest_steady", {"8", "5000", "1500"}, 8 * kGiB, "keeps within its limit"},
          {"greedy", "guest_greedy", {"8"}, 3 * kGiB, "allocates until refused, every way there is"},
          {"family", "guest_family", {"8", "4"}, 6 * kGiB, "five processes under one limit"},
          {"doomed", "guest_doomed", {"16000"}, 20 * kGiB, "killed with SIGKILL in mid-flight"}};
}

// What was seen so far of the program with the same index.
struct Record {
  Evidence evidence;
  ShareView last;  // the newest view of its share
  std::uint64_t on_gpu_now = 0;
  std::optional<Clock::time_point> killed_at;
};

class Show {
 public:
  Show(Stage stage, Nvml nvml, State state)
      : stage_(std::move(stage)), nvml_(std::move(nvml)), state_(std::move(state)) {}

  base::Status Raise();
  base::Status Look();
  void KillTheDoomed();
  bool Over() const;
  std::vector<std::string> Frame(const base::Terminal& terminal) const;
  // True when every verdict is good and nothing is left.
  bool Conclude(const base::Terminal& terminal);
  bool Observe() { return stage_.Observe(); }

 private:
  void CountOnGpus(const Inventory& inventory);
  void CountShares(const std::vector<ShareView>& views);
  std::vector<std::string> FindLeftovers();

  Stage stage_;
  Nvml nvml_;
  State state_;
  std::vector<Record> records_;
  Inventory inventory_;
  std::uint64_t strangers_bytes_ = 0;  // the most that any process of no actor was seen to use
};

base::Status Show::Raise() {
  for (const Role& role : Roles()) {
    HAMI_TRY(stage_.Start(role));
    Record record;
    record.evidence.name = role.name;
    record.evidence.limit_bytes = role.limit_bytes;
    record.evidence.must_be_refused = role.name == "greedy" || role.name == "family";
    record.evidence.must_be_killed = role.name == "doomed";
    records_.push_back(std::move(record));
  }
  return {};
}

void Show::CountOnGpus(const Inventory& inventory) {
  std::vector<std::uint64_t> sums(records_.size());
  for (const Gpu& gpu : inventory.gpus) {
    for (const GpuProcess& process : gpu.processes) {
      if (const auto actor = stage_.ActorOf(process.pid)) {
        sums[*actor] += process.bytes;
      } else if (::kill(process.pid, 0) == 0) {
        // One that just died has no group any more; one that lives and is nobody's would be a leak in the accounts.
        strangers_bytes_ = std::max(strangers_bytes_, process.bytes);
      }
    }
  }
  for (std::size_t i = 0; i < records_.size(); ++i) {
    records_[i].on_gpu_now = sums[i];
    records_[i].evidence.peak_on_gpu = std::max(records_[i].evidence.peak_on_gpu, sums[i]);
  }
}

void Show::CountShares(const std::vector<ShareView>& views) {
  for (Record& record : records_) {
    const auto view = std::find_if(views.begin(), views.end(),
                                   [&](const ShareView& share) { return share.name == record.evidence.name; });
    if (view == views.end()) {
      record.last.processes.clear();
      for (DeviceView& device : record.last.devices) device.used_bytes = 0;
      continue;
    }
    record.last = *view;
    Evidence& evidence = record.evidence;
    evidence.most_processes = std::max(evidence.most_processes, view->processes.size());
    for (const DeviceView& device : view->devices) {
      evidence.peak_in_share = std::max(evidence.peak_in_share, device.peak_bytes);
      evidence.refusals = std::max(evidence.refusals, device.refusals);
    }
  }
}

base::Status Show::Look() {
  auto inventory = nvml_.Read();
  if (!inventory) return tl::unexpected(inventory.error());
  inventory_ = *std::move(inventory);
  const auto lock = StateLock::Take(state_);
  if (!lock) return tl::unexpected(lock.error());
  CountShares(ViewShares(lock->shares(), &inventory_));
  CountOnGpus(inventory_);
  for (std::size_t i = 0; i < records_.size(); ++i) {
    Record& record = records_[i];
    record.evidence.wait_status = stage_.actors()[i].wait_status;
    record.evidence.report = stage_.actors()[i].report;
    const bool back = record.killed_at && record.on_gpu_now == 0 && record.evidence.wait_status;
    if (back && !record.evidence.back_after_ms) {
      const auto elapsed = Clock::now() - *record.killed_at;
      record.evidence.back_after_ms = std::chrono::duration_cast<std::chrono::milliseconds>(elapsed).count();
    }
  }
  return {};
}

void Show::KillTheDoomed() {
  for (Record& record : records_) {
    if (!record.evidence.must_be_killed || record.killed_at || record.last.processes.empty()) continue;
    record.evidence.held_when_killed = record.on_gpu_now;
    for (const ProcessView& process : record.last.processes) ::kill(process.pid, SIGKILL);
    record.killed_at = Clock::now();
  }
}

bool Show::Over() const {
  return std::all_of(records_.begin(), records_.end(), [](const Record& record) {
    return record.evidence.wait_status && (!record.killed_at || record.evidence.back_after_ms);
  });
}

std::vector<std::string> Show::Frame(const base::Terminal& terminal) const {
  const auto right = Table::Align::kRight;
  Table table({{"SHARE"},
               {"GPU"},
               {"LIMIT", right},
               {""},
               {"USED", right},
               {"PEAK", right},
               {"PROCS", right},
               {"REFUSED", right},
               {"STATE"}});
  for (std::size_t i = 0; i < records_.size(); ++i) {
    const Record& record = records_[i];
    const bool ended = stage_.actors()[i].wait_status.has_value();
    std::uint64_t used = 0;
    for (const DeviceView& device : record.last.devices) used += device.used_bytes;
    const std::uint64_t limit = record.evidence.limit_bytes;
    const double fraction = static_cast<double>(used) / static_cast<double>(limit);
    const Style style = fraction > 0.9 ? Style::kYellow : Style::kGreen;
    std::string state = record.last.state.empty() ? "starting" : record.last.state;
    if (ended) state = record.killed_at ? "killed" : "ended";
    table.Add({{record.evidence.name, Style::kBold},
               record.last.devices.empty() ? "-" : GpuName(record.last.devices.front()),
               FormatBytes(limit),
               {base::Bar(terminal, fraction, 20), style},
               FormatBytes(used),
               FormatBytes(record.evidence.peak_in_share),
               std::to_string(record.last.processes.size()),
               std::to_string(record.evidence.refusals),
               {state, ended ? Style::kDim : Style::kPlain}});
  }
  std::vector<std::string> lines = table.Lines(terminal);
  std::string gpus;
  for (const Gpu& gpu : inventory_.gpus) {
    gpus += (gpus.empty() ? "GPU " : "    GPU ") + std::to_string(gpu.index) + "  " + FormatBytes(gpu.used_bytes) +
            " of " + FormatBytes(gpu.total_bytes) + " in use";
  }
  lines.push_back(base::Paint(terminal, Style::kDim, gpus));
  return lines;
}

std::vector<std::string> Show::FindLeftovers() {
  std::vector<std::string> leftovers;
  if (strangers_bytes_ != 0) leftovers.emplace_back("a GPU listed a living process that belongs to no program");
  for (const Gpu& gpu : inventory_.gpus) {
    if (!gpu.processes.empty()) leftovers.push_back("GPU " + std::to_string(gpu.index) + " still lists processes");
    if (gpu.used_bytes != 0) {
      leftovers.push_back("GPU " + std::to_string(gpu.index) + " still has " + FormatBytes(gpu.used_bytes) + " in use");
    }
  }
  const auto lock = StateLock::Take(state_);
  if (!lock || !lock->shares().empty()) leftovers.emplace_back("a share is left");
  return leftovers;
}

std::string Seen(const Evidence& evidence, const char* key) {
  const auto value = evidence.report.find(key);
  return value == evidence.report.end() ? "?" : FormatBytes(value->second);
}

bool Show::Conclude(const base::Terminal& terminal) {
  const auto right = Table::Align::kRight;
  Table table({{"PROGRAM"},
               {"LIMIT", right},
               {"MOST USED", right},
               {"ON THE GPU", right},
               {"cuMemGetInfo", right},
               {"NVML", right},
               {"VERDICT"},
               {"WHAT HAPPENED"}});
  std::vector<std::string> faults;
  for (std::size_t i = 0; i < records_.size(); ++i) {
    const Evidence& evidence = records_[i].evidence;
    const Verdict verdict = Judge(evidence);
    const bool good = verdict.faults.empty();
    table.Add({{evidence.name, Style::kBold},
               FormatBytes(evidence.limit_bytes),
               FormatBytes(evidence.peak_in_share),
               FormatBytes(evidence.peak_on_gpu),
               Seen(evidence, "cuda_total"),
               Seen(evidence, "nvml_total"),
               {good ? "kept" : "FAILED", good ? Style::kGreen : Style::kRed},
               verdict.summary});
    for (const std::string& fault : verdict.faults) faults.push_back(evidence.name + ": " + fault);
    const std::string& complaints = stage_.actors()[i].complaints;
    if (!good && !complaints.empty()) faults.push_back(evidence.name + " said: " + base::Printable(complaints));
  }
  for (std::string& leftover : FindLeftovers()) faults.push_back(std::move(leftover));
  std::cout << "\n" << table.Render(terminal) << "\n";
  for (const std::string& fault : faults) std::cout << base::Paint(terminal, Style::kRed, fault) << "\n";
  if (faults.empty()) {
    std::cout << base::Paint(terminal, Style::kGreen,
                             "No limit was exceeded by a byte, by the share's account and by the GPU's own; "
                             "all memory came back.")
              << "\n";
  }
  return faults.empty();
}

// Waits for one tick; the number of the signal that came meanwhile, or 0.
int WaitTick(const sigset_t& watched) {
  const timespec tick{0, std::chrono::nanoseconds(kTick).count()};
  return std::max(0, ::sigtimedwait(&watched, nullptr, &tick));
}

// 0 when all ended by themselves, else the signal that interrupted the show.
base::Result<int> Play(Show& show, const sigset_t& watched) {
  base::Screen screen(1, base::Screen::Kind::kInline);
  const base::Terminal terminal = base::ExamineTerminal(1);
  const auto begin = Clock::now();
  auto next_frame = begin;
  while (true) {
    show.Observe();
    HAMI_TRY(show.Look());
    const auto now = Clock::now();
    if (now - begin > kKillAfter) show.KillTheDoomed();
    const bool last = show.Over() || now - begin > kPatience;
    if (terminal.is_terminal || now >= next_frame || last) {
      if (!screen.Draw(show.Frame(base::ExamineTerminal(1)))) return base::Fail("nobody is watching any more");
      next_frame = now + kPlainFrameEvery;
    }
    if (last) return 0;
    if (const int number = WaitTick(watched)) return number;
  }
}

base::Result<Show> Prepare() {
  auto stage = Stage::Build(kGpus);
  if (!stage) return tl::unexpected(stage.error());
  auto nvml = Nvml::Load(stage->nvml_path());
  if (!nvml) return tl::unexpected(nvml.error());
  auto state = State::OpenAt(stage->StateFolder());
  if (!state) return tl::unexpected(state.error());
  return Show(*std::move(stage), *std::move(nvml), *std::move(state));
}

int Demo() {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&watched, number);
  ::sigprocmask(SIG_BLOCK, &watched, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  const auto fail = [](const base::Error& error) {
    base::LogError(error);
    return 1;
  };
  auto show = Prepare();
  if (!show) return fail(show.error());
  const base::Terminal terminal = base::ExamineTerminal(1);
  std::cout << base::Paint(terminal, Style::kBold,
                           std::string("A simulated machine, ") + kGpus + ", shared by four programs through hami run:")
            << "\n";
  for (const Role& role : Roles()) {
    std::cout << "  " << role.name << "  " << FormatBytes(role.limit_bytes) << "  " << role.purpose << "\n";
  }
  std::cout << std::endl;
  if (const auto raised = show->Raise(); !raised) return fail(raised.error());
  const auto interrupted = Play(*show, watched);
  if (!interrupted) return fail(interrupted.error());
  if (*interrupted != 0) return 128 + *interrupted;
  return show->Conclude(terminal) ? 0 : 1;
}

}  // namespace
}  // namespace hami::cli

int main(int argc, char** argv) {
  hami::base::OccupyStandardDescriptors();
  hami::base::StartLog("hami-demo");
  if (argc > 1) {
    const std::string_view word = argv[1];
    const bool asked = word == "--help" || word == "-h";
    (asked ? std::cout : std::cerr)
        << "Usage: hami-demo\n\nShares two simulated GPUs between four programs and checks every limit.\n"
           "Exit status 0 only if none was exceeded by a byte. Takes about ten seconds.\n";
    if (!asked) return 2;
    if (std::cout.flush()) return 0;
    hami::base::LogError("can not write to standard output");
    return 1;
  }
  return hami::cli::Demo();
}
