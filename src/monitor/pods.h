// SPDX-License-Identifier: Apache-2.0
//
// The pods of the node as the monitor needs them: which containers there are, in the order of the grants, and what
// their annotations say. Annotations that can not be read leave their part empty; they never hide a pod.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kube/views.h"
#include "monitor/directory.h"
#include "monitor/resize.h"

namespace hami::monitor {

using PodPtr = std::shared_ptr<const kube::Pod>;

struct Pods {
  bool known = false;  // the first list is complete
  std::vector<PodPtr> pods;
};

// The annotations that are worth keeping of a pod.
bool KeepAnnotation(std::string_view key);

struct PodFacts {
  PodPtr pod;
  std::vector<std::string> containers;  // init containers first
  device::PodGrant grant;
  std::vector<device::MigReservation> migs;
  std::optional<std::string> resize;  // the annotation
  base::Result<Wishes> wishes;        // what it says, or why that is not understood

  // Position of the container, or nothing.
  std::optional<std::size_t> Find(std::string_view container) const;
};

PodFacts ReadFacts(const PodPtr& pod);

using PodsByUid = std::unordered_map<std::string, PodFacts>;
PodsByUid IndexPods(const Pods& pods);

}  // namespace hami::monitor
