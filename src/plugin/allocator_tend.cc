// SPDX-License-Identifier: Apache-2.0
//
// The half of the allocator that looks at what is, and puts right what is not as it should be.

#include <algorithm>

#include "base/log.h"
#include "base/strings.h"
#include "device/annotations.h"
#include "plugin/allocator.h"

namespace hami::plugin {
namespace {

using base::Concat;

constexpr std::string_view kSharesPrefix = "shares/";

PodKey KeyOf(const PodView& pod) { return {pod.ns, pod.name, pod.uid}; }

bool AnyAssumed(const Records& records) {
  return std::any_of(records.begin(), records.end(), [](const Record& record) { return record.assumed; });
}

bool HasShares(const device::PodGrant& grant) {
  return std::any_of(grant.begin(), grant.end(), [](const auto& row) { return !row.empty(); });
}

// An outcome that nobody wrote: the answer, or the process that gave it, was lost on the way. With the lock it is the
// plugins' to write, whatever its annotations hold.
bool DiedOnTheWay(const PodView& pod, const std::string& node, bool owns_lock) {
  return pod.node == node && pod.status_phase == "Failed" && pod.bind_phase == device::kPhaseAllocating &&
         (owns_lock || HasShares(pod.allocated) || HasShares(pod.to_allocate) || !pod.grant_error.empty());
}

bool Has(const device::StringMap& said, const device::StringMap& changes) {
  return std::all_of(changes.begin(), changes.end(), [&](const auto& change) {
    const auto found = said.find(change.first);
    return found != said.end() && found->second == change.second;
  });
}

// Whether after a death BEFORE would become AFTER again by itself: pods that are over are over, and the kubelet says
// once more who holds what. Then it is written down with the next grant, and nobody waits for the disk.
bool IsFoundAgain(const Records& before, const Records& after) {
  return std::all_of(after.begin(), after.end(), [&](const Record& record) {
    return std::any_of(before.begin(), before.end(), [&](Record old) {
      if (!record.assumed) old.assumed = false;
      return old == record;
    });
  });
}

}  // namespace

std::optional<Holdings> Allocator::AskKubelet(net::Deadline end) {
  if (parts_.book == nullptr) return std::nullopt;
  auto holdings = parts_.book->List(OneCall(end));
  if (holdings) return *std::move(holdings);
  base::LogWarning("the kubelet does not tell who holds which slots: " + holdings.error().message);
  return std::nullopt;
}

void Allocator::ReportExchanges(const std::vector<Exchange>& exchanges) {
  for (const Exchange& exchange : exchanges) {
    if (exchange.stranger) {
      const std::string text = Concat({"hami-scheduler never placed pod ", exchange.actual.ns, "/",
                                       exchange.actual.name, " here, and it holds what ", exchange.assumed.ns, "/",
                                       exchange.assumed.name, " was granted; delete it"});
      base::LogError("exchange: " + text);
      parts_.cluster->Warn(exchange.actual, "NotPlaced", text);
      continue;
    }
    const std::string text = Concat({"exchange: ", exchange.actual.ns, "/", exchange.actual.name, " holds what ",
                                     exchange.assumed.ns, "/", exchange.assumed.name, " was assumed to hold"});
    if (exchange.alike) {
      base::LogInfo(text);
      continue;
    }
    base::LogError(text + ", and the two are not alike");
    parts_.cluster->Warn(exchange.actual, "GrantMismatch", text + ", and the two are not alike");
  }
}

base::Status Allocator::SettleWith(const std::vector<PodPtr>& pods, const std::optional<Holdings>& holdings,
                                   bool find_undelivered) {
  Settled settled = Settle(records_, pods, holdings, {options_.unix_time(), find_undelivered});
  if (IsFoundAgain(records_, settled.records)) {
    records_ = std::move(settled.records);
  } else {
    HAMI_TRY(Save(std::move(settled.records)));
  }
  for (const Record& record : settled.dropped) parts_.folders->Remove(record);
  ReportExchanges(settled.exchanges);
  return {};
}

bool Allocator::LinkFolders() {
  bool all = true;
  for (const Record& record : records_) {
    if (record.owed || record.assumed || !record.folder.starts_with(kSharesPrefix)) continue;
    const base::Status linked = parts_.folders->Link(record);
    if (!linked) base::LogWarning(linked.error().message);
    all = all && linked;
  }
  return all;
}

bool Allocator::MendPods(const std::vector<PodPtr>& pods, net::Deadline end) {
  bool all = true;
  std::erase_if(told_, [now = net::Clock::now()](const auto& told) { return told.second.until < now; });
  const auto text = parts_.cluster->Lock();
  const auto lock = text ? ReadLock(*text) : std::nullopt;
  for (const PodPtr& pod : pods) {
    device::StringMap changes;
    const bool owns_lock = lock && lock->ns == pod->ns && lock->name == pod->name;
    if (DiedOnTheWay(*pod, options_.node, owns_lock)) {
      changes = {{device::kBindPhase, device::kPhaseFailed},
                 {kAllocateFailure, "the kubelet gave up before it had an answer"}};
    } else if (!pod->Ended() && HasRecords(records_, pod->uid)) {
      changes = WithSeal(*pod, DesiredAnnotations(*pod, records_).changes, options_.rules);
    }
    if (changes.empty()) continue;
    // Either the watch lags, or somebody takes it away again and again, and is not answered at once.
    if (const auto told = told_.find(pod->uid); told != told_.end() && Has(told->second.changes, changes)) {
      all = false;
      continue;
    }
    const kube::Status patched = Patch(KeyOf(*pod), changes, end);
    if (patched || patched.error().reason == kube::Reason::kNotFound ||
        patched.error().reason == kube::Reason::kConflict) {
      continue;
    }
    base::LogWarning(Concat({"pod ", pod->FullName(), " is updated later: ", patched.error().message}));
    return false;
  }
  return all;
}

// A lock from before locks had owners goes when nobody can be its owner for so long that nobody is about to be.
bool Allocator::MendNamelessLock(const std::string& text, const std::vector<PodPtr>& pods, net::Deadline end) {
  if (nameless_lock_ != text) {
    nameless_lock_ = text;
    nameless_since_ = options_.unix_time();
  }
  const bool on_its_way = std::any_of(pods.begin(), pods.end(), [&](const PodPtr& pod) {
    return pod->node == options_.node && pod->Pending() && pod->bind_phase == device::kPhaseAllocating;
  });
  if (on_its_way) nameless_since_ = options_.unix_time();
  if (on_its_way || options_.unix_time() - nameless_since_ < kNamelessFor) return true;
  const kube::Status released = parts_.cluster->ReleaseLock(text, OneCall(end));
  base::LogInfo(Concat({"the node lock ", base::Printable(text), ", which names no pod, ",
                        released ? "is released" : "can not be released: " + released.error().message}));
  return released.has_value();
}

// A lock whose pod is done or gone only keeps others waiting.
bool Allocator::MendLock(const std::vector<PodPtr>& pods, net::Deadline end) {
  const auto text = parts_.cluster->Lock();
  const auto owner = text ? ReadLock(*text) : std::nullopt;
  if (!text || owner) nameless_lock_.clear();
  if (!text) return true;
  if (!owner) return MendNamelessLock(*text, pods, end);
  const auto is_done = [&](const PodView& pod) {
    return pod.Ended() || (pod.node == options_.node &&
                           (pod.bind_phase == device::kPhaseSuccess || pod.bind_phase == device::kPhaseFailed));
  };
  for (const PodPtr& pod : pods) {
    if (pod->ns == owner->ns && pod->name == owner->name && !is_done(*pod)) return true;
  }
  // Not known, or known as done; but the watch may lag, and a pod of the same name may have come since.
  const auto fresh = parts_.cluster->GetPod(owner->ns, owner->name, OneCall(end));
  if (!fresh) return false;
  if (*fresh != nullptr && !is_done(**fresh)) return true;
  const kube::Status released = parts_.cluster->ReleaseLock(*text, OneCall(end));
  base::LogInfo(Concat(
      {"the node lock of pod ", owner->ns, "/", owner->name,
       released ? " is released: the pod is done or gone" : " can not be released yet: " + released.error().message}));
  return released.has_value();
}

bool Allocator::Tend() {
  const std::lock_guard lock(mutex_);
  TakeOver();
  if (!parts_.cluster->Synced()) return true;
  const net::Deadline end = net::After(options_.call_timeout * 2);
  std::vector<PodPtr> pods = KnownPods();
  std::erase_if(passed_, [&](const std::string& uid) {
    return std::none_of(pods.begin(), pods.end(), [&](const PodPtr& pod) { return pod->uid == uid && pod->Pending(); });
  });
  const auto holdings = AnyAssumed(records_) ? AskKubelet(end) : std::nullopt;
  // What is exchanged is all that both pods have, so both must be known as they are.
  if (!Settle(records_, pods, holdings, {options_.unix_time(), false}).exchanges.empty()) {
    auto listed = parts_.cluster->ListPods(OneCall(end));
    if (!listed) return true;
    pods = listed_ = InPlace(*std::move(listed));
    listed_until_ = net::After(kListedFor);
  }
  if (const base::Status settled = SettleWith(pods, holdings, false); !settled) {
    base::LogError(settled.error());
    return true;
  }
  const bool divided = TendMig();
  const bool linked = LinkFolders();
  const bool mended = MendPods(pods, end) && MendLock(pods, end);
  return divided || !linked || !mended || AnyAssumed(records_);
}

}  // namespace hami::plugin
