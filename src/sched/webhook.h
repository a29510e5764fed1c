// SPDX-License-Identifier: Apache-2.0
//
// Admission of pods: writes out what a pod that asks for devices implies, hands it to our scheduler, and refuses what
// could not work. A pure function of the pod, the vendors' configuration and the quota; the AdmissionReview around it
// belongs to the shell.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "device/pod.h"
#include "device/vendor.h"
#include "sched/quota.h"

namespace hami::sched {

struct WebhookConfig {
  std::string scheduler_name;  // empty: schedulerName is left alone
  bool overwrite_default_scheduler = true;
};

struct Admission {
  bool allowed = true;
  int code = 200;  // 400 not understood, 403 refused, 500 a request that no vendor can mean
  std::string message;
  base::json::array patch;  // JSON Patch; empty when nothing changes
  // What was not taken as it is written, a sentence each: shown to the client that sent the pod. The shell bounds them.
  device::Warnings warnings{};
};

// What the quotas of the namespace leave for a pod with these traits, of every vendor. That is the namespace of the
// AdmissionReview: the pod's own is often still empty. Asked of pods that use a vendor's devices.
using RoomOf = std::function<std::vector<QuotaRoom>(const device::PodTraits&)>;

Admission Admit(const base::json::value& pod, const WebhookConfig& config, const device::Vendors& vendors,
                const RoomOf& room);

// Whether some container of POD asks for devices, or tries to; whatever scheduler it names.
bool AsksForDevices(const base::json::value& pod, const device::Vendors& vendors);

}  // namespace hami::sched
