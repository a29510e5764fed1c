// SPDX-License-Identifier: Apache-2.0
//
// Which replica decides, and which one the webhook's Service finds.
//
// Leadership is not ours to hold: it is that of the kube-scheduler beside us, whose lease is watched. Without leader
// election we always lead.
//
// The Service selects the label hami.io/scheduler-role=leader. Every replica answers /webhook, so the label only has to
// be somewhere: a new leader takes it first and takes it from the others afterwards; a replica that lost the lease
// keeps it until then; and where no ready replica has it (the leader's pod is gone and its lease runs on) a follower
// stands in, as soon as it sees that. So the label moves and never disappears while a replica is ready.

#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kube/client.h"
#include "kube/reflector.h"
#include "kube/views.h"

namespace hami::scheduler {

inline constexpr const char* kRoleLabel = "hami.io/scheduler-role";
inline constexpr const char* kReplicaSelector = "app.kubernetes.io/component=hami-scheduler";

struct Replica {
  std::string name;
  std::string role;  // "leader", "follower" or nothing yet
  bool ready = false;
  bool self = false;
};
struct RoleChange {
  std::string pod;
  std::string role;
  bool operator==(const RoleChange&) const = default;
};
// What this replica should write, in that order. Pure.
std::vector<RoleChange> PlanRoles(const std::vector<Replica>& replicas, bool leads);
// Nothing for a pod that is going away.
std::optional<Replica> ReadReplica(const base::json::value& pod, const std::string& self);

struct LeaderOptions {
  bool elect = false;
  std::string lease_name;
  std::string lease_namespace;
  std::string host;  // as it begins the lease's holder identity
  // The pod we run in; empty: no labels are written.
  std::string pod_name;
  std::string pod_namespace;
  net::Duration label_interval = std::chrono::seconds(15);  // looks again after this long when nothing changed
  std::function<void(bool leads)> on_change;                // on a thread of ours
};

class Leader : private kube::Handler {
 public:
  // CLIENT must outlive this.
  Leader(kube::Client& client, LeaderOptions options);
  ~Leader() override { Stop(); }
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;

  void Start();
  void Stop();
  bool leads() const;

 private:
  // Hears of every replica that comes, goes, gets ready or is no longer.
  class Neighbours : public kube::Handler {
   public:
    explicit Neighbours(Leader& leader) : leader_(leader) {}
    void OnChange(const kube::Change& change) override;

   private:
    Leader& leader_;
  };

  bool WritesLabels() const { return !options_.pod_name.empty() && !options_.pod_namespace.empty(); }
  void OnChange(const kube::Change& change) override;
  void Run();
  void WriteRoles(bool leading);

  kube::Client& client_;
  const LeaderOptions options_;
  net::Canceller stop_;
  std::unique_ptr<kube::ApiListWatcher> source_;
  std::unique_ptr<kube::Reflector> reflector_;
  Neighbours neighbours_{*this};
  std::unique_ptr<kube::ApiListWatcher> neighbours_source_;
  std::unique_ptr<kube::Reflector> neighbours_reflector_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool seen_something_ = false;
  bool roles_may_differ_ = false;
  bool stopping_ = false;
  kube::LeaderView view_;
  std::thread thread_;
};

}  // namespace hami::scheduler
