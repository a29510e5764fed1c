// SPDX-License-Identifier: Apache-2.0

#include "net/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/watched_file.h"

namespace hami::net {
namespace {

constexpr std::size_t kMostPemBytes = 4U << 20U;
// A read takes what there is, up to two records: their heads and bodies one by one would be four system calls.
constexpr std::size_t kReadAheadBytes = 36U << 10U;

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* item) const {
    Free(item);
  }
};
using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;

tl::unexpected<Error> TlsFailure(const std::string& what) { return Fail(Cause::kTls, what + ": " + TakeTlsError()); }

// An encrypted key must fail, not ask for its pass phrase on a terminal.
int NoPassPhrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*user*/) { return 0; }

Bio Reader(const std::string& text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

// What a Pem holds, and what errors call it.
struct Text {
  std::string name;
  std::string pem;
};

Result<Text> Read(const Pem& pem, const char* what) {
  if (!pem.data.empty() || pem.file.empty()) return Text{pem.file.empty() ? what : pem.file, pem.data};
  auto text = base::ReadLinkedFile(pem.file, kMostPemBytes);
  if (!text) return Fail(Cause::kTls, text.error().message);
  return Text{pem.file, *std::move(text)};
}

Result<std::vector<Certificate>> ReadCertificates(const Text& text) {
  ERR_clear_error();
  const Bio bio = Reader(text.pem);
  std::vector<Certificate> chain;
  while (X509* next = PEM_read_bio_X509_AUX(bio.get(), nullptr, NoPassPhrase, nullptr)) chain.emplace_back(next);
  // Running out of blocks is how a chain ends; anything else is damage.
  const auto error = ERR_peek_last_error();
  if (chain.empty() || (ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) != PEM_R_NO_START_LINE)) {
    return TlsFailure(text.name + " holds no readable certificate");
  }
  ERR_clear_error();
  return chain;
}

Status UseCertificate(SSL_CTX* context, const Pem& certificate_pem, const Pem& key_pem) {
  const auto certificate = Read(certificate_pem, "the certificate");
  if (!certificate) return tl::unexpected(certificate.error());
  const auto key_text = Read(key_pem, "the key");
  if (!key_text) return tl::unexpected(key_text.error());
  auto chain = ReadCertificates(*certificate);
  if (!chain) return tl::unexpected(chain.error());
  if (SSL_CTX_use_certificate(context, chain->front().get()) != 1) return TlsFailure(certificate->name + " is refused");
  for (std::size_t i = 1; i < chain->size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, (*chain)[i].get()) != 1) {
      return TlsFailure("the chain in " + certificate->name + " is refused");
    }
  }
  const Bio bio = Reader(key_text->pem);
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassPhrase, nullptr));
  if (!key) return TlsFailure(key_text->name + " holds no readable private key");
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1) {
    return TlsFailure("the private key in " + key_text->name + " does not belong to the certificate in " +
                      certificate->name);
  }
  return {};
}

Status TrustAuthorities(SSL_CTX* context, const Pem& pem) {
  const auto text = Read(pem, "the CA bundle");
  if (!text) return tl::unexpected(text.error());
  auto authorities = ReadCertificates(*text);
  if (!authorities) return tl::unexpected(authorities.error());
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  for (const Certificate& authority : *authorities) {
    if (X509_STORE_add_cert(store, authority.get()) != 1) return TlsFailure("a CA in " + text->name + " is refused");
  }
  return {};
}

Result<TlsContext> NewContext(const SSL_METHOD* method) {
  TlsContext context(SSL_CTX_new(method), SSL_CTX_free);
  if (!context) return TlsFailure("no TLS context");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // Writes are resumed by our own loop, possibly from a moved buffer.
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_default_read_buffer_len(context.get(), kReadAheadBytes);
  return context;
}

}  // namespace

std::string TakeTlsError() {
  std::string text;
  while (const auto code = ERR_get_error()) {
    const char* reason = ERR_reason_error_string(code);
    text += (text.empty() ? "" : "; ") + (reason == nullptr ? std::to_string(code) : std::string(reason));
  }
  return text.empty() ? "no reason given" : text;
}

Result<TlsContext> NewServerContext(const Pem& certificate, const Pem& key) {
  auto context = NewContext(TLS_server_method());
  if (!context) return context;
  HAMI_NET_TRY(UseCertificate(context->get(), certificate, key));
  // One name for all sessions of this program; resumption across a certificate change is harmless.
  static constexpr unsigned char kSessionName[] = "hami";
  SSL_CTX_set_session_id_context(context->get(), kSessionName, sizeof kSessionName - 1);
  return context;
}

Result<TlsContext> NewClientContext(const ClientTls& options) {
  auto context = NewContext(TLS_client_method());
  if (!context) return context;
  SSL_CTX* raw = context->get();
  if (!options.suites.empty() && SSL_CTX_set_ciphersuites(raw, options.suites.c_str()) != 1) {
    return TlsFailure("the suites " + options.suites + " are refused");
  }
  SSL_CTX_set_verify(raw, options.insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);
  if (options.ca.empty()) {
    SSL_CTX_set_default_verify_paths(raw);
  } else {
    HAMI_NET_TRY(TrustAuthorities(raw, options.ca));
  }
  if (!options.certificate.empty()) HAMI_NET_TRY(UseCertificate(raw, options.certificate, options.key));
  return context;
}

Result<std::unique_ptr<ReloadingContext>> ReloadingContext::Make(std::vector<std::string> files, Build build,
                                                                 Duration interval) {
  std::unique_ptr<ReloadingContext> made(new ReloadingContext(std::move(files), std::move(build), interval));
  // The stamp is taken before the files are read: a change in between is seen as one later.
  made->stamp_ = made->Stamp();
  auto context = made->build_();
  if (!context) return tl::unexpected(context.error());
  made->context_ = *std::move(context);
  made->next_look_ = Clock::now() + interval;
  return made;
}

TlsContext ReloadingContext::Get(Deadline now) {
  const std::scoped_lock lock(mutex_);
  if (now < next_look_ || files_.empty()) return context_;
  next_look_ = now + interval_;
  std::string stamp = Stamp();
  if (stamp == stamp_) return context_;
  auto fresh = build_();
  if (fresh) {
    context_ = *std::move(fresh);
    stamp_ = std::move(stamp);
    failed_stamp_.clear();
  } else if (stamp != failed_stamp_) {
    base::LogWarning("keeping the previous TLS certificate: " + fresh.error().message);
    failed_stamp_ = std::move(stamp);
  }
  return context_;
}

std::string ReloadingContext::Stamp() const {
  std::string stamp;
  for (const std::string& file : files_) stamp += base::FileStamp(file) + " ";
  return stamp;
}

Result<std::unique_ptr<ReloadingContext>> ServeFrom(const TlsFiles& files, Duration interval) {
  return ReloadingContext::Make(
      {files.certificate, files.key},
      [files] {
        return NewServerContext({files.certificate, {}}, {files.key, {}});
      },
      interval);
}

Result<std::unique_ptr<ReloadingContext>> ConnectWith(const ClientTls& options) {
  std::vector<std::string> files;
  for (const Pem* pem : {&options.ca, &options.certificate, &options.key}) {
    if (pem->data.empty() && !pem->file.empty()) files.push_back(pem->file);
  }
  return ReloadingContext::Make(std::move(files), [options] { return NewClientContext(options); });
}

}  // namespace hami::net
