// SPDX-License-Identifier: Apache-2.0

#include "net/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

namespace hami::net {
namespace {

int MillisUntil(Deadline deadline) {
  if (deadline == kNever) return -1;
  if (deadline == Deadline{}) return 0;  // a look, which needs no clock
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
}

std::string Where(const std::string& host, std::uint16_t port) {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

struct Address {
  int family = AF_UNSPEC;
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Result<std::vector<Address>> LookUp(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int status = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (status != 0) return Fail(Cause::kConnect, "can not resolve " + host + ": " + ::gai_strerror(status));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<Address> found;
  for (const addrinfo* item = list; item != nullptr; item = item->ai_next) {
    Address address;
    if (item->ai_addrlen > sizeof address.storage) continue;
    address.family = item->ai_family;
    address.size = item->ai_addrlen;
    std::memcpy(&address.storage, item->ai_addr, item->ai_addrlen);
    found.push_back(address);
  }
  return found;
}

Result<std::vector<Address>> Resolve(const std::string& host, std::uint16_t port, Deadline deadline,
                                     const Canceller* canceller) {
  if (IsNumericAddress(host)) return LookUp(host, port, AI_NUMERICHOST);
  struct Search {
    Canceller done;
    Result<std::vector<Address>> found;
  };
  // Shared with the thread, which may outlive our patience.
  auto search = std::make_shared<Search>();
  try {
    std::thread([search, host, port] {
      search->found = LookUp(host, port, 0);
      search->done.Cancel();
    }).detach();
  } catch (const std::system_error& error) {
    return Fail(Cause::kSystem, "can not resolve " + host + ": " + error.what());
  }
  HAMI_NET_TRY(WaitReady(search->done.fd(), POLLIN, deadline, canceller));
  // Also what makes the thread's writes visible here: poll(2) orders nothing.
  if (!search->done.cancelled()) return Fail(Cause::kTimeout, "can not resolve " + host + ": timed out");
  return std::move(search->found);
}

Result<base::Fd> NewSocket(int family) {
  base::Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return Fail(Cause::kSystem, std::string("can not make a socket: ") + std::strerror(errno));
  return fd;
}

void SetFlag(int fd, int level, int name, int value = 1) { ::setsockopt(fd, level, name, &value, sizeof value); }

Result<base::Fd> ConnectTo(const Address& address, Deadline deadline, const Canceller* canceller) {
  auto fd = NewSocket(address.family);
  if (!fd) return fd;
  SetFlag(fd->get(), IPPROTO_TCP, TCP_NODELAY);
  // A watch may be silent for minutes: let the kernel find out that the peer's machine is gone.
  SetFlag(fd->get(), SOL_SOCKET, SO_KEEPALIVE);
  SetFlag(fd->get(), IPPROTO_TCP, TCP_KEEPIDLE, 30);
  SetFlag(fd->get(), IPPROTO_TCP, TCP_KEEPINTVL, 10);
  SetFlag(fd->get(), IPPROTO_TCP, TCP_KEEPCNT, 3);
  if (::connect(fd->get(), address.get(), address.size) == 0) return fd;
  if (errno != EINPROGRESS && errno != EINTR) return Fail(Cause::kConnect, std::strerror(errno));
  HAMI_NET_TRY(WaitReady(fd->get(), POLLOUT, deadline, canceller));
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(fd->get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return Fail(Cause::kConnect, std::strerror(error));
  return fd;
}

Result<base::Fd> ListenOn(const Address& address) {
  auto fd = NewSocket(address.family);
  if (!fd) return fd;
  SetFlag(fd->get(), SOL_SOCKET, SO_REUSEADDR);
  if (address.family == AF_INET6) SetFlag(fd->get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(fd->get(), address.get(), address.size) != 0 || ::listen(fd->get(), SOMAXCONN) != 0) {
    return Fail(Cause::kSystem, std::strerror(errno));
  }
  return fd;
}

}  // namespace

bool IsNumericAddress(const std::string& host) {
  in6_addr ignored{};
  return ::inet_pton(AF_INET, host.c_str(), &ignored) == 1 || ::inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

Status WaitReady(int fd, short events, Deadline deadline, const Canceller* canceller) {
  // poll(2) skips negative descriptors.
  std::array<pollfd, 2> set{{{fd, events, 0}, {canceller == nullptr ? -1 : canceller->fd(), POLLIN, 0}}};
  while (true) {
    const int ready = ::poll(set.data(), set.size(), MillisUntil(deadline));
    if (ready < 0 && errno != EINTR) return Fail(Cause::kSystem, std::string("poll: ") + std::strerror(errno));
    if (ready > 0 && set[0].revents != 0) return {};
    if (canceller != nullptr && canceller->cancelled()) return Fail(Cause::kCancelled, "cancelled");
    if (ready == 0 && (deadline == Deadline{} || Clock::now() >= deadline)) return Fail(Cause::kTimeout, "timed out");
  }
}

Result<base::Fd> Listen(const std::string& host, std::uint16_t port) {
  auto addresses = LookUp(host, port, AI_PASSIVE);
  if (!addresses) return tl::unexpected(addresses.error());
  // Dual-stack first: it serves both families with one socket.
  if (host.empty()) {
    std::stable_partition(addresses->begin(), addresses->end(), [](const Address& a) { return a.family == AF_INET6; });
  }
  Result<base::Fd> last = Fail(Cause::kSystem, "no address");
  for (const Address& address : *addresses) {
    last = ListenOn(address);
    if (last) return last;
  }
  return Fail(last.error().cause, "can not listen on " + Where(host, port) + ": " + last.error().message);
}

Result<std::uint16_t> LocalPort(int fd) {
  Address address;
  address.size = sizeof address.storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) {
    return Fail(Cause::kSystem, std::string("getsockname: ") + std::strerror(errno));
  }
  // The port lies at the same place in both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
}

Result<base::Fd> Connect(const std::string& host, std::uint16_t port, Deadline deadline, const Canceller* canceller) {
  auto addresses = Resolve(host, port, deadline, canceller);
  if (!addresses) return tl::unexpected(addresses.error());
  Result<base::Fd> last = Fail(Cause::kConnect, "no address");
  for (const Address& address : *addresses) {
    last = ConnectTo(address, deadline, canceller);
    if (last || last.error().cause == Cause::kCancelled) return last;
  }
  return Fail(last.error().cause, "can not connect to " + Where(host, port) + ": " + last.error().message);
}

}  // namespace hami::net
