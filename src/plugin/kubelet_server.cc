// SPDX-License-Identifier: Apache-2.0

#include "plugin/kubelet_server.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <set>
#include <utility>

#include "base/log.h"
#include "device_plugin.grpc.pb.h"
#include "plugin/device_list.h"

namespace hami::plugin {
namespace {

namespace wire = ::v1beta1;

wire::ListAndWatchResponse ToWire(const std::vector<SlotState>& slots) {
  wire::ListAndWatchResponse response;
  for (const SlotState& slot : slots) {
    wire::Device& device = *response.add_devices();
    device.set_id(slot.id);
    device.set_health(slot.healthy ? "Healthy" : "Unhealthy");
    if (slot.numa_node && *slot.numa_node >= 0) device.mutable_topology()->add_nodes()->set_id(*slot.numa_node);
  }
  return response;
}

void Fill(const Response& response, wire::ContainerAllocateResponse& out) {
  for (const auto& [name, value] : response.environment) (*out.mutable_envs())[name] = value;
  for (const auto& [name, value] : response.annotations) (*out.mutable_annotations())[name] = value;
  for (const Mount& mount : response.mounts) {
    wire::Mount& one = *out.add_mounts();
    one.set_container_path(mount.container_path);
    one.set_host_path(mount.host_path);
    one.set_read_only(mount.read_only);
  }
  for (const DeviceNode& device : response.devices) {
    wire::DeviceSpec& one = *out.add_devices();
    one.set_container_path(device.container_path);
    one.set_host_path(device.host_path);
    one.set_permissions(device.permissions);
  }
  for (const std::string& name : response.cdi_devices) out.add_cdi_devices()->set_name(name);
}

// An exception of a library must not take the process, and with it every later pod, down.
template <typename Answer>
grpc::Status Guarded(const Answer& answer) {
  try {
    return answer();
  } catch (const std::exception& e) {
    base::LogError(std::string("a request of the kubelet failed: ") + e.what());
    return {grpc::StatusCode::INTERNAL, e.what()};
  }
}

class SlotStream;

// The streams that are open, so that each can be told of a change.
class Streams {
 public:
  explicit Streams(const CardBoard& board) : board_(board) {}

  // False: the server is about to end, and so has the stream.
  bool Add(SlotStream* stream) {
    const std::lock_guard lock(mutex_);
    open_.insert(stream);
    return !ending_;
  }
  void Remove(SlotStream* stream) {
    const std::lock_guard lock(mutex_);
    open_.erase(stream);
    none_.notify_all();
  }
  void TellAll();
  void EndAll();
  void WaitForNone() {
    std::unique_lock lock(mutex_);
    none_.wait(lock, [&] { return open_.empty(); });
  }
  const CardBoard& board() const { return board_; }

 private:
  const CardBoard& board_;
  std::mutex mutex_;
  std::condition_variable none_;
  std::set<SlotStream*> open_;
  bool ending_ = false;
};

// One ListAndWatch. Owned by gRPC: it deletes itself in OnDone, which may run as soon as Finish was called. So nothing
// of the stream is touched after Finish, not even its lock.
class SlotStream final : public grpc::ServerWriteReactor<wire::ListAndWatchResponse> {
 public:
  explicit SlotStream(Streams& streams) : streams_(streams) {}

  // Writes the state of now unless it is written, or being written, already.
  void Tell() {
    const std::lock_guard lock(mutex_);
    WriteLatest();
  }

  void End() {
    if (Locked([&] { return (ending_ = true) && !writing_; })) Finish(grpc::Status::CANCELLED);
  }
  void OnCancel() override { End(); }
  void OnWriteDone(bool ok) override {
    const bool over = Locked([&] {
      writing_ = false;
      if (ok && !ending_) WriteLatest();
      return !ok || ending_;
    });
    if (over) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    streams_.Remove(this);
    delete this;
  }

 private:
  // Whether WANTS_END wants the stream to end and nobody did before.
  template <typename WantsEnd>
  bool Locked(const WantsEnd& wants_end) {
    const std::lock_guard lock(mutex_);
    return wants_end() && !std::exchange(finished_, true);
  }

  void WriteLatest() {
    if (writing_ || ending_ || finished_) return;
    const CardBoard::Snapshot cards = streams_.board().Current();
    // Before the driver was read there is nothing to say, and "no device" would be something.
    if (!cards->ready || (told_ && cards->generation == generation_)) return;
    std::vector<SlotState> slots = ListSlots(*cards);
    generation_ = cards->generation;
    if (told_ && slots == slots_) return;
    told_ = true;
    slots_ = std::move(slots);
    message_ = ToWire(slots_);
    writing_ = true;
    StartWrite(&message_);
  }

