// SPDX-License-Identifier: Apache-2.0

#include "plugin/allocator.h"

#include <algorithm>
#include <array>
#include <random>
#include <set>

#include "base/log.h"
#include "base/strings.h"
#include "device/annotations.h"
#include "net/cancel.h"
#include "plugin/preferred.h"
#include "plugin/slots.h"

namespace hami::plugin {
namespace {

using base::Concat;

PodKey KeyOf(const PodView& pod) { return {pod.ns, pod.name, pod.uid}; }

// A name that nobody has: random, in the form of a UUID.
std::string NewId() {
  std::random_device device;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id = "xxxxxxxx-xxxx-4xxx-8xxx-xxxxxxxxxxxx";
  for (char& c : id) {
    if (c == 'x') c = kDigits[device() % kDigits.size()];
  }
  return id;
}

bool WorthAnotherTry(kube::Reason reason) {
  return reason == kube::Reason::kTransport || reason == kube::Reason::kTimeout ||
         reason == kube::Reason::kServerError || reason == kube::Reason::kTooManyRequests;
}

const ContainerView* ContainerOf(const Choice& choice) {
  const auto index = static_cast<std::size_t>(choice.container);
  return index < choice.pod->containers.size() ? &choice.pod->containers[index] : nullptr;
}

Record NewRecord(const Choice& choice, const std::vector<std::string>& slots, std::int64_t now) {
  const ContainerView* container = ContainerOf(choice);
  Record record;
  record.owner = KeyOf(*choice.pod);
  record.container = choice.container;
  record.container_name = container != nullptr ? container->name : "container-" + std::to_string(choice.container);
  record.grant = choice.grant;
  record.mig = choice.mig;
  record.assumed = choice.assumed;
  record.alike = choice.alike;
  record.slots = Sorted(slots);
  record.cache = NewId() + ".cache";
  // Under its name only where the name is certain: a folder is never renamed, for a container may be about to use it.
  record.folder =
      choice.assumed ? "shares/" + NewId() : Concat({"containers/", record.owner.uid, "_", record.container_name});
  // Which of several like pods it is decides about nothing that protects the others.
  record.preload = choice.assumed || container == nullptr || !container->control_disabled;
  record.share_file = true;
  record.given_at = now;
  return record;
}

RegionSettings SettingsOf(const Choice& choice, const NodeSettings& node, std::vector<DeviceLimit> limits) {
  RegionSettings settings;
  settings.limits = std::move(limits);
  const bool unpaced = node.disable_core_limit || node.mode == OperatingMode::kMps;
  settings.core_policy = unpaced ? CorePolicy::kDisable : CorePolicy::kDefault;
  settings.oversubscribe = node.memory_scaling > 1;
  if (const ContainerView* container = ContainerOf(choice)) {
    settings.priority = container->priority;
    settings.core_policy = container->core_policy.value_or(settings.core_policy);
    if (node.mode == OperatingMode::kMps) settings.core_policy = CorePolicy::kDisable;  // MPS shares the GPU's time
    settings.oversubscribe = settings.oversubscribe || container->oversubscribe;
    if (!choice.assumed || choice.alike) settings.runs_as = container->runs_as;
  }
  return settings;
}

std::string Describe(const Record& record) {
  return Concat({"pod=", record.owner.ns, "/", record.owner.name, " container=", record.container_name,
                 " slots=", base::Join(record.slots, ",")});
}

}  // namespace

Allocator::Allocator(AllocatorParts parts, AllocatorOptions options)
    : parts_(std::move(parts)), options_(std::move(options)) {}

base::Status Allocator::Start() {
  const std::lock_guard lock(mutex_);
  auto records = parts_.keeper->Load();
  if (!records) return tl::unexpected(records.error());
  records_ = *std::move(records);
  parts_.folders->RemoveAllBut(records_);
  return {};
}

Records Allocator::records() const {
  const std::lock_guard lock(mutex_);
  return records_;
}

net::Deadline Allocator::OneCall(net::Deadline end) const { return std::min(end, net::After(options_.call_timeout)); }

base::Status Allocator::Save(Records records) {
  HAMI_TRY(parts_.keeper->Save(records));
  records_ = std::move(records);
  return {};
}

void Allocator::TakeOver() {
  if (!parts_.keeper->Changed()) return;
  auto records = parts_.keeper->Load();
  if (!records) return base::LogError(records.error());
  base::LogInfo("allocate: the records are those of another hami-device-plugin now, which serves this node too");
  records_ = *std::move(records);
}

// A pod whose first container was served from a list must be known when its second one comes, else another pod just
// like it would be taken for it.
std::vector<PodPtr> Allocator::KnownPods() {
  std::vector<PodPtr> pods = parts_.cluster->Pods();
  if (net::Clock::now() >= listed_until_) listed_.clear();
  std::set<std::string_view> seen;
  for (const PodPtr& pod : pods) seen.insert(pod->uid);
  std::copy_if(listed_.begin(), listed_.end(), std::back_inserter(pods),
               [&](const PodPtr& pod) { return !seen.contains(pod->uid) && !parts_.cluster->IsGone(pod->uid); });
  return InPlace(std::move(pods));
}

std::vector<PodPtr> Allocator::InPlace(std::vector<PodPtr> pods) const {
  const device::NvidiaVendor vendor = VendorOf(parts_.cards()->settings);
  for (PodPtr& pod : pods) {
    if (auto placed = PutInPlace(*pod, vendor)) pod = std::make_shared<const PodView>(*std::move(placed));
  }
  return pods;
}

bool Allocator::KnowsEveryOwner(const std::vector<PodPtr>& pods) const {
  return std::all_of(records_.begin(), records_.end(), [&](const Record& record) {
    // Of one that is no more the API server would say no more.
    return parts_.cluster->IsGone(record.owner.uid) ||
           std::any_of(pods.begin(), pods.end(), [&](const PodPtr& pod) { return pod->uid == record.owner.uid; });
  });
}

Situation Allocator::SituationOf(std::vector<PodPtr> pods) const {
  Situation situation;
  situation.node = options_.node;
  situation.pods = std::move(pods);
  situation.concurrent = concurrent_.load();
  situation.rules = &options_.rules;
  situation.cards = parts_.cards();
  situation.now = options_.unix_time();
  situation.passed = passed_;
  if (const auto text = parts_.cluster->Lock()) situation.lock = ReadLock(*text);
  return situation;
}

// Nothing: the watches do not know, or there is doubt.
std::optional<Resolution> Allocator::FindWatched(const std::vector<std::string>& slots, std::size_t size,
                                                 net::Deadline end) {
  if (!parts_.cluster->Synced()) return std::nullopt;
  const net::Deadline patience = std::min(end, net::After(kWatchPatience));
  for (;;) {
    const std::uint64_t seen = parts_.cluster->Changes();
    const Situation situation = SituationOf(KnownPods());
    Resolution known = Resolve(slots, size, situation, records_);
    if (known.choice) {
      // The kubelet may have given up on the pod that is half served, and that news be under way.
      const bool doubtful = !KnowsEveryOwner(situation.pods) || (known.choice->continues && parts_.book != nullptr);
      return doubtful ? std::nullopt : std::optional(std::move(known));
    }
    if (!parts_.cluster->AwaitChange(seen, patience)) return std::nullopt;
  }
}

// The watches know almost always enough. When they do not, the API server is asked itself, and the kubelet what became
// of earlier answers.
Resolution Allocator::Find(const std::vector<std::string>& slots, std::size_t size, Look look, net::Deadline end) {
  if (look == Look::kWatchFirst) {
    if (auto known = FindWatched(slots, size, end)) return *std::move(known);
  }
  auto listed = parts_.cluster->ListPods(OneCall(end));
  if (!listed) {
    Resolution none;
    none.why = "the pods of this node can not be listed: " + listed.error().message;
    return none;
  }
  listed_ = InPlace(*std::move(listed));
  listed_until_ = net::After(kListedFor);
  Situation situation = SituationOf(listed_);
  situation.holdings = AskKubelet(end);
  std::erase_if(told_again_, [now = net::Clock::now()](const auto& told) { return told.second < now; });
  for (const auto& [container, until] : told_again_) situation.told_again.insert(container);
  if (const base::Status settled = SettleWith(situation.pods, situation.holdings, true); !settled) {
    Resolution none;
    none.why = settled.error().message;
    return none;
  }
  // Before anything else is given: the scheduler counts what the pods say.
  MendPods(situation.pods, end);
  return Resolve(slots, size, situation, records_);
}

base::Result<Response> Allocator::Allocate(const std::vector<std::string>& slots) {
  const std::lock_guard lock(mutex_);
  TakeOver();
  if (slots.empty()) return base::Fail("the kubelet asks for no device at all");
  const net::Deadline end = net::After(options_.budget);
  Resolution found = Find(slots, slots.size(), Look::kWatchFirst, end);
  if (found.choice) {
    Granted granted = Grant(*found.choice, slots, end);
    if (!granted.pod_is_gone) return std::move(granted.response);
    // The watch lags behind a deletion; the kubelet means somebody else.
    found = Find(slots, slots.size(), Look::kAsk, end);
    if (found.choice) return Grant(*found.choice, slots, end).response;
  }
  if (found.stranger) return tl::unexpected(Refuse(*found.stranger, end));
  if (found.recorded != nullptr) return AnswerAgain(*found.recorded, slots, end);
  base::LogError(Concat({"allocate: ", found.why, "; slots=", base::Join(slots, ",")}));
  FailUnreadable(end);
  return base::Fail(found.why);
}

// The kubelet admits a pod once, so that it is not this one's turn again.
base::Error Allocator::Refuse(const Stranger& stranger, net::Deadline end) {
  passed_.insert(stranger.pod->uid);
  const std::string why =
      Concat({"hami-scheduler never placed pod ", stranger.pod->FullName(), " here: ", stranger.why});
  const char* const hint =
      "delete it, so that it is made anew and placed by hami-scheduler: its webhook was away, or left it out";
  if (stranger.pod->bind_phase == device::kPhaseAllocating) {
    MarkFailed(*stranger.pod, "NotPlaced", Concat({why, "; ", hint}), end);
  } else {
    base::LogError(Concat({"allocate: ", why}));
    parts_.cluster->Warn(KeyOf(*stranger.pod), "NotPlaced", Concat({why, "; ", hint}));
  }
  return {why, hint};
}

// A folder that is there may be in use by what runs in the container, whatever the kubelet has forgotten.
base::Result<Response> Allocator::AnswerAgain(Record record, const std::vector<std::string>& slots, net::Deadline end) {
  const CardBoard::Snapshot cards = parts_.cards();
  HAMI_TRY(RealiseMig(record, *cards, end));
  auto response = parts_.respond(record, *cards);
  if (!response) return response;
  const std::vector<PodPtr> pods = KnownPods();
  const auto owner =
      std::find_if(pods.begin(), pods.end(), [&](const PodPtr& pod) { return pod->uid == record.owner.uid; });
  if (owner != pods.end() && !parts_.folders->Has(record)) {
    auto limits = LimitsOf(record, *cards);
    if (!limits) return tl::unexpected(limits.error());
    Choice choice{*owner, record.container, record.grant, record.mig, record.assumed, record.alike};
    HAMI_TRY(parts_.folders->Make(record, SettingsOf(choice, cards->settings, *std::move(limits))));
  }
  if (record.slots != Sorted(slots)) {
    record.slots = Sorted(slots);
    Records records = records_;
    Supersede(records, record.slots, record.owner.uid);
    if (Record* known = FindRecord(records, record.owner.uid, record.container)) *known = record;
    HAMI_TRY(Save(std::move(records)));
  }
  told_again_[{record.owner.uid, record.container}] = net::After(kToldAgainFor);
  base::LogInfo("allocate: answered again " + Describe(record));
  return response;
}

// A grant that can not be read can never be given.
void Allocator::FailUnreadable(net::Deadline end) {
  for (const PodPtr& pod : KnownPods()) {
    if (pod->node == options_.node && pod->Pending() && pod->bind_phase == device::kPhaseAllocating &&
        !pod->grant_error.empty()) {
      MarkFailed(*pod, "AllocateFailed", pod->grant_error, end);
    }
  }
}

std::vector<std::string> Allocator::Prefer(const PreferredRequest& request) {
  const std::lock_guard lock(mutex_);
  TakeOver();
  const Resolution found = Find(request.must_include, request.size, Look::kWatchFirst, net::After(options_.budget));
  if (found.recorded != nullptr) {
    // The same slots tell in Allocate whose they are.
    const std::vector<std::string> available = Sorted(request.available);
    const std::vector<std::string>& slots = found.recorded->slots;
    if (!slots.empty() && std::includes(available.begin(), available.end(), slots.begin(), slots.end())) return slots;
    return PreferSlots(request.available, request.must_include, request.size, found.recorded->grant);
  }
  if (!found.choice) return request.must_include;
  return PreferSlots(request.available, request.must_include, request.size, found.choice->grant);
}

Allocator::Granted Allocator::Grant(const Choice& choice, const std::vector<std::string>& slots, net::Deadline end) {
  auto response = Commit(choice, slots, end);
  if (!response) {
    MarkFailed(*choice.pod, "AllocateFailed", response.error().message, end);
    TendMig();
    return {std::move(response)};
  }
  if (const kube::Status published = Publish(*choice.pod, end); !published) {
    TakeBack(*choice.pod, choice.container);
    const kube::Reason reason = published.error().reason;
    const bool gone = reason == kube::Reason::kNotFound || reason == kube::Reason::kConflict;
    const std::string why =
        Concat({"pod ", choice.pod->FullName(), " can not be updated: ", published.error().message});
    if (!gone) MarkFailed(*choice.pod, "AllocateFailed", why, end);
    return {base::Fail(why), gone};
  }
  const Record& record = *FindRecord(records_, choice.pod->uid, choice.container);
  base::LogInfo(Concat({"allocate: ", Describe(record), record.assumed ? " assumed=true" : ""}));
  std::vector<std::string> cards;
  for (const device::Share& share : record.grant) cards.push_back(share.uuid);
  if (CardsOfSlots(record.slots) != Sorted(std::move(cards))) {
    base::LogWarning("allocate: the kubelet counts other GPUs than the scheduler charged; the scheduler's are used: " +
                     Describe(record));
  }
  return {std::move(response)};
}

// The same slots once more: the same answer. Others: the place that was promised is not needed.
void Allocator::KeepOrLeave(const Record& before, Record& record) const {
  if (before.slots != record.slots) {
    parts_.folders->Remove(before);
    return;
  }
  record.folder = before.folder;
  record.cache = before.cache;
  record.library = before.library;
  record.preload = before.preload;
  record.share_file = before.share_file;
}

// On disk before anything else is told: from here on the grant is taken, whatever happens to us.
base::Result<Response> Allocator::Commit(const Choice& choice, const std::vector<std::string>& slots,
                                         net::Deadline end) {
  const CardBoard::Snapshot cards = parts_.cards();
  const Record* before = FindRecord(records_, choice.pod->uid, choice.container);
  Record record = NewRecord(choice, slots, options_.unix_time());
  record.library = parts_.library;
  if (before != nullptr && !before->folder.empty()) KeepOrLeave(*before, record);
  HAMI_TRY(RealiseMig(record, *cards, end));
  auto response = parts_.respond(record, *cards);
  if (!response) return response;
  auto limits = LimitsOf(record, *cards);
  if (!limits) return tl::unexpected(limits.error());

  Records records = records_;
  std::erase_if(records, [&](const Record& old) {
    return old.owner.uid == record.owner.uid && old.container == record.container;
  });
  Supersede(records, record.slots, record.owner.uid);
  records.push_back(record);
  Materialise(*choice.pod, records, record.given_at);
  HAMI_TRY(Save(std::move(records)));
  if (const base::Status made = parts_.folders->Make(record, SettingsOf(choice, cards->settings, *limits)); !made) {
    TakeBack(*choice.pod, choice.container);
    return tl::unexpected(made.error());
  }
  return response;
}

kube::Status Allocator::Confirm(const PodView& pod, net::Deadline end) {
  const auto got = parts_.cluster->GetPod(pod.ns, pod.name, OneCall(end));
  if (!got) return tl::unexpected(got.error());
  if (*got == nullptr || (*got)->uid != pod.uid) return kube::Fail(kube::Reason::kNotFound, "the pod is gone");
  return {};
}

kube::Status Allocator::Publish(const PodView& pod, net::Deadline end) {
  const Desired desired = DesiredAnnotations(pod, records_);
  // Nothing to write means that nobody says whether the pod is still there.
  const kube::Status patched = desired.changes.empty()
                                   ? Confirm(pod, end)
                                   : Patch(KeyOf(pod), WithSeal(pod, desired.changes, options_.rules), end);
  if (!patched || !desired.finished) return patched;
  // The pod has its devices by now. A lock that stays is taken away by Tend.
  if (const kube::Status released = ReleaseLockOf(pod, end); !released) {
    base::LogWarning("the node lock of pod " + pod.FullName() + " stays for now: " + released.error().message);
  }
  return {};
}

// What was recorded is not going to be answered.
void Allocator::TakeBack(const PodView& pod, int container) {
  Records records = records_;
  const Record* record = FindRecord(records, pod.uid, container);
  if (record == nullptr) return;
  parts_.folders->Remove(*record);
  std::erase_if(records, [&](const Record& r) { return r.owner.uid == pod.uid && r.container == container; });
  if (const base::Status saved = Save(std::move(records)); !saved) base::LogError(saved.error());
  TendMig();
}

void Allocator::MarkFailed(const PodView& pod, const char* event, const std::string& why, net::Deadline end) {
  base::LogError(Concat({"allocate: pod=", pod.FullName(), " failed: ", why}));
  parts_.cluster->Warn(KeyOf(pod), event, why);
  const device::StringMap changes = {{device::kBindPhase, device::kPhaseFailed}, {kAllocateFailure, why}};
  if (const kube::Status marked = Patch(KeyOf(pod), changes, end); !marked) {
    base::LogWarning(Concat({"pod ", pod.FullName(), " is marked as failed later: ", marked.error().message}));
  }
  if (const kube::Status released = ReleaseLockOf(pod, end); !released) {
    base::LogWarning(Concat({"the node lock of pod ", pod.FullName(), " stays for now: ", released.error().message}));
  }
}

kube::Status Allocator::Patch(const PodKey& pod, const device::StringMap& changes, net::Deadline end) {
  if (changes.empty()) return {};
  constexpr int kTries = 3;
  net::Duration pause = options_.retry_pause;
  for (int i = 1;; ++i) {
    const kube::Status done = parts_.cluster->PatchPod(pod, changes, OneCall(end));
    if (done) {
      told_[pod.uid] = {changes, net::After(kToldFor)};
      return done;
    }
    // Said again it says the same, so it does not matter whether it had been heard.
    if (i == kTries || !WorthAnotherTry(done.error().reason) || net::Clock::now() + pause >= end) return done;
    net::Canceller().SleepUntil(net::After(pause));
    pause *= 2;
  }
}

kube::Status Allocator::ReleaseLockOf(const PodView& pod, net::Deadline end) {
  const auto text = parts_.cluster->Lock();
  if (!text) return {};
  const auto owner = ReadLock(*text);
  // A lock that names nobody is that of the only pod on its way, as HAMi before 2.x has it.
  if (!owner) return parts_.cluster->ReleaseLock(*text, OneCall(end));
  if (owner->ns != pod.ns || owner->name != pod.name) return {};
  // One of the same name that came since has it now.
  const std::vector<PodPtr> pods = KnownPods();
  const bool succeeded = std::any_of(pods.begin(), pods.end(), [&](const PodPtr& other) {
    return other->ns == pod.ns && other->name == pod.name && other->uid != pod.uid && !other->Ended();
  });
  return succeeded ? kube::Status() : parts_.cluster->ReleaseLock(*text, OneCall(end));
}

}  // namespace hami::plugin
