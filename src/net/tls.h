// SPDX-License-Identifier: Apache-2.0
//
// TLS settings as OpenSSL contexts. Owns the reading of certificates and keys, from files or memory, and their renewal:
// a ReloadingContext looks at its files at most once an interval and builds a new context when one changed (also by
// rename or by a swapped symbolic link, as kubelet updates a mounted Secret). A set of files that does not fit together
// is refused and the old context stays. TLS 1.2 is the least.

#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "net/error.h"
#include "net/time.h"

struct ssl_ctx_st;

namespace hami::net {

using TlsContext = std::shared_ptr<ssl_ctx_st>;

struct TlsFiles {
  std::string certificate;  // PEM chain, leaf first
  std::string key;          // PEM
};

// PEM text that is given directly or lies in a file; both empty: absent.
struct Pem {
  std::string file;  // where it lies; with DATA, where that is from, for errors
  std::string data;  // wins over file
  bool empty() const { return file.empty() && data.empty(); }
};

struct ClientTls {
  Pem ca;           // absent: the system's authorities
  Pem certificate;  // absent: no client certificate
  Pem key;
  std::string server_name;  // overrides the host name in the URL, for SNI and verification
  bool insecure = false;    // accepts any server certificate
  std::string suites;       // of TLS 1.3, as OpenSSL calls them, the best first; empty: OpenSSL's own order
};

Result<TlsContext> NewServerContext(const Pem& certificate, const Pem& key);
Result<TlsContext> NewClientContext(const ClientTls& options);

class ReloadingContext {
 public:
  using Build = std::function<Result<TlsContext>()>;

  // Fails when the first build does.
  static Result<std::unique_ptr<ReloadingContext>> Make(std::vector<std::string> files, Build build,
                                                        Duration interval = std::chrono::seconds(1));
  // The newest context that was ever good. Thread-safe.
  TlsContext Get(Deadline now = Clock::now());

 private:
  ReloadingContext(std::vector<std::string> files, Build build, Duration interval)
      : files_(std::move(files)), build_(std::move(build)), interval_(interval) {}
  std::string Stamp() const;

  const std::vector<std::string> files_;
  const Build build_;
  const Duration interval_;
  std::mutex mutex_;
  TlsContext context_;
  std::string stamp_;         // what the files looked like when context_ was built
  std::string failed_stamp_;  // and when a build failed last: said once, not every second
  Deadline next_look_{};
};

Result<std::unique_ptr<ReloadingContext>> ServeFrom(const TlsFiles& files, Duration interval);
Result<std::unique_ptr<ReloadingContext>> ConnectWith(const ClientTls& options);

// What OpenSSL's error queue of this thread holds, which is emptied.
std::string TakeTlsError();

}  // namespace hami::net
