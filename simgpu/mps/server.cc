// SPDX-License-Identifier: Apache-2.0
#include "simgpu/mps/server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <list>
#include <vector>

namespace simgpu::mps {
namespace {

constexpr int kVoltaClients = 48;
constexpr int kBlackwellClients = 60;
constexpr int kBlackwell = 10;  // compute capability

struct Client {
  int fd;
  int pid;
  bool admitted = false;
  LineReader reader;
};

int PeerPid(int fd) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

class Server {
 public:
  Server(int listening, int control, Terms terms)
      : listening_(listening), control_(control), terms_(std::move(terms)) {}

  int Run() {
    while (control_ >= 0 || Admitted() > 0) Turn();
    return 0;
  }

 private:
  int Admitted() const {
    int count = 0;
    for (const Client& client : clients_) count += client.admitted ? 1 : 0;
    return count;
  }

  void Turn() {
    std::vector<pollfd> looks = {{listening_, POLLIN, 0}, {control_, POLLIN, 0}};
    for (const Client& client : clients_) looks.push_back({client.fd, POLLIN, 0});
    if (poll(looks.data(), looks.size(), -1) < 0) return;
    std::size_t i = 2;
    for (auto client = clients_.begin(); client != clients_.end(); ++i) {
      client = looks[i].revents != 0 && !Hear(*client) ? Drop(client) : std::next(client);
    }
    if (looks[1].revents != 0) Obey();
    if (looks[0].revents != 0) {
      const int fd = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) clients_.push_back({fd, PeerPid(fd), false, {}});
    }
  }

  std::list<Client>::iterator Drop(std::list<Client>::iterator client) {
    close(client->fd);
    const auto next = clients_.erase(client);
    if (Admitted() == 0) faulted_ = false;
    return next;
  }

  // False: the client is done for.
  bool Hear(Client& client) {
    for (;;) {
      std::string line;
      switch (client.reader.Next(client.fd, 0, &line)) {
        case LineReader::Got::kEnd:
          return false;
        case LineReader::Got::kNothing:
          return true;
        case LineReader::Got::kLine:
          if (!Answer(client, line)) return false;
      }
    }
  }

  bool Answer(Client& client, const std::string& line) {
    if (line.rfind("hello ", 0) == 0 && !client.admitted) {
      const int most = std::atoi(line.c_str() + 6) >= kBlackwell ? kBlackwellClients : kVoltaClients;
      const int refusal = faulted_ ? kServerNotReady : Admitted() >= most ? kMaxClients : 0;
      if (refusal != 0) {
        Send(client.fd, "error " + std::to_string(refusal) + "\n");
        return false;
      }
      client.admitted = true;
      return Send(client.fd, TermsText(terms_));
    }
    if (line == "fault" && client.admitted) {
      // The fault of one is the end of all: they share the server's context.
      faulted_ = true;
      for (const Client& other : clients_) {
        if (&other != &client && other.admitted) Send(other.fd, "terminated\n");
      }
      return true;
    }
    return false;
  }

  void Obey() {
    std::string line;
    const LineReader::Got got = commands_.Next(control_, 0, &line);
    if (got == LineReader::Got::kEnd) {
      close(control_);
      control_ = -1;
    }
    if (got != LineReader::Got::kLine) return;
    Send(control_, Do(line) + "\n");
  }

  std::string Do(const std::string& line) {
    const std::size_t gap = line.find(' ');
    const std::string verb = line.substr(0, gap);
    const std::string rest = gap == std::string::npos ? "" : line.substr(gap + 1);
    if (verb == "status") return faulted_ ? "FAULT" : "ACTIVE";
    if (verb == "percent") return SetPercent(rest);
    if (verb == "memory") {
      for (const auto& [device, bytes] : ParseMemoryLimits(rest)) terms_.limits[device] = bytes;
      return "ok";
    }
    if (verb == "terminate") {
      for (const Client& client : clients_) {
        if (client.admitted && std::to_string(client.pid) == rest) Send(client.fd, "terminated\n");
      }
      return "ok";
    }
    std::string pids;  // clients
    for (const Client& client : clients_) {
      if (client.admitted) pids += (pids.empty() ? "" : " ") + std::to_string(client.pid);
    }
    return pids;
  }

  std::string SetPercent(const std::string& rest) {
    if (const int percent = ParsePercent(rest); percent > 0) terms_.percent = percent;
    return "ok";
  }

  const int listening_;
  int control_;
  Terms terms_;
  LineReader commands_;
  std::list<Client> clients_;
  bool faulted_ = false;
};

}  // namespace

int RunServer(int listening, int control, Terms terms) { return Server(listening, control, std::move(terms)).Run(); }

}  // namespace simgpu::mps
