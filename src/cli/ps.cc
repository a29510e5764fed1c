// SPDX-License-Identifier: Apache-2.0

#include "cli/ps.h"

#include <ctime>
#include <iostream>

#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/units.h"
#include "base/watch.h"
#include "cli/commands.h"

namespace hami::cli {
namespace {

using base::FormatBytes;
using base::Style;
using base::Table;

Style StateStyle(const std::string& state) {
  if (state == "running") return Style::kGreen;
  if (state == "damaged") return Style::kRed;
  return state == "idle" ? Style::kDim : Style::kYellow;
}

std::string LimitText(const DeviceView& device) {
  return device.limit_bytes == 0 ? "none" : FormatBytes(device.limit_bytes);
}

Style UsedStyle(const DeviceView& device) {
  if (device.limit_bytes == 0) return Style::kPlain;
  if (device.used_bytes > device.limit_bytes) return Style::kRed;
  return device.used_bytes > device.limit_bytes / 10 * 9 ? Style::kYellow : Style::kPlain;
}

void AddShare(const ShareView& share, std::int64_t now, Table& table) {
  for (std::size_t d = 0; d < share.devices.size(); ++d) {
    const DeviceView& device = share.devices[d];
    const bool first = d == 0;
    const auto once = [&](std::string text) { return first ? std::move(text) : std::string(); };
    table.Add({{once(share.name), Style::kBold},
               GpuName(device),
               LimitText(device),
               {FormatBytes(device.used_bytes), UsedStyle(device)},
               FormatBytes(device.peak_bytes),
               CoresText(device.cores, device.burst) + (share.mps ? " mps" : ""),
               once(std::to_string(share.processes.size())),
               {std::to_string(device.refusals), device.refusals == 0 ? Style::kPlain : Style::kYellow},
               {once(share.state), StateStyle(share.state)},
               once(base::FormatAge(now - share.created_at)),
               once(base::ShellJoin(share.command))});
  }
  if (!share.problem.empty()) {
    table.Add({share.name, "?", "?", "?", "?", "?", "?", "?", {share.state, Style::kRed}, "", share.problem});
  }
}

void AddProcesses(const ShareView& share, bool utf8, Table& table) {
  for (std::size_t p = 0; p < share.processes.size(); ++p) {
    const ProcessView& process = share.processes[p];
    const bool last = p + 1 == share.processes.size();
    const char* branch = utf8 ? (last ? "└ " : "├ ") : "- ";
    for (std::size_t d = 0; d < process.bytes.size(); ++d) {
      if (d > 0 && process.bytes[d] == 0) continue;
      table.Add({{branch + std::to_string(process.pid), Style::kDim},
                 {GpuName(share.devices[d]), Style::kDim},
                 "",
                 {FormatBytes(process.bytes[d]), Style::kDim},
                 "",
                 "",
                 "",
                 "",
                 {process.suspended ? "suspended" : "", Style::kDim},
                 "",
                 {process.command, Style::kDim}});
    }
  }
}

struct Look {
  std::vector<ShareView> shares;
  std::int64_t now = 0;
};

// Without a driver (NVML null) the GPUs go by their UUIDs; who holds what is known all the same.
base::Result<Look> TakeLook(const Nvml* nvml) {
  const auto state = State::Open();
  if (!state) return tl::unexpected(state.error());
  Look look;
  const auto inventory = nvml == nullptr ? base::Result<Inventory>(base::Fail("")) : nvml->Read();
  const auto lock = StateLock::Take(*state);
  if (!lock) return tl::unexpected(lock.error());
  look.shares = ViewShares(lock->shares(), inventory ? &*inventory : nullptr);
  look.now = std::time(nullptr);
  return look;
}

base::Status ShowOnce(const PsOptions& options, const Nvml* nvml, base::Screen* screen) {
  const auto look = TakeLook(nvml);
  if (!look) return tl::unexpected(look.error());
  if (options.output == Output::kJson) {
    const base::json::object document{{"time", look->now}, {"shares", SharesToJson(look->shares, look->now)}};
    return base::WriteAll(1, screen == nullptr ? base::Pretty(document) : base::Compact(document));
  }
  const std::vector<std::string> lines = ShareLines(look->shares, look->now, base::ExamineTerminal(1));
  if (screen != nullptr) return screen->Draw(lines) ? base::Status{} : base::Status(base::Fail("can not write"));
  return base::WriteAll(1, base::Join(lines, "\n") + "\n");
}

}  // namespace

std::vector<std::string> ShareLines(const std::vector<ShareView>& shares, std::int64_t now,
                                    const base::Terminal& terminal) {
  if (shares.empty()) return {"no shares; `hami run --mem 3g -- COMMAND` makes one"};
  const auto right = Table::Align::kRight;
  Table table({{"SHARE"},
               {"GPU"},
               {"LIMIT", right},
               {"USED", right},
               {"PEAK", right},
               {"CORES", right},
               {"PROCS", right},
               {"REFUSED", right},
               {"STATE"},
               {"AGE", right},
               {"COMMAND"}});
  for (const ShareView& share : shares) {
    AddShare(share, now, table);
    AddProcesses(share, terminal.utf8, table);
  }
  return table.Lines(terminal);
}

int Ps(const PsOptions& options) {
  const auto loaded = Nvml::Load();
  const Nvml* nvml = loaded ? &*loaded : nullptr;
  base::Status status;
  if (!options.watch) {
    status = ShowOnce(options, nvml, nullptr);
  } else {
    base::Screen screen(1, options.output == Output::kJson ? base::Screen::Kind::kInline : base::Screen::Kind::kWhole);
    base::Repeat(options.interval_seconds, [&] {
      status = ShowOnce(options, nvml, &screen);
      return status.has_value();
    });
  }
  if (status || (options.watch && base::ReaderIsGone(1))) return 0;
  base::LogError(status.error());
  return kFailed;
}

}  // namespace hami::cli
