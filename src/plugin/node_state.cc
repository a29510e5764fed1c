// SPDX-License-Identifier: Apache-2.0

#include "plugin/node_state.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"

namespace hami::plugin {
namespace {

using nvml::Condition;

constexpr UnixSeconds kForgetAfter = 3600;

}  // namespace

NodeState::NodeState(std::string node, XidPolicy policy, HealthRules rules)
    : node_(std::move(node)), policy_(std::move(policy)), book_(rules) {}

std::string NodeState::Objection(const NodeConfig& config) const {
  return node_seen_ ? MistakeFor(config, node_, labels_) : std::string();
}

void NodeState::Configure(NodeConfig config) {
  config_ = std::move(config);
  JudgeConfig();
}

// The labels may choose an entry that can not be honoured. Until that is mended nothing new is told.
void NodeState::JudgeConfig() {
  std::string objection = Objection(config_);
  if (!objection.empty() && objection != objection_) {
    events_.push_back({true, "InvalidDeviceConfig", "the configuration of this node can not be used: " + objection});
  }
  objection_ = std::move(objection);
  NoteStrategy();
}

void NodeState::SeeNode(const Labels& labels, const device::StringMap& annotations, UnixSeconds now) {
  labels_ = labels;
  if (!node_seen_) {
    node_seen_ = true;
    // What was found out since the start is newer than what the node remembers, and comes on top of it.
    const Troubles found = book_.Current();
    book_.Restore(JournalOf(annotations), now);
    for (const auto& [uuid, reason] : found) book_.Condemn(uuid, reason, now);
  }
  for (const std::string& uuid : LiftedCordons(annotations)) book_.Readmit(uuid, now);
  JudgeConfig();
  NoteChanges();
}

const nvml::Device* NodeState::Match(const std::vector<nvml::Device>& devices, const Known& known) {
  for (const nvml::Device& device : devices) {
    if (device.uuid == known.device.uuid) return &device;
  }
  // A GPU in trouble may not say its name; the driver keeps its place.
  for (const nvml::Device& device : devices) {
    if (device.uuid.empty() && device.index == known.device.index) return &device;
  }
  return nullptr;
}

void NodeState::Judge(const DriverReading& reading, UnixSeconds now) {
  for (auto known = known_.begin(); known != known_.end();) {
    const std::string& uuid = known->first;
    const nvml::Device* const device = Match(reading.devices, known->second);
    if (device != nullptr) known->second.listed = now;
    if (device == nullptr && now - known->second.listed >= kForgetAfter) {
      known = known_.erase(known);
      continue;
    }
    Reading look;
    if (reading.unheard.contains(uuid)) known->second.unheard = true;
    if (const auto signs = reading.health.find(uuid); signs != reading.health.end()) {
      look = ReadingOf(signs->second);
      JudgeDamage(uuid, known->second, DamageOf(signs->second), now);
    }
    look.listed = device != nullptr;
    if (device != nullptr && device->condition != Condition::kAnswers) {
      look.condition = device->condition;
      look.trouble = device->trouble;
    }
    if (policy_.readings_count()) {
      book_.Look(uuid, look, now);
      JudgeParts(known->second, look, now);
    }
    ++known;
  }
  // The node may remember GPUs that were taken out of it, or that have not said their names yet.
  if (now - *first_look_ >= kForgetAfter) {
    book_.KeepOnly([&](const std::string& uuid) { return IsKnown(uuid); });
  }
}

// A MIG device in trouble recovers as a GPU does, while its GPU is well; so does the place of one that was removed.
// What befalls the GPU is not each one's own, but a repair that waits for a reset may be what the one in trouble needs.
void NodeState::JudgeParts(const Known& known, const Reading& look, UnixSeconds now) {
  if (!look.listed || look.condition != Condition::kAnswers || look.worn_out) return;
  std::set<std::string_view> uuids;
  for (const nvml::MigDevice& part : known.device.mig_devices) uuids.insert(part.uuid);
  for (const auto& [uuid, place] : places_) {
    if (place.gpu_uuid == known.device.uuid) uuids.insert(uuid);
  }
  Reading own;
  own.reset_pending = look.reset_pending;
  for (const std::string_view uuid : uuids) book_.Look(std::string(uuid), own, now);
}

bool NodeState::IsKnown(const std::string& uuid) const {
  return places_.contains(uuid) || std::any_of(known_.begin(), known_.end(), [&](const auto& entry) {
           const auto& parts = entry.second.device.mig_devices;
           return entry.first == uuid ||
                  std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return part.uuid == uuid; });
         });
}

