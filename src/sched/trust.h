// SPDX-License-Identifier: Apache-2.0
//
// Who may write HAMi's annotations and labels on a pod (device/annotation_table.h). Of a new pod they are taken off,
// with a warning each, unless the writer is one of HAMi's programs: a pod that is made from another's text, by
// `kubectl get -o yaml` or by a controller, becomes a pod of its own. Refused are a pod that would be served past our
// scheduler by what is forged on it, and every change of them by anybody else. Pure.

#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "sched/webhook.h"

namespace hami::sched {

// User names as the API server knows them; a * at a name's end stands for anything.
class Writers {
 public:
  Writers() = default;
  explicit Writers(std::vector<std::string> names) : names_(std::move(names)) {}
  bool Has(std::string_view user) const;

 private:
  std::vector<std::string> names_;
};

// Admit, for a pod as USER submits it.
Admission AdmitCreation(const base::json::value& pod, std::string_view user, const Writers& writers,
                        const WebhookConfig& config, const device::Vendors& vendors, const RoomOf& room);

// For a change of a pod from BEFORE to AFTER by USER.
Admission AdmitUpdate(const base::json::value& before, const base::json::value& after, std::string_view user,
                      const Writers& writers);

}  // namespace hami::sched
