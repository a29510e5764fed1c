// SPDX-License-Identifier: Apache-2.0

#include "plugin/kubelet_server.h"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/strings.h"
#include "device_plugin.grpc.pb.h"
#include "plugin/device_list.h"

namespace hami::plugin {
namespace {

namespace wire = ::v1beta1;

// From the start of the program: gRPC's own lines would not be of the form that was asked for.
[[maybe_unused]] const bool kGrpcLogTaken = [] {
  gpr_set_log_function([](gpr_log_func_args* said) {
    const auto level = said->severity == GPR_LOG_SEVERITY_ERROR ? base::LogLevel::kWarning : base::LogLevel::kDebug;
    base::Log(level, base::Concat({"gRPC: ", base::Printable(said->message)}));
  });
  return true;
}();

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

// What streams wait for: that the slots may have changed, or that it is over.
class News {
 public:
  void Tell() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  void End() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  std::uint64_t count() const {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  // Until there is something since SEEN, or SPAN is over. False: it is over.
  bool WaitFor(std::uint64_t seen, std::chrono::milliseconds span) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, span, [&] { return ended_ || count_ != seen; });
    return !ended_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t count_ = 0;
  bool ended_ = false;
};

// A call has a thread while it lasts, a stream for its life; the kubelet has one open. gRPC's other interface would
// need none for a stream, but after each quiet second its queue sleeps for 100 ms, and so does every call that comes
// then.
class Service final : public wire::DevicePlugin::Service {
 public:
  Service(const KubeletBackend& backend, News& news) : backend_(backend), news_(news) {}

  grpc::Status GetDevicePluginOptions(grpc::ServerContext*, const wire::Empty*,
                                      wire::DevicePluginOptions* out) override {
    out->set_get_preferred_allocation_available(true);
    return grpc::Status::OK;
  }

  // Always the state of now, and only when it differs from what was said before.
  grpc::Status ListAndWatch(grpc::ServerContext* context, const wire::Empty*,
                            grpc::ServerWriter<wire::ListAndWatchResponse>* out) override {
    constexpr int kMostStreams = 16;
    constexpr std::chrono::milliseconds kStillThere(5000);  // how long a kubelet that is gone keeps its thread
    const Counted counted(streams_);
    if (counted.count > kMostStreams) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many streams"};
    return Guarded([&]() -> grpc::Status {
      std::optional<std::vector<SlotState>> told;
      bool goes_on = true;
      while (goes_on && !context->IsCancelled()) {
        const std::uint64_t seen = news_.count();
        const CardBoard::Snapshot cards = backend_.board->Current();
        // Before the driver was read there is nothing to say, and "no device" would be something.
        if (cards->ready) {
          std::vector<SlotState> slots = backend_.slots(*cards);
          if (told != slots && !out->Write(ToWire(slots))) break;
          told = std::move(slots);
        }
        goes_on = news_.WaitFor(seen, kStillThere);
      }
      return grpc::Status::CANCELLED;
    });
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
  struct Counted {
    explicit Counted(std::atomic<int>& of) : all(of), count(++of) {}
    ~Counted() { --all; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    std::atomic<int>& all;
    const int count;
  };

  const KubeletBackend& backend_;
  News& news_;
  std::atomic<int> streams_ = 0;
};

}  // namespace

struct KubeletServer::Impl {
  explicit Impl(KubeletBackend with) : backend(std::move(with)), service(backend, news) {}

  const KubeletBackend backend;
  News news;
  Service service;
  CardBoard::Subscription subscription;
  std::unique_ptr<grpc::Server> server;
};

KubeletServer::KubeletServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

KubeletServer::~KubeletServer() {
  impl_->news.End();
  impl_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
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
  News* news = &impl->news;
  impl->subscription = impl->backend.board->Subscribe([news] { news->Tell(); });
  return std::unique_ptr<KubeletServer>(new KubeletServer(std::move(impl)));
}

}  // namespace hami::plugin
