// SPDX-License-Identifier: Apache-2.0

#include "net/testing/certificates.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

namespace hami::net {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

template <typename Write>
std::string ToPem(Write write) {
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> bio(BIO_new(BIO_s_mem()), BIO_free_all);
  write(bio.get());
  char* text = nullptr;
  const auto size = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<std::size_t>(size));
}

std::string ToPem(X509* certificate) {
  return ToPem([&](BIO* bio) { PEM_write_bio_X509(bio, certificate); });
}
std::string ToPem(EVP_PKEY* key) {
  return ToPem([&](BIO* bio) { PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr); });
}

void Extend(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

}  // namespace

struct TestAuthority::Impl {
  Key key{EVP_EC_gen("P-256"), EVP_PKEY_free};
  Certificate certificate{nullptr, X509_free};
  long serial = 1;

  Certificate NewCertificate(EVP_PKEY* subject_key, const std::string& common_name) {
    Certificate made(X509_new(), X509_free);
    X509_set_version(made.get(), X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), serial++);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -3600);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), 3600);
    X509_set_pubkey(made.get(), subject_key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1, 0);
    return made;
  }
};

TestAuthority::TestAuthority() : impl_(std::make_unique<Impl>()) {
  impl_->certificate = impl_->NewCertificate(impl_->key.get(), "test authority");
  X509* own = impl_->certificate.get();
  X509_set_issuer_name(own, X509_get_subject_name(own));
  Extend(own, own, NID_basic_constraints, "critical,CA:TRUE");
  X509_sign(own, impl_->key.get(), EVP_sha256());
  own_ = {ToPem(own), ToPem(impl_->key.get())};
}

TestAuthority::~TestAuthority() = default;

TestCertificate TestAuthority::Issue(const std::string& common_name, const std::string& alternative_names) {
  const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const Certificate made = impl_->NewCertificate(key.get(), common_name);
  X509_set_issuer_name(made.get(), X509_get_subject_name(impl_->certificate.get()));
  Extend(made.get(), impl_->certificate.get(), NID_subject_alt_name, alternative_names);
  X509_sign(made.get(), impl_->key.get(), EVP_sha256());
  return {ToPem(made.get()), ToPem(key.get())};
}

}  // namespace hami::net
