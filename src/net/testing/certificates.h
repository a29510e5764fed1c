// SPDX-License-Identifier: Apache-2.0
//
// Certificates for tests, made on the spot: nothing that expires lies in the repository.

#pragma once

#include <memory>
#include <string>

namespace hami::net {

struct TestCertificate {
  std::string certificate_pem;
  std::string key_pem;
};

class TestAuthority {
 public:
  TestAuthority();
  ~TestAuthority();
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  const std::string& certificate_pem() const { return own_.certificate_pem; }
  // For clients and servers alike; ALTERNATIVE_NAMES as OpenSSL writes them, e.g. "DNS:localhost,IP:127.0.0.1".
  TestCertificate Issue(const std::string& common_name, const std::string& alternative_names);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  TestCertificate own_;
};

}  // namespace hami::net
