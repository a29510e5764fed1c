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

// A MIG device in trouble recovers as a GPU does, while its GPU is well. What befalls the GPU is not each one's own.
void NodeState::JudgeParts(const Known& known, const Reading& look, UnixSeconds now) {
  if (!look.listed || look.condition != Condition::kAnswers || look.worn_out || look.reset_pending) return;
  for (const nvml::MigDevice& part : known.device.mig_devices) book_.Look(part.uuid, {}, now);
}

bool NodeState::IsKnown(const std::string& uuid) const {
  return std::any_of(known_.begin(), known_.end(), [&](const auto& entry) {
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

// Where instances are not offered by themselves, an error of one speaks for its GPU.
std::string NodeState::SubjectOf(const nvml::XidEvent& event) const {
  const auto known = known_.find(event.uuid);
  if (known == known_.end() || Settings().Strategy() == MigStrategy::kNone) return event.uuid;
  const nvml::MigDevice* part = FindPart(known->second.device, event.gpu_instance, event.compute_instance);
  return part == nullptr ? event.uuid : part->uuid;
}

bool NodeState::SeeXid(const nvml::XidEvent& event, UnixSeconds now) {
  if (!known_.contains(event.uuid) || !Blame(SubjectOf(event), event.code, XidText(event.code), now)) return false;
  NoteChanges();
  return true;
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
  cards.cards = plugin::MakeCards(devices, cards.settings, troubles, &cards.left_out, foreign_);
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
  const auto known = known_.find(uuid);
  if (known == known_.end()) return uuid.starts_with("MIG-") ? "MIG device " + uuid : uuid;
  return base::Concat({"GPU ", std::to_string(known->second.device.index), " (", uuid, ")"});
}

void NodeState::NoteChanges() {
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
}

std::vector<NodeEvent> NodeState::TakeEvents() { return std::exchange(events_, {}); }

}  // namespace hami::plugin
