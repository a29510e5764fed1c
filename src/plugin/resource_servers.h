// SPDX-License-Identifier: Apache-2.0
//
// Every resource of this node towards the kubelet, each with a socket of its own: the one that counts shares of GPUs,
// and with --mig-strategy=mixed one for each profile of MIG devices. Those come and go with the devices.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plugin/serving.h"

namespace hami::plugin {

class ResourceServers {
 public:
  using AllocateParts = std::function<base::Result<Response>(const std::vector<std::string>& slots)>;

  // SHARES and BACKEND are those of the shares; the MIG devices have all but the resource and its slots in common.
  ResourceServers(ServingOptions shares, KubeletBackend backend, AllocateParts allocate_parts);

  // ON_GIVE_UP is called on a thread of one of them when it can not be served any more.
  void Start(std::function<void(const base::Error&)> on_give_up);
  void Stop();
  // Starts serving and registers anew, as after a SIGHUP.
  void Restart();
  // Looks at once whether everything is as it should be. Waits for nobody.
  void Look();
  // There are exactly the resources of CARDS from now on. Not to be called by who publishes cards: one that ends may
  // be waiting for the board.
  void Follow(const Cards& cards);

  bool registered() const;
  std::string trouble() const;

 private:
  std::unique_ptr<Serving> MakeParts(const std::string& resource) const;

  const ServingOptions options_;
  const KubeletBackend backend_;
  const AllocateParts allocate_parts_;
  std::function<void(const base::Error&)> on_give_up_;
  Serving shares_;
  mutable std::mutex mutex_;
  bool serves_ = false;
  std::map<std::string, std::unique_ptr<Serving>> parts_;  // by resource
};

}  // namespace hami::plugin
