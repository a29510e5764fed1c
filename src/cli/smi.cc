// SPDX-License-Identifier: Apache-2.0

#include "cli/smi.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <iostream>

#include "base/fd.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/commands.h"

namespace hami::cli {
namespace {

using base::FormatBytes;
using base::Paint;
using base::Style;
using base::Table;

constexpr std::size_t kBarCells = 24;

double Fraction(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string Count(std::size_t count, const char* noun, const char* plural) {
  return std::to_string(count) + " " + (count == 1 ? noun : plural);
}

std::string Headline(const Gpu& gpu, const base::Terminal& terminal) {
  // One that does not answer may have told neither its name nor its UUID.
  const std::string number = "GPU " + std::to_string(gpu.index);
  std::string line = Paint(terminal, Style::kBold, gpu.name.empty() ? number : number + "  " + gpu.name);
  if (!gpu.uuid.empty()) line += "  " + Paint(terminal, Style::kDim, gpu.uuid);
  if (!gpu.trouble.empty()) line += "  " + Paint(terminal, Style::kRed, gpu.trouble);
  if (gpu.utilization_percent) line += "  busy " + std::to_string(*gpu.utilization_percent) + " %";
  if (gpu.temperature_celsius) line += "  " + std::to_string(*gpu.temperature_celsius) + " C";
  if (gpu.power_milliwatts) line += "  " + std::to_string(*gpu.power_milliwatts / 1000) + " W";
  return line;
}

// Bars share one scale, the card, so that what is seen is what is taken of it.
std::string ScaledBar(const base::Terminal& terminal, Style style, std::uint64_t used, std::uint64_t granted,
                      std::uint64_t total) {
  const auto cells = static_cast<std::size_t>(std::lround(std::min(1.0, Fraction(granted, total)) * kBarCells));
  const std::size_t shown = std::clamp<std::size_t>(cells, 1, kBarCells);
  return Paint(terminal, style, base::Bar(terminal, Fraction(used, granted), shown)) +
         std::string(kBarCells - shown, ' ');
}

void AddGpu(const Gpu& gpu, const Device& device, const Room& room, const std::vector<ShareView>& shares,
            const base::Terminal& terminal, std::vector<std::string>& lines) {
  lines.push_back(Headline(gpu, terminal));
  if (gpu.total_bytes == 0) return;  // it says nothing
  Table table({{"  "},
               {""},
               {"USED", Table::Align::kRight},
               {"OF", Table::Align::kRight},
               {"CORES", Table::Align::kRight},
               {""}});
  table.Add({{"  all", Style::kDim},
             ScaledBar(terminal, Style::kBlue, gpu.used_bytes, gpu.total_bytes, gpu.total_bytes),
             FormatBytes(gpu.used_bytes),
             FormatBytes(gpu.total_bytes),
             "",
             ""});
  for (const ShareView& share : shares) {
    for (const DeviceView& part : share.devices) {
      if (part.uuid != gpu.uuid) continue;
      const std::uint64_t limit = part.limit_bytes == 0 ? gpu.total_bytes : part.limit_bytes;
      const Style style = part.used_bytes > limit / 10 * 9 ? Style::kYellow : Style::kGreen;
      table.Add({"  " + share.name, ScaledBar(terminal, style, part.used_bytes, limit, gpu.total_bytes),
                 FormatBytes(part.used_bytes), FormatBytes(limit), CoresText(part.cores, part.burst),
                 Count(share.processes.size(), "process", "processes") + ", " + share.state});
    }
  }
  if (device.outside_bytes > 0) {
    table.Add({"  (outside)", ScaledBar(terminal, Style::kRed, 1, device.outside_bytes, gpu.total_bytes),
               FormatBytes(device.outside_bytes), "-", "-", "processes of no share"});
  }
  table.Add(
      {{"  free", Style::kDim},
       "",
       "",
       {FormatBytes(room.free_bytes), Style::kBold},
       {std::to_string(room.free_cores) + " %", Style::kBold},
       room.obstacle.empty() ? Table::Cell("to be granted", Style::kDim) : Table::Cell(room.obstacle, Style::kRed)});
  for (std::string& line : table.Lines(terminal)) lines.push_back(std::move(line));
}

// What `hami run` would find. A share of which nobody knows what it holds is no reason to show nothing.
std::vector<Room> RoomsOf(const std::vector<Device>& devices, const std::vector<ShareView>& shares) {
  const auto holders = HoldersOf(shares);
  if (holders) return CountRoom(devices, *holders);
  std::vector<Room> rooms = CountRoom(devices, {});
  for (Room& room : rooms) {
    room.free_bytes = room.free_cores = 0;
    room.obstacle = "nothing is granted: share '" + FindUnknownHolder(shares)->name + "' is damaged";
  }
  return rooms;
}

}  // namespace

std::vector<std::string> GpuLines(const Inventory& inventory, const std::vector<ShareView>& shares,
                                  const base::Terminal& terminal) {
  std::vector<std::string> lines;
  lines.push_back("driver " + inventory.driver_version + ", CUDA " + inventory.cuda_version + ", " +
                  Count(inventory.gpus.size(), "GPU", "GPUs") + ", " + Count(shares.size(), "share", "shares"));
  const std::vector<Device> devices = DevicesOf(inventory, shares);
  const std::vector<Room> rooms = RoomsOf(devices, shares);
  for (std::size_t i = 0; i < inventory.gpus.size(); ++i) {
    lines.emplace_back();
    AddGpu(inventory.gpus[i], devices[i], rooms[i], shares, terminal, lines);
  }
  for (const ShareView& share : shares) {
    if (!share.problem.empty()) {
      lines.push_back(Paint(terminal, Style::kRed, "share " + share.name + " is damaged: " + share.problem));
    }
  }
  return lines;
}

base::json::array GpusToJson(const Inventory& inventory, const std::vector<ShareView>& shares) {
  const std::vector<Device> devices = DevicesOf(inventory, shares);
  const std::vector<Room> rooms = RoomsOf(devices, shares);
  base::json::array list;
  for (std::size_t i = 0; i < inventory.gpus.size(); ++i) {
    const Gpu& gpu = inventory.gpus[i];
    base::json::object entry{{"gpu", gpu.index},
                             {"uuid", gpu.uuid},
                             {"name", gpu.name},
                             {"total_bytes", gpu.total_bytes},
                             {"used_bytes", gpu.used_bytes},
                             {"outside_bytes", devices[i].outside_bytes},
                             {"free_bytes", rooms[i].free_bytes},
                             {"free_cores_percent", rooms[i].free_cores}};
    if (!gpu.trouble.empty()) entry["trouble"] = gpu.trouble;
    if (!rooms[i].obstacle.empty()) entry["obstacle"] = rooms[i].obstacle;
    if (gpu.utilization_percent) entry["utilization_percent"] = *gpu.utilization_percent;
    if (gpu.temperature_celsius) entry["temperature_celsius"] = *gpu.temperature_celsius;
    if (gpu.power_milliwatts) entry["power_milliwatts"] = *gpu.power_milliwatts;
    base::json::array processes;
    for (const GpuProcess& process : gpu.processes) {
      processes.push_back(base::json::object{{"pid", process.pid}, {"used_bytes", process.bytes}});
    }
    entry["processes"] = std::move(processes);
    list.push_back(std::move(entry));
  }
  return list;
}

int Smi(const SmiOptions& options) {
  const auto fail = [](const base::Error& error) {
    base::LogError(error);
    return kFailed;
  };
  const auto state = State::Open();
  if (!state) return fail(state.error());
  const auto nvml = Nvml::Load();
  if (!nvml) return fail(nvml.error());
  const auto lock = StateLock::Take(*state);
  if (!lock) return fail(lock.error());
  const auto inventory = nvml->Read();
  if (!inventory) return fail(inventory.error());
  const std::vector<ShareView> shares = ViewShares(lock->shares(), &*inventory);
  base::Status written;
  if (options.output == Output::kJson) {
    base::json::object document{{"driver_version", inventory->driver_version},
                                {"cuda_version", inventory->cuda_version},
                                {"gpus", GpusToJson(*inventory, shares)},
                                {"shares", SharesToJson(shares, std::time(nullptr))}};
    written = base::WriteAll(1, base::Pretty(document));
  } else {
    written = base::WriteAll(1, base::Join(GpuLines(*inventory, shares, base::ExamineTerminal(1)), "\n") + "\n");
  }
  return written ? 0 : fail(written.error());
}

}  // namespace hami::cli
