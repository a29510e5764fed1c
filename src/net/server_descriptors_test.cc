// SPDX-License-Identifier: Apache-2.0
//
// A server in a process that has no more descriptors.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "net/testing/server.h"

namespace hami::net {
namespace {

using namespace std::chrono_literals;
using namespace server_testing;

// Every number that a descriptor may have, but for ROOM of them, is in use.
class FewDescriptors {
 public:
  explicit FewDescriptors(int room) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit few{256, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    while (true) {
      base::Fd one(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
      if (!one) break;
      taken_.push_back(std::move(one));
    }
    taken_.resize(taken_.size() - static_cast<std::size_t>(room));
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
  std::vector<base::Fd> taken_;
};

base::Fd NewSocket() { return base::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
// Through the kernel's queue, which needs no descriptor of ours.
std::unique_ptr<Stream> ConnectedTo(const Server& server, base::Fd fd) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(server.port());
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
  auto stream = std::make_unique<Stream>(std::move(fd));
  stream->set_deadline(After(10s));
  return stream;
}

TEST(Server, GivenLastDescriptor_WhenClientIsSlow_ThenNotCutAndOneLogLine) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer looks at memory through a pipe, and takes it for bad where there is no descriptor";
#endif
  const auto server = StartServer(Echo);
  base::Fd first_fd = NewSocket();
  base::Fd second_fd = NewSocket();
  base::StartLog("test", base::LogLevel::kWarning);
  ::testing::internal::CaptureStderr();
  std::array<char, 4096> buffer{};
  {
    const FewDescriptors few(1);
    const auto first = ConnectedTo(*server, std::move(first_fd));
    std::this_thread::sleep_for(50ms);
    const auto second = ConnectedTo(*server, std::move(second_fd));
    std::this_thread::sleep_for(200ms);
    for (Stream* stream : {first.get(), second.get()}) {
      EXPECT_TRUE(stream->Write("GET / HTTP/1.1\r\n\r\n"));
      const auto got = stream->Read(buffer);
      EXPECT_TRUE(got && std::string_view(buffer.data(), *got).starts_with("HTTP/1.1 200")) << (stream == first.get());
    }
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  base::StartLog("test", base::LogLevel::kOff);
  EXPECT_NE(log.find("can not accept"), std::string::npos);
  EXPECT_EQ(log.find("can not accept"), log.rfind("can not accept")) << log;
}

}  // namespace
}  // namespace hami::net