void NodeState::JudgeDamage(const std::string& uuid, Known& known, const Damage& told, UnixSeconds now) {
  if (!told.uncorrected && !told.repairs) return;
  const Damage before = std::exchange(known.damage, known.damage.Then(told));
  const auto missed = XidBehind(before, known.damage);
  if (!std::exchange(known.unheard, false) || !missed) return;
  Blame(uuid, *missed, base::Concat({"errors that nobody heard of, as with ", XidText(*missed)}), now);
}

void NodeState::SeeDriver(const DriverReading& reading, UnixSeconds now) {
  if (!first_look_) first_look_ = now;
  driver_trouble_.clear();
  for (const nvml::Device& device : reading.devices) {
    if (!device.uuid.empty() && device.condition == Condition::kAnswers) known_[device.uuid].device = device;
  }
  foreign_ = reading.foreign;
  for (const nvml::XidEvent& event : std::exchange(unplaced_, {})) {
    Blame(SubjectOf(event).value_or(event.uuid), event.code, XidText(event.code), now);
  }
  Judge(reading, now);
  NoteNameless(reading.devices);
  NoteStrategy();
  if (reading.topology) NoteTopology(*reading.topology);
  NoteChanges();
}

void NodeState::NoteNameless(const std::vector<nvml::Device>& devices) {
  nameless_.clear();
  for (const nvml::Device& device : devices) {
    const bool known = std::any_of(known_.begin(), known_.end(),
                                   [&](const auto& entry) { return Match(devices, entry.second) == &device; });
    if (known) continue;
    nameless_.push_back(
        base::Concat({"GPU ", std::to_string(device.index), " is left out: it does not answer: ", device.trouble}));
  }
}

void NodeState::NoteStrategy() {
  if (!first_look_ || !node_seen_) return;
  const NodeSettings settings = Settings();
  std::string trouble;
  if (settings.Strategy() == MigStrategy::kSingle) trouble = SingleTrouble(Devices(), settings.excluded);
  if (!trouble.empty() && trouble != strategy_trouble_) {
    events_.push_back({true, "MigStrategyRefused",
                       base::Concat({"no GPU is offered by --mig-strategy=single: ", trouble,
                                     "; divide all GPUs alike, or use mixed"})});
  }
  strategy_trouble_ = std::move(trouble);
}

void NodeState::NoteTopology(const nvml::Topology& topology) {
  TopologyScore score = ScoreTopology(topology);
  if (score.one_sided != topology_.one_sided) {
    for (const auto& [one, other] : score.one_sided) {
      events_.push_back({true, "AsymmetricGPUP2PLink",
                         base::Concat({"NVLink between ", NameOf(one), " and ", NameOf(other),
                                       " is seen from one side only; the pair scores 0"})});
    }
  }
  topology_ = std::move(score);
}

void NodeState::LoseDriver(const std::string& why) { driver_trouble_ = why; }

bool NodeState::Blame(const std::string& uuid, std::uint64_t code, const std::string& reason, UnixSeconds now) {
  switch (policy_.Judge(code)) {
    case XidClass::kIgnored:
      return false;
    case XidClass::kSuspicious:
      book_.Suspect(uuid, reason, now);
      return true;
    case XidClass::kFatal:
      book_.Condemn(uuid, reason, now);
      return true;
  }
  return false;
}

// Where instances are not given out by themselves, an error of one speaks for its GPU.
std::optional<std::string> NodeState::SubjectOf(const nvml::XidEvent& event) const {
  const NodeSettings settings = Settings();
  const bool apart = settings.mode == OperatingMode::kMig || settings.Strategy() != MigStrategy::kNone;
  const auto known = known_.find(event.uuid);
  if (event.gpu_instance == nvml::kAnyInstance || !apart || known == known_.end() || !IsDivided(known->second.device)) {
    return event.uuid;
  }
  const nvml::MigDevice* part = FindPart(known->second.device, event.gpu_instance, event.compute_instance);
  return part == nullptr ? std::nullopt : std::optional(part->uuid);
}

bool NodeState::SeeXid(const nvml::XidEvent& event, UnixSeconds now) {
  if (!known_.contains(event.uuid) || policy_.Judge(event.code) == XidClass::kIgnored) return false;
  const auto subject = SubjectOf(event);
  if (!subject) {
    unplaced_.push_back(event);
    return true;
  }
  Blame(*subject, event.code, XidText(event.code), now);
  NoteChanges();
  return true;
}

