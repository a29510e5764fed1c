// SPDX-License-Identifier: Apache-2.0

#include "scheduler/leader.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace hami::scheduler {
namespace {

namespace json = base::json;

constexpr const char* kLeaderRole = "leader";
constexpr const char* kFollowerRole = "follower";
constexpr auto kCallTime = std::chrono::seconds(5);

bool IsReady(const json::object& pod) {
  const json::value* status = pod.if_contains("status");
  if (status == nullptr || !status->is_object()) return false;
  const json::array* conditions = base::GetArray(status->get_object(), "conditions");
  if (conditions == nullptr) return false;
  return std::any_of(conditions->begin(), conditions->end(), [](const json::value& item) {
    if (!item.is_object()) return false;
    return base::GetString(item.get_object(), "type") == "Ready" &&
           base::GetString(item.get_object(), "status") == "True";
  });
}

}  // namespace

std::optional<Replica> ReadReplica(const json::value& pod, const std::string& self) {
  const auto metadata = kube::ReadMetadata(pod, [](std::string_view) { return false; });
  if (!metadata || metadata->deleting) return std::nullopt;
  const auto role = metadata->labels.find(kRoleLabel);
  return Replica{metadata->name, role == metadata->labels.end() ? std::string() : role->second,
                 IsReady(pod.get_object()), metadata->name == self};
}

std::vector<RoleChange> PlanRoles(const std::vector<Replica>& replicas, bool leads) {
  const auto self = std::find_if(replicas.begin(), replicas.end(), [](const Replica& one) { return one.self; });
  if (self == replicas.end()) return {};
  std::vector<RoleChange> changes;
  if (leads) {
    if (self->role != kLeaderRole) changes.push_back({self->name, kLeaderRole});
    for (const Replica& one : replicas) {
      // While the Service can not send to us, others keep what they have.
      const bool keep = one.role == kLeaderRole && !self->ready;
      if (!one.self && one.role != kFollowerRole && !keep) changes.push_back({one.name, kFollowerRole});
    }
    return changes;
  }
  const bool someone = std::any_of(replicas.begin(), replicas.end(), [](const Replica& one) {
    return !one.self && one.ready && one.role == kLeaderRole;
  });
  if (!someone && self->role != kLeaderRole) changes.push_back({self->name, kLeaderRole});
  if (someone && self->role.empty()) changes.push_back({self->name, kFollowerRole});
  return changes;
}

Leader::Leader(kube::Client& client, LeaderOptions options) : client_(client), options_(std::move(options)) {
  if (WritesLabels()) {
    neighbours_source_ = std::make_unique<kube::ApiListWatcher>(client_, kube::kPods, options_.pod_namespace,
                                                                kube::Selection{kReplicaSelector, ""});
    kube::ReflectorOptions watching;
    watching.name = "the scheduler's replicas in " + options_.pod_namespace;
    neighbours_reflector_ = std::make_unique<kube::Reflector>(*neighbours_source_, neighbours_, std::move(watching));
  }
  if (!options_.elect) return;
  source_ = std::make_unique<kube::ApiListWatcher>(client_, kube::kLeases, options_.lease_namespace,
                                                   kube::Selection{"", "metadata.name=" + options_.lease_name});
  kube::ReflectorOptions watching;
  watching.name = "the lease " + options_.lease_namespace + "/" + options_.lease_name;
  reflector_ = std::make_unique<kube::Reflector>(*source_, static_cast<kube::Handler&>(*this), std::move(watching));
}

void Leader::Start() {
  if (reflector_) reflector_->Start();
  if (neighbours_reflector_) neighbours_reflector_->Start();
  thread_ = std::thread([this] { Run(); });
}

void Leader::Stop() {
  if (reflector_) reflector_->Stop();
  if (neighbours_reflector_) neighbours_reflector_->Stop();
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  stop_.Cancel();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool Leader::leads() const {
  if (!options_.elect) return true;
  const std::scoped_lock lock(mutex_);
  return view_.LeadsFrom(options_.host, net::Clock::now());
}

void Leader::OnChange(const kube::Change& change) {
  const std::scoped_lock lock(mutex_);
  const bool led = view_.LeadsFrom(options_.host, net::Clock::now());
  const auto lease = change.object == nullptr || change.type == kube::ChangeType::kDeleted
                         ? std::nullopt
                         : std::optional(kube::ReadLease(*change.object));
  if (lease && *lease) {
    view_.Observe(**lease, net::Clock::now());
  } else {
    view_.Forget();
  }
  if (view_.LeadsFrom(options_.host, net::Clock::now()) == led) return;
  seen_something_ = true;
  changed_.notify_all();
}

void Leader::Neighbours::OnChange(const kube::Change&) {
  const std::scoped_lock lock(leader_.mutex_);
  leader_.roles_may_differ_ = true;
  leader_.changed_.notify_all();
}

void Leader::Run() {
  std::optional<bool> told;
  net::Deadline next_labels{};
  while (true) {
    const bool leading = leads();
    if (told != leading) {
      base::LogInfo(leading ? "leading: /filter is answered here" : "following: /filter waits, /webhook is answered");
      if (options_.on_change) options_.on_change(leading);
      next_labels = {};
    }
    told = leading;
    if (net::Clock::now() >= next_labels) {
      WriteRoles(leading);
      next_labels = net::After(options_.label_interval);
    }
    std::unique_lock lock(mutex_);
    // A lease that runs out is no event, so it is looked at when it would.
    const net::Deadline wake = leading && options_.elect ? std::min(next_labels, view_.expires()) : next_labels;
    changed_.wait_until(lock, wake, [&] { return stopping_ || seen_something_ || roles_may_differ_; });
    seen_something_ = false;
    if (std::exchange(roles_may_differ_, false)) next_labels = {};
    if (stopping_) return;
  }
}

void Leader::WriteRoles(bool leading) {
  if (!WritesLabels()) return;
  const kube::CallContext context{&stop_, kCallTime};
  std::vector<Replica> replicas;
  const kube::ListSink sink{[&](const json::value& pod) {
                              if (auto replica = ReadReplica(pod, options_.pod_name)) replicas.push_back(*replica);
                            },
                            [&] { replicas.clear(); }};
  const auto listed = client_.List(kube::kPods, options_.pod_namespace, {{kReplicaSelector, ""}}, sink, context);
  if (!listed) {
    if (!stop_.cancelled()) base::LogWarning("the replicas can not be listed: " + listed.error().message);
    return;
  }
  for (const RoleChange& change : PlanRoles(replicas, leading)) {
    const json::value patch{{"metadata", {{"labels", {{kRoleLabel, change.role}}}}}};
    const auto patched =
        client_.Patch(kube::kPods, options_.pod_namespace, change.pod, kube::PatchType::kMerge, patch, context);
    if (!patched) {
      if (!stop_.cancelled()) {
        base::LogWarning("pod " + change.pod + " is not labelled " + change.role + ": " + patched.error().message);
      }
      return;  // above all, nobody is demoted before we have the label
    }
    base::LogInfo("pod " + change.pod + " has the role " + change.role);
  }
}

}  // namespace hami::scheduler
