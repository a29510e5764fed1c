// SPDX-License-Identifier: Apache-2.0

#include "plugin/modes.h"

#include <utility>

#include "base/files.h"
#include "base/log.h"
#include "base/strings.h"
#include "plugin/mig_mode.h"
#include "plugin/mig_nodes.h"

namespace hami::plugin {

using base::Concat;
using base::Status;

Modes::Modes(const Options& options, const nvml::LoadOptions& load, ModesHooks hooks)
    : hooks_(std::move(hooks)),
      mig_driver_(load),
      mig_journal_(options.hook_path + "/vgpu/mig.json"),
      mig_(mig_driver_, mig_journal_),
      mps_(options, HooksOfMps()),
      exclusive_(options.mps_exclusive),
      compute_modes_(
          {[this] { return mig_driver_.Gpus(); },
           [this](const std::string& uuid, nvml::ComputeMode to) { return mig_driver_.SetComputeMode(uuid, to); }},
          options.hook_path + "/vgpu/compute-mode"),
      keeper_(options.hook_path + "/vgpu/mode", {[this](OperatingMode mode) { return Enter(mode); },
                                                 [this](OperatingMode mode) { return Leave(mode); }}) {}

MpsHooks Modes::HooksOfMps() {
  MpsHooks hooks;
  hooks.on_notice = [this](const std::string& uuid, const mps::Notice& notice) {
    const std::string message = Concat({uuid, ": ", notice.message});
    base::Log(notice.warning ? base::LogLevel::kWarning : base::LogLevel::kInfo, message);
    hooks_.on_event({notice.warning, notice.reason, message});
  };
  hooks.on_change = [this] { TellTroubles(); };
  return hooks;
}

void Modes::TellTroubles() {
  const std::scoped_lock lock(troubles_mutex_);  // what is told last is the newest
  Troubles now = mps_.CurrentTroubles();
  if (now == troubles_) return;
  troubles_ = now;
  hooks_.on_troubles(std::move(now));
}

Status Modes::Start() {
  HAMI_TRY(mig_.Start());
  return keeper_.Start();
}

Status Modes::Enter(OperatingMode mode) {
  const auto cards = hooks_.cards();
  if (mode == OperatingMode::kMig) return EnterMig(mig_driver_, cards->settings.excluded);
  if (mode != OperatingMode::kMps) return {};
  const Status exclusive = exclusive_ ? compute_modes_.Exclude(cards->settings.excluded) : compute_modes_.Restore();
  HAMI_TRY(mps_.Enter(*cards, *records_));
  return exclusive;
}

Status Modes::Leave(OperatingMode mode) {
  if (mode == OperatingMode::kMig) return LeaveMig(mig_driver_, mig_, hooks_.cards()->settings.excluded);
  if (mode != OperatingMode::kMps) return {};
  HAMI_TRY(mps_.Leave());
  return compute_modes_.Restore();
}

std::vector<std::string> Modes::Users(std::vector<std::string> users, const Exclusion& excluded) {
  for (std::string& user : UsersOf(mig_driver_, mig_.entries(), mps_.Servers(), excluded)) {
    users.push_back(std::move(user));
  }
  return users;
}

bool Modes::Look(Allocator& allocator) {
  const auto cards = hooks_.cards();
  if (!cards->ready) return true;
  const NodeSettings& settings = cards->settings;
  ModeKeeper::Outcome outcome;
  allocator.Exclusively([&](const auto& pods, const Records& records) {
    records_ = &records;
    outcome = keeper_.Look(settings.wanted_mode, [&] { return Users(pods(), settings.excluded); });
    records_ = nullptr;
  });
  if (outcome.changed) {
    const std::string text = Concat({"the mode of this node is ", ModeName(in_force()), " now"});
    base::LogInfo("mode: " + text);
    hooks_.on_event({false, "OperatingModeChanged", text});
  }
  const std::string trouble = outcome.refusal.empty() ? outcome.trouble : outcome.refusal;
  // First: GPUs that are not served must not be offered in between.
  TellTroubles();
  if (outcome.changed || in_force() != settings.mode) hooks_.on_mode(in_force());
  if (!trouble.empty() && trouble != told_) {
    base::LogWarning("mode: " + trouble);
    hooks_.on_event({true, "OperatingModeRefused", trouble});
  }
  told_ = trouble;
  return !trouble.empty();
}

std::vector<CdiInstance> CdiInstancesOf(const MigEntries& entries, const Cards& cards, const std::string& minors) {
  std::vector<CdiInstance> instances;
  const auto add = [&](const std::string& uuid, unsigned minor, int gpu_instance, int compute_instance,
                       std::string index) {
    CdiInstance one{uuid, {"/dev/nvidia" + std::to_string(minor)}, std::move(index)};
    auto nodes = MigCapabilities(minors, minor, gpu_instance, compute_instance);
    if (nodes) one.nodes.insert(one.nodes.end(), nodes->begin(), nodes->end());
    instances.push_back(std::move(one));
  };
  for (const MigEntry& entry : entries) {
    const Card* card = cards.Find(entry.gpu_uuid);
    if (!entry.Made() || card == nullptr || !card->minor) continue;
    add(entry.mig_uuid, *card->minor, entry.gpu_instance, entry.compute_instance, {});
  }
  for (const auto* list : {&cards.cards, &cards.parts}) {
    for (const Card& card : *list) {
      if (!card.part || !card.minor) continue;
      add(card.uuid, *card.minor, static_cast<int>(card.part->gpu_instance),
          static_cast<int>(card.part->compute_instance), IndexOf(card));
    }
  }
  return instances;
}

std::string ReadMigMinors(const Options& options) {
  constexpr std::size_t kMostBytes = 1 << 20;
  return base::ReadLinkedFile(options.mig_minors_file, kMostBytes).value_or("");
}

}  // namespace hami::plugin
