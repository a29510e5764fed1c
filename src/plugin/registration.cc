// SPDX-License-Identifier: Apache-2.0

#include "plugin/registration.h"

#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "base/strings.h"
#include "device/annotations.h"
#include "device/lists.h"

namespace hami::plugin {
namespace {

namespace json = base::json;
using device::StringMap;

constexpr std::string_view kRequesting = "Requesting";

device::Device Registered(const Card& card, const NodeSettings& settings) {
  device::Device out;
  out.uuid = card.uuid;
  out.index = static_cast<int>(card.index);
  out.count = card.slots;
  out.memory = card.memory;
  out.cores = card.cores;
  out.type = card.type;
  out.numa = card.numa_node.value_or(0);
  out.mode = ModeName(settings.mode);
  out.healthy = card.healthy;
  out.mig_profiles = card.mig_profiles;
  return out;
}

std::vector<std::string> CordonsOf(const StringMap& annotations) {
  std::vector<std::string> cordons;
  for (const std::string& part : base::Split(device::TextAt(annotations, device::kDeviceCordon), ',')) {
    if (const auto uuid = base::Trim(part); !uuid.empty()) cordons.emplace_back(uuid);
  }
  return cordons;
}

bool Has(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

// The annotations of a patch; only what differs from the node's own gets in.
class Changes {
 public:
  explicit Changes(const StringMap& now) : now_(now) {}

  void Set(const char* key, const std::string& value) {
    const auto found = now_.find(key);
    if (found == now_.end() || found->second != value) changes_[key] = value;
  }
  void Remove(const char* key) {
    if (now_.contains(key)) changes_[key] = nullptr;
  }
  void SetOrRemove(const char* key, const std::string& value) { value.empty() ? Remove(key) : Set(key, value); }

  std::optional<json::value> Patch() && {
    if (changes_.empty()) return std::nullopt;
    return json::value{{"metadata", json::object{{"annotations", std::move(changes_)}}}};
  }

 private:
  const StringMap& now_;
  json::object changes_;
};

// Adds the GPUs that are out to the cordon list, unless somebody took them from it.
void Cordon(const StringMap& annotations, const HealthJournal& health, Changes& changes) {
  std::vector<std::string> cordons = CordonsOf(annotations);
  const std::vector<std::string> lifted = LiftedCordons(annotations);
  const std::size_t before = cordons.size();
  for (const auto& [uuid, entry] : health) {
    if (entry.state == HealthState::kOut && !Has(cordons, uuid) && !Has(lifted, uuid)) cordons.push_back(uuid);
  }
  if (cordons.size() != before) changes.Set(device::kDeviceCordon, base::Join(cordons, ","));
}

// The promise above is kept as long as we live, and whoever goes by it must be able to tell.
void SayAlive(const StringMap& annotations, const Registration& wanted, device::UnixSeconds now, Changes& changes) {
  if (!wanted.concurrent_allocate) return changes.Remove(device::kPluginAlive);
  const auto since = device::AliveSince(device::TextAt(annotations, device::kPluginAlive), wanted.cards);
  if (since && std::abs(now - *since) < device::kAliveEvery) return;
  changes.Set(device::kPluginAlive, device::FormatAlive(now, wanted.cards));
}

}  // namespace

bool IsNodeKey(std::string_view key) {
  return key == kRegisterKey || key == kScoreKey || key == kHandshakeKey || key == kConcurrentKey ||
         key == device::kPluginAlive || key == kHealthKey || key == device::kDeviceCordon || key == device::kNodeLock;
}

std::string EncodeCards(const Cards& cards) {
  std::vector<device::Device> devices;
  devices.reserve(cards.cards.size());
  for (const Card& card : cards.cards) devices.push_back(Registered(card, cards.settings));
  return device::EncodeRegisterJson(devices);
}

std::string EncodeScores(const device::PairScores& scores, const Cards& cards) {
  device::PairScores offered;
  for (const auto& [uuid, peers] : scores) {
    if (cards.Find(uuid) == nullptr) continue;
    auto& row = offered[uuid];
    for (const auto& [peer, score] : peers) {
      if (cards.Find(peer) != nullptr) row[peer] = score;
    }
  }
  return device::EncodePairScores(offered);
}

std::optional<json::value> PatchFor(const StringMap& annotations, const Registration& wanted,
                                    const device::LocalClock& clock) {
  Changes changes(annotations);
  changes.Set(kRegisterKey, wanted.cards);
  changes.SetOrRemove(kScoreKey, wanted.scores.value_or(""));
  changes.SetOrRemove(kConcurrentKey, wanted.concurrent_allocate ? "1" : "");
  SayAlive(annotations, wanted, clock.now, changes);
  changes.SetOrRemove(kHealthKey, EncodeJournal(wanted.health));
  Cordon(annotations, wanted.health, changes);
  if (wanted.answer_handshake && device::TextAt(annotations, kHandshakeKey).starts_with(kRequesting)) {
    changes.Set(kHandshakeKey, "Reported" + device::RequestingText(clock).substr(kRequesting.size()));
  }
  return std::move(changes).Patch();
}

bool OnlySaysAlive(const json::value& patch) {
  const auto& changes = patch.at("metadata").at("annotations").as_object();
  return changes.size() == 1 && changes.contains(device::kPluginAlive);
}

HealthJournal JournalOf(const StringMap& annotations) {
  auto journal = DecodeJournal(device::TextAt(annotations, kHealthKey));
  if (journal) return *std::move(journal);
  base::LogWarning(base::Concat(
      {"annotation ", kHealthKey, " of the node: ", journal.error().message, "; the GPUs' past is forgotten"}));
  return {};
}

std::vector<std::string> LiftedCordons(const StringMap& annotations) {
  std::vector<std::string> lifted;
  const std::vector<std::string> cordons = CordonsOf(annotations);
  const auto journal = DecodeJournal(device::TextAt(annotations, kHealthKey));
  if (!journal) return lifted;
  for (const auto& [uuid, entry] : *journal) {
    if (entry.state == HealthState::kOut && !Has(cordons, uuid)) lifted.push_back(uuid);
  }
  return lifted;
}

}  // namespace hami::plugin
