// SPDX-License-Identifier: Apache-2.0
//
// Bodies of /filter and /bind, and the texts that others write on nodes. Every body has an answer that is JSON; every
// text that is understood is written back so that it is understood the same. Names that are read together are those
// that are read one by one.

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_cursor.h"
#include "base/log.h"
#include "scheduler/extender.h"
#include "scheduler/testing/sim_cluster.h"

namespace {

// Where it ended, or nothing.
std::optional<std::size_t> TakeNames(hami::base::JsonCursor& cursor, std::vector<std::string_view>& names) {
  do {
    bool plain = false;
    if (!cursor.TakeString(names.emplace_back(), plain)) return std::nullopt;
  } while (cursor.Take(','));
  return cursor.at();
}

void CheckNames(std::string_view text) {
  std::vector<std::string_view> names;
  std::vector<std::string_view> expected;
  hami::base::JsonCursor together(text);
  together.TakePlainStrings(names);
  hami::base::JsonCursor one_by_one(text);
  const auto end = TakeNames(one_by_one, expected);
  if (TakeNames(together, names) != end || (end && names != expected)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hami;
  using namespace hami::scheduler;
  base::StartLog("fuzz", base::LogLevel::kOff);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CheckNames(text);

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
  Extender offering(books, binder, cluster, record, [] { return true; }, {.offer_nodes = 2, .preempt = true});
  const auto present = [] { return false; };
  for (const Reply& reply : {extender.Filter(text, present), offering.Filter(text, present), offering.Prioritize(text),
                             offering.Preempt(text), extender.Bind(text, present)}) {
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
