// SPDX-License-Identifier: Apache-2.0

#include "page/monitors.h"

#include "base/strings.h"
#include "net/client.h"

namespace hami::page {
namespace {

namespace json = base::json;

constexpr kube::Resource kEndpointSlices{"discovery.k8s.io/v1", "endpointslices", "EndpointSlice"};
constexpr auto kListTime = std::chrono::seconds(10);
constexpr auto kAskTime = std::chrono::seconds(2);

const json::object* ObjectIn(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr ? nullptr : value->if_object();
}

// 0: the slice names none.
std::uint16_t PortOf(const json::object& slice) {
  const json::array* ports = base::GetArray(slice, "ports");
  for (const json::value& port : ports == nullptr ? json::array() : *ports) {
    const json::object* one = port.if_object();
    const auto number = one == nullptr ? std::nullopt : base::GetUint(*one, "port");
    if (number && *number >= 1 && *number <= 65535) return static_cast<std::uint16_t>(*number);
  }
  return 0;
}

void Add(MonitorAddress monitor, Monitors& monitors) {
  const auto same = monitors.find(monitor.node);
  if (same == monitors.end()) {
    if (monitors.size() < kMostMonitors) monitors.emplace(monitor.node, monitor);
  } else if (monitor.ready && !same->second.ready) {
    same->second = std::move(monitor);
  }
}

base::Error NoAnswer(const net::Error& error) { return {"hami-monitor does not answer: " + error.message, {}}; }

}  // namespace

base::Result<ServiceName> ParseServiceName(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == 0 || slash == std::string_view::npos || slash + 1 == text.size() ||
      text.find('/', slash + 1) != std::string_view::npos) {
    return base::Fail("'" + base::Printable(text) + "' is not NAMESPACE/SERVICE",
                      "name the Service of hami-monitor, as in kube-system/hami-monitor");
  }
  return ServiceName{std::string(text.substr(0, slash)), std::string(text.substr(slash + 1))};
}

void ReadSlice(const json::value& slice, Monitors& monitors) {
  const json::object* object = slice.if_object();
  const std::uint16_t port = object == nullptr ? 0 : PortOf(*object);
  const json::array* endpoints = port == 0 ? nullptr : base::GetArray(*object, "endpoints");
  if (endpoints == nullptr) return;
  for (const json::value& endpoint : *endpoints) {
    const json::object* one = endpoint.if_object();
    if (one == nullptr) continue;
    const auto node = base::GetString(*one, "nodeName");
    const json::array* addresses = base::GetArray(*one, "addresses");
    if (!node || node->empty() || addresses == nullptr || addresses->empty()) continue;
    const json::string* host = addresses->front().if_string();
    if (host == nullptr || host->empty()) continue;
    const json::object* conditions = ObjectIn(*one, "conditions");
    const bool ready = conditions == nullptr || base::GetBool(*conditions, "ready").value_or(true);
    Add({*node, std::string(*host), port, ready}, monitors);
  }
}

base::Result<std::vector<MonitorAddress>> FindMonitors(kube::Client& client, const ServiceName& service,
                                                       const net::Canceller& stop) {
  Monitors monitors;
  kube::ListRequest request;
  request.selection.label_selector = "kubernetes.io/service-name=" + service.name;
  kube::CallContext context;
  context.stop = &stop;
  context.timeout = kListTime;
  const auto listed =
      client.List(kEndpointSlices, service.ns, request,
                  {[&](const json::value& slice) { ReadSlice(slice, monitors); }, [&] { monitors.clear(); }}, context);
  if (!listed) {
    return base::Fail("the monitors cannot be listed: " + listed.error().message,
                      "this needs list on endpointslices in namespace " + service.ns + " (the chart grants it)");
  }
  std::vector<MonitorAddress> list;
  list.reserve(monitors.size());
  for (auto& [node, monitor] : monitors) list.push_back(std::move(monitor));
  return list;
}

base::Result<device::UseReport> AskMonitor(const MonitorAddress& monitor, const net::Canceller& stop) {
  net::Url origin;
  origin.host = monitor.host;
  origin.port = monitor.port;
  net::ClientOptions options;
  options.max_idle = 0;
  options.limits.body_bytes = device::kMostUseBytes;
  const auto client = net::Client::Make(origin, options);
  if (!client) return tl::unexpected(NoAnswer(client.error()));
  net::Call call;
  call.target = "/v1/use";
  call.deadline = net::After(kAskTime);
  call.canceller = &stop;
  const auto answer = (*client)->Send(call);
  if (!answer) return tl::unexpected(NoAnswer(answer.error()));
  if (answer->status == 404) return base::Fail("the monitor has no /v1/use: it is HAMi's, or older than the scheduler");
  if (answer->status != 200) return base::Fail("the monitor answers " + std::to_string(answer->status));
  return device::ReadUse(answer->body);
}

}  // namespace hami::page
