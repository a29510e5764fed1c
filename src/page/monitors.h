// SPDX-License-Identifier: Apache-2.0
//
// The monitors of a cluster: where they are, by the EndpointSlices of their Service, and what one of them says. Each
// answer is bounded in size and time, no redirect is followed, and an answer that cannot be read is an error that says
// what to do.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "device/use_report.h"
#include "kube/client.h"

namespace hami::page {

struct MonitorAddress {
  std::string node;
  std::string host;
  std::uint16_t port = 0;
  bool ready = true;
  bool operator==(const MonitorAddress&) const = default;
};

// NAMESPACE/NAME of a Service.
struct ServiceName {
  std::string ns;
  std::string name;
};
base::Result<ServiceName> ParseServiceName(std::string_view text);

using Monitors = std::map<std::string, MonitorAddress>;  // by node
inline constexpr std::size_t kMostMonitors = 20'000;
// Adds those of one EndpointSlice. Of several on a node a ready one counts. What names no node is left out.
void ReadSlice(const base::json::value& slice, Monitors& monitors);

// By node.
base::Result<std::vector<MonitorAddress>> FindMonitors(kube::Client& client, const ServiceName& service,
                                                       const net::Canceller& stop);
base::Result<device::UseReport> AskMonitor(const MonitorAddress& monitor, const net::Canceller& stop);

}  // namespace hami::page
