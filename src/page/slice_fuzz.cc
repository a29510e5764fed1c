// SPDX-License-Identifier: Apache-2.0
//
// Any document as an EndpointSlice: what is kept of it names a node and can be asked.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "page/monitors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto name = hami::page::ParseServiceName(text); name && (name->ns.empty() || name->name.empty())) {
    std::abort();
  }
  const auto document = hami::base::ParseJson(text);
  if (!document) return 0;
  hami::page::Monitors monitors;
  hami::page::ReadSlice(*document, monitors);
  for (const auto& [node, monitor] : monitors) {
    if (node.empty() || monitor.host.empty() || monitor.port == 0) std::abort();
  }
  return 0;
}
