// SPDX-License-Identifier: Apache-2.0
//
// simgpu-mps-control: the simulated machine's MPS control daemon, and the program that talks to it. Commands, their
// answers and the environment are those of nvidia-cuda-mps-control; `simgpu-mps-control -f` is the daemon, `-d` the
// same in the background, and without a flag commands are read from standard input.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <list>
#include <sstream>
#include <vector>

#include "simgpu/mps/server.h"

namespace simgpu::mps {
namespace {

constexpr int kAnswerWithin = 2'000;  // ms

struct ServerProcess {
  pid_t pid;
  uid_t user;
  std::string socket;
  int control;
  LineReader reader;
};

struct Peer {
  int fd;
  ucred who;
  LineReader reader;
};

std::vector<std::string> WordsOf(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// In the pipe folder, which clients may see under another path.
std::string NameOf(const std::string& socket) { return socket.substr(socket.rfind('/') + 1); }

class Daemon {
 public:
  explicit Daemon(std::string pipe) : pipe_(std::move(pipe)) {
    const char* devices = std::getenv("CUDA_VISIBLE_DEVICES");
    terms_.devices = devices == nullptr ? "" : devices;
    if (const char* percent = std::getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")) SetPercent(percent);
    if (const char* limits = std::getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")) terms_.limits = ParseMemoryLimits(limits);
  }

  int Run() {
    if (const int other = Connect(ControlSocket(pipe_)); other >= 0) {
      close(other);
      std::cerr << "An instance of this daemon is already running\n";
      return 1;
    }
    listening_ = Listen(ControlSocket(pipe_));
    if (listening_ < 0) {
      std::cerr << "simgpu-mps-control: cannot listen in " << pipe_ << ": " << std::strerror(errno) << "\n";
      return 1;
    }
    std::ofstream(pipe_ + "/nvidia-cuda-mps-control.pid") << getpid() << "\n";
    while (!quit_) Turn();
    for (const ServerProcess& server : servers_) kill(server.pid, SIGTERM);
    unlink(ControlSocket(pipe_).c_str());
    return 0;
  }

 private:
  void Turn() {
    std::vector<pollfd> looks = {{listening_, POLLIN, 0}};
    for (const Peer& peer : peers_) looks.push_back({peer.fd, POLLIN, 0});
    constexpr int kReapEvery = 200;  // ms: a server's end wakes nobody
    if (poll(looks.data(), looks.size(), kReapEvery) < 0) return;
    Reap();
    std::size_t i = 1;
    for (auto peer = peers_.begin(); peer != peers_.end(); ++i) {
      if (looks[i].revents != 0 && !Hear(*peer)) {
        close(peer->fd);
        peer = peers_.erase(peer);
      } else {
        ++peer;
      }
    }
    if (looks[0].revents == 0) return;
    const int fd = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    ucred who = {};
    socklen_t size = sizeof who;
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size);
    peers_.push_back({fd, who, {}});
  }

  void Reap() {
    for (auto server = servers_.begin(); server != servers_.end();) {
      if (waitpid(server->pid, nullptr, WNOHANG) == server->pid) {
        close(server->control);
        unlink(server->socket.c_str());
        server = servers_.erase(server);
      } else {
        ++server;
      }
    }
  }

  bool Hear(Peer& peer) {
    for (;;) {
      std::string line;
      switch (peer.reader.Next(peer.fd, 0, &line)) {
        case LineReader::Got::kEnd:
          return false;
        case LineReader::Got::kNothing:
          return true;
        case LineReader::Got::kLine:
          break;
      }
      const std::string answer = Answer(peer, line);
      // A lone dot ends an answer of any number of lines.
      if (!Send(peer.fd, answer + ".\n")) return false;
    }
  }

  std::string Answer(const Peer& peer, const std::string& line) {
    if (line == "server") return ServerFor(peer.who.uid);
    if (peer.who.uid != getuid() && peer.who.uid != 0) return "Permission denied\n";
    const std::vector<std::string> words = WordsOf(line);
    if (words.empty()) return "";
    if (words[0] == "quit") {
      quit_ = true;
      return "";
    }
    return words[0].rfind("set_", 0) == 0 ? Set(words) : Get(words);
  }

  std::string Get(const std::vector<std::string>& words) {
    const std::string& verb = words[0];
    if (verb == "get_server_list") {
      Reap();
      std::string list;
      for (const ServerProcess& server : servers_) list += std::to_string(server.pid) + "\n";
      return list;
    }
    if (verb == "get_default_active_thread_percentage") return std::to_string(terms_.percent) + ".0\n";
    if (verb == "get_default_device_pinned_mem_limit" && words.size() == 2) {
      const auto limit = terms_.limits.find(std::atoi(words[1].c_str()));
      return limit == terms_.limits.end() ? "0\n" : std::to_string(limit->second >> 20) + "M\n";
    }
    if (verb == "start_server" && words.size() == 3 && words[1] == "-uid") {
      return NewServer(static_cast<uid_t>(std::atoi(words[2].c_str()))) == nullptr ? "Failed to start\n" : "";
    }
    if (words.size() >= 2) {
      if (ServerProcess* server = Find(words[1])) return AskServer(*server, words);
      return "Server " + words[1] + " not found\n";
    }
    return "Unrecognized command: " + verb + "\n";
  }

  std::string AskServer(ServerProcess& server, const std::vector<std::string>& words) {
    if (words[0] == "get_server_status") return Tell(server, "status") + "\n";
    if (words[0] == "terminate_client" && words.size() == 3) return Tell(server, "terminate " + words[2]), "";
    if (words[0] == "shutdown_server") return kill(server.pid, SIGTERM), "";
    if (words[0] != "get_client_list") return "Unrecognized command: " + words[0] + "\n";
    std::string list;
    for (const std::string& pid : WordsOf(Tell(server, "clients"))) list += pid + "\n";
    return list;
  }

  std::string Set(const std::vector<std::string>& words) {
    const std::string& verb = words[0];
    if (verb == "set_default_active_thread_percentage" && words.size() == 2 && SetPercent(words[1])) {
      return std::to_string(terms_.percent) + ".0\n";
    }
    if (verb == "set_default_device_pinned_mem_limit" && words.size() == 3) {
      const MemoryLimits limits = ParseMemoryLimits(words[1] + "=" + words[2]);
      if (limits.empty()) return "Invalid value\n";
      terms_.limits[limits.begin()->first] = limits.begin()->second;
      return "";
    }
    ServerProcess* server = words.size() >= 3 ? Find(words[1]) : nullptr;
    if (server == nullptr) return "Invalid argument\n";
    if (verb == "set_active_thread_percentage") return Tell(*server, "percent " + words[2]), words[2] + "\n";
    if (verb == "set_device_pinned_mem_limit" && words.size() == 4) {
      return Tell(*server, "memory " + words[2] + "=" + words[3]), "";
    }
    return "Unrecognized command: " + verb + "\n";
  }

  bool SetPercent(const std::string& text) {
    const int percent = ParsePercent(text);
    if (percent > 0) terms_.percent = percent;
    return percent > 0;
  }

  ServerProcess* Find(const std::string& pid) {
    for (ServerProcess& server : servers_) {
      if (std::to_string(server.pid) == pid) return &server;
    }
    return nullptr;
  }

  static std::string Tell(ServerProcess& server, const std::string& command) {
    std::string answer;
    if (!Send(server.control, command + "\n")) return "";
    return server.reader.Next(server.control, kAnswerWithin, &answer) == LineReader::Got::kLine ? answer : "";
  }

  // One user at a time: the server of another one is replaced when its clients have gone.
  std::string ServerFor(uid_t user) {
    Reap();
    for (auto server = servers_.begin(); server != servers_.end();) {
      if (server->user == user) return "server " + NameOf(server->socket) + "\n";
      if (!Tell(*server, "clients").empty()) return "error " + std::to_string(kServerNotReady) + "\n";
      kill(server->pid, SIGTERM);
      waitpid(server->pid, nullptr, 0);
      close(server->control);
      server = servers_.erase(server);
    }
    const ServerProcess* made = NewServer(user);
    return made == nullptr ? "error " + std::to_string(kServerNotReady) + "\n"
                           : "server " + NameOf(made->socket) + "\n";
  }

  ServerProcess* NewServer(uid_t user) {
    const std::string socket = pipe_ + "/server-" + std::to_string(getpid()) + "-" + std::to_string(++made_);
    const int listening = Listen(socket);
    int ends[2];
    if (listening < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return nullptr;
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      close(listening_);
      for (const Peer& peer : peers_) close(peer.fd);
      for (const ServerProcess& server : servers_) close(server.control);
      prctl(PR_SET_NAME, "simgpu-mps-serv");
      _exit(RunServer(listening, ends[1], terms_));
    }
    close(ends[1]);
    close(listening);
    servers_.push_back({pid, user, socket, ends[0], {}});
    return &servers_.back();
  }

  const std::string pipe_;
  Terms terms_;
  int listening_ = -1;
  int made_ = 0;
  bool quit_ = false;
  std::list<Peer> peers_;
  std::list<ServerProcess> servers_;
};

int Converse(const std::string& pipe) {
  const int fd = Connect(ControlSocket(pipe));
  if (fd < 0) {
    std::cerr << "Cannot find MPS control daemon process\n";
    return 1;
  }
  LineReader reader;
  for (std::string line; std::getline(std::cin, line);) {
    std::string answer;
    if (!Send(fd, line + "\n")) return 1;
    while (reader.Next(fd, kAnswerWithin, &answer) == LineReader::Got::kLine && answer != ".")
      std::cout << answer << "\n";
    if (answer != ".") {
      std::cerr << "The MPS control daemon does not answer\n";
      return 1;
    }
  }
  return 0;
}

int Usage(std::ostream& out, int status) {
  out << "usage: simgpu-mps-control [-f | -d]\n\n"
         "The MPS control daemon of a simulated machine (SIMGPU): -f in the foreground, -d in the background. Without "
         "a\n"
         "flag: commands from standard input to the daemon of $CUDA_MPS_PIPE_DIRECTORY (default /tmp/nvidia-mps), as\n"
         "nvidia-cuda-mps-control takes them: get_server_list, get_client_list PID, get_server_status PID, "
         "start_server\n"
         "-uid UID, terminate_client SERVER CLIENT, quit; {get,set}_default_active_thread_percentage,\n"
         "set_active_thread_percentage, {get,set}_default_device_pinned_mem_limit, set_device_pinned_mem_limit.\n";
  return status;
}

int Main(const std::vector<std::string>& arguments) {
  const std::string pipe = PipeFolder();
  if (arguments.empty()) return Converse(pipe);
  if (arguments[0] == "--help" || arguments[0] == "-h") return Usage(std::cout, 0);
  if (arguments.size() != 1 || (arguments[0] != "-f" && arguments[0] != "-d")) return Usage(std::cerr, 2);
  constexpr mode_t kMode = 0777;
  mkdir(pipe.c_str(), kMode);
  if (arguments[0] == "-d" && daemon(0, 0) != 0) return 1;
  signal(SIGPIPE, SIG_IGN);
  return Daemon(pipe).Run();
}

}  // namespace
}  // namespace simgpu::mps

int main(int argc, char** argv) { return simgpu::mps::Main({argv + 1, argv + argc}); }
