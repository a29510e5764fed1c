// SPDX-License-Identifier: Apache-2.0
//
// Any text as a kubeconfig: it is read or refused, and what is read names a server. And as the answer of a program that
// gives credentials.

#include <cstdint>
#include <cstdlib>
#include <string>

#include "kube/base64.h"
#include "kube/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto config = hami::kube::ReadKubeconfig({{text, "/folder/config"}});
  if (config && config->server.host.empty()) std::abort();
  if (hami::kube::Base64Decode(hami::kube::Base64Encode(text)) != text) std::abort();
  hami::kube::Base64Decode(text);
  const auto credential = hami::kube::ReadExecCredential(text, "client.authentication.k8s.io/v1");
  if (credential && credential->token.empty() && credential->certificate.empty()) std::abort();
  hami::kube::ParseTime(text);
  return 0;
}
