// SPDX-License-Identifier: Apache-2.0
//
// Who holds a connection: the doorkeeper thread (accepting, and all quiet connections in one epoll set), the queue
// (connections with something to do), or one worker. A worker keeps its connection for a moment after an answer, since
// a busy client's next request is near; then it hands it back to the doorkeeper.

#include "net/server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "net/server_connection.h"
#include "net/socket.h"

namespace hami::net {
namespace {

constexpr auto kLinger = std::chrono::milliseconds(20);
constexpr auto kSweep = std::chrono::seconds(1);
constexpr auto kAcceptPause = std::chrono::milliseconds(10);
constexpr auto kTimeToAsk = std::chrono::seconds(1);
constexpr auto kSayAgain = std::chrono::seconds(10);

}  // namespace

class Server::Impl {
 public:
  Impl(const ServerOptions& options, Handler handler) {
    shared_.options = options;
    shared_.handler = std::move(handler);
    shared_.options.max_threads = std::max(1U, options.max_threads);
  }

  Status Open();
  void Drain(Duration span);
  void Stop(Duration grace);
  std::uint16_t port() const { return port_; }
  const ServerShared& shared() const { return shared_; }

 private:
  using Connection = std::unique_ptr<ServerConnection>;
  struct Parked {
    Connection connection;
    Deadline until;
    Deadline since = Clock::now();
    std::pair<bool, Deadline> Rank() const { return {connection->due().has_value(), until}; }
  };

  void KeepDoor();
  void AcceptAll();
  void PauseAccepting();
  void ListenFor(std::uint32_t events);
  void EndOverdue();
  std::vector<Connection> TakeOverdue();
  bool MakeRoom(Deadline quiet_since = kNever);
  void SayItCanNotAccept(int error);
  void Enqueue(Connection connection);
  bool Park(Connection& connection);
  void Work();
  void Serve(Connection connection);
  Connection TakeParked(int fd);
  void Knock() const;

  ServerShared shared_;
  base::Fd listener_;
  base::Fd epoll_;
  base::Fd knock_;  // wakes the doorkeeper
  std::uint16_t port_ = 0;
  std::thread doorkeeper_;
  std::atomic<std::size_t> open_ = 0;  // connections anywhere
  // Of the doorkeeper alone:
  bool accepting_ = true;
  Deadline accept_again_{};  // when not accepting
  Deadline say_again_{};     // that it can not
  base::Fd newcomer_;        // accepted, but there is no room yet

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable quiet_;
  std::deque<Connection> queue_;
  std::map<int, Parked> parked_;
  std::vector<std::thread> workers_;
  std::size_t idle_workers_ = 0;
  std::size_t busy_ = 0;  // connections in a worker's hands
  bool closing_ = false;
  bool stopped_ = false;
};

Status Server::Impl::Open() {
  const ServerOptions& options = shared_.options;
  if (options.tls) {
    auto tls = ServeFrom(*options.tls, options.tls_look_interval);
    if (!tls) return tl::unexpected(tls.error());
    shared_.tls = *std::move(tls);
  }
  auto listener = Listen(options.host, options.port);
  if (!listener) return tl::unexpected(listener.error());
  listener_ = *std::move(listener);
  const auto port = LocalPort(listener_.get());
  if (!port) return tl::unexpected(port.error());
  port_ = *port;
  epoll_ = base::Fd(::epoll_create1(EPOLL_CLOEXEC));
  knock_ = base::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  for (const int fd : {listener_.get(), knock_.get()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return Fail(Cause::kSystem, std::string("epoll: ") + std::strerror(errno));
    }
  }
  try {
    doorkeeper_ = std::thread([this] { KeepDoor(); });
  } catch (const std::system_error& error) {
    return Fail(Cause::kSystem, std::string("can not start a thread: ") + error.what());
  }
  return {};
}

void Server::Impl::Knock() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(knock_.get(), &one, sizeof one);
}

