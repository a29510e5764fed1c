// SPDX-License-Identifier: Apache-2.0
//
// The part of a Kubernetes pod that decisions need. Owns the reading of a pod's JSON, straight from its text: two
// events of a watch and a request come for each pod that is placed. Keeps quantities as text until a vendor asks for
// the resources it knows. Total: fields of the wrong shape read as absent.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_cursor.h"
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
  bool operator==(const Container&) const = default;
};

struct InitContainer : Container {
  bool sidecar = false;  // restartPolicy Always: runs beside the app containers
  bool operator==(const InitContainer&) const = default;
};

// What the scopes of a quota go by.
struct PodTraits {
  bool terminating = false;      // has activeDeadlineSeconds
  bool best_effort = false;      // its quality of service: no cpu and no memory is asked
  bool cross_namespace = false;  // an affinity to pods of other namespaces
  std::string priority_class;
  auto operator<=>(const PodTraits&) const = default;
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
  // Every ordinary init container ended with exit code 0, and none runs again. Only where nothing in the pod may be
  // started anew: a lost sandbox (a reboot) starts all else from its first init container.
  bool init_done = false;
  std::int32_t priority = 0;  // spec.priority; the more, the later it is evicted
  PodTraits traits;
  bool operator==(const Pod&) const = default;
};

// A pod as the API server writes it: with what else of it a scheduler goes by.
struct PodObject {
  Pod pod;
  std::string version;   // resourceVersion
  bool group = false;    // member of a PodGroup, by any of the ways to say so
  bool preempts = true;  // it may have pods of lower priority evicted
  // A digest of what kube-scheduler says of a pod that it found no node for; 0: it says no such thing.
  std::uint64_t refusal = 0;
  bool operator==(const PodObject&) const = default;
};

// The container at PLACE of the order of every grant: init containers first; nullptr beyond the last.
const Container* ContainerAt(const Pod& pod, std::size_t place);

// What is read of a pod.
struct PodFields {
  bool resources = true;  // of its containers
  // Empty: all. What any vendor granted is read in any case, as it is sealed as a whole.
  std::span<const std::string_view> annotations{};
  std::span<const std::string_view> quantities{};  // of the resources; empty: all
};

// Reads the value that CURSOR stands before, in one walk; of what is no object, nothing. False: it is not JSON. What
// OUT was before is forgotten. Of a member that is there twice the last counts, as everywhere in Kubernetes.
bool TakePod(base::JsonCursor& cursor, const PodFields& fields, PodObject& out);

base::Result<Pod> ReadPod(std::string_view text);

// PodObject::refusal of the condition PodScheduled, where that is False.
std::uint64_t RefusalOf(std::string_view reason, std::string_view message, std::string_view since);

// Of a quantity's text; 0 where it is no whole number of 32 bits.
std::int32_t PriorityOf(std::string_view quantity);

// Quantities may be JSON numbers in what users submit.
std::string QuantityText(const base::json::value& value);

}  // namespace hami::device
