// SPDX-License-Identifier: Apache-2.0

#include "plugin/serving.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <random>
#include <utility>

#include "base/log.h"
#include "base/strings.h"
#include "plugin/device_list.h"
#include "plugin/kubelet_client.h"

namespace hami::plugin {
namespace {

using base::Concat;

constexpr net::Duration kRegisterTimeout = std::chrono::seconds(5);

std::string FolderOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

// What is in a descriptor is of no interest, only that there was something.
void Drain(int fd) {
  std::array<char, 4096> buffer;
  while (::read(fd, buffer.data(), buffer.size()) > 0) {
  }
}

// Whether some process listens at SOCKET.
bool Listens(const std::string& socket) {
  sockaddr_un address{};
  if (socket.size() >= sizeof address.sun_path) return false;
  address.sun_family = AF_UNIX;
  socket.copy(address.sun_path, sizeof address.sun_path - 1);
  const base::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return false;
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
  return errno == EAGAIN || errno == EINPROGRESS;
}

// NAME.sock → NAME-xxxxxxxx.sock
std::string Unique(const std::string& endpoint) {
  std::array<char, 10> suffix{};
  std::snprintf(suffix.data(), suffix.size(), "-%08x", std::random_device()());
  return endpoint.substr(0, endpoint.rfind('.')) + suffix.data() + ".sock";
}

}  // namespace

std::optional<FileIdentity> IdentityOf(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return FileIdentity{status.st_dev, status.st_ino,
                      std::int64_t{status.st_ctim.tv_sec} * 1'000'000'000 + status.st_ctim.tv_nsec};
}

Serving::Serving(ServingOptions options, KubeletBackend backend)
    : options_(std::move(options)),
      backend_(std::move(backend)),
      poke_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      backoff_(options_.first_retry, options_.most_retry) {}

void Serving::Start(std::function<void(const base::Error&)> on_give_up) {
  if (options_.kubelet_socket.empty()) return;
  on_give_up_ = std::move(on_give_up);
  thread_ = std::thread([this] { Run(); });
}

void Serving::Stop() {
  stop_.Cancel();
  if (thread_.joinable()) thread_.join();
}

void Serving::Restart() {
  restart_.store(true);
  Look();
}

void Serving::Look() {
  const std::uint64_t one = 1;
  // A full counter is as good as one more.
  [[maybe_unused]] const ssize_t put = ::write(poke_.get(), &one, sizeof one);
}

void Serving::Run() {
  while (!stop_.cancelled()) Wait(Step());
  server_.reset();
  registered_.store(false);
}

net::Duration Serving::Step() {
  Watch();
  if (restart_.exchange(false) || options_.resource_name() != resource_) server_.reset();
  // Another plugin has our name now. To take it back would be a fight, and to stop would remove its socket.
  if (server_ && IdentityOf(OwnSocket()) != own_ && Listens(OwnSocket())) {
    registered_.store(false);
    Say(Concat({"another device plugin took over ", OwnSocket(), " and ", resource_,
                " with it; this one serves again when that one ends"}));
    return options_.look_every;
  }
  // A kubelet that starts empties the folder, our socket included.
  if (server_ && IdentityOf(OwnSocket()) != own_) {
    base::LogInfo("serving: our socket is gone, serving starts anew");
    server_.reset();
  }
  if (options_.resource_name().empty()) return options_.look_every;
  if (!server_) {
    told_to_.reset();
    registered_.store(false);
    if (const net::Duration pause = StartServer(); pause > net::Duration::zero()) return pause;
  }
  const auto kubelet = IdentityOf(options_.kubelet_socket);
  if (!kubelet) {
    registered_.store(false);
    told_to_.reset();
    if (!std::exchange(told_of_wait_, true)) {
      base::LogInfo("serving: waiting for the kubelet at " + options_.kubelet_socket);
    }
    return options_.look_every;
  }
  told_of_wait_ = false;
  return kubelet == told_to_ ? options_.look_every : Register(*kubelet);
}

void Serving::Say(std::string trouble) {
  {
    const std::scoped_lock lock(mutex_);
    if (trouble_ == trouble) return;
    trouble_ = trouble;
  }
  base::LogWarning("serving: " + trouble);
  if (options_.on_trouble) options_.on_trouble(trouble);
}

std::string Serving::trouble() const {
  const std::scoped_lock lock(mutex_);
  return trouble_;
}

// Zero: it serves.
net::Duration Serving::StartServer() {
  resource_ = options_.resource_name();
  endpoint_ = SocketName(resource_);
  if (Listens(OwnSocket())) {
    const std::string other = OwnSocket();
    endpoint_ = Unique(endpoint_);
    Say(Concat({"another device plugin serves ", resource_, " at ", other, "; this one takes over, at ", OwnSocket()}));
  }
  auto server = KubeletServer::Start(OwnSocket(), backend_);
  if (server) {
    server_ = *std::move(server);
    own_ = IdentityOf(OwnSocket());
    return net::Duration::zero();
  }
  base::LogError(server.error());
  if (!budget_.Allows(net::Clock::now())) {
    on_give_up_(server.error());
    stop_.Cancel();
  }
  return backoff_.Next(0.5);
}

net::Duration Serving::Register(const FileIdentity& kubelet) {
  registered_.store(false);
  const base::Status done = RegisterAt(options_.kubelet_socket, {endpoint_, resource_, options_.preferred_allocation()},
                                       net::After(kRegisterTimeout));
  if (!done) {
    // The same trouble every half minute is told once.
    if (done.error().message != last_trouble_) base::LogWarning(done.error().message);
    last_trouble_ = done.error().message;
    return backoff_.Next(0.5);
  }
  last_trouble_.clear();
  {
    const std::scoped_lock lock(mutex_);
    trouble_.clear();
  }
  backoff_.Reset();
  told_to_ = kubelet;
  registered_.store(true);
  ++registrations_;
  base::LogInfo(Concat({"serving: registered resource=", resource_, " socket=", OwnSocket()}));
  // The socket may have been replaced while we registered: look once more.
  return net::Duration::zero();
}

// Again and again: a folder that is there already is not watched twice, and one that was replaced is found.
void Serving::Watch() {
  if (!notify_) notify_ = base::Fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  constexpr std::uint32_t kEvents = IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF;
  for (const std::string& folder : {options_.folder, FolderOf(options_.kubelet_socket)}) {
    if (!folder.empty()) ::inotify_add_watch(notify_.get(), folder.c_str(), kEvents);
  }
}

void Serving::Wait(net::Duration pause) {
  if (pause <= net::Duration::zero()) return;
  std::array<pollfd, 3> sources = {pollfd{stop_.fd(), POLLIN, 0}, pollfd{poke_.get(), POLLIN, 0},
                                   pollfd{notify_.get(), POLLIN, 0}};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(pause).count();
  ::poll(sources.data(), sources.size(), static_cast<int>(ms) + 1);
  Drain(poke_.get());
  if (notify_) Drain(notify_.get());
}

}  // namespace hami::plugin
