// SPDX-License-Identifier: Apache-2.0
//
// The allocator and MIG: a container's instances are made before its record is written, and belong to whoever the
// record belongs to.

#include <algorithm>
#include <set>

#include "base/strings.h"
#include "device/annotations.h"
#include "plugin/allocator.h"
#include "plugin/slots.h"

namespace hami::plugin {
namespace {

using base::Concat;

// What of GRANT is no instance at WANTED's places; empty: each share has its own.
std::string WhyNotDivided(const Record& record, const Cards& cards) {
  for (std::size_t i = 0; i < record.grant.size(); ++i) {
    const device::Share& share = record.grant[i];
    const auto number = static_cast<int>(i);
    const auto place = std::find_if(record.mig.begin(), record.mig.end(),
                                    [&](const device::MigReservation& one) { return one.device == number; });
    if (place == record.mig.end() || place->gpu_uuid != share.uuid) {
      return Concat({"the grant names no MIG place for its part of ", base::Printable(share.uuid),
                     ", and this node is in mode mig"});
    }
    const Card* card = cards.Find(share.uuid);
    if (card == nullptr) continue;  // whoever makes the answer says so
    const bool fits = std::any_of(card->mig_profiles.begin(), card->mig_profiles.end(), [&](const auto& profile) {
      return profile.name == place->profile && profile.memory == share.memory;
    });
    if (!fits) {
      return Concat({"the grant gives ", std::to_string(share.memory), " MiB of ", share.uuid, ", and a ",
                     base::Printable(place->profile), " is none of this node's profiles of that size"});
    }
  }
  return {};
}

}  // namespace

base::Status Allocator::RealiseMig(Record& record, const Cards& cards, net::Deadline end) {
  if (cards.settings.mode != OperatingMode::kMig || parts_.mig == nullptr) return {};
  // Whoever makes the answer says what is wrong with names that are no GPU's.
  const bool ours = std::all_of(record.grant.begin(), record.grant.end(),
                                [&](const device::Share& share) { return cards.Find(share.uuid) != nullptr; });
  if (!ours) return {};
  if (std::string why = WhyNotDivided(record, cards); !why.empty()) {
    return base::Fail(why, "hami-scheduler plans it for pods with nvidia.com/vgpu-mode: mig; delete the pod");
  }
  auto made = parts_.mig->Realise(record.owner, record.mig, MigHolders(), end);
  if (!made) return tl::unexpected(made.error());
  record.mig = *std::move(made);
  return {};
}

Records Allocator::RecordsInUse(const std::vector<PodPtr>& pods) {
  const bool synced = parts_.cluster->Synced();
  const auto is_over = [&](const PodKey& owner) {
    const auto pod = std::find_if(pods.begin(), pods.end(), [&](const PodPtr& one) { return one->uid == owner.uid; });
    return pod == pods.end() ? synced || parts_.cluster->IsGone(owner.uid) : (*pod)->Ended();
  };
  std::optional<Holdings> holdings;
  bool asked = false;
  Records holding;
  for (const Record& record : records_) {
    if (is_over(record.owner)) {
      // While only the kubelet knows which of several like pods it is, that one of them is over says nothing.
      if (!record.assumed) continue;
      if (!asked) holdings = AskKubelet(net::After(options_.call_timeout));
      asked = true;
      if (holdings && !IsHeld(record.slots, *holdings, pods)) continue;
    }
    holding.push_back(record);
  }
  return holding;
}

MigKeeper::Holders Allocator::MigHolders() {
  return [holding = RecordsInUse(KnownPods())](const MigEntry& entry) -> std::optional<PodKey> {
    std::optional<PodKey> other;
    for (const Record& record : holding) {
      const bool has = entry.Made() && std::any_of(record.mig.begin(), record.mig.end(),
                                                   [&](const auto& one) { return one.mig_uuid == entry.mig_uuid; });
      if (has && record.owner.uid == entry.owner.uid) return record.owner;
      if (has) other = record.owner;
    }
    return other;
  };
}

bool Allocator::TendMig() {
  if (parts_.mig == nullptr || parts_.mig->entries().empty()) return false;
  return parts_.mig->Tend(MigHolders());
}

std::vector<std::string> Allocator::Users() {
  const auto any = [](const device::PodGrant& grant) {
    return std::any_of(grant.begin(), grant.end(), [](const auto& row) { return !row.empty(); });
  };
  std::set<std::string> users;
  const std::vector<PodPtr> pods = KnownPods();
  for (const PodPtr& pod : pods) {
    const bool refused = pod->Pending() && pod->bind_phase == device::kPhaseFailed;
    if (!pod->Ended() && !refused && (any(pod->allocated) || any(pod->to_allocate))) {
      users.insert("pod " + pod->FullName());
    }
  }
  for (const Record& record : RecordsInUse(pods)) {
    users.insert(Concat({"pod ", record.owner.ns, "/", record.owner.name}));
  }
  return {users.begin(), users.end()};
}

void Allocator::Exclusively(
    const std::function<void(const std::function<std::vector<std::string>()>& users, const Records& records)>& change) {
  const std::lock_guard lock(mutex_);
  change([this] { return Users(); }, records_);
}

}  // namespace hami::plugin
