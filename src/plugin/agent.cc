// SPDX-License-Identifier: Apache-2.0

#include "plugin/agent.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>

#include "base/files.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/watched_file.h"
#include "device/annotations.h"
#include "device/grant_seal.h"
#include "device/lists.h"
#include "kube/client.h"
#include "kube/config.h"
#include "net/gzip.h"
#include "net/server.h"
#include "net/url.h"
#include "plugin/allocator.h"
#include "plugin/card_keeper.h"
#include "plugin/card_metrics.h"
#include "plugin/cdi.h"
#include "plugin/common_areas.h"
#include "plugin/kube_cluster.h"
#include "plugin/kubelet_client.h"
#include "plugin/library_install.h"
#include "plugin/lock_folder.h"
#include "plugin/modes.h"
#include "plugin/registrar.h"
#include "plugin/resource_servers.h"
#include "plugin/share_folders.h"
#include "plugin/tender.h"

namespace hami::plugin {
namespace {

namespace fs = std::filesystem;
using base::Concat;

constexpr net::Duration kProbeEvery = std::chrono::seconds(20);

base::Result<std::unique_ptr<kube::Client>> Connect(const Options& options) {
  kube::ConfigSources sources;
  sources.kubeconfig = options.kubeconfig;
  const auto config = kube::FindConfig(sources);
  if (!config) return tl::unexpected(config.error());
  kube::ClientOptions client;
  client.user_agent = "hami-device-plugin";
  client.max_idle_connections = 4;
  return kube::Client::Make(*config, client);
}

// libvgpu.so as it was shipped with this program.
base::Result<std::string> ShippedLibrary() {
  std::error_code error;
  const std::string here = fs::read_symlink("/proc/self/exe", error).parent_path().string();
  std::vector<std::string> places = {here + "/../lib/libvgpu.so", here + "/../lib/hami/libvgpu.so"};
  if (const auto chosen = ProcessEnvironment("HAMI_LIBVGPU"); chosen && !chosen->empty()) places = {*chosen};
  for (const std::string& place : places) {
    if (fs::is_regular_file(place, error)) return place;
  }
  return base::Fail("the library that keeps the limits, libvgpu.so, is not there",
                    "looked at " + base::Join(places, ", ") + "; HAMI_LIBVGPU can say where it is");
}

kube::EventTarget NodeTarget(const std::string& node) { return {"Node", "v1", "", node, node}; }

}  // namespace

struct Agent::Impl {
  explicit Impl(Options with)
      : options(std::move(with)), vgpu_folder(options.hook_path + "/vgpu"), cdi(options, kCdiFolder) {}

  base::Status StartNode(const std::function<bool()>& interrupted);
  void SeeNode(const SeenNode& node);
  base::Status ReadRules(OriginRules& rules);
  base::Status StartAllocations();
  base::Status MendNodeFiles();
  void CheckNodeFiles();
  base::Status StartServing(const std::function<void()>& on_give_up);
  base::Status StartProbes();
  bool Tend();
  void ProbeBook();
  void OfferCommonAreas(const Cards& cards);
  bool Ready() const;
  std::string WhyNotReady() const;
  ResponseSettings SettingsNow(const Cards& cards);
  base::Result<Response> Respond(const Record& record, const Cards& cards);
  base::Result<Response> RespondParts(const std::vector<std::string>& slots);
  base::Status StartModes(const nvml::LoadOptions& load);
  void Tell(const NodeEvent& event);

  const Options options;
  const std::string vgpu_folder;
  std::unique_ptr<kube::Client> client;
  std::unique_ptr<kube::EventRecorder> events;

  CardBoard board;
  std::unique_ptr<ApiNode> node_api;
  std::unique_ptr<CardKeeper> keeper;
  std::unique_ptr<Registrar> registrar;

