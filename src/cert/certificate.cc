// SPDX-License-Identifier: Apache-2.0

#include "cert/certificate.h"

#include <arpa/inet.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/strings.h"
#include "net/tls.h"

namespace hami::cert {
namespace {

using base::Fail;
using base::Result;

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* thing) const {
    Free(thing);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Bio = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using Store = std::unique_ptr<X509_STORE, Freer<X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, Freer<X509_STORE_CTX_free>>;

// More authorities than any rotation leaves behind; a text with more is cut there.
constexpr std::size_t kMostAuthorities = 16;

tl::unexpected<base::Error> FailTls(const std::string& what) { return Fail(what + ": " + net::TakeTlsError()); }

Bio Reading(std::string_view text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

template <typename Write>
Result<std::string> ToPem(Write write) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (!bio || write(bio.get()) != 1) return FailTls("cannot write PEM");
  char* text = nullptr;
  const auto size = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<std::size_t>(size));
}

Result<std::string> ToPem(X509* certificate) {
  return ToPem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

bool IsAddress(const std::string& name) {
  std::array<unsigned char, 16> bytes{};
  return inet_pton(AF_INET, name.c_str(), bytes.data()) == 1 || inet_pton(AF_INET6, name.c_str(), bytes.data()) == 1;
}

bool Extend(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  if (extension == nullptr) return false;
  const bool added = X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

bool SetSerial(X509* certificate) {
  const std::unique_ptr<BIGNUM, Freer<BN_free>> number(BN_new());
  return number && BN_rand(number.get(), 127, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

struct Life {
  std::time_t from;
  std::time_t until;
};

Certificate Blank(EVP_PKEY* key, const std::string& common_name, const Life& life) {
  Certificate made(X509_new());
  const auto* name = reinterpret_cast<const unsigned char*>(common_name.c_str());
  const bool good =
      made && X509_set_version(made.get(), X509_VERSION_3) == 1 && SetSerial(made.get()) &&
      ASN1_TIME_set(X509_getm_notBefore(made.get()), life.from) != nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(made.get()), life.until) != nullptr && X509_set_pubkey(made.get(), key) == 1 &&
      X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_UTF8, name, -1, -1, 0) == 1;
  if (!good) made.reset();
  return made;
}

// An authority's name is its own, so that several in one bundle are never taken for each other.
Result<std::string> AuthorityName() {
  std::array<unsigned char, 8> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) return FailTls("no random numbers");
  std::string name = "hami webhook authority ";
  for (const unsigned char byte : bytes) {
    for (const int digit : {byte >> 4, byte & 15}) name += "0123456789abcdef"[digit];
  }
  return name;
}

bool FinishAuthority(X509* own, EVP_PKEY* key) {
  return X509_set_issuer_name(own, X509_get_subject_name(own)) == 1 &&
         Extend(own, own, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
         Extend(own, own, NID_key_usage, "critical,keyCertSign") &&
         Extend(own, own, NID_subject_key_identifier, "hash") && X509_sign(own, key, EVP_sha256()) > 0;
}

bool FinishServer(X509* server, X509* authority, EVP_PKEY* key, const std::vector<std::string>& names) {
  std::string alternatives;
  for (const std::string& name : names) {
    alternatives += (alternatives.empty() ? "" : ",") + std::string(IsAddress(name) ? "IP:" : "DNS:") + name;
  }
  return X509_set_issuer_name(server, X509_get_subject_name(authority)) == 1 &&
         Extend(server, authority, NID_basic_constraints, "critical,CA:FALSE") &&
         Extend(server, authority, NID_key_usage, "critical,digitalSignature") &&
         Extend(server, authority, NID_ext_key_usage, "serverAuth") &&
         Extend(server, authority, NID_authority_key_identifier, "keyid") &&
         Extend(server, authority, NID_subject_alt_name, alternatives) && X509_sign(server, key, EVP_sha256()) > 0;
}

// What X509V3_EXT_conf_nid would read as more than a name.
bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= 253 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c < 128 && std::isalnum(c) != 0) || c == '-' || c == '.' || c == ':';
  });
}

Certificate NextCertificate(BIO* bio) { return Certificate(PEM_read_bio_X509(bio, nullptr, nullptr, nullptr)); }

// Never asks for a passphrase on a terminal.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*user*/) { return -1; }

WallTime EndOf(X509* certificate) {
  std::tm end{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1) return WallTime{};
  return WallTime(std::chrono::seconds(timegm(&end)));
}

