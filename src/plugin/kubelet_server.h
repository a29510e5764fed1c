// SPDX-License-Identifier: Apache-2.0
//
// The device plugin's side of the kubelet's protocol, on a unix socket of its own. Translates messages and nothing
// else: what to answer is the backend's business. ListAndWatch is state, not events: a stream begins with what is true
// now and is told of every later state, of the last one at the latest, however slowly it reads. Refuses requests whose
// answer would be no answer: the kubelet gets an error with the reason.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "plugin/allocator.h"
#include "plugin/device_list.h"
#include "plugin/inventory.h"

namespace hami::plugin {

// Called from several threads at once.
struct KubeletBackend {
  std::function<base::Result<Response>(const std::vector<std::string>& slots)> allocate;
  std::function<std::vector<std::string>(const PreferredRequest& request)> prefer;
  CardBoard* board = nullptr;  // must outlive the server
  std::function<std::vector<SlotState>(const Cards& cards)> slots = ListSlots;
};

class KubeletServer {
 public:
  // Listens at SOCKET, replacing a socket that is left there.
  static base::Result<std::unique_ptr<KubeletServer>> Start(const std::string& socket, KubeletBackend backend);
  // Ends the streams, lets calls in progress finish for two seconds, removes the socket.
  ~KubeletServer();
  KubeletServer(const KubeletServer&) = delete;
  KubeletServer& operator=(const KubeletServer&) = delete;

 private:
  struct Impl;
  explicit KubeletServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace hami::plugin