  std::unique_ptr<KubeCluster> cluster;
  std::unique_ptr<DiskRecordKeeper> records;
  std::unique_ptr<DiskShareFolders> folders;
  std::unique_ptr<CommonAreas> common_areas;  // null: none are wanted
  std::unique_ptr<PodResourcesBook> book;
  int book_failures = 0;
  net::Deadline next_probe{};
  std::unique_ptr<device::GrantKeyring> keys;  // null: grants are not sealed
  std::unique_ptr<Modes> modes;
  std::unique_ptr<Allocator> allocator;
  CdiFolder cdi;
  std::string library;  // that new containers mount
  std::function<void()> give_up;
  std::mutex files_mutex;
  std::string files_trouble;  // as it was told

  std::unique_ptr<ResourceServers> serving;
  std::unique_ptr<Tender> tender;
  CardBoard::Subscription subscription;
  std::unique_ptr<net::Server> probes;
  std::atomic<bool> started = false;  // all of the above is there
};

base::Status Agent::Impl::StartNode(const std::function<bool()>& interrupted) {
  nvml::LoadOptions load;
  load.library = options.nvml_library;
  HAMI_TRY(StartModes(load));
  auto made = Connect(options);
  if (!made) return tl::unexpected(made.error());
  client = *std::move(made);
  kube::RecorderOptions recorder;
  recorder.component = "hami-device-plugin";
  recorder.host = options.node_name;
  events = std::make_unique<kube::EventRecorder>(*client, recorder);
  node_api = std::make_unique<ApiNode>(*client, options.node_name);
  RegistrarOptions registrar_options;
  registrar_options.node = options.node_name;
  registrar = std::make_unique<Registrar>(
      *node_api, [this](const SeenNode& node) { SeeNode(node); }, std::move(registrar_options));
  KeeperHooks hooks;
  // A container that is given a slot needs its GPU's name in the file.
  hooks.before_cards = [this](const Cards& cards) { cdi.Refresh(cards); };
  hooks.on_registration = [this](const Registration& registration) { registrar->Want(registration); };
  hooks.on_event = [this](const NodeEvent& event) { Tell(event); };
  hooks.own_instances = [this] { return modes->mig().entries(); };
  keeper = std::make_unique<CardKeeper>(options, board, std::move(hooks), KeeperTimes{}, load);
  keeper->UseMode(modes->in_force());
  return keeper->Start(interrupted);
}

base::Status Agent::Impl::StartModes(const nvml::LoadOptions& load) {
  ModesHooks hooks;
  hooks.cards = [this] { return board.Current(); };
  hooks.on_event = [this](const NodeEvent& event) { Tell(event); };
  hooks.on_mode = [this](OperatingMode mode) { keeper->UseMode(mode); };
  hooks.on_troubles = [this](Troubles troubles) { keeper->SeeMps(std::move(troubles)); };
  modes = std::make_unique<Modes>(options, load, std::move(hooks));
  HAMI_TRY(modes->Start());
  cdi.UseInstances(
      [this](const Cards& cards) { return CdiInstancesOf(modes->mig().entries(), cards, ReadMigMinors(options)); });
  return {};
}

void Agent::Impl::Tell(const NodeEvent& event) {
  events->Record(NodeTarget(options.node_name), event.warning ? kube::EventType::kWarning : kube::EventType::kNormal,
                 event.reason, event.message);
}

void Agent::Impl::SeeNode(const SeenNode& node) {
  keeper->SeeNode(node.labels, node.annotations);
  const std::string* lock = device::Find(node.annotations, device::kNodeLock);
  cluster->SeeLock(lock == nullptr ? std::nullopt : std::optional(*lock));
}

// A GPU without one is shared as well, only less nicely.
void Agent::Impl::OfferCommonAreas(const Cards& cards) {
  if (common_areas == nullptr) return;
  std::vector<std::string> uuids;
  for (const Card& card : cards.cards) {
    if (!card.part) uuids.push_back(card.uuid);  // a MIG device has no neighbours
  }
  if (const base::Status offered = common_areas->Offer(uuids); !offered) base::LogError(offered.error());
}

// What every container mounts. What is missing is put back; a folder that was removed under its mount cannot be.
base::Status Agent::Impl::MendNodeFiles() {
  if (IsRemoved(vgpu_folder)) return base::Fail(vgpu_folder + " was removed on the node while it was mounted here");
  HAMI_TRY(MakeLockFolder(kLockFolder));
  const std::string missing = MissingFrom(vgpu_folder, library);
  if (missing.empty()) return {};
  base::LogWarning(missing + "; it is put in place again");
  const auto shipped = ShippedLibrary();
  if (!shipped) return tl::unexpected(shipped.error());
  const auto installed = InstallLibrary(*shipped, vgpu_folder);
  return installed ? base::Status() : tl::unexpected(installed.error());
}

// Containers that start without these files would have no limits, or not start.
void Agent::Impl::CheckNodeFiles() {
  const base::Status mended = MendNodeFiles();
  const std::string trouble = mended ? std::string() : mended.error().message;
  const std::scoped_lock lock(files_mutex);
  if (!mended && trouble != files_trouble) {
    base::LogError(mended.error());
    Tell({true, "NodeFilesMissing", trouble});
    if (give_up && (IsRemoved(kLockFolder) || IsRemoved(vgpu_folder))) give_up();
  }
  files_trouble = trouble;
}

ResponseSettings Agent::Impl::SettingsNow(const Cards& cards) {
  ResponseSettings settings;
  settings.options = &options;
  std::error_code ignored;
  settings.has_license = fs::exists(vgpu_folder + "/license", ignored);
  for (const std::string& path : ControlNodes()) {
    if (fs::exists(path, ignored)) settings.node_paths.push_back(path);
  }
  settings.cdi_modes = CdiModesOf(cdi.path());
  settings.imex_channels = PresentImexChannels(options);
  const bool has_parts = !cards.parts.empty() || std::any_of(cards.cards.begin(), cards.cards.end(),
                                                             [](const Card& card) { return card.part.has_value(); });
  if (has_parts || cards.settings.mode == OperatingMode::kMig) {
    settings.mig_minors = ReadMigMinors(options);
    // A runtime looks there for the instance before the container starts.
    cdi.Refresh(cards);
  }
  return settings;
}

base::Result<Response> Agent::Impl::RespondParts(const std::vector<std::string>& slots) {
  const auto cards = board.Current();
  return MakePartResponse(slots, *cards, SettingsNow(*cards));
}

base::Result<Response> Agent::Impl::Respond(const Record& record, const Cards& cards) {
  HAMI_TRY(MendNodeFiles());
  ResponseSettings settings = SettingsNow(cards);
  OfferCommonAreas(cards);
  if (common_areas != nullptr) settings.common_areas = common_areas->Cards();
  if (cards.settings.mode == OperatingMode::kMps) {
    auto share = modes->mps().Serve(record, cards);
    if (!share) return tl::unexpected(share.error());
    settings.mps = *std::move(share);
  }
  return MakeResponse(record, cards, settings);
}

// By whom a pod may have been placed.
base::Status Agent::Impl::ReadRules(OriginRules& rules) {
  rules.schedulers = options.scheduler_names;
  if (options.grant_key_file.empty()) return {};
  constexpr std::size_t kMostKeyBytes = 64 << 10;
  const auto file = std::make_shared<base::WatchedFile>(options.grant_key_file, kMostKeyBytes);
  auto ring = device::GrantKeyring::Make([file] { return file->Look(); }, options.grant_key_file);
  if (!ring) return base::Fail("--grant-key-file: " + ring.error().message, ring.error().hint);
  keys = *std::move(ring);
  rules.keyed = true;
  rules.sealed = [this](const PodView& pod) {
    return device::IsSealed(keys->Get().get(), pod.uid, pod.node, pod.claims);
  };
  rules.seal = [this](const PodView& pod, const device::StringMap& claims) {
    return keys->Get()->Seal(device::SealedText(pod.uid, pod.node, claims));
  };
  return {};
}

base::Status Agent::Impl::StartAllocations() {
  if (options.imex_required && PresentImexChannels(options).size() < options.imex_channels.size()) {
    return base::Fail("--imex-required: " + ImexChannelNode(0) + " is not there",
                      "the nvidia-imex service makes it; --imex-required=false goes on without");
  }
  const auto shipped = ShippedLibrary();
  if (!shipped) return tl::unexpected(shipped.error());
  const auto installed = InstallLibrary(*shipped, vgpu_folder);
  if (!installed) return tl::unexpected(installed.error());
  library = *installed;
  HAMI_TRY(MakeLockFolder(kLockFolder));
  if (options.common_area) {
    common_areas = std::make_unique<CommonAreas>(Concat({vgpu_folder, "/", kCommonFolder}));
    HAMI_TRY(common_areas->Start());
  }

  cluster = std::make_unique<KubeCluster>(*client, options.node_name, [this] { tender->Call(); });
  records = std::make_unique<DiskRecordKeeper>(vgpu_folder + "/allocations.json");
  folders = std::make_unique<DiskShareFolders>(vgpu_folder);
  AllocatorParts parts;
  parts.cluster = cluster.get();
  parts.keeper = records.get();
  parts.folders = folders.get();
  parts.mig = &modes->mig();
  if (!options.pod_resources_socket.empty()) {
    book = std::make_unique<PodResourcesBook>(options.pod_resources_socket,
                                              [this] { return board.Current()->settings.resource_name; });
    parts.book = book.get();
  }
  parts.respond = [this](const Record& record, const Cards& cards) { return Respond(record, cards); };
  parts.cards = [this] { return board.Current(); };
  parts.library = library;
  AllocatorOptions allocations;
  allocations.node = options.node_name;
  allocations.budget = std::chrono::seconds(options.allocate_seconds);
  allocations.unix_time = [] { return static_cast<std::int64_t>(std::time(nullptr)); };
  HAMI_TRY(ReadRules(allocations.rules));
  allocator = std::make_unique<Allocator>(std::move(parts), allocations);
  HAMI_TRY(allocator->Start());
  std::set<std::string> in_use;
  for (const Record& record : allocator->records()) in_use.insert(record.library);
  RemoveOldLibraries(vgpu_folder, library, in_use);

  tender = std::make_unique<Tender>([this] { return Tend(); });
  ProbeBook();
  cluster->Start();
  // Only now: the node is not offered before the library is installed, and its lock has somebody to be told to.
  registrar->Start();
  return {};
}

// Whether the kubelet tells who holds what decides whether the scheduler may send several pods at once. One failure
// may be a kubelet that restarts.
void Agent::Impl::ProbeBook() {
  if (book == nullptr) return;
  constexpr int kMostFailures = 3;
  if (net::Clock::now() < next_probe) return;
  next_probe = net::After(kProbeEvery);
  const auto listed = book->List(net::After(std::chrono::seconds(2)));
  book_failures = listed ? 0 : book_failures + 1;
  const bool works = listed || (book_failures < kMostFailures && allocator->concurrent());
  if (works != allocator->concurrent()) {
    base::LogInfo(works
                      ? "concurrent: the kubelet tells who holds which slots, several pods may be on their way at once"
                      : "concurrent: one pod at a time: " + listed.error().message);
  }
  allocator->SetConcurrent(works);
  keeper->AllowConcurrentAllocate(works);
}

bool Agent::Impl::Tend() {
  CheckNodeFiles();
  cdi.Refresh(*board.Current());
  OfferCommonAreas(*board.Current());
  serving->Follow(*board.Current());
  ProbeBook();
  const bool mode_left = modes->Look(*allocator);
  const bool left = allocator->Tend();
  if (!modes->mig().entries().empty()) cdi.Refresh(*board.Current());
  return folders->EmptyTrash() || left || mode_left;
}

base::Status Agent::Impl::StartServing(const std::function<void()>& on_give_up) {
  give_up = on_give_up;
  ServingOptions serve;
  serve.on_trouble = [this](const std::string& trouble) { Tell({true, "AnotherDevicePlugin", trouble}); };
  serve.kubelet_socket = options.kubelet_socket;
  serve.folder = options.kubelet_socket.substr(0, options.kubelet_socket.rfind('/'));
  serve.resource_name = [this] {
    const CardBoard::Snapshot cards = board.Current();
    return cards->ready ? cards->settings.resource_name : std::string();
  };
  serve.preferred_allocation = [this] { return board.Current()->settings.align_allocation; };
  KubeletBackend backend;
  backend.board = &board;
  backend.allocate = [this](const std::vector<std::string>& slots) {
    auto response = allocator->Allocate(slots);
    tender->Call();
    return response;
  };
  backend.prefer = [this](const PreferredRequest& request) { return allocator->Prefer(request); };
  serving = std::make_unique<ResourceServers>(std::move(serve), std::move(backend),
                                              [this](const auto& slots) { return RespondParts(slots); });
  subscription = board.Subscribe([this] {
    serving->Look();
    tender->Call();
  });
  cdi.Refresh(*board.Current());
  serving->Start([on_give_up](const base::Error& error) {
    base::LogError(error);
    on_give_up();
  });
  tender->Start();
  return {};
}

bool Agent::Impl::Ready() const {
  return started.load() && keeper->ready() && registrar->registered() &&
         (options.kubelet_socket.empty() || serving->registered());
}

std::string Agent::Impl::WhyNotReady() const {
  std::string trouble = started.load() ? registrar->trouble() : std::string();
  if (trouble.empty() && started.load()) trouble = serving->trouble();
  return trouble.empty() ? "not registered with the kubelet and the node yet\n" : trouble + "\n";
}

base::Status Agent::Impl::StartProbes() {
  if (!options.metrics_address) return {};
  net::ServerOptions address;
  address.host = options.metrics_address->host;
  address.port = options.metrics_address->port;
  address.max_threads = 4;
  auto server = net::Server::Start(address, [this](const net::Request& request) {
    net::Response response;
    const std::string_view path = net::PathOf(request.target);
    if (path == "/healthz") {
      response.body = "ok\n";
    } else if (path == "/readyz") {
      const bool ready = Ready();
      response.status = ready ? 200 : 503;
      response.body = ready ? "ok\n" : WhyNotReady();
    } else if (path == "/metrics") {
      response.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}};
      response.body = RenderCardMetrics(options.node_name, *board.Current());
      if (started.load()) response.body += RenderMpsMetrics(options.node_name, modes->mps().Look());
      response = net::Compressed(request, std::move(response));
    } else {
      response.status = 404;
    }
    return response;
  });
  if (!server) return base::Fail("--metrics-bind-address: " + server.error().message);
  probes = *std::move(server);
  base::LogInfo(Concat({"/healthz, /readyz and /metrics are at ", address.host.empty() ? "*" : address.host, ", port ",
                        std::to_string(probes->port())}));
  return {};
}

Agent::Agent(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}

Agent::~Agent() { Stop(); }

base::Status Agent::Start(const std::function<void()>& on_give_up, const std::function<bool()>& interrupted) {
  // First: whoever asks whether this process lives does not wait for the driver.
  HAMI_TRY(impl_->StartProbes());
  HAMI_TRY(impl_->StartNode(interrupted));
  HAMI_TRY(impl_->StartAllocations());
  HAMI_TRY(impl_->StartServing(on_give_up));
  impl_->started.store(true);
  return {};
}

void Agent::Restart() {
  if (impl_->started.load()) impl_->serving->Restart();
}

void Agent::Stop() {
  Impl& all = *impl_;
  all.probes.reset();
  all.subscription = {};
  if (all.serving) all.serving->Stop();
  if (all.tender) all.tender->Stop();
  if (all.modes) all.modes->Stop();
  // Whoever serves this node next knows nothing of it.
  if (all.registrar) all.registrar->Withdraw();
  if (all.cluster) all.cluster->Stop();
  if (all.registrar) all.registrar->Stop();
  if (all.keeper) all.keeper->Stop();
  if (all.events) all.events->Stop(std::chrono::seconds(1));
}

}  // namespace hami::plugin
