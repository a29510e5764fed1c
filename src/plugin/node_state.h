// SPDX-License-Identifier: Apache-2.0
//
// Everything that is known of this node and its GPUs, and what follows from it. Pure and of one thread: readings of the
// driver, XIDs, configuration and the node object go in; the cards, the registration and the events to report come out.
// Nothing comes out before the node object was seen: it remembers which GPUs were out of order, and its labels may
// choose the configuration. A GPU that was there once stays known, unhealthy, for an hour after the driver stops
// listing it.

#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device/register_codec.h"
#include "nvml/nvml.h"
#include "plugin/health.h"
#include "plugin/inventory.h"
#include "plugin/mig_static.h"
#include "plugin/node_config.h"
#include "plugin/registration.h"
#include "plugin/topology_score.h"
#include "plugin/xid_policy.h"

namespace hami::plugin {

struct NodeEvent {
  bool warning = false;
  std::string reason;
  std::string message;
};

// One look at all GPUs.
struct DriverReading {
  std::vector<nvml::Device> devices;
  std::map<std::string, nvml::HealthSigns> health;  // by UUID
  std::optional<nvml::Topology> topology;           // absent: not looked at this time
  ForeignInstances foreign{};
  std::set<std::string> unheard{};  // UUIDs whose XIDs may have been missed since the last look
};

class NodeState {
 public:
  NodeState(std::string node, XidPolicy policy, HealthRules rules = {});

  // Why CONFIG can not be this node's, as far as its labels are known; empty: it can.
  std::string Objection(const NodeConfig& config) const;
  void Configure(NodeConfig config);
  // The first time also brings back the GPUs' past.
  void SeeNode(const Labels& labels, const device::StringMap& annotations, UnixSeconds now);

  // NOW is when the look began.
  void SeeDriver(const DriverReading& reading, UnixSeconds now);
  // The driver does not answer as a whole; no GPU is to be given out until it does. No mark against any GPU.
  void LoseDriver(const std::string& why);
  // The mode that is in force, whatever is configured. Until it is said, the configured one.
  void UseMode(OperatingMode mode) {
    mode_ = mode;
    NoteStrategy();
  }
  // GPUs that MPS does not serve, in mode mps. No mark against the GPU itself.
  void SeeMps(Troubles troubles) { mps_troubles_ = std::move(troubles); }
  // True when the GPU should be looked at soon.
  bool SeeXid(const nvml::XidEvent& event, UnixSeconds now);

  bool ready() const { return node_seen_ && first_look_.has_value() && objection_.empty(); }
  Cards MakeCards() const;
  NodeSettings Settings() const;
  // Of CARDS; only the parts that are this class's to know.
  Registration MakeRegistration(const Cards& cards, bool with_scores, UnixSeconds now) const;
  std::vector<NodeEvent> TakeEvents();

 private:
  struct Known {
    nvml::Device device;  // as it was when it last answered
    UnixSeconds listed = 0;
    Damage damage;         // when it last said so
    bool unheard = false;  // its XIDs may have been missed since then
  };
  // The reading's device that is KNOWN, perhaps without its name.
  static const nvml::Device* Match(const std::vector<nvml::Device>& devices, const Known& known);
  void Judge(const DriverReading& reading, UnixSeconds now);
  void JudgeDamage(const std::string& uuid, Known& known, const Damage& told, UnixSeconds now);
  // True when XID CODE counts.
  bool Blame(const std::string& uuid, std::uint64_t code, const std::string& reason, UnixSeconds now);
  // The health book's name of what EVENT is about: the GPU, or a MIG device of it that is given out by itself. Nothing:
  // an instance that the last look did not show.
  std::optional<std::string> SubjectOf(const nvml::XidEvent& event) const;
  void NotePlaces();
  std::vector<SickInstance> SickInstances(const Troubles& troubles) const;
  void JudgeParts(const Known& known, const Reading& look, UnixSeconds now);
  bool IsKnown(const std::string& uuid) const;
  void NoteStrategy();
  std::vector<nvml::Device> Devices() const;
  void NoteNameless(const std::vector<nvml::Device>& devices);
  void NoteTopology(const nvml::Topology& topology);
  void NoteChanges();
  std::string NameOf(const std::string& uuid) const;

  const std::string node_;
  const XidPolicy policy_;
  void JudgeConfig();

  NodeConfig config_;
  std::string objection_;  // to the configuration
  Labels labels_;
  bool node_seen_ = false;
  std::optional<UnixSeconds> first_look_;  // at the GPUs
  std::string driver_trouble_;
  std::map<std::string, Known> known_;  // by UUID
  std::optional<OperatingMode> mode_;
  Troubles mps_troubles_;
  ForeignInstances foreign_;
  std::string strategy_trouble_;       // why --mig-strategy=single offers nothing, as it was told
  std::vector<std::string> nameless_;  // GPUs in trouble since the start, a line each
  HealthBook book_;
  std::map<std::string, SickInstance> places_;  // by UUID, of MIG devices that are not healthy
  std::vector<nvml::XidEvent> unplaced_;        // of instances that the next look may show
  TopologyScore topology_;
  std::vector<NodeEvent> events_;
};

}  // namespace hami::plugin
