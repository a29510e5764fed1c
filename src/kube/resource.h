// SPDX-License-Identifier: Apache-2.0
//
// The kinds of object we use, and how their paths are written.

#pragma once

#include <string>
#include <string_view>

namespace hami::kube {

struct Resource {
  std::string_view group_version;  // "v1", "coordination.k8s.io/v1"
  std::string_view plural;         // "pods"
  std::string_view kind;           // "Pod"
  bool namespaced = true;
};

inline constexpr Resource kPods{"v1", "pods", "Pod"};
inline constexpr Resource kNodes{"v1", "nodes", "Node", false};
inline constexpr Resource kEvents{"v1", "events", "Event"};
inline constexpr Resource kConfigMaps{"v1", "configmaps", "ConfigMap"};
inline constexpr Resource kResourceQuotas{"v1", "resourcequotas", "ResourceQuota"};
inline constexpr Resource kLeases{"coordination.k8s.io/v1", "leases", "Lease"};

// "/api/v1/namespaces/NS/pods/NAME/SUB". Empty parts are left out: no NS means all namespaces, no NAME the collection.
std::string PathTo(const Resource& resource, std::string_view ns, std::string_view name = {},
                   std::string_view subresource = {});

}  // namespace hami::kube
