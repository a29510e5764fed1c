// SPDX-License-Identifier: Apache-2.0
//
// Slim views of Kubernetes objects: only what decisions need, so that a hundred thousand pods fit into little memory.
// Reading is total: an object without a name is refused, every other field of the wrong shape reads as absent.
// Quantities stay text.

#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/json_parts.h"
#include "kube/error.h"

namespace hami::kube {

using StringMap = std::map<std::string, std::string, std::less<>>;

struct Metadata {
  std::string ns;
  std::string name;
  std::string uid;
  std::string resource_version;
  StringMap labels;
  StringMap annotations;  // those that the caller wanted
  bool deleting = false;  // deletionTimestamp is set
};

// Which annotations are of interest. Empty function: all.
using KeepKey = std::function<bool(std::string_view key)>;

// What the readers look at, for those who ask for parts of objects (base/json_parts.h).
inline constexpr base::Part kMetadataMembers[] = {
    {"namespace"}, {"name"}, {"uid"}, {"resourceVersion"}, {"labels"}, {"annotations"}, {"deletionTimestamp"}};

Result<Metadata> ReadMetadata(const base::json::value& object, const KeepKey& keep_annotation = {});

struct Container {
  std::string name;
  StringMap limits;
  StringMap requests;
  bool restart_always = false;  // of an init container: a sidecar
};

struct ContainerStatus {
  std::string name;
  bool finished_well = false;  // terminated with exit code 0
};

struct Pod {
  Metadata metadata;
  std::string node_name;
  std::string phase;
  std::string scheduler_name;
  std::vector<Container> containers;
  std::vector<Container> init_containers;
  std::vector<ContainerStatus> init_statuses;

  bool terminated() const { return phase == "Succeeded" || phase == "Failed"; }
};

Result<Pod> ReadPod(const base::json::value& object, const KeepKey& keep_annotation = {});

struct Node {
  Metadata metadata;
  bool unschedulable = false;
  bool ready = false;
  StringMap allocatable;  // resources of interest
  StringMap capacity;
};

Result<Node> ReadNode(const base::json::value& object, const KeepKey& keep_annotation = {},
                      const KeepKey& keep_resource = {});

struct QuotaScope {
  std::string name;
  std::string what;  // In, NotIn, Exists, DoesNotExist
  std::vector<std::string> values;
};

struct Quota {
  Metadata metadata;
  StringMap hard;  // spec.hard
  StringMap used;  // status.used
  // spec.scopes, as expressions, and those of spec.scopeSelector: all have to fit a pod that the quota is about.
  std::vector<QuotaScope> scopes;
};

Result<Quota> ReadQuota(const base::json::value& object);

// A pod's way to its node: one write that binds it and puts down what it was given. The server refuses it when the pod
// is bound, has another uid, or (where VERSION is not empty) has changed since.
struct Binding {
  std::string ns;
  std::string name;
  std::string uid;
  std::string version;  // resourceVersion
  std::string node;
  StringMap annotations;
  StringMap labels;
};

struct Lease {
  Metadata metadata;
  std::string holder;
  std::chrono::seconds duration{15};
  std::string renew_time;  // RFC 3339 as written; changes show that the holder lives
  std::uint64_t transitions = 0;
};

Result<Lease> ReadLease(const base::json::value& object);

// Who leads, judged by an observer who trusts only its own clock: a holder lives for the lease's duration from the
// moment its last renewal was seen. Pure.
class LeaderView {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void Observe(const Lease& lease, Time now);
  void Forget() { seen_ = false; }  // the lease was deleted
  // Whether the holder is HOST: its identity is HOST itself or "HOST_…", as client-go writes it. `host-1` is not
  // `host-10`.
  bool LeadsFrom(std::string_view host, Time now) const;
  bool Valid(Time now) const { return seen_ && now < expires_; }
  const std::string& holder() const { return holder_; }
  // When the answer may change without a further observation.
  Time expires() const { return expires_; }

 private:
  std::string holder_;
  std::string renew_time_;
  Time expires_{};
  bool seen_ = false;
};

}  // namespace hami::kube
