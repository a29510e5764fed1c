// SPDX-License-Identifier: Apache-2.0
//
// A pod's JSON through everything that reads it: admission (whose patch must apply to what was submitted), the ledger,
// a decision. Nothing of it may stop the scheduler, and a pod is what a parser makes of the text.

#include <cstdint>
#include <cstdlib>

#include "device/testing/pod.h"
#include "kube/testing/json_patch.h"
#include "sched/testing/samples.h"
#include "sched/webhook.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hami;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!device::testing::ReadAlike(text)) std::abort();
  const auto document = base::ParseJson(text);
  if (!document) return 0;
  device::NvidiaConfig config = sched::testing::DefaultNvidia();
  config.core_policy = "force";
  config.overwrite_env = true;
  config.runtime_class = "nvidia";
  const device::Vendors vendors = sched::testing::NvidiaOnly(config);
  sched::Ledger ledger(vendors);
  ledger.SetCards("a", 0, sched::testing::Cards("a", 2));
  ledger.quotas().Set("default", "q", {{"limits.nvidia.com/gpumem", "9000"}});

  const auto admission = sched::Admit(*document, {"hami-scheduler", true}, vendors,
                                      [&](const auto& traits) { return ledger.quotas().Rooms("default", traits); });
  auto mutated = *document;
  if (admission.allowed && !kube::ApplyJsonPatch(mutated, admission.patch)) std::abort();
  const auto pod = device::ReadPod(text);
  if (!pod) return 0;
  ledger.UpsertPod(*pod);
  ledger.Forget(pod->uid);
  sched::Filter filter(ledger, vendors, {});
  const sched::Decision decision = filter.DecideAny(*pod, {.now = 1, .explain = true});
  if (decision.outcome == sched::Outcome::kPlaced) {
    ledger.Assume(*pod, decision.node, decision.allocation, 10);
    ledger.UpsertPod(sched::testing::Written(*pod, decision, true));
  }
  (void)sched::EventsOf(decision);
  ledger.RemovePod(pod->uid);
  return 0;
}
