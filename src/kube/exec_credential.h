// SPDX-License-Identifier: Apache-2.0
//
// Credentials that another program gives (client.authentication.k8s.io): what a kubeconfig says of it, the question it
// is asked in KUBERNETES_EXEC_INFO, its answer, and when it is asked again. An answer is used until it expires or the
// server refuses it; meanwhile one thread asks and the others go on with what there is. Every run is bounded, a failed
// one shows what the program wrote to standard error, and is not repeated at once. It is never asked to talk to
// anybody: a program that must is refused.

#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/command.h"
#include "base/result.h"
#include "kube/timestamp.h"
#include "net/time.h"

namespace hami::kube {

struct ExecPlugin {
  std::string place;        // "FILE:LINE: " of the kubeconfig, for errors
  std::string api_version;  // client.authentication.k8s.io/v1 or v1beta1
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> environment;
  std::string install_hint;
  std::string info;  // what KUBERNETES_EXEC_INFO holds
};

struct Credential {
  std::string token;
  std::string certificate;  // PEM; both or neither
  std::string key;
  std::optional<WallTime> expires;
  bool operator==(const Credential&) const = default;
};

// What the program wrote. Refuses what is no ExecCredential of API_VERSION, and one that gives nothing.
base::Result<Credential> ReadExecCredential(std::string_view text, std::string_view api_version);

// The program is run, and its answer read.
base::Result<Credential> AskPlugin(const ExecPlugin& plugin);

class ExecSource {
 public:
  using Ask = std::function<base::Result<Credential>()>;
  using Wall = std::function<WallTime()>;
  explicit ExecSource(
      Ask ask, Wall wall = [] { return std::chrono::system_clock::now(); })
      : ask_(std::move(ask)), wall_(std::move(wall)) {}

  // Thread-safe. Waits for the program where there is nothing to go on with.
  base::Result<Credential> Get(net::Deadline now = net::Clock::now());
  // USED was refused. True: there is another by now, so that a second try is worth it.
  bool Refused(const Credential& used, net::Deadline now = net::Clock::now());

 private:
  bool Usable() const;  // all three under mutex_
  bool Due() const;
  void Refresh(std::unique_lock<std::mutex>& lock, net::Deadline now);

  const Ask ask_;
  const Wall wall_;
  std::mutex mutex_;
  std::condition_variable asked_;
  bool asking_ = false;
  std::optional<Credential> credential_;
  std::optional<base::Error> error_;
  net::Deadline ask_again_{};  // not before
};

}  // namespace hami::kube
