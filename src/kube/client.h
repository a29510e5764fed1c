// SPDX-License-Identifier: Apache-2.0
//
// A client of the Kubernetes API over generic JSON. Thread-safe. Every call ends by its timeout or when its Canceller
// is thrown. A 429 (or a 503 that says when to come back) is tried again within the timeout; nothing else is: after a
// transport error a write may or may not have happened, and only the caller knows how to find out.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_parts.h"
#include "kube/config.h"
#include "kube/error.h"
#include "kube/identity.h"
#include "kube/rate.h"
#include "kube/resource.h"
#include "kube/token.h"
#include "kube/views.h"
#include "net/client.h"

namespace hami::kube {

namespace json = base::json;

struct ClientOptions {
  net::Duration timeout = std::chrono::seconds(30);  // of one call (of one page, when listing)
  double qps = 0;                                    // own rate limit; 0: none
  int burst = 10;
  std::string user_agent = "hami-cpp";
  std::size_t max_idle_connections = 16;
};

// Reads an object of a list or watch from its text, where a document would be a detour. What it returns is told in the
// object's place: a document of its metadata at least. Nothing: it is not JSON. STORAGE as for base::TakeParts.
using ReadObject =
    std::function<std::optional<json::value>(base::JsonCursor& cursor, const json::storage_ptr& storage)>;

struct CallContext {
  const net::Canceller* stop = nullptr;
  net::Duration timeout{};  // 0: the client's
  base::Parts parts{};      // of each object that is read, what the caller looks at; empty: all
  ReadObject read{};        // in place of PARTS, by lists and watches
};

enum class PatchType { kMerge, kJson };

struct NewObject {
  std::string ns;
  std::string text;  // of the object, as JSON
};

struct Selection {
  std::string label_selector;
  std::string field_selector;
};

struct ListRequest {
  Selection selection;
  std::uint32_t page = 500;  // 0: all in one answer
};

struct ListSink {
  std::function<void(const json::value& item)> item;
  // The list begins again from its start (the continue token had expired): forget the items so far.
  std::function<void()> restart;
};

enum class WatchType { kAdded, kModified, kDeleted, kBookmark };

// Asked before a modified object is read whole. True: what it says is known already, and only its version is told, as
// by a bookmark.
using AlreadyKnown = std::function<bool(const Identity& identity)>;

struct WatchRequest {
  Selection selection;
  std::string resource_version;
  // After this long the server ends the watch in good order.
  std::chrono::seconds timeout{300};
  AlreadyKnown known{};
};

// OBJECT dies with the call. False: stop watching.
using OnWatchEvent = std::function<bool(WatchType type, const json::value& object)>;

class Client {
 public:
  static base::Result<std::unique_ptr<Client>> Make(const Config& config, const ClientOptions& options = {});

  Result<json::value> Get(const Resource& resource, std::string_view ns, std::string_view name,
                          const CallContext& context = {});
  // The resourceVersion of the list. Items are handed over one by one, as they arrive.
  Result<std::string> List(const Resource& resource, std::string_view ns, const ListRequest& request,
                           const ListSink& sink, const CallContext& context = {});
  // Succeeds when the server ended the watch in good order or the receiver had enough.
  Status Watch(const Resource& resource, std::string_view ns, const WatchRequest& request, const OnWatchEvent& on_event,
               const CallContext& context = {});

  Result<json::value> Create(const Resource& resource, std::string_view ns, const json::value& object,
                             const CallContext& context = {});
  // Many at once, one request behind the other over one connection (net::Client::SendAll): for what may get lost, since
  // a connection that breaks leaves it open which of them were created. Takes their texts; one answer for each, in
  // order.
  std::vector<Status> CreateAll(const Resource& resource, std::span<NewObject> objects,
                                const CallContext& context = {});
  Result<json::value> Patch(const Resource& resource, std::string_view ns, std::string_view name, PatchType type,
                            const json::value& patch, const CallContext& context = {});
  // POST pods/binding. UID, if not empty, must be the pod's.
  Status Bind(std::string_view ns, std::string_view pod, std::string_view uid, std::string_view node,
              const CallContext& context = {});

  // The same with all that a Binding can say.
  Status PostBinding(const Binding& binding, const CallContext& context = {});

  // POST pods/eviction of the pod with this UID. ONLY_TRY: nothing happens to it. kTooManyRequests: its disruption
  // budget does not allow it now.
  Status Evict(std::string_view ns, std::string_view pod, std::string_view uid, bool only_try,
               const CallContext& context = {});

  struct Counters {
    std::uint64_t calls = 0;
    std::uint64_t retries = 0;
  };
  Counters counters() const { return {calls_.load(), retries_.load()}; }

 private:
  // As whom a call is sent, and over which connections: those of one client certificate.
  struct Session {
    std::shared_ptr<net::Client> http;
    std::string token;
    Credential credential;  // where a program gave it
  };
  Client(std::shared_ptr<net::Client> http, net::ClientOptions http_options, const Config& config,
         const ClientOptions& options);
  base::Result<Session> Open();
  // True: it was refused, and by now there is another.
  bool Renewed(const Session& session);

  // One exchange with its token and rate limit; SINK gets the body of a 2xx answer only.
  Status Exchange(net::Call call, const std::function<Status(std::string_view)>& sink);
  Status ExchangeOnce(net::Client& http, const net::Call& call, const std::function<Status(std::string_view)>& sink,
                      bool* body_begun);
  Status WaitTurn(const net::Call& call);
  void ReturnTurns(std::size_t count);
  Result<json::value> ExchangeJson(net::Call call, base::Parts parts);
  // For writes whose answer says nothing that its status does not say.
  Status ExchangeStatus(net::Call call);
  net::Call NewCall(std::string method, std::string target, const CallContext& context) const;
  net::Call CreateCall(const Resource& resource, std::string_view ns, std::string text,
                       const CallContext& context) const;
  // Says who asks, in place of what was said before.
  void Sign(net::Call& call, const std::string& token) const;
  struct Page;
  Result<Page> ListPage(const std::string& target, const ListSink& sink, const CallContext& context);

  const net::Url server_;
  const net::ClientOptions http_options_;
  const ClientOptions options_;
  const std::string basic_;  // "Basic …" or empty
  TokenSource token_;
  std::unique_ptr<ExecSource> exec_;  // null: no program is asked
  std::mutex http_mutex_;
  std::shared_ptr<net::Client> http_;
  std::string http_key_;  // of the client certificate that a program gave for it
  std::mutex rate_mutex_;
  TokenBucket rate_;
  std::atomic<std::uint64_t> calls_ = 0;
  std::atomic<std::uint64_t> retries_ = 0;
};

}  // namespace hami::kube
