// SPDX-License-Identifier: Apache-2.0

#include "monitor/pods.h"

#include <algorithm>

#include "device/allocation_codec.h"
#include "device/annotations.h"

namespace hami::monitor {
namespace {

constexpr std::string_view kGrantAnnotation = "hami.io/vgpu-devices-allocated";

const std::string* Annotation(const kube::Pod& pod, std::string_view key) {
  const auto found = pod.metadata.annotations.find(key);
  return found == pod.metadata.annotations.end() ? nullptr : &found->second;
}

// A wish for a container that is not there is more likely a slip of the pen than a plan.
base::Result<Wishes> ReadWishes(const std::string& text, const std::vector<std::string>& containers) {
  auto wishes = ParseResize(text);
  if (!wishes) return wishes;
  for (const auto& [name, wish] : *wishes) {
    if (std::find(containers.begin(), containers.end(), name) == containers.end()) {
      return base::Fail("the pod has no container named '" + name + "'");
    }
  }
  return wishes;
}

}  // namespace

bool KeepAnnotation(std::string_view key) {
  return key == kGrantAnnotation || key == device::kMigAllocations || key == kResizeAnnotation;
}

std::optional<std::size_t> PodFacts::Find(std::string_view container) const {
  const auto found = std::find(containers.begin(), containers.end(), container);
  if (found == containers.end()) return std::nullopt;
  return static_cast<std::size_t>(found - containers.begin());
}

PodFacts ReadFacts(const PodPtr& pod) {
  PodFacts facts;
  facts.pod = pod;
  for (const kube::Container& container : pod->init_containers) facts.containers.push_back(container.name);
  for (const kube::Container& container : pod->containers) facts.containers.push_back(container.name);
  if (const std::string* text = Annotation(*pod, kGrantAnnotation)) {
    facts.grant = device::DecodeGrant(*text).value_or(device::PodGrant{});
  }
  if (const std::string* text = Annotation(*pod, device::kMigAllocations)) {
    facts.migs = device::DecodeReservations(*text).value_or(std::vector<device::MigReservation>{});
  }
  if (const std::string* text = Annotation(*pod, kResizeAnnotation)) {
    facts.resize = *text;
    facts.wishes = ReadWishes(*text, facts.containers);
  }
  return facts;
}

PodsByUid IndexPods(const Pods& pods) {
  PodsByUid by_uid;
  by_uid.reserve(pods.pods.size());
  for (const PodPtr& pod : pods.pods) by_uid.emplace(pod->metadata.uid, ReadFacts(pod));
  return by_uid;
}

}  // namespace hami::monitor
