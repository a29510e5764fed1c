// SPDX-License-Identifier: Apache-2.0

#include "plugin/mig_mode.h"

#include "base/log.h"
#include "base/strings.h"
#include "plugin/inventory.h"

namespace hami::plugin {
namespace {

using base::Concat;
using base::Status;

bool MayTouch(const nvml::Device& gpu, const Exclusion& excluded) {
  return gpu.condition == nvml::Condition::kAnswers && gpu.mig_mode && !IsExcluded(gpu, excluded);
}

// Of every GPU that may be touched; the first error.
Status Switch(NvmlMigDriver& driver, const Exclusion& excluded, bool on) {
  const auto gpus = driver.Gpus();
  if (!gpus) return tl::unexpected(gpus.error());
  Status outcome;
  for (const nvml::Device& gpu : *gpus) {
    if (!MayTouch(gpu, excluded) || (gpu.mig_mode->current == on && gpu.mig_mode->pending == on)) continue;
    auto mode = base::Result<nvml::MigMode>(*gpu.mig_mode);
    if (gpu.mig_mode->pending != on) mode = driver.SetMigMode(gpu.uuid, on);
    if (mode && mode->current == on) {
      base::LogInfo(Concat({"mig: MIG of ", gpu.uuid, " is ", on ? "on" : "off"}));
    } else if (outcome) {
      outcome = mode ? base::Fail(Concat({"MIG of ", gpu.uuid, " stays ", on ? "off" : "on",
                                          " until nothing uses the GPU and it is reset"}),
                                  "nvidia-smi --gpu-reset, or restart the node")
                     : Status(tl::unexpected(mode.error()));
    }
  }
  return outcome;
}

}  // namespace

Status EnterMig(NvmlMigDriver& driver, const Exclusion& excluded) { return Switch(driver, excluded, true); }

Status LeaveMig(NvmlMigDriver& driver, MigKeeper& keeper, const Exclusion& excluded) {
  if (keeper.Tend([](const MigEntry&) { return std::nullopt; }) || !keeper.entries().empty()) {
    return base::Fail("MIG instances of ours cannot be removed yet: " + Describe(keeper.entries().front()));
  }
  return Switch(driver, excluded, false);
}

std::vector<std::string> UsersOf(NvmlMigDriver& driver, const MigEntries& own, const std::set<int>& own_processes,
                                 const Exclusion& excluded) {
  std::vector<std::string> users;
  const auto gpus = driver.Gpus();
  if (!gpus) return {"a driver that does not answer: " + gpus.error().message};
  for (const nvml::Device& gpu : *gpus) {
    if (IsExcluded(gpu, excluded) || gpu.uuid.empty()) continue;
    if (const auto processes = driver.Processes(gpu.uuid)) {
      for (const nvml::Process& process : *processes) {
        if (own_processes.contains(process.pid)) continue;
        users.push_back(Concat({"process ", std::to_string(process.pid), " on ", gpu.uuid}));
      }
    }
    if (!gpu.mig_mode || !gpu.mig_mode->current) continue;
    const auto layout = driver.Layout(gpu.uuid);
    if (!layout) continue;
    for (const nvml::MigPlace& place : ForeignPlaces(*layout, gpu.uuid, own)) {
      users.push_back(
          Concat({"a MIG instance at slice ", std::to_string(place.start), " of ", gpu.uuid, " that is not ours"}));
    }
  }
  return users;
}

}  // namespace hami::plugin
