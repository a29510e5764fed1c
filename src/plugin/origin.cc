// SPDX-License-Identifier: Apache-2.0

#include "plugin/origin.h"

#include <algorithm>
#include <map>

#include "base/strings.h"
#include "device/annotations.h"
#include "device/grant_seal.h"
#include "plugin/node_selector.h"

namespace hami::plugin {
namespace {

using base::Concat;

// Between the scheduler's clock, the API server's and ours. Wide: a clock that is wrong must stop no pod.
constexpr std::int64_t kClockSkew = 3600;
constexpr int kWholeCard = 100;
constexpr device::MiB kMostMemory = device::MiB{1} << 40;

struct Use {
  device::MiB memory = 0;
  std::int64_t cores = 0;
};
using Uses = std::map<std::string, Use, std::less<>>;

bool IsInit(const PodView& pod, std::size_t row) { return row < pod.containers.size() && pod.containers[row].init; }

void Add(Uses& uses, const device::ContainerGrant& grant) {
  for (const device::Share& share : grant) {
    uses[share.uuid].memory += share.memory;
    uses[share.uuid].cores += share.cores;
  }
}

// What must be free for GRANT: init containers run before the others, one at a time.
Uses Needed(const PodView& pod, const device::PodGrant& grant) {
  Uses needed;
  for (std::size_t row = 0; row < grant.size(); ++row) {
    if (!IsInit(pod, row)) Add(needed, grant[row]);
  }
  for (std::size_t row = 0; row < grant.size(); ++row) {
    if (!IsInit(pod, row)) continue;
    Uses own;
    Add(own, grant[row]);
    for (const auto& [uuid, use] : own) {
      Use& most = needed[uuid];
      most = {std::max(most.memory, use.memory), std::max(most.cores, use.cores)};
    }
  }
  return needed;
}

// What the pods of this node have, apart from POD, by the records. Init containers may have ended, which is not known
// here, and count where nothing else of their pod does.
Uses Given(const PodView& pod, const OriginInput& input) {
  Uses given;
  for (const PodPtr& other : *input.pods) {
    // One that was refused is over for the scheduler before the kubelet says so.
    const bool refused = other->Pending() && other->bind_phase == device::kPhaseFailed;
    if (other->uid == pod.uid || other->Ended() || refused) continue;
    Uses apps;
    Uses inits;
    for (const Record& record : *input.records) {
      if (record.owner.uid != other->uid) continue;
      Add(IsInit(*other, static_cast<std::size_t>(record.container)) ? inits : apps, record.grant);
    }
    for (const auto& [uuid, use] : apps.empty() ? inits : apps) {
      given[uuid].memory += use.memory;
      given[uuid].cores += use.cores;
    }
  }
  return given;
}

std::string LackOfRoom(const PodView& pod, const OriginInput& input) {
  const Uses given = Given(pod, input);
  for (const auto& [uuid, use] : Needed(pod, pod.allocated.empty() ? pod.to_allocate : pod.allocated)) {
    const Card* card = input.cards->Find(uuid);
    if (card == nullptr) continue;              // whoever makes the answer says so
    if (!card->mig_profiles.empty()) continue;  // instances have places, and the driver gives none twice
    const auto found = given.find(uuid);
    const Use used = found == given.end() ? Use() : found->second;
    if (used.memory + use.memory > card->memory) {
      return Concat({"its grant of ", std::to_string(use.memory), " MiB on ", uuid, " is more than is left there: ",
                     std::to_string(used.memory), " of ", std::to_string(card->memory), " MiB are given"});
    }
    if (used.cores + use.cores > card->cores) {
      return Concat({"its grant of ", std::to_string(use.cores), " percent of ", uuid,
                     " is more than is left there: ", std::to_string(used.cores), " percent are given"});
    }
  }
  return {};
}

// A card's part in percent is rounded down, as the scheduler does.
device::MiB MostMemory(const device::Request& request, const Card& card) {
  if (request.memory > 0) return request.memory;
  return card.memory * std::min(request.memory_percent, kWholeCard) / kWholeCard;
}

// An instance is as large as its profile, and one is chosen that holds what is asked for.
bool IsAnInstance(const device::Share& share, const device::Request& request, const Card& card) {
  return std::any_of(card.mig_profiles.begin(), card.mig_profiles.end(), [&](const device::MigProfile& profile) {
    return profile.memory == share.memory && profile.cores == share.cores &&
           profile.memory >= (request.memory > 0 ? request.memory : 0);
  });
}

std::string NoInstance(const device::Share& share) {
  return Concat({"it is granted ", std::to_string(share.memory), " MiB and ", std::to_string(share.cores),
                 " percent of ", share.uuid, ", which is no MIG instance that holds what it asks for"});
}

std::string MoreThanAsked(const device::Share& share, const device::Request& request, const Cards& cards) {
  // Less than nothing would make room for others, and sums must stay numbers.
  if (share.memory <= 0 || share.memory > kMostMemory || share.cores < 0) {
    return Concat({"it is granted ", std::to_string(share.memory), " MiB and ", std::to_string(share.cores),
                   " percent of ", base::Printable(share.uuid)});
  }
  const Card* card = cards.Find(share.uuid);
  if (card == nullptr) return {};
  if (!card->mig_profiles.empty()) return IsAnInstance(share, request, *card) ? "" : NoInstance(share);
  const device::MiB most = MostMemory(request, *card);
  if (share.memory > most) {
    return Concat({"it is granted ", std::to_string(share.memory), " MiB of ", share.uuid, " and asks for ",
                   std::to_string(most)});
  }
  // No cores at all would be no limit.
  const int cores = std::min(request.cores, kWholeCard);
  if (cores > 0 && (share.cores <= 0 || share.cores > cores)) {
    return Concat({"it is granted ", std::to_string(share.cores), " percent of the cores of ", share.uuid,
                   " and asks for ", std::to_string(cores)});
  }
  return {};
}

// What is still to be given may be nothing, or what was granted.
bool IsRest(const device::PodGrant& left, const device::PodGrant& granted) {
  return left.size() <= granted.size() && std::equal(left.begin(), left.end(), granted.begin(),
                                                     [](const auto& a, const auto& b) { return a.empty() || a == b; });
}

// What cannot be read was granted by no scheduler of ours, and HAMi's takes it for nothing.
std::optional<device::Request> AskedBy(const device::Container& container, const device::NvidiaVendor& vendor) {
  const auto request = vendor.ParseRequest(container);
  return request ? *request : std::nullopt;
}

std::string Disagreement(const PodView& pod, const OriginInput& input) {
  if (!pod.allocated.empty() && !IsRest(pod.to_allocate, pod.allocated)) {
    return "what is to be given to it is not what it was granted";
  }
  const device::NvidiaVendor vendor = VendorOf(input.cards->settings);
  const device::PodGrant& grant = pod.allocated.empty() ? pod.to_allocate : pod.allocated;
  for (std::size_t row = 0; row < grant.size(); ++row) {
    if (grant[row].empty()) continue;
    const auto request = row < pod.asks.size() ? AskedBy(pod.asks[row], vendor) : std::nullopt;
    const std::string who = "its container " + (row < pod.containers.size() ? pod.containers[row].name : "of no name");
    const std::size_t asked = request ? static_cast<std::size_t>(request->count) : 0;
    if (grant[row].size() != asked) {
      return Concat(
          {who, " is granted ", std::to_string(grant[row].size()), " device(s) and asks for ", std::to_string(asked)});
    }
    for (const device::Share& share : grant[row]) {
      if (std::string more = MoreThanAsked(share, *request, *input.cards); !more.empty()) {
        return Concat({who, ": ", more});
      }
    }
  }
  return {};
}

// What a pod lacks that was placed by the scheduler and proves it by nothing.
std::string LooksUnplaced(const PodView& pod, const OriginInput& input) {
  const auto& names = input.rules->schedulers;
  const bool known = std::any_of(names.begin(), names.end(),
                                 [&](const std::string& name) { return MatchesPattern(name, pod.scheduler_name); });
  if (!known) {
    return Concat({"its schedulerName is ", base::Printable(pod.scheduler_name), ", and --scheduler-name is ",
                   base::Join(names, ",")});
  }
  if (pod.bind_time <= 0) return "it has no time of binding";
  if (pod.bind_time > input.now + kClockSkew || (pod.bound_at > 0 && pod.bind_time + kClockSkew < pod.bound_at)) {
    return "its time of binding is not that at which it was bound";
  }
  return {};
}

// Rows of TEXT at the places TO, of COUNT places.
device::PodGrant Moved(const device::PodGrant& rows, const std::vector<std::size_t>& to, std::size_t count) {
  device::PodGrant moved(count);
  for (std::size_t row = 0; row < rows.size() && row < to.size(); ++row) {
    if (!rows[row].empty()) moved[to[row]] = rows[row];
  }
  return moved;
}

}  // namespace

device::NvidiaVendor VendorOf(const NodeSettings& settings) { return device::NvidiaVendor(settings.requests); }

std::vector<int> CountsOf(const PodView& pod, const device::NvidiaVendor& vendor) {
  std::vector<int> counts;
  for (const device::Container& ask : pod.asks) {
    const auto request = AskedBy(ask, vendor);
    counts.push_back(request ? request->count : 0);
  }
  return counts;
}

std::string Distrust(const PodView& pod, bool owns_lock, const OriginInput& input) {
  const bool has_seal = pod.claims.contains(device::kGrantSeal);
  if (input.rules->keyed && has_seal) {
    if (!input.rules->sealed(pod)) return "its annotation " + std::string(device::kGrantSeal) + " is not of its grant";
    return IsRest(pod.to_allocate, pod.allocated) ? "" : "what is to be given to it is not what it was granted";
  }
  if (!owns_lock) {
    if (input.rules->keyed)
      return "it has no annotation " + std::string(device::kGrantSeal) + ", and the node's lock is not its";
    if (std::string why = LooksUnplaced(pod, input); !why.empty()) return why;
  }
  if (std::string why = Disagreement(pod, input); !why.empty()) return why;
  return LackOfRoom(pod, input);
}

device::StringMap WithSeal(const PodView& pod, device::StringMap changes, const OriginRules& rules) {
  device::StringMap claims = pod.claims;
  for (const char* key : {kAllocated, device::kMigAllocations}) {
    if (const auto change = changes.find(key); change != changes.end()) claims[key] = change->second;
  }
  // That an instance was made changes nothing of what is claimed.
  const bool same = device::SealedText(pod.uid, pod.node, claims) == device::SealedText(pod.uid, pod.node, pod.claims);
  if (!rules.seal || same) return changes;
  changes[device::kGrantSeal] = rules.seal(pod, claims);
  return changes;
}

std::optional<PodView> PutInPlace(const PodView& pod, const device::NvidiaVendor& vendor) {
  const device::PodGrant& whole = pod.allocated.empty() ? pod.to_allocate : pod.allocated;
  const std::vector<int> counts = CountsOf(pod, vendor);
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) places.push_back(i);
  }
  std::vector<std::size_t> to(whole.size());
  std::size_t next = 0;
  bool moves = false;
  for (std::size_t row = 0; row < whole.size(); ++row) {
    if (whole[row].empty()) continue;
    if (next == places.size() || static_cast<std::size_t>(counts[places[next]]) != whole[row].size()) {
      return std::nullopt;
    }
    to[row] = places[next++];
    moves = moves || to[row] != row;
  }
  if (!moves || next != places.size()) return std::nullopt;
  PodView placed = pod;
  placed.allocated = Moved(pod.allocated, to, counts.size());
  placed.to_allocate = Moved(pod.to_allocate, to, counts.size());
  placed.misplaced = true;
  return placed;
}

}  // namespace hami::plugin
