// SPDX-License-Identifier: Apache-2.0
//
// Bodies of /filter and /bind, and the texts that others write on nodes. Every body has an answer that is JSON; every
// text that is understood is written back so that it is understood the same.

#include <cstdint>
#include <cstdlib>

#include "base/json.h"
#include "base/log.h"
#include "scheduler/extender.h"
#include "scheduler/sim_cluster.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hami;
  using namespace hami::scheduler;
  base::StartLog("fuzz", base::LogLevel::kOff);
  const std::string_view text(reinterpret_cast<const char*>(data), size);

  testing::SimCluster cluster;
  cluster.AddNode("n", sched::testing::Cards("n", 2), true);
  Books books(sched::testing::NvidiaOnly(), {});
  Registration registration;
  testing::SimWatch watch(cluster, books, registration);
  testing::SimApi api(cluster);
  const RecordEvent record = [](const PodName&, const sched::Event&) {};
  BindLease lease(api, cluster, {}, {.enabled = false});
  Binder binder(books, api, cluster, lease, record, {});
  Extender extender(books, binder, cluster, record, [] { return true; });
  const auto present = [] { return false; };
  for (const Reply& reply : {extender.Filter(text, present), extender.Bind(text, present)}) {
    if (reply.status == 200 && !base::ParseJson(reply.body)) std::abort();
  }
  (void)ParseLock(text);
  if (const auto members = ParseMembers(text); members && ParseMembers(FormatMembers(*members)) != members)
    std::abort();
  if (const auto ticket = ParseTicket(text)) {
    const auto again = ParseTicket(FormatTicket(*ticket));
    if (!again || again->pods != ticket->pods || again->time != ticket->time) std::abort();
  }
  return 0;
}
