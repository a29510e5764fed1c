// SPDX-License-Identifier: Apache-2.0
//
// Any text is either understood or refused with a message; what is understood stays within the tables.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "simgpu/machine/config.h"
#include "simgpu/machine/machine.h"

namespace {
void Must(bool condition) {
  if (!condition) std::abort();
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto* const plan = new simgpu::Plan;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string error;
  const bool ok = simgpu::MakePlan("", text, "fuzz", plan, &error);
  Must(ok == error.empty());
  if (ok) Must(plan->device_count >= 1 && plan->device_count <= simgpu::kMaxDevices);
  // The variable takes text from strangers too.
  error.clear();
  Must(simgpu::MakePlan(text, "", "fuzz", plan, &error) == error.empty());
  std::vector<simgpu::Change> changes;
  error.clear();
  Must(simgpu::ParseChanges(text, "fuzz", 2, &changes, &error) == error.empty());
  for (const simgpu::Change& change : changes) {
    Must(change.dev >= -1 && change.dev < 2 && change.call.size() < 64);
    if (change.kind == simgpu::Change::Kind::kSet) {
      Must(change.value < static_cast<std::uint32_t>(simgpu::Machine::Value::kCount));
    }
    if (change.kind == simgpu::Change::Kind::kLink) Must(change.value < simgpu::kMaxNvLinks);
  }
  return 0;
}
