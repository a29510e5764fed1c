// SPDX-License-Identifier: Apache-2.0
//
// What the allocator reads and others may have written: pods, the node lock, the records on disk. What is understood
// must read back as itself, and no pod may lead to a decision that names a container it does not have.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "plugin/resolve.h"
#include "plugin/settle.h"

using namespace hami;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)plugin::ReadLock(text);
  if (const auto records = plugin::DecodeRecords(text)) {
    const auto again = plugin::DecodeRecords(plugin::EncodeRecords(*records));
    if (!again || *again != *records) std::abort();
  }
  const auto document = base::ParseJson(text);
  if (!document) return 0;
  auto pod = plugin::ReadPodView(*document);
  if (!pod) return 0;
  const auto shared = std::make_shared<const plugin::PodView>(*std::move(pod));
  const auto next = plugin::NextOf(shared, {}, shared->node, true);
  if (next && (static_cast<std::size_t>(next->container) >= shared->to_allocate.size() || next->grant.empty())) {
    std::abort();
  }
  (void)plugin::DesiredAnnotations(*shared, {});
  return 0;
}
