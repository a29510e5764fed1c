// SPDX-License-Identifier: Apache-2.0
//
// The target of a request for the page's state, its Host and its Authorization: whatever they hold, there is an answer,
// and a question that is understood is within its bounds.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "page/routes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto ask = hami::page::ParseAsk(text);
  if (ask && ask->wait > hami::page::kMostWait) std::abort();
  if (ask && ask->epoch.empty() && ask->since != 0) std::abort();
  if (const auto node = hami::page::ParseUseAsk(text); node && (node->empty() || node->size() > 253)) std::abort();
  hami::page::NamesLoopback(text);
  hami::page::ReadLock(text);
  hami::page::Gate gate([](const std::string& token) {
    if (token.empty() || token.size() > hami::page::Gate::kMostTokenBytes) std::abort();
    return hami::page::Access::kForbidden;
  });
  if (gate.Check(&text) == hami::page::Access::kAllowed) std::abort();
  return 0;
}
