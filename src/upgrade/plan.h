// SPDX-License-Identifier: Apache-2.0
//
// How a cluster goes from one installation of HAMi's protocol to another, and back: first the scheduler, then the
// plugin of one node after the other. Pure: a cluster as it was read, in; the writes and what has to be waited for
// between them, out. Keeps that at any time one scheduler places pods, and that no pod meets a node without a plugin.
// What is done already is left out, so that a plan that was interrupted is made and carried out again. Refuses where
// two schedulers could place at the same time.

#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "kube/resource.h"

namespace hami::upgrade {

namespace json = base::json;

inline constexpr kube::Resource kDeployments{"apps/v1", "deployments", "Deployment"};
inline constexpr kube::Resource kDaemonSets{"apps/v1", "daemonsets", "DaemonSet"};
inline constexpr kube::Resource kWebhooks{"admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations",
                                          "MutatingWebhookConfiguration", false};

// The label by which a node has our plugin; our DaemonSet selects by it.
inline constexpr const char* kNodeLabel = "hami-upgrade";
inline constexpr const char* kNodeValue = "ours";

// One of the two installations, and its objects as they were read; null: not there.
struct Side {
  std::string called;  // in messages: "HAMi"
  std::string ns;
  std::string scheduler;  // the Deployment
  std::string plugin;     // the DaemonSet
  std::string webhook;    // the MutatingWebhookConfiguration
  json::value deployment;
  json::value daemon_set;
  json::value hook;
};

struct NodeState {
  json::value object;
  std::string lock;    // who holds it
  int allocating = 0;  // pods between their binding and Allocate
  int running = 0;     // pods with a grant
  bool hami = false;   // a pod of HAMi's plugin is there, however it is
  bool ours = false;   // a pod of ours is there, however it is
  bool ready = false;  // the plugin that is there is ready
  std::string name() const;
};

struct Cluster {
  Side hami;
  Side ours;
  std::vector<NodeState> nodes;
};

struct Step {
  enum class Kind { kPatch, kAvailable, kGone, kIdle, kServed };
  Kind kind = Kind::kPatch;
  std::string text;  // what is done or waited for
  kube::Resource resource{};
  std::string ns;
  std::string name;
  json::value patch;     // a merge patch that holds for the version that was read, but for nodes
  bool of_ours = false;  // what is waited for: whose
};

// The other installation's scheduler to 0, this one's to REPLICAS or what it had; BACK: HAMi's again.
base::Result<std::vector<Step>> PlanScheduler(const Cluster& cluster, int replicas, bool back);

// One node's plugin.
base::Result<std::vector<Step>> PlanNode(const Cluster& cluster, const std::string& node, bool back);

// Whether what STEP waits for is so.
bool Holds(const Step& step, const Cluster& cluster);

// What is where, for people and as JSON.
json::value Survey(const Cluster& cluster);
std::string SurveyText(const Cluster& cluster);

}  // namespace hami::upgrade
