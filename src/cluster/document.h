// SPDX-License-Identifier: Apache-2.0
//
// The document of the page (docs/operate/page.md), from whichever source can be had: hami-scheduler's
// --page-bind-address, or made here of what the API server lists. Nothing is written anywhere. What only the scheduler
// knows (the health time-line) is empty in a document that was made here; the reasons of pods that wait are worked out
// anew.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "device/vendor.h"
#include "kube/client.h"
#include "kube/views.h"
#include "page/snapshot.h"

namespace hami::cluster {

struct Source {
  std::string server;      // a URL; empty: the API server is asked
  std::string token_file;  // for SERVER
  std::string ca_file;
  std::string kubeconfig;
  std::string context;
  std::string device_config_file;  // empty: HAMi's own names of resources
};

// The text of a document. An error names what could not be reached and what to do.
base::Result<std::string> FetchFromScheduler(const Source& source);
base::Result<std::string> MakeFromApiServer(const Source& source);
// From the scheduler where one is named, else from the API server.
base::Result<base::json::value> Fetch(const Source& source);

base::Result<std::unique_ptr<kube::Client>> Connect(const Source& source);
base::Result<device::Vendors> VendorsOf(const Source& source);
// What the vendors read of NODE, which must outlive it.
device::NodeFacts FactsOf(const kube::Node& node);

// The snapshot of raw objects, as the API server lists them. Pods that have no node and ask for a device wait, with the
// reasons that VENDORS give.
page::Snapshot SnapshotOf(const device::Vendors& vendors, const std::vector<base::json::value>& nodes,
                          const std::vector<base::json::value>& pods, const std::vector<base::json::value>& quotas,
                          device::UnixSeconds now);

}  // namespace hami::cluster
