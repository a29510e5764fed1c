// SPDX-License-Identifier: Apache-2.0
//
// An API server for tests and benchmarks: real HTTP on a loopback port over a FakeStore. Knows get, list (paged, with
// selectors), watch (bookmarks, 410), create, update, merge and JSON patch, delete, pods/binding; keeps no schema, no
// defaults, no authorisation beyond an optional token. Fails on demand.

#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kube/config.h"
#include "kube/resource.h"
#include "kube/testing/fake_store.h"
#include "net/server.h"

namespace hami::kube {

struct FakeFault {
  enum class Kind {
    kStatus,      // answers STATUS without doing anything
    kDropBefore,  // cuts the connection without doing anything
    kDropAfter,   // does it, then cuts the connection instead of answering
    kDelay,       // waits DELAY, then goes on normally
  };
  Kind kind = Kind::kStatus;
  std::string method = {};     // empty: any
  std::string path_part = {};  // any request whose target contains it
  int times = 1;               // how many requests it hits
  int status = 500;
  int retry_after = 0;  // seconds; 0: no header
  std::chrono::milliseconds delay{0};
};

struct FakeOptions {
  std::size_t most_history = 100'000;
  std::chrono::milliseconds bookmark_interval{60'000};
  unsigned max_threads = 64;
  bool bindings_carry_labels = true;  // as from 1.35 on
  std::string token;                  // when set, requests without it get 401
  std::optional<net::TlsFiles> tls;
};

class FakeApiServer {
 public:
  explicit FakeApiServer(const FakeOptions& options = {});
  ~FakeApiServer();
  FakeApiServer(const FakeApiServer&) = delete;
  FakeApiServer& operator=(const FakeApiServer&) = delete;

  // How a client reaches it. Over TLS the caller adds the authority.
  Config config() const;
  std::uint16_t port() const { return server_->port(); }

  // Past HTTP. Put creates, or replaces whatever is there.
  json::value Put(const Resource& resource, const json::value& object);
  std::optional<json::value> Get(const Resource& resource, std::string_view ns, std::string_view name) const;
  // False: there is no such object.
  bool Edit(const Resource& resource, std::string_view ns, std::string_view name,
            const std::function<void(json::value& object)>& edit);
  bool Remove(const Resource& resource, std::string_view ns, std::string_view name);
  std::size_t Count(const Resource& resource) const { return store_.Count(resource.plural); }
  // Objects of NS (empty: all), in the order of their keys.
  std::vector<json::value> All(const Resource& resource, const std::string& ns = {}) const;

  void Add(FakeFault fault);
  // Forgets the history: running watches and old continue tokens get 410.
  void Compact() { store_.Compact(); }
  // Cuts every running watch in the middle.
  void DropWatches();
  // Every running watch gets a bookmark now.
  void SendBookmarks();

  // How often "GET", "LIST", "WATCH", "POST", "PUT", "PATCH", "DELETE", "BIND" was asked, faults included.
  std::uint64_t Asked(const std::string& verb) const;
  std::uint64_t AskedInAll() const;
  // What was asked, as a role would have to allow it: "create pods/binding", "list nodes", …
  std::set<std::string> Permissions() const;
  int watching() const { return watching_.load(); }

 private:
  struct Route {
    std::string plural, ns, name, subresource, group_version;
    // "BIND pods/binding", "LIST nodes", …
    std::string Asks(const net::Request& request, bool watch) const;
  };
  static std::optional<Route> RouteOf(std::string_view target);

  net::Response Handle(const net::Request& request);
  net::Response Answer(const net::Request& request, const Route& route, bool watch);
  net::Response List(const net::Request& request, const Route& route) const;
  net::Response Watch(const net::Request& request, const Route& route);
  void RunWatch(net::BodyWriter& out, const std::string& plural, const FakeSelector& selector, std::uint64_t from,
                bool bookmarks, net::Deadline end);
  net::Response Write(const net::Request& request, const Route& route);
  net::Response Bind(const json::value& binding, const Route& route);
  std::optional<FakeFault> TakeFault(const net::Request& request);

  const FakeOptions options_;
  FakeStore store_;
  mutable std::mutex mutex_;
  std::vector<FakeFault> faults_;
  std::map<std::string, std::uint64_t> asked_;  // as Route::Asks says it
  std::atomic<std::uint64_t> drops_ = 0;
  std::atomic<std::uint64_t> bookmarks_ = 0;
  std::atomic<int> watching_ = 0;
  std::unique_ptr<net::Server> server_;  // last: it calls into all of the above
};

}  // namespace hami::kube