base::Status VouchedFor(X509* certificate, std::string_view authorities, WallTime now) {
  const Store store(X509_STORE_new());
  const StoreContext context(X509_STORE_CTX_new());
  if (!store || !context) return FailTls("no memory");
  for (const std::string& pem : ReadAuthorities(authorities, now)) {
    const Bio bio = Reading(pem);
    const Certificate one = NextCertificate(bio.get());
    if (one) X509_STORE_add_cert(store.get(), one.get());
  }
  X509_VERIFY_PARAM_set_time(X509_STORE_get0_param(store.get()), now.time_since_epoch().count());
  if (X509_STORE_CTX_init(context.get(), store.get(), certificate, nullptr) != 1) return FailTls("cannot verify");
  X509_STORE_CTX_set_purpose(context.get(), X509_PURPOSE_SSL_SERVER);
  if (X509_verify_cert(context.get()) == 1) return {};
  const int why = X509_STORE_CTX_get_error(context.get());
  net::TakeTlsError();
  return Fail(std::string("no authority vouches for it: ") + X509_verify_cert_error_string(why));
}

}  // namespace

Result<Issued> Issue(const std::vector<std::string>& names, WallTime now, std::chrono::hours life) {
  if (names.empty()) return Fail("a certificate needs a name");
  for (const std::string& name : names) {
    if (!IsName(name)) return Fail("'" + base::Printable(name) + "' is neither a host name nor an address");
  }
  const auto at = [](WallTime time) { return std::time_t{time.time_since_epoch().count()}; };
  const Life span{at(now - std::chrono::hours(1)), at(now + life)};
  const Key authority_key(EVP_EC_gen("P-256"));
  const Key server_key(EVP_EC_gen("P-256"));
  if (!authority_key || !server_key) return FailTls("cannot make a key");
  const auto common_name = AuthorityName();
  if (!common_name) return tl::unexpected(common_name.error());
  const Certificate authority = Blank(authority_key.get(), *common_name, span);
  // A common name holds 64 characters; clients look at the alternative names alone.
  const Certificate server = Blank(server_key.get(), "hami webhook", span);
  if (!authority || !server || !FinishAuthority(authority.get(), authority_key.get()) ||
      !FinishServer(server.get(), authority.get(), authority_key.get(), names)) {
    return FailTls("cannot make a certificate");
  }
  auto authority_pem = ToPem(authority.get());
  if (!authority_pem) return tl::unexpected(authority_pem.error());
  auto server_pem = ToPem(server.get());
  if (!server_pem) return tl::unexpected(server_pem.error());
  auto key_pem = ToPem(
      [&](BIO* bio) { return PEM_write_bio_PrivateKey(bio, server_key.get(), nullptr, nullptr, 0, nullptr, nullptr); });
  if (!key_pem) return tl::unexpected(key_pem.error());
  return Issued{*std::move(authority_pem), *std::move(server_pem), *std::move(key_pem)};
}

Result<WallTime> Judge(const Serving& serving, std::string_view authorities, const std::vector<std::string>& names,
                       WallTime now) {
  if (serving.certificate.empty()) return Fail("there is none");
  const Bio bio = Reading(serving.certificate);
  const Certificate certificate = NextCertificate(bio.get());
  const Bio key_bio = Reading(serving.key);
  const Key key(PEM_read_bio_PrivateKey(key_bio.get(), nullptr, NoPassphrase, nullptr));
  const bool fit = certificate && key && X509_check_private_key(certificate.get(), key.get()) == 1;
  net::TakeTlsError();
  if (!certificate) return Fail("it is not PEM");
  if (!fit) return Fail("its key is not there, or another's");
  for (const std::string& name : names) {
    const int good = IsAddress(name) ? X509_check_ip_asc(certificate.get(), name.c_str(), 0)
                                     : X509_check_host(certificate.get(), name.data(), name.size(), 0, nullptr);
    if (good != 1) return Fail("it is not for " + base::Printable(name));
  }
  HAMI_TRY(VouchedFor(certificate.get(), authorities, now));
  return EndOf(certificate.get());
}

std::vector<std::string> ReadAuthorities(std::string_view pem, WallTime now) {
  std::vector<std::string> found;
  const Bio bio = Reading(pem);
  while (found.size() < kMostAuthorities) {
    const Certificate one = NextCertificate(bio.get());
    if (!one) break;
    auto text = ToPem(one.get());
    if (text && EndOf(one.get()) > now && std::find(found.begin(), found.end(), *text) == found.end())
      found.push_back(*std::move(text));
  }
  net::TakeTlsError();
  return found;
}

}  // namespace hami::cert
