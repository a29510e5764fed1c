// SPDX-License-Identifier: Apache-2.0
//
// The kubelet's side of the protocol for tests: takes registrations, answers pod-resources, asks the plugin. Nothing in
// it sleeps; whoever waits is woken by what it waits for, or fails after half a minute.

#pragma once

#include <grpcpp/grpcpp.h>
#include <stdlib.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device_plugin.grpc.pb.h"
#include "pod_resources.grpc.pb.h"

namespace hami::plugin {

inline constexpr std::chrono::seconds kPatience{30};

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "hami-plugin-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data()) == nullptr ? "" : pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::shared_ptr<grpc::Channel> ConnectTo(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

// Listens at FOLDER/kubelet.sock and FOLDER/pod-resources.sock.
class FakeKubelet final : private v1beta1::Registration::Service, private v1::PodResourcesLister::Service {
 public:
  explicit FakeKubelet(const std::string& folder) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + folder + "/kubelet.sock", grpc::InsecureServerCredentials());
    builder.RegisterService(static_cast<v1beta1::Registration::Service*>(this));
    server_ = builder.BuildAndStart();
    grpc::ServerBuilder book;
    book.AddListeningPort("unix:" + folder + "/pod-resources.sock", grpc::InsecureServerCredentials());
    book.RegisterService(static_cast<v1::PodResourcesLister::Service*>(this));
    book_ = book.BuildAndStart();
  }
  ~FakeKubelet() {
    server_->Shutdown();
    book_->Shutdown();
  }

  bool WaitForRegistrations(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return registrations_.size() >= count; });
  }
  std::vector<v1beta1::RegisterRequest> registrations() {
    const std::lock_guard lock(mutex_);
    return registrations_;
  }
  // Beside what it says already.
  void AddHolding(const std::string& ns, const std::string& pod, const std::string& container,
                  const std::string& resource, const std::vector<std::string>& slots) {
    const std::lock_guard lock(mutex_);
    auto& resources = *holdings_.add_pod_resources();
    resources.set_namespace_(ns);
    resources.set_name(pod);
    auto& one = *resources.add_containers();
    one.set_name(container);
    auto& devices = *one.add_devices();
    devices.set_resource_name(resource);
    for (const std::string& slot : slots) devices.add_device_ids(slot);
  }

  // What a kubelet does when a pod has ended.
  void ForgetHoldings() {
    const std::lock_guard lock(mutex_);
    holdings_.clear_pod_resources();
  }

 private:
  grpc::Status Register(grpc::ServerContext*, const v1beta1::RegisterRequest* request, v1beta1::Empty*) override {
    const std::lock_guard lock(mutex_);
    registrations_.push_back(*request);
    changed_.notify_all();
    return grpc::Status::OK;
  }
  grpc::Status List(grpc::ServerContext*, const v1::ListPodResourcesRequest*,
                    v1::ListPodResourcesResponse* out) override {
    const std::lock_guard lock(mutex_);
    *out = holdings_;
    return grpc::Status::OK;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1beta1::RegisterRequest> registrations_;
  v1::ListPodResourcesResponse holdings_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::Server> book_;
};

// One ListAndWatch.
class SlotWatcher {
 public:
  explicit SlotWatcher(const std::string& socket) : stub_(v1beta1::DevicePlugin::NewStub(ConnectTo(socket))) {
    context_.set_wait_for_ready(true);
    context_.set_deadline(std::chrono::system_clock::now() + kPatience);
    reader_ = stub_->ListAndWatch(&context_, {});
  }
  ~SlotWatcher() {
    context_.TryCancel();
    reader_->Finish();
  }
  // The next state, each slot as "ID Health", with " on NODE" where a NUMA node is told; empty when there is none.
  std::vector<std::string> Next() {
    v1beta1::ListAndWatchResponse response;
    std::vector<std::string> slots;
    if (!reader_->Read(&response)) return slots;
    for (const auto& device : response.devices()) {
      slots.push_back(device.id() + " " + device.health());
      for (const auto& node : device.topology().nodes()) slots.back() += " on " + std::to_string(node.id());
    }
    return slots;
  }

 private:
  std::unique_ptr<v1beta1::DevicePlugin::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1beta1::ListAndWatchResponse>> reader_;
};

class PluginClient {
 public:
  explicit PluginClient(const std::string& socket) : stub_(v1beta1::DevicePlugin::NewStub(ConnectTo(socket))) {}

  grpc::Status Allocate(const std::vector<std::string>& slots, v1beta1::AllocateResponse* response) {
    v1beta1::AllocateRequest request;
    auto& container = *request.add_container_requests();
    for (const std::string& slot : slots) container.add_devices_ids(slot);
    grpc::ClientContext context;
    Prepare(context);
    return stub_->Allocate(&context, request, response);
  }
  // For each: an available slot, and those that must be included.
  v1beta1::PreferredAllocationResponse Prefer(
      const std::vector<std::pair<std::string, std::vector<std::string>>>& wishes) {
    v1beta1::PreferredAllocationRequest request;
    for (const auto& [available, must_include] : wishes) {
      auto& wish = *request.add_container_requests();
      wish.set_allocation_size(1);
      wish.add_available_deviceids(available);
      for (const std::string& slot : must_include) wish.add_must_include_deviceids(slot);
    }
    grpc::ClientContext context;
    Prepare(context);
    v1beta1::PreferredAllocationResponse response;
    stub_->GetPreferredAllocation(&context, request, &response);
    return response;
  }
  grpc::Status PreStart(const std::vector<std::string>& slots) {
    v1beta1::PreStartContainerRequest request;
    for (const std::string& slot : slots) request.add_devices_ids(slot);
    grpc::ClientContext context;
    Prepare(context);
    v1beta1::PreStartContainerResponse response;
    return stub_->PreStartContainer(&context, request, &response);
  }
  bool PreferredAvailable() {
    grpc::ClientContext context;
    Prepare(context);
    v1beta1::DevicePluginOptions options;
    stub_->GetDevicePluginOptions(&context, {}, &options);
    return options.get_preferred_allocation_available();
  }

 private:
  static void Prepare(grpc::ClientContext& context) {
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
  }

  std::unique_ptr<v1beta1::DevicePlugin::Stub> stub_;
};

}  // namespace hami::plugin
