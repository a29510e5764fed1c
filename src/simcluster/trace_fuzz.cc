// SPDX-License-Identifier: Apache-2.0
//
// Lists of nodes and pods, and workloads, are files that a user brings: whatever they hold, they are read or refused,
// and what was read is read again from what is written of it.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "simcluster/simulation.h"
#include "simcluster/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto nodes = hami::simcluster::ReadNodes(text, "nodes.csv")) {
    const auto again = hami::simcluster::ReadNodes(hami::simcluster::WriteNodes(*nodes), "again");
    if (!again || *again != *nodes) std::abort();
  }
  if (const auto pods = hami::simcluster::ReadPods(text, "pods.csv")) {
    const auto again = hami::simcluster::ReadPods(hami::simcluster::WritePods(*pods), "again");
    if (!again || *again != *pods) std::abort();
  }
  if (const auto classes = hami::simcluster::ReadWorkload(text, "workload.csv")) {
    for (const auto& one : *classes) {
      if (one.weight <= 0 || one.ask.request.count <= 0) std::abort();
    }
  }
  return 0;
}