  Streams& streams_;
  std::mutex mutex_;
  bool writing_ = false;
  bool ending_ = false;
  bool finished_ = false;
  bool told_ = false;
  std::uint64_t generation_ = 0;
  std::vector<SlotState> slots_;
  wire::ListAndWatchResponse message_;
};

// A stream that ends meanwhile waits for the lock in Remove, and therefore lives until the loop is through.
void Streams::TellAll() {
  const std::lock_guard lock(mutex_);
  for (SlotStream* stream : open_) stream->Tell();
}

void Streams::EndAll() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  for (SlotStream* stream : open_) stream->End();
}

// Everything but ListAndWatch blocks and has a thread; a stream lives for months and has none.
class Service final : public wire::DevicePlugin::WithCallbackMethod_ListAndWatch<wire::DevicePlugin::Service> {
 public:
  Service(const KubeletBackend& backend, Streams& streams) : backend_(backend), streams_(streams) {}

  grpc::Status GetDevicePluginOptions(grpc::ServerContext*, const wire::Empty*,
                                      wire::DevicePluginOptions* out) override {
    out->set_get_preferred_allocation_available(true);
    return grpc::Status::OK;
  }

  grpc::ServerWriteReactor<wire::ListAndWatchResponse>* ListAndWatch(grpc::CallbackServerContext*,
                                                                     const wire::Empty*) override {
    auto* stream = new SlotStream(streams_);
    if (streams_.Add(stream)) {
      stream->Tell();
    } else {
      stream->End();
    }
    return stream;
  }

  grpc::Status GetPreferredAllocation(grpc::ServerContext*, const wire::PreferredAllocationRequest* request,
                                      wire::PreferredAllocationResponse* out) override {
    return Guarded([&] {
      // One answer for each request, in their order, an empty one where there is no opinion.
      for (const auto& wish : request->container_requests()) {
        PreferredRequest one;
        one.available = {wish.available_deviceids().begin(), wish.available_deviceids().end()};
        one.must_include = {wish.must_include_deviceids().begin(), wish.must_include_deviceids().end()};
        one.size = static_cast<std::size_t>(std::max(wish.allocation_size(), 0));
        auto& answer = *out->add_container_responses();
        for (const std::string& slot : backend_.prefer(one)) answer.add_deviceids(slot);
      }
      return grpc::Status::OK;
    });
  }

  grpc::Status Allocate(grpc::ServerContext*, const wire::AllocateRequest* request,
                        wire::AllocateResponse* out) override {
    return Guarded([&]() -> grpc::Status {
      for (const auto& container : request->container_requests()) {
        const auto response = backend_.allocate({container.devices_ids().begin(), container.devices_ids().end()});
        if (!response) return {grpc::StatusCode::FAILED_PRECONDITION, response.error().message};
        Fill(*response, *out->add_container_responses());
      }
      return grpc::Status::OK;
    });
  }

  grpc::Status PreStartContainer(grpc::ServerContext*, const wire::PreStartContainerRequest*,
                                 wire::PreStartContainerResponse*) override {
    return grpc::Status::OK;
  }

 private:
  const KubeletBackend& backend_;
  Streams& streams_;
};

}  // namespace

struct KubeletServer::Impl {
  explicit Impl(KubeletBackend with) : backend(std::move(with)), streams(*backend.board), service(backend, streams) {}

  const KubeletBackend backend;
  Streams streams;
  Service service;
  CardBoard::Subscription subscription;
  std::unique_ptr<grpc::Server> server;
};

KubeletServer::KubeletServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

KubeletServer::~KubeletServer() {
  impl_->streams.EndAll();
  impl_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
  impl_->streams.WaitForNone();
}

base::Result<std::unique_ptr<KubeletServer>> KubeletServer::Start(const std::string& socket, KubeletBackend backend) {
  auto impl = std::make_unique<Impl>(std::move(backend));
  grpc::ServerBuilder builder;
  int listening = 0;
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials(), &listening);
  builder.RegisterService(&impl->service);
  // The kubelet asks one thing at a time.
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr || listening == 0) {
    if (impl->server != nullptr) impl->server->Shutdown();
    return base::Fail("can not listen at " + socket,
                      "the folder must be kubelet's device-plugins folder, mounted writable");
  }
  Streams* streams = &impl->streams;
  impl->subscription = impl->backend.board->Subscribe([streams] { streams->TellAll(); });
  return std::unique_ptr<KubeletServer>(new KubeletServer(std::move(impl)));
}

}  // namespace hami::plugin
