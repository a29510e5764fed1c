// SPDX-License-Identifier: Apache-2.0

#include "net/stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "net/socket.h"

namespace hami::net {
namespace {

// OpenSSL's own socket BIO writes with write(2), which raises SIGPIPE when the peer is gone. A library has no business
// changing the program's signal handling, so this BIO uses send(2) with MSG_NOSIGNAL.
int DescriptorOf(BIO* bio) { return static_cast<const base::Fd*>(BIO_get_data(bio))->get(); }

int BioWrite(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const auto put = ::send(DescriptorOf(bio), bytes, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  if (put < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(put);
}

int BioRead(BIO* bio, char* into, int size) {
  BIO_clear_retry_flags(bio);
  const auto got = ::recv(DescriptorOf(bio), into, static_cast<std::size_t>(size), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(got);
}

long BioControl(BIO* bio, int command, long /*number*/, void* /*pointer*/) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) == 0 ? 0 : 1;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* SocketMethod() {
  // Made once, never destroyed: connections may outlive static destructors.
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hami socket");
    BIO_meth_set_write(made, BioWrite);
    BIO_meth_set_read(made, BioRead);
    BIO_meth_set_ctrl(made, BioControl);
    return made;
  }();
  return method;
}

// What others left there would be taken for the next call's. Mostly there is nothing, and to see that costs less.
void ForgetErrors() {
  if (ERR_peek_error() != 0) ERR_clear_error();
}

// A session over FD, which must stay where it is.
SSL* NewSession(const TlsContext& context, base::Fd* fd) {
  SSL* tls = SSL_new(context.get());
  BIO* bio = BIO_new(SocketMethod());
  if (tls == nullptr || bio == nullptr) {
    SSL_free(tls);
    BIO_free(bio);
    return nullptr;
  }
  BIO_set_data(bio, fd);
  BIO_set_init(bio, 1);
  SSL_set_bio(tls, bio, bio);
  return tls;
}

}  // namespace

Stream::Stream(base::Fd fd) : fd_(std::move(fd)), tls_(nullptr, SSL_free) {}

Stream::~Stream() {
  if (tls_ && !broken_ && SSL_is_init_finished(tls_.get()) != 0) SSL_shutdown(tls_.get());
  ERR_clear_error();
}

Status Stream::AcceptTls(const TlsContext& context) {
  if (!tls_) tls_.reset(NewSession(context, &fd_));
  if (!tls_) return Fail(Cause::kTls, "no TLS session: " + TakeTlsError());
  return Handshake(SSL_accept, "TLS handshake failed");
}

Status Stream::ConnectTls(const TlsContext& context, const std::string& host, bool verify) {
  tls_.reset(NewSession(context, &fd_));
  if (!tls_) return Fail(Cause::kTls, "no TLS session: " + TakeTlsError());
  const bool address = IsNumericAddress(host);
  if (!address) SSL_set_tlsext_host_name(tls_.get(), host.c_str());
  if (verify) {
    const int set = address ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_.get()), host.c_str())
                            : SSL_set1_host(tls_.get(), host.c_str());
    if (set != 1) return Fail(Cause::kTls, "not a host name that can be verified: " + host);
  }
  return Handshake(SSL_connect, "TLS handshake failed");
}

Status Stream::Handshake(int (*step)(ssl_st*), const char* what) {
  while (true) {
    ERR_clear_error();
    const int result = step(tls_.get());
    if (result == 1) return {};
    auto again = WaitForTls(result, what);
    if (!again) return tl::unexpected(again.error());
    if (!*again) return Fail(Cause::kClosed, std::string(what) + ": the peer closed the connection");
  }
}

Result<bool> Stream::WaitForTls(int result, const char* what) {
  switch (SSL_get_error(tls_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      HAMI_NET_TRY(WaitReady(fd_.get(), POLLIN, deadline_, canceller_));
      return true;
    case SSL_ERROR_WANT_WRITE:
      HAMI_NET_TRY(WaitReady(fd_.get(), POLLOUT, deadline_, canceller_));
      return true;
    case SSL_ERROR_ZERO_RETURN:
      return false;
    case SSL_ERROR_SYSCALL:
      broken_ = true;
      return Fail(Cause::kClosed, std::string(what) + ": " + std::strerror(errno == 0 ? ECONNRESET : errno));
    default:
      break;
  }
  broken_ = true;
  const long verdict = SSL_get_verify_result(tls_.get());
  std::string why = TakeTlsError();
  if (verdict != X509_V_OK) why += std::string(" (") + X509_verify_cert_error_string(verdict) + ")";
  const bool cut = why.find("unexpected eof") != std::string::npos;
  return Fail(cut ? Cause::kClosed : Cause::kTls, std::string(what) + ": " + why);
}

Result<std::size_t> Stream::Read(std::span<char> into) {
  while (true) {
    if (tls_) {
      ForgetErrors();
      std::size_t got = 0;
      const int result = SSL_read_ex(tls_.get(), into.data(), into.size(), &got);
      if (result == 1) return got;
      auto again = WaitForTls(result, "read");
      if (!again) return tl::unexpected(again.error());
      if (!*again) return std::size_t{0};
      continue;
    }
    const auto got = ::recv(fd_.get(), into.data(), into.size(), 0);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return Fail(Cause::kClosed, std::string("read: ") + std::strerror(errno));
    HAMI_NET_TRY(WaitReady(fd_.get(), POLLIN, deadline_, canceller_));
  }
}

Status Stream::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    if (tls_) {
      ForgetErrors();
      std::size_t put = 0;
      const int result = SSL_write_ex(tls_.get(), bytes.data(), bytes.size(), &put);
      if (result == 1) {
        bytes.remove_prefix(put);
        continue;
      }
      auto again = WaitForTls(result, "write");
      if (!again) return tl::unexpected(again.error());
      if (!*again) return Fail(Cause::kClosed, "write: the peer closed the connection");
      continue;
    }
    const auto put = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (put >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(put));
    } else if (errno == EAGAIN) {
      HAMI_NET_TRY(WaitReady(fd_.get(), POLLOUT, deadline_, canceller_));
    } else if (errno != EINTR) {
      return Fail(Cause::kClosed, std::string("write: ") + std::strerror(errno));
    }
  }
  return {};
}

Status Stream::WaitReadable(Deadline deadline, const Canceller* canceller) const {
  // Also what has been read ahead and is not decrypted yet: the socket tells nothing about it.
  if (tls_ && SSL_has_pending(tls_.get()) != 0) return {};
  return WaitReady(fd_.get(), POLLIN, deadline, canceller);
}

bool Stream::PeerGone() const { return WaitReady(fd_.get(), POLLRDHUP, Deadline{}).has_value(); }

void Stream::Drain(Deadline deadline) {
  if (tls_ && !broken_) SSL_shutdown(tls_.get());
  broken_ = true;
  ::shutdown(fd_.get(), SHUT_WR);
  std::array<char, 16384> swallowed;
  while (true) {
    const auto got = ::recv(fd_.get(), swallowed.data(), swallowed.size(), 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;
    // Also between reads: a peer that keeps sending must not keep us.
    if (got > 0 && Clock::now() < deadline) continue;
    if (!WaitReady(fd_.get(), POLLIN, deadline, canceller_) || Clock::now() >= deadline) return;
  }
}

}  // namespace hami::net
