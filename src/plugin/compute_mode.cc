// SPDX-License-Identifier: Apache-2.0

#include "plugin/compute_mode.h"

#include <algorithm>

#include "base/files.h"
#include "base/log.h"
#include "base/strings.h"
#include "plugin/mig_static.h"
#include "plugin/own_file.h"

namespace hami::plugin {
namespace {

using base::Concat;
using base::Status;
using nvml::ComputeMode;

constexpr std::size_t kMostBytes = 64 << 10;

bool MayTouch(const nvml::Device& gpu, const Exclusion& excluded) {
  return gpu.condition == nvml::Condition::kAnswers && !gpu.uuid.empty() && gpu.compute_mode && !IsDivided(gpu) &&
         !IsExcluded(gpu, excluded);
}

}  // namespace

base::Result<std::set<std::string>> ComputeModes::Changed() const {
  std::set<std::string> uuids;
  const auto text = ReadOwnFile(path_, kMostBytes);
  if (!text) return tl::unexpected(text.error());
  for (const std::string& line : base::Split(text->value_or(""), '\n')) {
    if (!line.empty()) uuids.insert(line);
  }
  return uuids;
}

Status ComputeModes::Save(const std::set<std::string>& uuids) const {
  std::string text;
  for (const std::string& uuid : uuids) text += uuid + "\n";
  HAMI_TRY(base::MakeFolders(path_.substr(0, path_.rfind('/')), 0755));
  return base::ReplaceFile(path_, text, 0644);
}

Status ComputeModes::Exclude(const Exclusion& excluded) {
  const auto gpus = driver_.gpus();
  if (!gpus) return tl::unexpected(gpus.error());
  auto changed = Changed();
  if (!changed) return tl::unexpected(changed.error());
  std::vector<std::string> wanted;
  for (const nvml::Device& gpu : *gpus) {
    if (MayTouch(gpu, excluded) && gpu.compute_mode == ComputeMode::kDefault) wanted.push_back(gpu.uuid);
  }
  if (wanted.empty()) return {};
  changed->insert(wanted.begin(), wanted.end());
  HAMI_TRY(Save(*changed));
  Status outcome;
  for (const std::string& uuid : wanted) {
    const Status set = driver_.set(uuid, ComputeMode::kExclusiveProcess);
    if (set) base::LogInfo(Concat({"mps: the compute mode of ", uuid, " is EXCLUSIVE_PROCESS"}));
    if (!set && outcome) outcome = set;
  }
  return outcome;
}

Status ComputeModes::Restore() {
  const auto changed = Changed();
  if (!changed) return tl::unexpected(changed.error());
  if (changed->empty()) return {};
  const auto gpus = driver_.gpus();
  if (!gpus) return tl::unexpected(gpus.error());
  std::set<std::string> left;
  Status outcome;
  for (const nvml::Device& gpu : *gpus) {
    if (!changed->contains(gpu.uuid) || gpu.compute_mode != ComputeMode::kExclusiveProcess) continue;
    const Status set = driver_.set(gpu.uuid, ComputeMode::kDefault);
    if (set) {
      base::LogInfo(Concat({"mps: the compute mode of ", gpu.uuid, " is DEFAULT again"}));
      continue;
    }
    left.insert(gpu.uuid);
    if (outcome) outcome = set;
  }
  HAMI_TRY(Save(left));
  return outcome;
}

}  // namespace hami::plugin
