// SPDX-License-Identifier: Apache-2.0
//
// What one exchange over loopback costs each side in processor time: bare (a Stream on each side, bytes of the given
// sizes and nothing else) and as HTTP (Client and Server). The first is the floor of whatever is built on the second.

#include <benchmark/benchmark.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "net/client.h"
#include "net/server.h"
#include "net/socket.h"
#include "net/stream.h"
#include "net/testing/certificates.h"

namespace {

using namespace hami::net;

double CpuMicros(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

const TestCertificate& Certificate() {
  static TestAuthority authority;
  static const TestCertificate issued = authority.Issue("bench", "IP:127.0.0.1");
  return issued;
}

bool ReadAll(Stream& stream, std::vector<char>& buffer, std::size_t bytes) {
  for (std::size_t got = 0; got < bytes;) {
    const auto now = stream.Read(buffer);
    if (!now || *now == 0) return false;
    got += *now;
  }
  return true;
}

// Arguments of all: TLS or not, bytes of the request, bytes of the answer.
void BM_Bare(benchmark::State& state) {
  const bool tls = state.range(0) != 0;
  const auto request = static_cast<std::size_t>(state.range(1));
  const auto answer = static_cast<std::size_t>(state.range(2));
  const auto listener = Listen("127.0.0.1", 0);
  const auto port = LocalPort(listener->get());
  auto near = Connect("127.0.0.1", *port, kNever);
  if (!WaitReady(listener->get(), POLLIN, kNever)) return state.SkipWithError("no connection");
  std::thread server([&] {
    Stream stream(hami::base::Fd(::accept4(listener->get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
    if (tls && !stream.AcceptTls(*NewServerContext({{}, Certificate().certificate_pem}, {{}, Certificate().key_pem})))
      return;
    std::vector<char> buffer(32768);
    const std::string reply(answer, 'a');
    while (ReadAll(stream, buffer, request) && stream.Write(reply)) {
    }
  });
  {
    Stream stream(*std::move(near));
    ClientTls options;
    options.insecure = true;
    if (tls && !stream.ConnectTls(*NewClientContext(options), "127.0.0.1", false)) state.SkipWithError("handshake");
    std::vector<char> buffer(32768);
    const std::string question(request, 'q');
    clockid_t far{};
    ::pthread_getcpuclockid(server.native_handle(), &far);
    const double far_before = CpuMicros(far);
    const double near_before = CpuMicros(CLOCK_THREAD_CPUTIME_ID);
    for (auto _ : state) {
      if (!stream.Write(question) || !ReadAll(stream, buffer, answer)) state.SkipWithError("exchange failed");
    }
    const auto rounds = static_cast<double>(state.iterations());
    state.counters["server_us"] = (CpuMicros(far) - far_before) / rounds;
    state.counters["client_us"] = (CpuMicros(CLOCK_THREAD_CPUTIME_ID) - near_before) / rounds;
  }
  server.join();
}

void BM_Http(benchmark::State& state) {
  ServerOptions options;
  const std::string folder = "/tmp/net_bench." + std::to_string(::getpid());
  if (state.range(0) != 0) {
    std::ofstream(folder + ".crt") << Certificate().certificate_pem;
    std::ofstream(folder + ".key") << Certificate().key_pem;
    options.tls = TlsFiles{folder + ".crt", folder + ".key"};
  }
  const std::string reply(static_cast<std::size_t>(state.range(2)), 'a');
  const auto server = Server::Start(options, [&](const Request&) {
    return Response{200, {{"Content-Type", "application/json"}}, reply, {}};
  });
  ::unlink((folder + ".crt").c_str());
  ::unlink((folder + ".key").c_str());
  ClientOptions client_options;
  client_options.tls.insecure = true;
  const auto client = Client::Make(Url{options.tls.has_value(), "127.0.0.1", (*server)->port(), ""}, client_options);
  Call call;
  call.method = "POST";
  call.target = "/api/v1/namespaces/default/pods/p-1/binding";
  call.headers = {{"Accept", "application/json"}, {"User-Agent", "bench"}, {"Content-Type", "application/json"}};
  call.body = std::string(static_cast<std::size_t>(state.range(1)), 'q');
  double own = CpuMicros(CLOCK_THREAD_CPUTIME_ID);
  double all = CpuMicros(CLOCK_PROCESS_CPUTIME_ID);
  for (auto _ : state) {
    call.deadline = After(std::chrono::seconds(30));
    if (!(*client)->Send(call)) state.SkipWithError("exchange failed");
  }
  own = CpuMicros(CLOCK_THREAD_CPUTIME_ID) - own;
  all = CpuMicros(CLOCK_PROCESS_CPUTIME_ID) - all;
  const auto rounds = static_cast<double>(state.iterations());
  state.counters["server_us"] = (all - own) / rounds;
  state.counters["client_us"] = own / rounds;
}

// The exchanges of one placement by hami-scheduler: it serves the first three and asks the other three.
void Placement(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"tls", "request", "answer"})->UseRealTime();
  bench->Args({1, 10'500, 150});  // /filter, 500 names
  bench->Args({1, 96'000, 150});  // /filter, 5,000 names
  bench->Args({1, 200, 12});      // /bind
  bench->Args({0, 250, 2'800});   // PATCH of a node
  bench->Args({0, 900, 150});     // POST of a Binding
  bench->Args({0, 700, 800});     // POST of an event
}
BENCHMARK(BM_Bare)->Apply(Placement);
BENCHMARK(BM_Http)->Apply(Placement);

}  // namespace

BENCHMARK_MAIN();
