// SPDX-License-Identifier: Apache-2.0
//
// Stream: one TCP connection, plain or TLS. Owns the descriptor and the TLS session. Reads and writes block the calling
// thread until the stream's deadline at the latest, or until its Canceller is thrown. Used by one thread at a time.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "net/cancel.h"
#include "net/error.h"
#include "net/time.h"
#include "net/tls.h"

struct ssl_st;

namespace hami::net {

class Stream {
 public:
  explicit Stream(base::Fd fd);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  // Says goodbye where that costs nothing (one TLS alert into the socket buffer).
  ~Stream();

  // Goes on where a call before it ran out of time.
  Status AcceptTls(const TlsContext& context);
  // Verifies the server against HOST (name or address) unless VERIFY is false.
  Status ConnectTls(const TlsContext& context, const std::string& host, bool verify);

  // Apply to every later call until set again.
  void set_deadline(Deadline deadline) { deadline_ = deadline; }
  void set_canceller(const Canceller* canceller) { canceller_ = canceller; }

  // At least one byte, or 0 at the peer's orderly end.
  Result<std::size_t> Read(std::span<char> into);
  Status Write(std::string_view bytes);

  // Bytes or the end are there to read.
  Status WaitReadable(Deadline deadline, const Canceller* canceller) const;
  // Without waiting: would a read return at once?
  bool ReadableNow() const { return WaitReadable(Deadline{}, nullptr).has_value(); }
  // The peer has ended its side, or the connection broke; whether or not there is still something to read.
  bool PeerGone() const;
  // Ends our side and swallows, until DEADLINE, what the peer still sends: closing a socket with unread input would
  // destroy the answer on its way.
  void Drain(Deadline deadline);

  int fd() const { return fd_.get(); }

 private:
  Status Handshake(int (*step)(ssl_st*), const char* what);
  // After a TLS call that could not go on: waits for what it needs, or explains the failure. True: try again.
  Result<bool> WaitForTls(int result, const char* what);

  base::Fd fd_;
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> tls_;
  Deadline deadline_ = kNever;
  const Canceller* canceller_ = nullptr;
  bool broken_ = false;  // no goodbye after a failure: OpenSSL forbids it
};

}  // namespace hami::net
