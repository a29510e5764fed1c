// SPDX-License-Identifier: Apache-2.0

#include "net/tls.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <future>

#include "base/log.h"
#include "net/client.h"
#include "net/server.h"
#include "net/socket.h"
#include "net/stream.h"
#include "net/testing/certificates.h"

namespace hami::net {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class Tls : public ::testing::Test {
 protected:
  Tls() {
    std::string path = ::testing::TempDir() + "/hami-tls-XXXXXX";
    folder_ = ::mkdtemp(path.data());
  }
  ~Tls() override { fs::remove_all(folder_); }

  // As kubelet does: a new folder, and a link that changes in one step.
  void Install(const TestCertificate& certificate) {
    const fs::path version = folder_ / ("v" + std::to_string(++version_));
    fs::create_directory(version);
    std::ofstream(version / "tls.crt") << certificate.certificate_pem;
    std::ofstream(version / "tls.key") << certificate.key_pem;
    fs::create_symlink(version, folder_ / "next");
    fs::rename(folder_ / "next", folder_ / "..data");
    if (version_ > 1) return;
    fs::create_symlink("..data/tls.crt", folder_ / "tls.crt");
    fs::create_symlink("..data/tls.key", folder_ / "tls.key");
  }
  TlsFiles files() const { return {folder_ / "tls.crt", folder_ / "tls.key"}; }

  std::unique_ptr<Server> StartServer(ServerOptions options = {}) {
    options.tls = files();
    options.tls_look_interval = Duration::zero();
    auto server = Server::Start(options, [](const Request& request) { return Response{200, {}, request.body, {}}; });
    EXPECT_TRUE(server) << server.error().message;
    return *std::move(server);
  }

  // One request on a connection of its own.
  static Result<Response> Ask(const Server& server, const ClientTls& tls, const std::string& host = "127.0.0.1",
                              std::string body = {}) {
    ClientOptions options;
    options.tls = tls;
    const auto client = Client::Make({true, host, server.port(), ""}, options);
    if (!client) return tl::unexpected(client.error());
    Call call;
    call.method = "POST";
    call.body = std::move(body);
    return (*client)->Send(call);
  }

  ClientTls Trusting(const TestAuthority& authority) const {
    ClientTls tls;
    tls.ca.data = authority.certificate_pem();
    return tls;
  }

