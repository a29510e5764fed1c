// SPDX-License-Identifier: Apache-2.0

#include "cluster/document.h"

#include <algorithm>
#include <ctime>

#include "base/build_info.h"
#include "base/fd.h"
#include "base/strings.h"
#include "device/annotations.h"
#include "device/config.h"
#include "device/vendors/nvidia.h"
#include "device/vendors/sections.h"
#include "kube/timestamp.h"
#include "kube/views.h"
#include "net/client.h"
#include "page/feed.h"
#include "sched/filter.h"

namespace hami::cluster {
namespace {

namespace json = base::json;

constexpr std::size_t kMostFileBytes = 4U << 20U;
constexpr std::uint64_t kMostDocumentBytes = 512U << 20U;
constexpr auto kPatience = std::chrono::seconds(30);
// What a pod that fits waits for is not ours to say.
constexpr const char* kFits = "fits: something else keeps it (kube-scheduler's own filters, or it was not asked yet)";

base::Result<std::vector<json::value>> ListAll(kube::Client& client, const kube::Resource& resource) {
  std::vector<json::value> items;
  const kube::ListSink sink{[&](const json::value& item) { items.emplace_back(item, json::storage_ptr()); },
                            [&] { items.clear(); }};
  const auto listed = client.List(resource, {}, {}, sink);
  if (listed) return items;
  return base::Fail("the API server does not list " + std::string(resource.plural) + ": " + listed.error().message,
                    "this needs list on nodes, pods and resourcequotas in all namespaces");
}

void AddNode(const device::Vendors& vendors, const json::value& object, sched::Ledger& ledger) {
  const auto node = kube::ReadNode(object);
  if (!node) return;
  for (std::size_t v = 0; v < vendors.size(); ++v) {
    const device::Vendor& vendor = *vendors[v];
    // The plugin has gone, and so have its cards.
    const std::string_view handshake = device::TextAt(node->metadata.annotations, vendor.handshake_annotation());
    if (handshake.starts_with("Deleted")) continue;
    const auto cards = vendor.ReadNode(FactsOf(*node));
    if (cards) ledger.SetCards(node->metadata.name, static_cast<int>(v), *cards);
  }
}

bool AsksFor(const device::Vendors& vendors, const device::Pod& pod) {
  const auto asks = [&](const device::Container& container) {
    return std::any_of(vendors.begin(), vendors.end(), [&](const auto& vendor) {
      const auto request = vendor->ParseRequest(container);
      return !request || request->has_value();
    });
  };
  return std::any_of(pod.init_containers.begin(), pod.init_containers.end(), asks) ||
         std::any_of(pod.containers.begin(), pod.containers.end(), asks);
}

device::UnixSeconds CreatedAt(const json::value& object) {
  const auto* metadata = object.is_object() ? object.get_object().if_contains("metadata") : nullptr;
  const auto* members = metadata == nullptr ? nullptr : metadata->if_object();
  const auto text = members == nullptr ? std::nullopt : base::GetString(*members, "creationTimestamp");
  return text ? kube::ParseUnixTime(*text).value_or(0) : 0;
}

page::WaitingPod Explain(sched::Filter& filter, const device::Pod& pod, device::UnixSeconds created,
                         device::UnixSeconds now) {
  page::WaitingPod waiting{pod.ns, pod.name, pod.uid, created == 0 ? now : created, now, 1, {}};
  sched::Decision decision = filter.DecideAny(pod, {now, true});
  if (decision.outcome == sched::Outcome::kError) {
    waiting.reasons.push_back({decision.error, 0, {}});
    return waiting;
  }
  waiting.reasons = page::GroupReasons(decision.failures, true);
  if (decision.fits.empty()) return waiting;
  page::NodesReason fits{kFits, decision.fits.size(), {}};
  for (const sched::NodeScore& node : decision.fits) fits.nodes.push_back(node.node);
  std::sort(fits.nodes.begin(), fits.nodes.end());
  waiting.reasons.insert(waiting.reasons.begin(), std::move(fits));
  return waiting;
}

void AddQuota(const json::value& object, sched::Ledger& ledger) {
  const auto quota = kube::ReadQuota(object);
  if (!quota) return;
  sched::QuotaScopes scopes;
  for (const kube::QuotaScope& scope : quota->scopes) scopes.push_back({scope.name, scope.what, scope.values});
  ledger.quotas().Set(quota->metadata.ns, quota->metadata.name, quota->hard, std::move(scopes));
}

void AddLocks(const std::vector<json::value>& objects, std::vector<page::Node>& nodes) {
  for (const json::value& object : objects) {
    const auto node = kube::ReadNode(object);
    if (!node) continue;
    const auto found = std::find_if(nodes.begin(), nodes.end(),
                                    [&](const page::Node& one) { return one.name == node->metadata.name; });
    if (found == nodes.end()) continue;
    found->lock = page::ReadLock(device::TextAt(node->metadata.annotations, device::kNodeLock));
  }
}

}  // namespace

page::Snapshot SnapshotOf(const device::Vendors& vendors, const std::vector<json::value>& nodes,
                          const std::vector<json::value>& pods, const std::vector<json::value>& quotas,
                          device::UnixSeconds now) {
  sched::Ledger ledger(vendors);
  for (const json::value& node : nodes) AddNode(vendors, node, ledger);
  for (const json::value& quota : quotas) AddQuota(quota, ledger);
  std::vector<std::pair<device::Pod, device::UnixSeconds>> unbound;
  for (const json::value& object : pods) {
    auto pod = device::ReadPod(json::serialize(object));
    if (!pod || pod->terminated) continue;
    ledger.UpsertPod(*pod);
    if (pod->node_name.empty() && ledger.FindPod(pod->uid) == nullptr && AsksFor(vendors, *pod)) {
      unbound.emplace_back(*std::move(pod), CreatedAt(object));
    }
  }
  page::Snapshot snapshot;
  sched::Filter filter(ledger, vendors, {"binpack", "spread"});
  for (const auto& [pod, created] : unbound) snapshot.waiting.push_back(Explain(filter, pod, created, now));
  page::CopyNodes(ledger, 0, ledger.node_ids(), snapshot.nodes);
  AddLocks(nodes, snapshot.nodes);
  snapshot.quotas = ledger.quotas().Lines();
  return snapshot;
}

base::Result<device::Vendors> VendorsOf(const Source& source) {
  device::Vendors vendors;
  if (source.device_config_file.empty()) {
    vendors.push_back(std::make_unique<device::NvidiaVendor>(device::HamisNames()));
    return vendors;
  }
  const auto text = base::ReadLinkedFile(source.device_config_file, kMostFileBytes);
  if (!text) return tl::unexpected(text.error());
  auto config = device::ParseDeviceConfig(*text, source.device_config_file);
  if (!config) return tl::unexpected(config.error());
  return device::MakeVendors(*config, {.ascend = true, .iluvatar = true});
}

device::NodeFacts FactsOf(const kube::Node& node) {
  const std::string_view type = device::TextAt(node.metadata.labels, "node.kubernetes.io/instance-type");
  return {node.metadata.name, node.metadata.annotations, node.capacity, type};
}

base::Result<std::unique_ptr<kube::Client>> Connect(const Source& source) {
  kube::ConfigSources sources;
  sources.kubeconfig = source.kubeconfig;
  sources.context = source.context;
  const auto config = kube::FindConfig(sources);
  if (!config) return tl::unexpected(config.error());
  kube::ClientOptions options;
  options.user_agent = std::string("hami/") + base::kBuildInfo.version;
  return kube::Client::Make(*config, options);
}

base::Result<std::string> MakeFromApiServer(const Source& source) {
  auto vendors = VendorsOf(source);
  if (!vendors) return tl::unexpected(vendors.error());
  auto client = Connect(source);
  if (!client) return tl::unexpected(client.error());
  const auto nodes = ListAll(**client, kube::kNodes);
  if (!nodes) return tl::unexpected(nodes.error());
  const auto pods = ListAll(**client, kube::kPods);
  if (!pods) return tl::unexpected(pods.error());
  const auto quotas = ListAll(**client, kube::kResourceQuotas);
  if (!quotas) return tl::unexpected(quotas.error());
  const device::UnixSeconds now = std::time(nullptr);
  return page::Document(SnapshotOf(*vendors, *nodes, *pods, *quotas, now), base::kBuildInfo.version, now);
}

base::Result<std::string> FetchFromScheduler(const Source& source) {
  auto url = net::ParseUrl(source.server);
  if (!url) return base::Fail("--server=" + source.server + ": " + url.error().message, url.error().hint);
  net::ClientOptions options;
  options.limits.body_bytes = kMostDocumentBytes;
  if (!source.ca_file.empty()) options.tls.ca.file = source.ca_file;
  net::Call call;
  call.target = "/v1/state";
  call.deadline = net::After(kPatience);
  if (!source.token_file.empty()) {
    const auto token = base::ReadLinkedFile(source.token_file, kMostFileBytes);
    if (!token) return base::Fail("--token-file: " + token.error().message, token.error().hint);
    call.headers.emplace_back("Authorization", "Bearer " + std::string(base::Trim(*token)));
  }
  auto client = net::Client::Make(*url, options);
  if (!client) return base::Fail("--server: " + client.error().message);
  auto answer = (*client)->Send(call);
  if (!answer) {
    return base::Fail("--server=" + source.server + ": " + answer.error().message,
                      "kubectl -n kube-system port-forward deploy/hami-scheduler 9396 brings it to localhost:9396");
  }
  if (answer->status == 200) return std::move(answer->body);
  return base::Fail(base::Concat({"--server=", source.server, " answers ", std::to_string(answer->status), ": ",
                                  base::Printable(base::Trim(answer->body))}),
                    answer->status == 401 ? "give the token of a reader by --token-file" : "");
}

base::Result<json::value> Fetch(const Source& source) {
  base::Result<std::string> text = source.server.empty() ? MakeFromApiServer(source) : FetchFromScheduler(source);
  if (!text) return tl::unexpected(text.error());
  auto document = base::ParseJson(*text);
  if (!document || !document->is_object() || base::GetArray(document->get_object(), "nodes") == nullptr) {
    return base::Fail("what answers there is no hami-scheduler's page", "name the address of --page-bind-address");
  }
  return *std::move(document);
}

}  // namespace hami::cluster
