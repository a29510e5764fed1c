// SPDX-License-Identifier: Apache-2.0
//
// What the server's tests share. Not part of any program.

#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "net/client.h"
#include "net/server.h"
#include "net/socket.h"
#include "net/stream.h"

namespace hami::net::server_testing {

inline Response Echo(const Request& request) { return {200, {{"X-Method", request.method}}, request.body, {}}; }

inline std::unique_ptr<Server> StartServer(Handler handler, ServerOptions options = {}) {
  auto server = Server::Start(options, std::move(handler));
  EXPECT_TRUE(server) << server.error().message;
  return server ? *std::move(server) : nullptr;
}

inline std::unique_ptr<Client> ClientOf(const Server& server, const ClientOptions& options = {}) {
  auto client = Client::Make({false, "127.0.0.1", server.port(), ""}, options);
  EXPECT_TRUE(client);
  return *std::move(client);
}

inline Call Post(std::string body) {
  Call call;
  call.method = "POST";
  call.body = std::move(body);
  return call;
}

// A connection that says exactly what the test says.
class RawClient {
 public:
  explicit RawClient(const Server& server) : stream_(Connected(server)) {
    stream_.set_deadline(After(std::chrono::seconds(10)));
  }
  bool Say(std::string_view text) { return stream_.Write(text).has_value(); }
  // Everything until the server closes.
  std::string Hear() {
    std::string heard;
    std::array<char, 4096> buffer;
    while (true) {
      const auto got = stream_.Read(buffer);
      if (!got || *got == 0) return heard;
      heard.append(buffer.data(), *got);
    }
  }
  std::string HearSome() {
    std::array<char, 4096> buffer;
    const auto got = stream_.Read(buffer);
    return std::string(buffer.data(), got ? *got : 0);
  }

 private:
  static base::Fd Connected(const Server& server) {
    auto fd = Connect("127.0.0.1", server.port(), After(std::chrono::seconds(10)));
    EXPECT_TRUE(fd);
    return fd ? *std::move(fd) : base::Fd();
  }
  Stream stream_;
};

}  // namespace hami::net::server_testing
