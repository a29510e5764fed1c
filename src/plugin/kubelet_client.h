// SPDX-License-Identifier: Apache-2.0
//
// What we ask the kubelet: to register us, and who holds which slots. Every call ends by its deadline.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "plugin/allocation_parts.h"

namespace hami::plugin {

struct KubeletRegistration {
  std::string endpoint;       // name of our socket, beside the kubelet's
  std::string resource_name;  // nvidia.com/gpu
  bool preferred_allocation = true;
};
base::Status RegisterAt(const std::string& kubelet_socket, const KubeletRegistration& registration,
                        net::Deadline deadline);

class PodResourcesBook final : public KubeletBook {
 public:
  // RESOURCE: whose slots are of interest, at the time.
  PodResourcesBook(std::string socket, std::function<std::string()> resource);
  ~PodResourcesBook() override;
  base::Result<Holdings> List(net::Deadline deadline) override;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace hami::plugin
