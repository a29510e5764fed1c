// SPDX-License-Identifier: Apache-2.0

#include <cerrno>
#include <ctime>
#include <iostream>

#include "base/json.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/terminal.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/mps.h"
#include "cli/paths.h"
#include "cli/state.h"
#include "cli/supervise.h"
#include "cli/view.h"
#include "region/common_area.h"
#include "region/reader.h"
#include "region/region.h"

namespace hami::cli {
namespace {

using base::FormatBytes;
using base::Table;

// A share that exists, and what its command needs.
struct Prepared {
  ShareRecord record;
  std::vector<Setting> settings;
  base::Fd life_line;  // empty after a dry run
};

// What was found when the request was planned; for the refusal's table.
struct Situation {
  Inventory inventory;
  std::vector<ShareView> shares;
  std::vector<Device> devices;
  Plan plan;
};

void PrintRefusal(const Situation& situation, std::ostream& out, const base::Terminal& terminal) {
  Table rooms({{"GPU"},
               {"UUID"},
               {"TOTAL", Table::Align::kRight},
               {"FREE", Table::Align::kRight},
               {"CORES FREE", Table::Align::kRight},
               {"WHY NOT"}});
  for (std::size_t i = 0; i < situation.devices.size(); ++i) {
    const Room& room = situation.plan.rooms[i];
    const std::uint64_t total = situation.devices[i].total_bytes;
    // A GPU that does not answer may have told neither its UUID nor its size.
    rooms.Add({std::to_string(room.index), room.uuid.empty() ? "?" : room.uuid, total == 0 ? "?" : FormatBytes(total),
               FormatBytes(room.free_bytes), std::to_string(room.free_cores) + " %", room.obstacle});
  }
  out << rooms.Render(terminal);
  Table taken({{"GPU"}, {"TAKEN BY"}, {"MEMORY", Table::Align::kRight}, {"CORES", Table::Align::kRight}, {"COMMAND"}});
  for (const Device& device : situation.devices) {
    for (const ShareView& share : situation.shares) {
      for (const DeviceView& part : share.devices) {
        if (part.uuid != device.uuid) continue;
        taken.Add({std::to_string(device.index), share.name, FormatBytes(part.reserved_bytes),
                   CoresText(part.reserved_cores, part.burst), base::ShellJoin(share.command)});
      }
    }
    if (device.outside_bytes > 0) {
      taken.Add({std::to_string(device.index), "(outside hami)", FormatBytes(device.outside_bytes), "-", ""});
    }
  }
  if (!taken.empty()) out << "\n" << taken.Render(terminal);
}

base::json::object PlanToJson(const Situation& situation) {
  base::json::object document;
  document["granted"] = situation.plan.refusal.empty();
  if (!situation.plan.refusal.empty()) document["refusal"] = situation.plan.refusal;
  base::json::array gpus;
  for (const Room& room : situation.plan.rooms) {
    base::json::object gpu{{"gpu", room.index},
                           {"uuid", room.uuid},
                           {"free_bytes", room.free_bytes},
                           {"free_cores_percent", room.free_cores},
                           {"shares", room.shares}};
    if (!room.obstacle.empty()) gpu["obstacle"] = room.obstacle;
    gpus.push_back(std::move(gpu));
  }
  document["gpus"] = std::move(gpus);
  return document;
}

void PrintPlanAsJson(const Situation& situation, const Prepared& prepared) {
  base::json::object document = PlanToJson(situation);
  document["share"] = base::ParseJson(EncodeRecord(prepared.record)).value();
  base::json::object environment;
  for (const Setting& setting : prepared.settings) {
    if (setting.value) {
      environment[setting.name] = *setting.value;
    } else {
      environment[setting.name] = nullptr;
    }
  }
  document["environment"] = std::move(environment);
  std::cout << base::Pretty(document);
}

void PrintPlan(const Situation& situation, const Prepared& prepared) {
  const base::Terminal terminal = base::ExamineTerminal(1);
  std::cout << "share " << prepared.record.name << ": " << base::ShellJoin(prepared.record.command) << "\n\n";
  Table table({{"GPU"},
               {"UUID"},
               {"LIMIT", Table::Align::kRight},
               {"RESERVED", Table::Align::kRight},
               {"CORES", Table::Align::kRight}});
  for (const Grant& grant : prepared.record.grants) {
    const Gpu* gpu = situation.inventory.Find(grant.uuid);
    table.Add({gpu == nullptr ? "?" : std::to_string(gpu->index), grant.uuid, FormatBytes(grant.limit_bytes),
               FormatBytes(grant.reserved_bytes), CoresText(grant.cores, grant.burst)});
  }
  std::cout << table.Render(terminal) << "\n";
  for (const Setting& setting : prepared.settings) {
    if (setting.value) {
      std::cout << setting.name << "=" << base::ShellQuote(*setting.value) << "\n";
    } else {
      std::cout << "unset " << setting.name << "\n";
    }
  }
}

// For programs of the share that do not find its variables.
base::Status MakeShareFile(const std::string& region_path, const std::vector<Setting>& settings) {
  const std::string path = region_path.substr(0, region_path.rfind('/') + 1) + region::kShareFile;
  const std::string text = ShareFileText(settings);
  return text.empty() ? base::Status{} : base::WriteNewFile(path, text, 0600);
}

base::Status MakeRegion(const std::string& path, const ShareRecord& record, const Situation& situation) {
  region::Config config;
  config.device_count = static_cast<std::uint32_t>(record.grants.size());
  for (std::size_t i = 0; i < record.grants.size(); ++i) {
    const Grant& grant = record.grants[i];
    region::DeviceConfig& device = config.devices[i];
    grant.uuid.copy(device.uuid, sizeof device.uuid - 1);
    device.memory_limit = grant.limit_bytes;
    device.sm_limit = grant.cores == 0 ? 100 : grant.cores;
    device.burst = grant.burst;
    const Gpu* gpu = situation.inventory.Find(grant.uuid);
    device.physical_bytes = gpu == nullptr ? 0 : gpu->total_bytes;
  }
  config.priority = static_cast<std::int32_t>(record.priority);
  config.flags = region::kFlagFixedDevices | (record.oversubscribe ? region::kFlagOversubscribe : 0);
  record.name.copy(config.share_name, sizeof config.share_name - 1);
  config.creator_pid = ::getpid();
  config.creator_start_time = region::ProcessStartTime(::getpid());
  int error_number = 0;
  const region::Status status = region::Create(path.c_str(), config, &error_number);
  if (status == region::Status::kOk) return {};
  const std::string text = "can not make the region " + path;
  return error_number != 0 ? base::Status(base::FailErrno(text, error_number))
                           : base::Status(base::Fail(text + " (" + region::StatusName(status) + ")"));
}

std::string ChooseName(const RunOptions& options, const StateLock& lock) {
  if (!options.name.empty()) return options.name;
  std::vector<std::string> taken;
  for (const StoredShare& share : lock.shares()) taken.push_back(share.name);
  return ChooseShareName(options.command.front(), taken);
}

// Plans under the lock and, unless this is a dry run or a refusal, makes the share.
base::Result<Prepared> PlanAndCreate(const RunOptions& options, const State& state, const Nvml& nvml,
                                     const std::string& library, Situation& situation) {
  auto lock = StateLock::Take(state);
  if (!lock) return tl::unexpected(lock.error());
  // After the shares were read: whatever started before is then seen, as a share's process or as a stranger's.
  auto inventory = nvml.Read();
  if (!inventory) return tl::unexpected(inventory.error());
  situation.inventory = *std::move(inventory);
  situation.shares = ViewShares(lock->shares(), &situation.inventory);
  situation.devices = DevicesOf(situation.inventory, situation.shares);
  RefuseOtherMode(situation.devices, situation.shares, options.mps);
  const auto holders = HoldersOf(situation.shares);
  if (!holders) return tl::unexpected(holders.error());
  situation.plan = MakePlan(situation.devices, *holders, options.request);
  Prepared prepared;
  if (!situation.plan.refusal.empty()) return prepared;

  prepared.record = {ChooseName(options, *lock),
                     options.command,
                     situation.plan.grants,
                     options.request.oversubscribe,
                     options.priority,
                     static_cast<std::int64_t>(std::time(nullptr)),
                     options.mps};
  auto settings = ShareSettings(prepared.record, lock->RegionPath(prepared.record.name), library, CurrentEnvironment());
  if (!settings) return tl::unexpected(settings.error());
  prepared.settings = *std::move(settings);
  const std::string common_area = state.CommonAreaPath();
  AddGpuTime(&prepared.settings, common_area, options.request.burst);
  if (options.mps) {
    std::erase_if(prepared.settings, [](const Setting& setting) {
      return setting.name.starts_with("CUDA_MPS_") || setting.name == "GPU_CORE_UTILIZATION_POLICY";
    });
    AddMps(&prepared.settings, state, prepared.record.grants.front());
  }
  if (options.dry_run) {
    if (auto free = lock->CheckNameIsFree(prepared.record.name); !free) return tl::unexpected(std::move(free).error());
    return prepared;
  }
  if (!region::CreateCommonArea(common_area.c_str())) {
    const int error_number = errno;
    base::LogWarning("shares can not tell each other about GPU time: " +
                     base::FailErrno("can not make " + common_area, error_number).value().message);
  }
  auto life_line = lock->Create(prepared.record, [&](const std::string& path) -> base::Status {
    HAMI_TRY(MakeShareFile(path, prepared.settings));
    return MakeRegion(path, prepared.record, situation);
  });
  if (!life_line) return tl::unexpected(life_line.error());
  prepared.life_line = *std::move(life_line);
  return prepared;
}

// The command is over: its share goes at once, unless something it started in the background still runs.
void Finish(const State& state, const std::string& name) {
  auto lock = StateLock::Take(state);
  const base::Status collected = lock ? lock->Collect(name) : base::Status(tl::unexpected(lock.error()));
  if (!collected) base::LogWarning("the share " + name + " is not cleaned up: " + collected.error().message);
}

int Refuse(const RunOptions& options, const Situation& situation) {
  if (options.output == Output::kJson) {
    base::json::object document = PlanToJson(situation);
    document["shares"] = SharesToJson(situation.shares, std::time(nullptr));
    std::cout << base::Pretty(document);
  } else {
    base::LogError(situation.plan.refusal);
    PrintRefusal(situation, std::cerr, base::ExamineTerminal(2));
  }
  return kRunFailed;
}

// There was no plan at all; who asked for JSON gets it all the same.
int RefuseUnplanned(const RunOptions& options, const base::Error& error) {
  if (options.output == Output::kJson) {
    base::json::object document{{"granted", false}, {"refusal", error.message}};
    if (!error.hint.empty()) document["hint"] = error.hint;
    std::cout << base::Pretty(document);
  } else {
    base::LogError(error);
  }
  return kRunFailed;
}

}  // namespace

int Run(const RunOptions& options) {
  if (IsInsideShare(CurrentEnvironment())) {
    return RefuseUnplanned(options,
                           {"this is already inside a share: shares can not be nested", "start it from outside"});
  }
  const auto library = FindVgpuLibrary();
  if (!library) return RefuseUnplanned(options, library.error());
  const auto state = State::Open();
  if (!state) return RefuseUnplanned(options, state.error());
  // Starting the driver can take a second; that is not done while others wait for the lock.
  const auto nvml = Nvml::Load();
  if (!nvml) return RefuseUnplanned(options, nvml.error());
  Situation situation;
  auto prepared = PlanAndCreate(options, *state, *nvml, *library, situation);
  if (!prepared) return RefuseUnplanned(options, prepared.error());
  if (!situation.plan.refusal.empty()) return Refuse(options, situation);
  if (options.dry_run) {
    options.output == Output::kJson ? PrintPlanAsJson(situation, *prepared) : PrintPlan(situation, *prepared);
    return 0;
  }
  if (options.mps) {
    const std::string& uuid = prepared->record.grants.front().uuid;
    if (const base::Status served = ServeMps(*state, uuid, options.mps_control); !served) {
      prepared->life_line.Reset();
      Finish(*state, prepared->record.name);
      return RefuseUnplanned(options, served.error());
    }
  }
  std::vector<base::Fd> kept;
  kept.push_back(std::move(prepared->life_line));
  if (base::Fd folder = state->KeepFromCleaners()) kept.push_back(std::move(folder));
  const auto ending = Supervise(options.command, Apply(CurrentEnvironment(), prepared->settings), std::move(kept));
  Finish(*state, prepared->record.name);
  if (!ending) {
    base::LogError(ending.error().error);
    return ending.error().exit_status;
  }
  EndAs(*ending);
}

}  // namespace hami::cli
