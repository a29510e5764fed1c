// SPDX-License-Identifier: Apache-2.0
//
// Our life with the kubelet: a socket of our own, and the kubelet's knowledge of it. The state is looked at, whatever
// the event was: a kubelet socket that is another file than the one we registered at means a new kubelet, a socket of
// ours that is gone means that a kubelet cleaned its folder. Serving starts anew without anything else being touched:
// GPUs, health and records live on. Of two plugins that serve one resource the kubelet knows the one that registered
// last: the one that starts takes over, with a socket of another name while the first is in use, and the other leaves
// it at that, so that they do not fight. A server that can not be started is tried again, but not for ever.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/result.h"
#include "kube/rate.h"
#include "net/cancel.h"
#include "plugin/kubelet_server.h"

namespace hami::plugin {

// Failures of the server less than an hour apart add up; the sixth is one too many. Pure.
class CrashBudget {
 public:
  static constexpr int kMost = 5;
  static constexpr std::chrono::seconds kWindow{3600};

  // False: give up.
  bool Allows(net::Deadline now) {
    failures_ = last_ && now - *last_ < kWindow ? failures_ + 1 : 1;
    last_ = now;
    return failures_ <= kMost;
  }

 private:
  int failures_ = 0;
  std::optional<net::Deadline> last_;
};

// Which file a path is at the moment: a socket made anew has another inode or another time of change.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t changed_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};
std::optional<FileIdentity> IdentityOf(const std::string& path);

struct ServingOptions {
  std::string kubelet_socket;                  // empty: nothing is served
  std::string folder;                          // of our socket
  std::function<std::string()> resource_name;  // empty: not known yet, and nothing is served
  std::function<bool()> preferred_allocation;
  std::function<void(const std::string& trouble)> on_trouble;  // another plugin serves the same resource
  net::Duration look_every = std::chrono::seconds(5);          // should a notification get lost
  net::Duration first_retry = std::chrono::milliseconds(500);
  net::Duration most_retry = std::chrono::seconds(30);
};

class Serving {
 public:
  Serving(ServingOptions options, KubeletBackend backend);
  ~Serving() { Stop(); }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  // Serves on a thread of its own until Stop. ON_GIVE_UP is called there when the crash budget is used up.
  void Start(std::function<void(const base::Error&)> on_give_up);
  void Stop();
  // Starts serving and registers anew, as after a SIGHUP.
  void Restart();
  // Looks at once whether everything is as it should be.
  void Look();

  bool registered() const { return registered_.load(); }
  // Why it does not serve; empty: it does, or nothing is known to stand in the way.
  std::string trouble() const;
  std::uint64_t registrations() const { return registrations_.load(); }

 private:
  void Run();
  // How long until the next look.
  net::Duration Step();
  net::Duration StartServer();
  net::Duration Register(const FileIdentity& kubelet);
  void Watch();
  void Wait(net::Duration pause);
  void Say(std::string trouble);
  std::string OwnSocket() const { return options_.folder + "/" + endpoint_; }

  const ServingOptions options_;
  const KubeletBackend backend_;
  std::function<void(const base::Error&)> on_give_up_;
  net::Canceller stop_;
  base::Fd poke_;
  std::atomic<bool> restart_ = false;
  std::atomic<bool> registered_ = false;
  std::atomic<std::uint64_t> registrations_ = 0;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::string trouble_;

  // Of the thread alone:
  base::Fd notify_;
  std::unique_ptr<KubeletServer> server_;
  std::string resource_;
  std::string endpoint_;
  std::optional<FileIdentity> own_;      // our socket as we made it
  std::optional<FileIdentity> told_to_;  // the kubelet that knows us
  CrashBudget budget_;
  kube::Backoff backoff_;
  std::string last_trouble_;
  bool told_of_wait_ = false;  // that the kubelet is not there, in the log
};

}  // namespace hami::plugin
