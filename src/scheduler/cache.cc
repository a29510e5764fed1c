// SPDX-License-Identifier: Apache-2.0

#include "scheduler/cache.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/strings.h"
#include "device/allocation_codec.h"
#include "device/annotations.h"
#include "device/grant_seal.h"
#include "device/lists.h"
#include "kube/views.h"
#include "net/time.h"

namespace hami::scheduler {
namespace {

namespace json = base::json;

bool StartsWith(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

// Annotations that some part of the scheduler reads.
bool OfInterest(std::string_view key, const device::Vendors& vendors) {
  if (StartsWith(key, "hami.io/") || StartsWith(key, "hami-cpp/")) return true;
  return std::any_of(vendors.begin(), vendors.end(), [&](const auto& vendor) {
    const auto others = vendor->node_annotations();
    return key == vendor->register_annotation() || key == vendor->handshake_annotation() ||
           key == vendor->own_lock_annotation() || std::find(others.begin(), others.end(), key) != others.end();
  });
}

device::LocalClock ClockOf(Time& time) { return {time.Now() / 1000, time.UtcOffset()}; }

class PodFeed final : public kube::Handler {
 public:
  PodFeed(Books& books, Time& time, std::function<void(std::string_view uid)> settled)
      : books_(books),
        time_(time),
        settled_(std::move(settled)),
        booked_(books.vendors(), books.Read([](const State& state) { return state.filter.learns(); })) {}
  PodFeed(const PodFeed&) = delete;
  PodFeed& operator=(const PodFeed&) = delete;

  kube::ReadObject Reader() { return ReadPods(booked_.fields(), read_); }

  void OnChange(const kube::Change& change) override {
    if (change.type == kube::ChangeType::kDeleted) {
      if (settled_) settled_(change.uid);
      return books_.Locked([&](State& state) { state.PodGone(change.uid); });
    }
    if (settled_ && !read_.pod.node_name.empty()) settled_(read_.pod.uid);
    bool charged = false;
    const bool closes = books_.Locked([&](State& state) {
      state.Refused(read_, time_.Now() / kSecond);
      const bool unreadable = state.PodSeen(read_.pod, time_.Now() / kSecond);
      charged = state.ledger.FindPod(read_.pod.uid) != nullptr;
      return unreadable;
    });
    if (closes) WarnOf(read_.pod);
    WarnIfElsewhere(read_.pod, charged);
  }

 private:
  // Some such pod may be told of every few seconds: one line in a while.
  void WarnIfElsewhere(const device::Pod& pod, bool charged) {
    const std::string_view node = device::TextAt(pod.annotations, device::kAssignedNode);
    if (node.empty() || pod.node_name.empty() || node == pod.node_name || net::Clock::now() < warn_again_) return;
    warn_again_ = net::After(std::chrono::minutes(1));
    base::LogWarning(
        base::Concat({"pod ", pod.ns, "/", pod.name, ": annotation ", device::kAssignedNode, " says ",
                      base::Printable(node), ", and it runs on ", pod.node_name,
                      charged ? ", where what it was granted stays charged" : ": nothing is charged for it"}));
  }
  void WarnOf(const device::Pod& pod) const {
    bool said = false;
    for (const auto& vendor : books_.vendors()) {
      const std::string* text = device::Find(pod.annotations, vendor->allocated_annotation());
      const auto grant = device::DecodeGrant(text == nullptr ? "" : *text);
      if (grant) continue;
      const std::string* node = device::Find(pod.annotations, device::kAssignedNode);
      base::LogWarning(
          base::Concat({"pod ", pod.ns, "/", pod.name, ": annotation ", vendor->allocated_annotation(), ": ",
                        grant.error().message, "; nobody knows what it holds, so node ", node == nullptr ? "" : *node,
                        " takes no pods until it is corrected or the pod deleted"}));
      said = true;
    }
    if (said) return;
    base::LogWarning(
        base::Concat({"pod ", pod.ns, "/", pod.name, " runs on node ", pod.node_name,
                      ", asks for devices and has no grant with a seal by --grant-key-file: node ", pod.node_name,
                      " takes no pods until its plugin has written the grant anew or "
                      "refused the pod, which ends it"}));
  }

  Books& books_;
  Time& time_;
  const std::function<void(std::string_view uid)> settled_;
  const BookedPod booked_;
  device::PodObject read_;
  net::Deadline warn_again_{};
};

class NodeFeed final : public kube::Handler {
 public:
  NodeFeed(Books& books, Registration& registration, Time& time, std::map<std::string, std::string> selector)
      : books_(books), registration_(registration), time_(time), selector_(std::move(selector)) {}

  void OnChange(const kube::Change& change) override {
    if (change.type == kube::ChangeType::kDeleted) {
      return books_.Locked([&](State& state) { state.NodeGone(change.name); });
    }
    auto view = ReadNode(*change.object, books_.vendors(), selector_);
    if (!view) return base::LogWarning("a node is left out: " + view.error().message);
    books_.Locked([&](State& state) {
      const std::string name = view->name;
      const bool news = state.NodeSeen(*std::move(view), change.restored);
      NodeBook& node = state.NodeAt(name);
      node.lock.See(device::TextAt(node.view.annotations, device::kNodeLock), time_.Steady());
      if (news) registration_.Look(state, node, ClockOf(time_));
    });
  }

 private:
  Books& books_;
  Registration& registration_;
  Time& time_;
  const std::map<std::string, std::string> selector_;
};

class QuotaFeed final : public kube::Handler {
 public:
  explicit QuotaFeed(Books& books) : books_(books) {}

  void OnChange(const kube::Change& change) override {
    if (change.type == kube::ChangeType::kDeleted) {
      return books_.Locked([&](State& state) {
        if (state.ledger.quotas().Remove(change.ns, change.name)) state.RoomMade({});
      });
    }
    const auto quota = kube::ReadQuota(*change.object);
    if (!quota) return base::LogWarning("a resource quota is left out: " + quota.error().message);
    sched::QuotaScopes scopes;
    for (const kube::QuotaScope& scope : quota->scopes) scopes.push_back({scope.name, scope.what, scope.values});
    const std::string complaint = books_.Locked([&](State& state) {
      sched::QuotaBooks& quotas = state.ledger.quotas();
      if (quotas.Set(change.ns, change.name, quota->hard, std::move(scopes))) state.RoomMade({});
      return quotas.Complaint(change.ns, change.name);
    });
    if (!complaint.empty()) base::LogWarning(base::Concat({"namespace ", change.ns, ": ", complaint}));
  }

 private:
  Books& books_;
};

kube::ReflectorOptions Named(kube::ReflectorOptions options, const char* name) {
  options.name = name;
  return options;
}

// Of what bind calls write on nodes the books know by the answer.
kube::ReflectorOptions KnowingNodes(kube::ReflectorOptions options, const Books& books) {
  options.knows = [&books](const kube::Identity& node) {
    return books.Read([&](const State& state) { return state.KnowsNode(node.name, node.version); });
  };
  return options;
}

// Pods that ended leave the selection, which a watch tells as their deletion.
kube::Selection Living() { return {{}, "status.phase!=Succeeded,status.phase!=Failed"}; }

constexpr std::uint32_t kPage = 500;  // objects in an answer to a list

constexpr base::Part kAllocatable[] = {{"allocatable"}, {"capacity"}};
constexpr base::Part kNodeMembers[] = {{"metadata", kube::kMetadataMembers}, {"status", kAllocatable}};

}  // namespace

const base::Parts kNodeParts = kNodeMembers;

BookedPod::BookedPod(const device::Vendors& vendors, bool host)
    : annotations_{device::kAssignedNode, device::kAssignedTime, device::kBindPhase, device::kMigAllocations,
                   device::kGrantSeal} {
  for (const auto& vendor : vendors) {
    annotations_.emplace_back(vendor->allocated_annotation());
    for (const std::string_view mark : vendor->mark_annotations()) annotations_.push_back(mark);
    for (const std::string_view resource : vendor->resources()) quantities_.push_back(resource);
  }
  if (host) quantities_.insert(quantities_.end(), {"cpu", "memory"});
}

kube::ReadObject ReadPods(const device::PodFields& fields, device::PodObject& object) {
  return [fields, &object](base::JsonCursor& cursor, const json::storage_ptr& storage) -> std::optional<json::value> {
    if (!device::TakePod(cursor, fields, object)) return std::nullopt;
    json::object metadata(storage);
    metadata.reserve(4);
    const auto add = [&](const char* key, const std::string& text) {
      metadata.emplace(key, json::string_view(text.data(), text.size()));
    };
    add("namespace", object.pod.ns);
    add("name", object.pod.name);
    add("uid", object.pod.uid);
    add("resourceVersion", object.version);
    json::object whole(storage);
    whole.emplace("metadata", std::move(metadata));
    return whole;
  };
}

struct Cache::Feed {
  Feed(kube::Client& client, const kube::Resource& resource, kube::Selection selection, base::Parts parts,
       std::unique_ptr<kube::Handler> to, const kube::ReflectorOptions& options, kube::ReadObject read = {})
      : source(client, resource, {}, std::move(selection), kPage, parts, std::move(read)),
        handler(std::move(to)),
        reflector(source, *handler, options) {}

