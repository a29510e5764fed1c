// SPDX-License-Identifier: Apache-2.0
//
// A document as a stranger's server might send it: every view of it has lines without line breaks or escapes, and a
// text in YAML.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "cluster/tables.h"
#include "cluster/yaml.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using hami::cluster::View;
  const auto document = hami::base::ParseJson({reinterpret_cast<const char*>(data), size});
  if (!document) return 0;
  for (const View view :
       {View::kTop, View::kNodes, View::kCards, View::kPods, View::kWhy, View::kLocks, View::kQuotas}) {
    const hami::cluster::Look look{view, "", "p"};
    const auto selected = hami::cluster::Select(*document, look);
    if (!selected) continue;
    for (const std::string& line : hami::cluster::Lines(*selected, look, 1000, {})) {
      if (line.find_first_of("\n\r\x1b") != std::string::npos) std::abort();
    }
    if (hami::cluster::Yaml(*selected).empty()) std::abort();
  }
  return 0;
}
