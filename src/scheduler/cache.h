// SPDX-License-Identifier: Apache-2.0
//
// Feeds the books from the API server: pods, nodes and resource quotas, each by a list and a watch. Keeps of a pod what
// is charged for it and of a node the annotations of the protocol; pods without our annotations and pods that ended
// leave nothing behind. Not complete before all three have been listed.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kube/reflector.h"
#include "scheduler/books.h"
#include "scheduler/registration.h"

namespace hami::scheduler {

struct CacheOptions {
  // Told of each pod that waits for no node any more: it has one, or it was deleted.
  std::function<void(std::string_view uid)> settled{};
  std::map<std::string, std::string> node_selector;  // labels of the nodes that are registered
  // NAME is set for each. Replicas are few, and while they do not see what happens they decide on what was. What a
  // server or a proxy lost on the way holds a card no longer than an hour.
  kube::ReflectorOptions reflector = {.relist_interval = std::chrono::hours(1),
                                      .backoff_most = std::chrono::seconds(5)};
};

// What the books look at of a pod: what it was given and what it asks for of VENDORS, which must outlive this, and the
// roles and terms of its containers.
class BookedPod {
 public:
  // HOST: also what the pod requests of its node beside devices.
  explicit BookedPod(const device::Vendors& vendors, bool host = false);
  device::PodFields fields() const { return {.annotations = annotations_, .quantities = quantities_}; }

 private:
  std::vector<std::string_view> annotations_;
  std::vector<std::string_view> quantities_;
};

class Cache {
 public:
  // All must outlive this. REGISTRATION looks at every node that changed.
  Cache(kube::Client& client, Books& books, Registration& registration, Time& time, const CacheOptions& options);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  void Start();
  // Returns when the books will not be changed by events any more.
  void Stop();
  bool Synced() const;
  // How far the books have come.
  Versions Reached() const;

  struct Counters {
    kube::Reflector::Counters pods, nodes, quotas;
  };
  Counters counters() const;

 private:
  struct Feed;
  std::unique_ptr<Feed> pods_, nodes_, quotas_;
};

// Reads the pods of a list or watch from their texts; OBJECT, which must outlive this, is the last of them.
kube::ReadObject ReadPods(const device::PodFields& fields, device::PodObject& object);

// What ReadNode looks at.
extern const base::Parts kNodeParts;

// The views of raw objects.
kube::Result<NodeView> ReadNode(const base::json::value& object, const device::Vendors& vendors,
                                const std::map<std::string, std::string>& selector = {});
kube::Result<PodView> ReadPodView(const base::json::value& object);

}  // namespace hami::scheduler
