// SPDX-License-Identifier: Apache-2.0

#include "cli/set.h"

#include <algorithm>
#include <iostream>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/state.h"
#include "region/region.h"

namespace hami::cli {
namespace {

using base::FormatBytes;

struct Taken {
  std::uint64_t bytes = 0;
  unsigned cores = 0;
};

Taken TakenBy(const std::vector<Holder>& others, const std::string& uuid) {
  Taken taken;
  for (const Holder& other : others) {
    for (const Grant& grant : other.grants) {
      if (grant.uuid != uuid) continue;
      taken.bytes += grant.reserved_bytes;
      taken.cores += grant.cores;
    }
  }
  return taken;
}

base::Status ChangeMemory(Grant& grant, const base::Portion& memory, std::uint64_t total, std::uint64_t taken,
                          bool oversubscribe) {
  std::uint64_t wanted = 0;
  if (const auto* percent = std::get_if<base::Percent>(&memory)) {
    if (total == 0)
      return base::Fail("the size of " + grant.uuid + " is not known", "give --mem as an amount, like 6g");
    wanted = total / 100 * percent->value;
  } else {
    wanted = static_cast<std::uint64_t>(std::get<base::Bytes>(memory));
  }
  const std::uint64_t free = total > taken ? total - taken : 0;
  if (total != 0 && wanted > free && !oversubscribe) {
    return base::Fail("only " + FormatBytes(free) + " of " + grant.uuid + " can be had, " + FormatBytes(wanted) +
                      " were asked for");
  }
  grant.limit_bytes = wanted;
  grant.reserved_bytes = total == 0 ? wanted : std::min(wanted, free);
  return {};
}

// The words that every process of the share reads at its next allocation or lease.
void Publish(const ShareRecord& record, region::Region* region) {
  for (std::size_t i = 0; i < record.grants.size() && i < region::kMaxDevices; ++i) {
    const Grant& grant = record.grants[i];
    region::Store(region->limit[i], grant.limit_bytes);
    region::Store(region->sm_limit[i], std::uint64_t{grant.cores == 0 ? 100 : grant.cores});
  }
}

base::Result<ShareRecord> Change(const SetOptions& options) {
  const auto state = State::Open();
  if (!state) return tl::unexpected(state.error());
  auto lock = StateLock::Take(*state);
  if (!lock) return tl::unexpected(lock.error());
  const StoredShare* share = nullptr;
  std::vector<Holder> others;
  for (const StoredShare& stored : lock->shares()) {
    if (stored.name == options.name) {
      share = &stored;
    } else if (stored.record) {
      others.push_back({stored.name, stored.record->grants});
    }
  }
  if (share == nullptr) return base::Fail("there is no share named '" + options.name + "'", "`hami ps` lists all");
  if (!share->record) return tl::unexpected(share->record.error());

  region::Attachment attachment;
  if (const auto opened = region::Open(&attachment, share->region_path.c_str()); opened != region::Status::kOk) {
    return base::Fail("can not open the region of " + options.name + " (" + region::StatusName(opened) + ")");
  }
  std::vector<std::uint64_t> totals;
  for (std::size_t i = 0; i < share->record->grants.size() && i < region::kMaxDevices; ++i) {
    totals.push_back(region::Load(attachment.area->devices[i].physical_bytes));
  }
  auto changed = PlanChange(*share->record, options, totals, others);
  if (changed) {
    // The record first: what is promised is set aside before anybody can use it.
    if (auto stored = lock->Update(*changed); !stored) {
      changed = tl::unexpected(std::move(stored).error());
    } else {
      Publish(*changed, attachment.region);
    }
  }
  region::Detach(&attachment);
  return changed;
}

}  // namespace

base::Result<ShareRecord> PlanChange(const ShareRecord& record, const SetOptions& change,
                                     const std::vector<std::uint64_t>& totals, const std::vector<Holder>& others) {
  ShareRecord changed = record;
  for (std::size_t i = 0; i < changed.grants.size(); ++i) {
    Grant& grant = changed.grants[i];
    const Taken taken = TakenBy(others, grant.uuid);
    if (change.memory) {
      HAMI_TRY(
          ChangeMemory(grant, *change.memory, i < totals.size() ? totals[i] : 0, taken.bytes, record.oversubscribe));
    }
    if (change.cores) {
      if (taken.cores + *change.cores > 100) {
        return base::Fail("only " + std::to_string(taken.cores > 100 ? 0 : 100 - taken.cores) + " % of the cores of " +
                          grant.uuid + " can be had, " + std::to_string(*change.cores) + " % were asked for");
      }
      grant.cores = *change.cores;
    }
  }
  return changed;
}

int Set(const SetOptions& options) {
  const auto changed = Change(options);
  if (!changed) {
    base::LogError(changed.error());
    return kFailed;
  }
  for (const Grant& grant : changed->grants) {
    std::cout << changed->name << ": " << grant.uuid << ": "
              << (grant.limit_bytes == 0 ? std::string("all memory") : FormatBytes(grant.limit_bytes)) << ", "
              << (grant.cores == 0 ? std::string("all cores") : std::to_string(grant.cores) + " % of the cores")
              << "\n";
  }
  return 0;
}

}  // namespace hami::cli