  static std::unique_ptr<Feed> OfPods(kube::Client& client, Books& books, Time& time, const CacheOptions& cache) {
    auto to = std::make_unique<PodFeed>(books, time, cache.settled);
    kube::ReadObject read = to->Reader();
    return std::make_unique<Feed>(client, kube::kPods, Living(), base::Parts{}, std::move(to),
                                  Named(cache.reflector, "pods"), std::move(read));
  }

  kube::ApiListWatcher source;
  std::unique_ptr<kube::Handler> handler;
  kube::Reflector reflector;
};

Cache::Cache(kube::Client& client, Books& books, Registration& registration, Time& time, const CacheOptions& options)
    : pods_(Feed::OfPods(client, books, time, options)),
      nodes_(std::make_unique<Feed>(client, kube::kNodes, kube::Selection{}, kNodeParts,
                                    std::make_unique<NodeFeed>(books, registration, time, options.node_selector),
                                    KnowingNodes(Named(options.reflector, "nodes"), books))),
      quotas_(std::make_unique<Feed>(client, kube::kResourceQuotas, kube::Selection{}, base::Parts{},
                                     std::make_unique<QuotaFeed>(books), Named(options.reflector, "resourcequotas"))) {}

Cache::~Cache() { Stop(); }

void Cache::Start() {
  for (Feed* feed : {pods_.get(), nodes_.get(), quotas_.get()}) feed->reflector.Start();
}

void Cache::Stop() {
  for (Feed* feed : {pods_.get(), nodes_.get(), quotas_.get()}) feed->reflector.Cancel();
  for (Feed* feed : {pods_.get(), nodes_.get(), quotas_.get()}) feed->reflector.Stop();
}

bool Cache::Synced() const {
  return pods_->reflector.synced() && nodes_->reflector.synced() && quotas_->reflector.synced();
}

Versions Cache::Reached() const { return {pods_->reflector.reached(), nodes_->reflector.reached()}; }

Cache::Counters Cache::counters() const {
  return {pods_->reflector.counters(), nodes_->reflector.counters(), quotas_->reflector.counters()};
}

kube::Result<NodeView> ReadNode(const json::value& object, const device::Vendors& vendors,
                                const std::map<std::string, std::string>& selector) {
  const auto keep_annotation = [&](std::string_view key) { return OfInterest(key, vendors); };
  const auto keep_resource = [&](std::string_view key) {
    return key == "cpu" || key == "memory" || std::any_of(vendors.begin(), vendors.end(), [&](const auto& vendor) {
             const auto names = vendor->resources();
             return std::find(names.begin(), names.end(), key) != names.end();
           });
  };
  auto node = kube::ReadNode(object, keep_annotation, keep_resource);
  if (!node) return tl::unexpected(node.error());
  NodeView view;
  view.name = std::move(node->metadata.name);
  view.version = std::move(node->metadata.resource_version);
  view.annotations = std::move(node->metadata.annotations);
  view.allocatable = std::move(node->allocatable);
  view.capacity = std::move(node->capacity);
  for (const char* other : {"cpu", "memory"}) view.capacity.erase(other);
  if (const auto type = node->metadata.labels.find(kInstanceType); type != node->metadata.labels.end()) {
    view.instance_type = type->second;
  }
  view.selected = std::all_of(selector.begin(), selector.end(), [&](const auto& wanted) {
    const auto found = node->metadata.labels.find(wanted.first);
    return found != node->metadata.labels.end() && found->second == wanted.second;
  });
  return view;
}

kube::Result<PodView> ReadPodView(const json::value& object) {
  auto pod = kube::ReadPod(object);
  if (!pod) return tl::unexpected(pod.error());
  PodView view;
  view.uid = std::move(pod->metadata.uid);
  view.version = std::move(pod->metadata.resource_version);
  view.node = std::move(pod->node_name);
  view.terminated = pod->terminated();
  view.deleting = pod->metadata.deleting;
  view.annotations = std::move(pod->metadata.annotations);
  return view;
}

}  // namespace hami::scheduler