void Server::Impl::KeepDoor() {
  std::array<epoll_event, 64> events{};
  Deadline next_sweep = After(kSweep);
  while (!shared_.stopping.cancelled()) {
    if (!accepting_ && Clock::now() >= accept_again_) AcceptAll();
    const auto pause = accepting_ ? std::chrono::milliseconds(kSweep) : kAcceptPause;
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), static_cast<int>(pause.count()));
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == knock_.get()) continue;  // only Stop knocks; the loop's condition sees it
      if (fd == listener_.get()) {
        AcceptAll();
      } else if (Connection ready = TakeParked(fd)) {
        Enqueue(std::move(ready));
      }
    }
    if (Clock::now() >= next_sweep) {
      EndOverdue();
      next_sweep = After(kSweep);
    }
  }
}

void Server::Impl::ListenFor(std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = listener_.get();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
}

// Leaves newcomers in the kernel's queue for a moment.
void Server::Impl::PauseAccepting() {
  accept_again_ = After(kAcceptPause);
  accepting_ = false;
  ListenFor(0);
}

void Server::Impl::AcceptAll() {
  if (!accepting_) {
    accepting_ = true;
    ListenFor(EPOLLIN);
  }
  while (!shared_.stopping.cancelled()) {
    if (!newcomer_) newcomer_ = base::Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!newcomer_) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) {
        SayItCanNotAccept(errno);
        // Not one that has just come in its turn: the next would cut it off before it could ask.
        MakeRoom(Clock::now() - kTimeToAsk);
        PauseAccepting();
      }
      return;
    }
    // With every connection at work, the newcomer waits until one falls quiet.
    if (open_.load() >= shared_.options.max_connections && !MakeRoom()) return PauseAccepting();
    const int one = 1;
    ::setsockopt(newcomer_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    shared_.connections.fetch_add(1, std::memory_order_relaxed);
    open_.fetch_add(1);
    // To the quiet ones: a client that connects and says nothing shall not hold a thread.
    auto connection = std::make_unique<ServerConnection>(shared_, std::move(newcomer_));
    if (!Park(connection)) open_.fetch_sub(1);
  }
}

void Server::Impl::SayItCanNotAccept(int error) {
  const Deadline now = Clock::now();
  if (now < say_again_) return;
  say_again_ = now + kSayAgain;
  base::LogWarning(std::string("can not accept connections: ") + std::strerror(error));
}

// Gives up the connection that has been quiet longest, if since then at least; one within a request only where there is
// no other.
bool Server::Impl::MakeRoom(Deadline quiet_since) {
  Connection oldest;
  const std::scoped_lock lock(mutex_);
  const auto rank = [&](const auto& entry) { return std::pair(entry.second.since > quiet_since, entry.second.Rank()); };
  const auto first =
      std::min_element(parked_.begin(), parked_.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  if (first == parked_.end() || first->second.since > quiet_since) return false;
  oldest = std::move(first->second.connection);
  parked_.erase(first);
  open_.fetch_sub(1);
  return true;
}

// Whose request is not there in time is told so, by a worker.
void Server::Impl::EndOverdue() {
  for (Connection& connection : TakeOverdue()) {
    if (connection->due()) {
      Enqueue(std::move(connection));
    } else {
      open_.fetch_sub(1);
    }
  }
}

std::vector<Server::Impl::Connection> Server::Impl::TakeOverdue() {
  std::vector<Connection> overdue;
  const Deadline now = Clock::now();
  const std::scoped_lock lock(mutex_);
  for (auto item = parked_.begin(); item != parked_.end();) {
    if (item->second.until > now) {
      ++item;
      continue;
    }
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, item->first, nullptr);
    overdue.push_back(std::move(item->second.connection));
    item = parked_.erase(item);
  }
  return overdue;
}

Server::Impl::Connection Server::Impl::TakeParked(int fd) {
  const std::scoped_lock lock(mutex_);
  const auto found = parked_.find(fd);
  if (found == parked_.end()) return nullptr;
  Connection connection = std::move(found->second.connection);
  parked_.erase(found);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  return connection;
}

