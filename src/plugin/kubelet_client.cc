// SPDX-License-Identifier: Apache-2.0

#include "plugin/kubelet_client.h"

#include <grpcpp/grpcpp.h>

#include "base/strings.h"
#include "device_plugin.grpc.pb.h"
#include "plugin/slots.h"
#include "pod_resources.grpc.pb.h"

namespace hami::plugin {
namespace {

std::shared_ptr<grpc::Channel> Connect(const std::string& socket) {
  grpc::ChannelArguments arguments;
  // The kubelet's server refuses the path of a socket as an authority.
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  // A kubelet that restarts is a new one: no back-off is inherited from the old.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A node may have many pods.
  arguments.SetMaxReceiveMessageSize(64 << 20);
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

std::chrono::system_clock::time_point ToWallTime(net::Deadline deadline) {
  return std::chrono::system_clock::now() + (deadline - net::Clock::now());
}

}  // namespace

base::Status RegisterAt(const std::string& kubelet_socket, const KubeletRegistration& registration,
                        net::Deadline deadline) {
  const auto stub = v1beta1::Registration::NewStub(Connect(kubelet_socket));
  v1beta1::RegisterRequest request;
  request.set_version("v1beta1");
  request.set_endpoint(registration.endpoint);
  request.set_resource_name(registration.resource_name);
  request.mutable_options()->set_get_preferred_allocation_available(registration.preferred_allocation);
  grpc::ClientContext context;
  context.set_deadline(ToWallTime(deadline));
  v1beta1::Empty answer;
  const grpc::Status done = stub->Register(&context, request, &answer);
  if (done.ok()) return {};
  return base::Fail(base::Concat(
      {"the kubelet at ", kubelet_socket, " does not take ", registration.resource_name, ": ", done.error_message()}));
}

struct PodResourcesBook::Impl {
  std::string socket;
  std::function<std::string()> resource;
  std::unique_ptr<v1::PodResourcesLister::Stub> stub;
};

PodResourcesBook::PodResourcesBook(std::string socket, std::function<std::string()> resource)
    : impl_(std::make_unique<Impl>()) {
  impl_->stub = v1::PodResourcesLister::NewStub(Connect(socket));
  impl_->socket = std::move(socket);
  impl_->resource = std::move(resource);
}

PodResourcesBook::~PodResourcesBook() = default;

base::Result<Holdings> PodResourcesBook::List(net::Deadline deadline) {
  grpc::ClientContext context;
  context.set_deadline(ToWallTime(deadline));
  v1::ListPodResourcesResponse response;
  const grpc::Status done = impl_->stub->List(&context, {}, &response);
  if (!done.ok()) return base::Fail(base::Concat({impl_->socket, ": ", done.error_message()}));
  Holdings holdings;
  const std::string resource = impl_->resource();
  for (const auto& pod : response.pod_resources()) {
    for (const auto& container : pod.containers()) {
      std::vector<std::string> slots;
      // One entry per NUMA node.
      for (const auto& devices : container.devices()) {
        if (devices.resource_name() != resource) continue;
        slots.insert(slots.end(), devices.device_ids().begin(), devices.device_ids().end());
      }
      if (!slots.empty())
        holdings.push_back({pod.namespace_(), pod.name(), container.name(), Sorted(std::move(slots))});
    }
  }
  return holdings;
}

}  // namespace hami::plugin