// Where MIG devices in trouble are, for in mode mig they may be removed before they are well.
void NodeState::NotePlaces() {
  for (const auto& [gpu, known] : known_) {
    if (!known.device.mig_layout) continue;
    const nvml::MigLayout& layout = *known.device.mig_layout;
    for (const nvml::GpuInstance& instance : layout.instances) {
      const auto profile = std::find_if(layout.profiles.begin(), layout.profiles.end(),
                                        [&](const nvml::MigProfile& one) { return one.id == instance.profile_id; });
      for (const nvml::ComputeInstance& compute : instance.compute) {
        if (book_.StateOf(compute.uuid) == HealthState::kHealthy) continue;
        places_[compute.uuid] = {
            compute.uuid, gpu, profile == layout.profiles.end() ? "" : profile->name, instance.place, {}};
      }
    }
  }
}

std::vector<SickInstance> NodeState::SickInstances(const Troubles& troubles) const {
  std::vector<SickInstance> sick;
  for (const auto& [uuid, place] : places_) {
    const auto trouble = troubles.find(uuid);
    if (trouble == troubles.end()) continue;
    sick.push_back(place);
    sick.back().trouble = trouble->second;
  }
  return sick;
}

std::vector<nvml::Device> NodeState::Devices() const {
  std::vector<nvml::Device> devices;
  for (const auto& [uuid, known] : known_) devices.push_back(known.device);
  return devices;
}

NodeSettings NodeState::Settings() const {
  NodeSettings settings = SettingsFor(config_, node_, labels_);
  settings.mode = mode_.value_or(settings.mode);
  return settings;
}

Cards NodeState::MakeCards() const {
  Cards cards;
  cards.ready = ready();
  cards.settings = Settings();
  const std::vector<nvml::Device> devices = Devices();
  Troubles troubles = book_.Current();
  for (const nvml::Device& device : devices) {
    if (!driver_trouble_.empty()) troubles[device.uuid] = driver_trouble_;
  }
  if (cards.settings.mode == OperatingMode::kMps) troubles.insert(mps_troubles_.begin(), mps_troubles_.end());
  cards.left_out = nameless_;
  if (cards.settings.mode == OperatingMode::kMig) cards.sick = SickInstances(troubles);
  cards.cards = plugin::MakeCards(devices, cards.settings, troubles, &cards.left_out, foreign_, cards.sick);
  cards.parts = MakeParts(devices, cards.settings, troubles);
  return cards;
}

Registration NodeState::MakeRegistration(const Cards& cards, bool with_scores, UnixSeconds now) const {
  Registration registration;
  registration.cards = EncodeCards(cards);
  if (with_scores) registration.scores = EncodeScores(topology_.scores, cards);
  registration.health = book_.Journal(now);
  return registration;
}

std::string NodeState::NameOf(const std::string& uuid) const {
  if (const auto part = places_.find(uuid); part != places_.end()) {
    const SickInstance& at = part->second;
    return base::Concat({"MIG device ", uuid, " (", at.profile, " at slice ", std::to_string(at.place.start), " of ",
                         at.gpu_uuid, ")"});
  }
  const auto known = known_.find(uuid);
  if (known == known_.end()) return uuid.starts_with("MIG-") ? "MIG device " + uuid : uuid;
  return base::Concat({"GPU ", std::to_string(known->second.device.index), " (", uuid, ")"});
}

void NodeState::NoteChanges() {
  NotePlaces();
  for (const HealthChange& change : book_.TakeChanges()) {
    const std::string name = NameOf(change.uuid);
    switch (change.to) {
      case HealthState::kUnhealthy:
        events_.push_back({true, "GpuUnhealthy", base::Concat({name, " is not given out: ", change.reason})});
        break;
      case HealthState::kOut:
        events_.push_back({true, "GpuCordoned",
                           base::Concat({name, " failed too often and stays out until it is removed from the node's ",
                                         "annotation hami.io/device-cordon; last: ", change.reason})});
        break;
      case HealthState::kHealthy:
        if (change.from == HealthState::kProbation) {
          events_.push_back({false, "GpuRecovered", name + " is given out again"});
        }
        break;
      default:
        break;
    }
  }
  std::erase_if(places_, [&](const auto& place) { return book_.StateOf(place.first) == HealthState::kHealthy; });
}

std::vector<NodeEvent> NodeState::TakeEvents() { return std::exchange(events_, {}); }

}  // namespace hami::plugin
