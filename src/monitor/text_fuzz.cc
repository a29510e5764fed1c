// SPDX-License-Identifier: Apache-2.0
//
// Names of directories, targets of links and the resize annotation, as anybody may write them: what is accepted can be
// used without further thought.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "monitor/directory.h"
#include "monitor/resize.h"
#include "monitor/resized.h"

namespace {

void Check(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hami::monitor;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto name = ParseContainerName(text)) {
    Check(name->pod_uid + "_" + name->container == text);
    Check(text.find('/') == std::string_view::npos && text.find('.') == std::string_view::npos);
  }
  if (IsShareTarget(text)) {
    Check(text.starts_with("../shares/") && text.find('/', 10) == std::string_view::npos && text.size() > 10);
    Check(text.substr(10) != "." && text.substr(10) != "..");
  }
  for (const std::string& name : ParseResized(text)) Check(ParseContainerName(name).has_value());
  const auto wishes = ParseResize(text);
  if (!wishes) {
    Check(!wishes.error().message.empty());
    return 0;
  }
  for (const auto& [container, wish] : *wishes) {
    Check(!wish.wishes.empty() && wish.wishes.size() <= 16 && (!wish.for_all || wish.wishes.size() == 1));
    for (const Wish& one : wish.wishes) {
      Check(!one.memory_bytes || *one.memory_bytes >= (1U << 20U));
      Check(!one.cores || (*one.cores >= 1 && *one.cores <= 100));
    }
  }
  return 0;
}
