// SPDX-License-Identifier: Apache-2.0
//
// The part of a Kubernetes pod that decisions need. Owns the reading of a pod's JSON; keeps quantities as text until a
// vendor asks for the resources it knows. Total: fields of the wrong shape read as absent, except that an object that
// is no pod at all is refused.

#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/json_parts.h"
#include "base/result.h"
#include "device/types.h"

namespace hami::device {

struct Container {
  std::string name;
  StringMap limits;
  StringMap requests;
  // How it uses a share, by its own words: the variables that libvgpu reads, and the user it runs as.
  StringMap terms;

  // The limit of RESOURCE, or the request where there is no limit.
  const std::string* Resource(std::string_view resource) const;
};

struct InitContainer : Container {
  bool sidecar = false;  // restartPolicy Always: runs beside the app containers
};

struct Pod {
  std::string ns;
  std::string name;
  std::string uid;
  std::string node_name;  // spec.nodeName
  StringMap annotations;
  std::vector<InitContainer> init_containers;
  std::vector<Container> containers;
  bool terminated = false;  // phase Succeeded or Failed
  bool init_done = false;   // every ordinary init container ended with exit code 0
};

namespace pod_parts {

inline constexpr base::Part kGroupLabel[] = {{"scheduling.x-k8s.io/pod-group"}};
inline constexpr base::Part kMetadata[] = {{"namespace"},       {"name"},        {"uid"},
                                           {"resourceVersion"}, {"annotations"}, {"labels", kGroupLabel}};
inline constexpr base::Part kResources[] = {{"limits"}, {"requests"}};
inline constexpr base::Part kVariable[] = {{"name"}, {"value"}};
inline constexpr base::Part kSecurity[] = {{"runAsUser"}};
inline constexpr base::Part kContainer[] = {
    {"name"}, {"resources", kResources}, {"env", kVariable}, {"securityContext", kSecurity}, {"restartPolicy"}};
inline constexpr base::Part kGroup[] = {{"podGroupName"}};
inline constexpr base::Part kSpec[] = {
    {"nodeName"},  {"initContainers", kContainer}, {"containers", kContainer}, {"securityContext", kSecurity},
    {"hostUsers"}, {"schedulingGroup", kGroup}};
inline constexpr base::Part kTerminated[] = {{"exitCode"}};
inline constexpr base::Part kState[] = {{"terminated", kTerminated}};
inline constexpr base::Part kContainerStatus[] = {{"name"}, {"state", kState}};
inline constexpr base::Part kStatus[] = {{"phase"}, {"initContainerStatuses", kContainerStatus}};

}  // namespace pod_parts

// All that ReadPod looks at, what the API server goes by, and the two ways to be in a group.
inline constexpr base::Part kPodParts[] = {
    {"metadata", pod_parts::kMetadata}, {"spec", pod_parts::kSpec}, {"status", pod_parts::kStatus}};

base::Result<Pod> ReadPod(const base::json::value& document);

// Quantities may be JSON numbers in what users submit.
std::string QuantityText(const base::json::value& value);

}  // namespace hami::device