  fs::path folder_;
  int version_ = 0;
  TestAuthority authority_;
};

TEST_F(Tls, GivenTrustedCertificate_WhenAddressOrNameUsed_ThenAccepted) {
  Install(authority_.Issue("server", "DNS:localhost,IP:127.0.0.1"));
  const auto server = StartServer();
  const auto by_address = Ask(*server, Trusting(authority_), "127.0.0.1", "hello");
  ASSERT_TRUE(by_address) << by_address.error().message;
  EXPECT_EQ(by_address->body, "hello");
  const auto by_name = Ask(*server, Trusting(authority_), "localhost");
  EXPECT_TRUE(by_name) << by_name.error().message;
}

TEST_F(Tls, GivenLargeBodiesWhenEchoedThenEveryByteComesBack) {
  Install(authority_.Issue("server", "IP:127.0.0.1"));
  const auto server = StartServer();
  const std::string body(3U << 20U, 'z');
  const auto response = Ask(*server, Trusting(authority_), "127.0.0.1", body);
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_TRUE(response->body == body);
}

TEST_F(Tls, GivenAClientsOrderOfSuitesWhenGreetedThenItsFirstIsTaken) {
  const TestCertificate certificate = authority_.Issue("here", "IP:127.0.0.1");
  const auto server = NewServerContext({{}, certificate.certificate_pem}, {{}, certificate.key_pem});
  ASSERT_TRUE(server);
  ClientTls options;
  options.insecure = true;
  for (const std::string first : {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"}) {
    options.suites = first + ":TLS_CHACHA20_POLY1305_SHA256";
    const auto client = NewClientContext(options);
    ASSERT_TRUE(client);
    const std::unique_ptr<SSL, decltype(&SSL_free)> near(SSL_new(client->get()), SSL_free);
    const std::unique_ptr<SSL, decltype(&SSL_free)> far(SSL_new(server->get()), SSL_free);
    BIO* ours = nullptr;
    BIO* theirs = nullptr;
    ASSERT_EQ(BIO_new_bio_pair(&ours, 0, &theirs, 0), 1);
    SSL_set_bio(near.get(), ours, ours);
    SSL_set_bio(far.get(), theirs, theirs);
    for (int step = 0; step < 3; ++step) {
      SSL_connect(near.get());
      SSL_accept(far.get());
    }
    EXPECT_EQ(SSL_get_cipher_name(near.get()), first);
  }
  options.suites = "TLS_OF_NOBODY";
  EXPECT_FALSE(NewClientContext(options));
}

TEST_F(Tls, GivenTwoRecordsTogether_WhenOneIsRead_ThenOtherIsAnnounced) {
  const TestCertificate certificate = authority_.Issue("here", "IP:127.0.0.1");
  const auto listener = Listen("127.0.0.1", 0);
  auto connected = Connect("127.0.0.1", *LocalPort(listener->get()), After(30s));
  ASSERT_TRUE(connected);
  ASSERT_TRUE(WaitReady(listener->get(), POLLIN, After(30s)));
  Stream near(*std::move(connected));
  Stream far(base::Fd(::accept4(listener->get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
  const auto context = NewServerContext({{}, certificate.certificate_pem}, {{}, certificate.key_pem});
  ASSERT_TRUE(context);
  auto greeted = std::async(std::launch::async, [&] { return far.AcceptTls(*context); });
  ClientTls options;
  options.insecure = true;
  ASSERT_TRUE(near.ConnectTls(*NewClientContext(options), "127.0.0.1", false));
  ASSERT_TRUE(greeted.get());

  ASSERT_TRUE(near.Write("first"));
  ASSERT_TRUE(near.Write("second"));
  constexpr int kLeastBytes = 5 + 6 + 2 * (5 + 1 + 16);  // the texts, and of each record head, type and seal
  for (int waiting = 0; waiting < kLeastBytes;) ASSERT_EQ(::ioctl(far.fd(), FIONREAD, &waiting), 0);
  std::array<char, 64> buffer{};
  EXPECT_EQ(far.Read(buffer), 5U);
  EXPECT_TRUE(far.ReadableNow());
  EXPECT_EQ(far.Read(buffer), 6U);
  EXPECT_FALSE(far.ReadableNow());
}

TEST_F(Tls, GivenStrangersCertificate_ThenRefusedUnlessInsecure) {
  TestAuthority stranger;
  Install(stranger.Issue("server", "IP:127.0.0.1"));
  const auto server = StartServer();
  const auto refused = Ask(*server, Trusting(authority_));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().cause, Cause::kTls);
  ClientTls careless = Trusting(authority_);
  careless.insecure = true;
  EXPECT_TRUE(Ask(*server, careless));
}

TEST_F(Tls, GivenCertificateForAnotherName_ThenRefusedUnlessNamed) {
  Install(authority_.Issue("server", "DNS:other.example"));
  const auto server = StartServer();
  EXPECT_FALSE(Ask(*server, Trusting(authority_)));
  ClientTls named = Trusting(authority_);
  named.server_name = "other.example";
  EXPECT_TRUE(Ask(*server, named));
}

TEST_F(Tls, GivenNewFiles_WhenNextConnectionComes_ThenNewCertificate) {
  TestAuthority next;
  Install(authority_.Issue("server", "IP:127.0.0.1"));
  const auto server = StartServer();
  ASSERT_TRUE(Ask(*server, Trusting(authority_)));
  Install(next.Issue("server", "IP:127.0.0.1"));
  const auto response = Ask(*server, Trusting(next));
  EXPECT_TRUE(response) << response.error().message;
  EXPECT_FALSE(Ask(*server, Trusting(authority_)));
}

TEST_F(Tls, GivenMismatchedFiles_WhenTheyAppear_ThenOldCertificateStays) {
  const auto good = authority_.Issue("server", "IP:127.0.0.1");
  Install(good);
  const auto server = StartServer();
  const auto other = authority_.Issue("server", "IP:127.0.0.1");
  Install({other.certificate_pem, good.key_pem});
  EXPECT_TRUE(Ask(*server, Trusting(authority_)));
  Install({"not a certificate", "not a key"});
  EXPECT_TRUE(Ask(*server, Trusting(authority_)));
  fs::remove(folder_ / "..data");
  EXPECT_TRUE(Ask(*server, Trusting(authority_)));
}

TEST_F(Tls, GivenTheLookIntervalWhenItHasNotPassedThenFilesAreLeftAlone) {
  Install(authority_.Issue("server", "IP:127.0.0.1"));
  int builds = 0;
  const auto context = ReloadingContext::Make(
      {files().certificate},
      [&] {
        ++builds;
        return NewClientContext({});
      },
      1h);
  ASSERT_TRUE(context);
  Install(authority_.Issue("server", "IP:127.0.0.1"));
  (*context)->Get();
  EXPECT_EQ(builds, 1);
  (*context)->Get(Clock::now() + 2h);
  EXPECT_EQ(builds, 2);
  (*context)->Get(Clock::now() + 4h);
  EXPECT_EQ(builds, 2);
}

TEST_F(Tls, GivenMissingOrMismatchedFiles_ThenServerDoesNotStart) {
  ServerOptions options;
  options.tls = files();
  EXPECT_FALSE(Server::Start(options, {}));
  const auto one = authority_.Issue("one", "IP:127.0.0.1");
  const auto two = authority_.Issue("two", "IP:127.0.0.1");
  EXPECT_FALSE(NewServerContext({{}, one.certificate_pem}, {{}, two.key_pem}));
  EXPECT_FALSE(NewServerContext({}, {}));
  EXPECT_TRUE(NewServerContext({{}, one.certificate_pem}, {{}, one.key_pem}));
}

TEST_F(Tls, GivenUnusableFiles_WhenRead_ThenErrorNamesTheFileAtFault) {
  const auto one = authority_.Issue("one", "IP:127.0.0.1");
  const auto two = authority_.Issue("two", "IP:127.0.0.1");
  const auto said = [&](const TestCertificate& pair) {
    Install(pair);
    const auto made = ServeFrom(files(), Duration::zero());
    return made ? std::string() : made.error().message;
  };
  EXPECT_EQ(said(one), "");
  EXPECT_EQ(said({"garbage", one.key_pem}).rfind(files().certificate + " holds no readable certificate: ", 0), 0U);
  EXPECT_EQ(said({one.certificate_pem + "-----BEGIN CERTIFICATE-----\n!\n", one.key_pem})
                .rfind(files().certificate + " holds no readable certificate: ", 0),
            0U);
  EXPECT_EQ(said({one.certificate_pem, "garbage"}).rfind(files().key + " holds no readable private key: ", 0), 0U);
  EXPECT_EQ(said({one.certificate_pem, two.key_pem})
                .rfind("the private key in " + files().key + " does not belong to the certificate in " +
                           files().certificate + ": ",
                       0),
            0U);

  ClientTls tls;
  tls.ca.file = folder_ / "ca.crt";
  std::ofstream(tls.ca.file) << "garbage";
  const auto refused = ConnectWith(tls);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message.rfind(tls.ca.file + " holds no readable certificate: ", 0), 0U)
      << refused.error().message;
  tls.ca.data = "garbage";
  tls.ca.file = "certificate-authority-data of /home/me/.kube/config";
  EXPECT_EQ(ConnectWith(tls).error().message.rfind(tls.ca.file + " holds no readable certificate: ", 0), 0U);
}

TEST_F(Tls, GivenFileTurnedToGarbage_WhenLookedAt_ThenWarningNamesIt) {
  Install(authority_.Issue("server", "IP:127.0.0.1"));
  const auto context = ServeFrom(files(), Duration::zero());
  ASSERT_TRUE(context);
  Install({"garbage", "garbage"});
  base::StartLog("test");
  testing::internal::CaptureStderr();
  (*context)->Get();
  (*context)->Get();
  const std::string said = testing::internal::GetCapturedStderr();
  const std::string wanted = "keeping the previous TLS certificate: " + files().certificate + " holds no readable";
  EXPECT_NE(said.find(wanted), std::string::npos) << said;
  EXPECT_EQ(said.find(wanted), said.rfind(wanted)) << "once, not at every look: " << said;
}

TEST_F(Tls, GivenPlainHttpOnATlsPortWhenHeardThenTheServerGoesOn) {
  Install(authority_.Issue("server", "IP:127.0.0.1"));
  const auto server = StartServer();
  const auto plain = Client::Make({false, "127.0.0.1", server->port(), ""}, {});
  EXPECT_FALSE((*plain)->Send({}));
  EXPECT_TRUE(Ask(*server, Trusting(authority_)));
}

TEST_F(Tls, GivenSlowHandshakesAndBodies_ThenTheyHoldNoThread) {
  Install(authority_.Issue("server", "IP:127.0.0.1"));
  ServerOptions one;
  one.max_threads = 1;
  const auto server = StartServer(one);
  const auto connect = [&] { return std::make_unique<Stream>(*Connect("127.0.0.1", server->port(), After(30s))); };
  std::vector<std::unique_ptr<Stream>> slow;
  for (int i = 0; i < 5; ++i) {
    slow.push_back(connect());
    ASSERT_TRUE(slow.back()->Write(std::string_view("\x16\x03\x01\x02\x00\x01", 6)));
  }
  ClientTls options;
  options.insecure = true;
  const auto context = NewClientContext(options);
  slow.push_back(connect());
  ASSERT_TRUE(slow.back()->ConnectTls(*context, "127.0.0.1", false));
  const Deadline start = Clock::now();
  for (const char* piece : {"POST / HTTP/1.1\r\nContent-", "Length: 4\r\n\r\na", "b", "cd"}) {
    ASSERT_TRUE(slow.back()->Write(piece));
    std::this_thread::sleep_for(50ms);  // one thread waits for 20
    EXPECT_TRUE(Ask(*server, Trusting(authority_)));
  }
  EXPECT_LT(Clock::now() - start, 10s);
  std::array<char, 4096> buffer{};
  const auto got = slow.back()->Read(buffer);
  ASSERT_TRUE(got);
  EXPECT_TRUE(std::string_view(buffer.data(), *got).ends_with("\r\n\r\nabcd"));
}

TEST_F(Tls, GivenKeepAlive_WhenManyRequestsFollow_ThenOnlyOneHandshake) {
  Install(authority_.Issue("server", "IP:127.0.0.1"));
  const auto server = StartServer();
  ClientOptions options;
  options.tls = Trusting(authority_);
  const auto client = *Client::Make({true, "127.0.0.1", server->port(), ""}, options);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client->Send({}));
  EXPECT_EQ(server->counters().connections, 1U);
}

}  // namespace
}  // namespace hami::net
