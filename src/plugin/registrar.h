// SPDX-License-Identifier: Apache-2.0
//
// Keeps the node object saying what it should: watches this one node, compares with what is wanted, patches the
// difference. One thread of its own besides the watch's; every call has a deadline; a failed patch is tried again after
// a growing pause. Somebody else who keeps writing other values is answered ever more slowly, never in a race.

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "kube/client.h"
#include "kube/rate.h"
#include "kube/reflector.h"
#include "kube/views.h"
#include "plugin/node_selector.h"
#include "plugin/registration.h"

namespace hami::plugin {

// What the registrar needs of the API server.
class NodeApi {
 public:
  virtual ~NodeApi() = default;
  // List and watch of this node alone.
  virtual kube::ListWatcher& source() = 0;
  // The node as it is after the patch.
  virtual kube::Result<base::json::value> Patch(const base::json::value& patch, const kube::CallContext& context) = 0;
};

class ApiNode final : public NodeApi {
 public:
  // CLIENT must outlive this.
  ApiNode(kube::Client& client, std::string node);
  kube::ListWatcher& source() override { return source_; }
  kube::Result<base::json::value> Patch(const base::json::value& patch, const kube::CallContext& context) override;

 private:
  kube::Client& client_;
  const std::string node_;
  kube::ApiListWatcher source_;
};

struct RegistrarOptions {
  std::string node;                                       // its name, for people
  net::Duration node_patience = std::chrono::seconds(3);  // until a node that is not there is said
  net::Duration call_timeout = std::chrono::seconds(2);
  net::Duration retry_first = std::chrono::milliseconds(500);
  net::Duration retry_most = std::chrono::seconds(30);
  // Between patches that only undo what somebody else wrote.
  net::Duration contest_first = std::chrono::seconds(1);
  net::Duration contest_most = std::chrono::seconds(20);
  net::Duration look_every = std::chrono::seconds(30);  // whether it is time to say that we live
  kube::ReflectorOptions watch;
  std::function<device::LocalClock()> clock;  // default: the system's
  std::function<double()> random;             // in [0, 1); default: a generator of its own
};

// The node as it was seen: its uid, labels, and the annotations that IsNodeKey names.
struct SeenNode {
  std::string uid;
  Labels labels;
  device::StringMap annotations;
};

class Registrar : private kube::Handler {
 public:
  // ON_NODE is called on the watch's thread for every state of the node, before anything is patched because of it.
  using OnNode = std::function<void(const SeenNode& node)>;

  // API must outlive this.
  Registrar(NodeApi& api, OnNode on_node, RegistrarOptions options = {});
  ~Registrar() override { Stop(); }
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;

  void Start();
  void Stop();
  // Takes back, in one call and for good, what holds only while somebody serves here.
  void Withdraw();
  // What the node is to say from now on. Nothing is written before the first call.
  void Want(Registration registration);

  // The API server's node says what is wanted, as far as is known.
  bool registered() const { return registered_.load(); }
  // Why nothing can be registered, as far as that is known; empty: nothing stands in the way.
  std::string trouble() const;
  struct Counters {
    std::uint64_t patches = 0;
    std::uint64_t failures = 0;
  };
  Counters counters() const { return {patches_.load(), failures_.load()}; }

 private:
  void OnChange(const kube::Change& change) override;
  void Run();
  // Under the lock: the patch that is due at NOW, if any; otherwise AGAIN is when one may be.
  std::optional<base::json::value> NextPatch(net::Deadline now, net::Deadline& again);
  void Send(const base::json::value& patch);
  void Take(const kube::Metadata& node);
  void NoteAbsence(net::Deadline now);

  NodeApi& api_;
  const OnNode on_node_;
  RegistrarOptions options_;
  net::Canceller stop_;
  kube::Reflector reflector_;
  kube::Backoff retry_;
  kube::Backoff contest_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<net::Deadline> absent_since_;  // the API server has no such node
  std::string trouble_;
  bool told_contest_ = false;
  bool stopping_ = false;
  bool withdrawn_ = false;
  std::optional<Registration> wanted_;
  std::optional<kube::Metadata> node_;   // the newest state known
  std::optional<Registration> settled_;  // what the node already said once
  net::Deadline retry_at_{};
  net::Deadline contest_at_{};
  std::string last_report_;

  std::atomic<bool> registered_ = false;
  std::atomic<std::uint64_t> patches_ = 0;
  std::atomic<std::uint64_t> failures_ = 0;
  std::thread thread_;
};

}  // namespace hami::plugin