// False, and nothing done, where nobody would look after it.
bool Server::Impl::Park(Connection& connection) {
  const std::scoped_lock lock(mutex_);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.fd = connection->fd();
  // Under the lock, so that the doorkeeper can not see the event before the entry.
  if (closing_ || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, event.data.fd, &event) != 0) return false;
  const Deadline until = connection->due().value_or(After(shared_.options.idle_timeout));
  parked_[event.data.fd] = Parked{std::move(connection), until};
  return true;
}

void Server::Impl::Enqueue(Connection connection) {
  const std::scoped_lock lock(mutex_);
  queue_.push_back(std::move(connection));
  if (idle_workers_ >= queue_.size() || workers_.size() >= shared_.options.max_threads) {
    work_.notify_one();
    return;
  }
  try {
    workers_.emplace_back([this] { Work(); });
  } catch (const std::system_error& error) {
    base::LogWarning(std::string("can not start a server thread: ") + error.what());
    work_.notify_one();
  }
}

void Server::Impl::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_workers_;
    work_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    --idle_workers_;
    if (queue_.empty()) return;  // closing, and all that was waiting is served
    Connection connection = std::move(queue_.front());
    queue_.pop_front();
    ++busy_;
    lock.unlock();
    Serve(std::move(connection));
    lock.lock();
    --busy_;
    if (busy_ == 0 && queue_.empty()) quiet_.notify_all();
  }
}

void Server::Impl::Serve(Connection connection) {
  using Turn = ServerConnection::Turn;
  for (Turn turn = connection->ServeOne(); turn != Turn::kOver; turn = connection->ServeOne()) {
    if (turn == Turn::kQuiet) {
      if (Park(connection)) return;
      if (!shared_.stopping.cancelled()) break;
      continue;  // a stop waits for what has begun
    }
    bool others_wait = false;
    {
      const std::scoped_lock lock(mutex_);
      others_wait = !queue_.empty();
    }
    // A read-ahead request must be served here: no event will announce it.
    if (!connection->HasMore(others_wait ? Duration::zero() : Duration(kLinger))) {
      if (shared_.stopping.cancelled() || !Park(connection)) break;
      return;
    }
  }
  connection.reset();
  open_.fetch_sub(1);
}

void Server::Impl::Drain(Duration span) {
  constexpr auto kLook = std::chrono::milliseconds(20);
  shared_.draining = true;
  for (const Deadline end = After(span); open_.load() > 0 && Clock::now() < end;) std::this_thread::sleep_for(kLook);
}

void Server::Impl::Stop(Duration grace) {
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(stopped_, true)) return;
  }
  shared_.stopping.Cancel();
  Knock();
  if (doorkeeper_.joinable()) doorkeeper_.join();
  listener_.Reset();
  std::map<int, Parked> quiet;
  std::vector<std::thread> workers;
  {
    std::unique_lock lock(mutex_);
    closing_ = true;
    // Requests that arrived while their connection was parked have begun, too.
    for (auto& [fd, parked] : parked_) {
      if (parked.connection->due() || parked.connection->HasMore(Duration::zero())) {
        queue_.push_back(std::move(parked.connection));
      } else {
        quiet[fd] = std::move(parked);
      }
    }
    parked_.clear();
    if (!queue_.empty() && workers_.empty()) workers_.emplace_back([this] { Work(); });
    work_.notify_all();
    quiet_.wait_for(lock, grace, [this] { return busy_ == 0 && queue_.empty(); });
  }
  shared_.cutting.Cancel();
  {
    const std::scoped_lock lock(mutex_);
    workers.swap(workers_);
  }
  for (std::thread& worker : workers) worker.join();
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { Stop(std::chrono::seconds(1)); }

Result<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, Handler handler) {
  auto impl = std::make_unique<Impl>(options, std::move(handler));
  HAMI_NET_TRY(impl->Open());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

std::uint16_t Server::port() const { return impl_->port(); }
void Server::Drain(Duration span) { impl_->Drain(span); }
void Server::Stop(Duration grace) { impl_->Stop(grace); }

Server::Counters Server::counters() const {
  const ServerShared& shared = impl_->shared();
  return {shared.connections.load(), shared.requests.load(), shared.refused.load()};
}

}  // namespace hami::net
