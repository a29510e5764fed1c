// SPDX-License-Identifier: Apache-2.0
//
// A node in memory for tests of allocations: the API server with watches that lag, a disk, the kubelet's book. Every
// call of the allocator can be made to kill it, before or after the call took effect.

#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "base/units.h"
#include "device/allocation_codec.h"
#include "device/annotations.h"
#include "plugin/allocator.h"
#include "plugin/slots.h"
#include "plugin/testing/mig_world.h"

namespace hami::plugin {

inline constexpr const char* kNode = "node-1";

inline std::string CardName(int number) {
  return "GPU-0000000" + std::to_string(number) + "-1111-2222-3333-444444444444";
}

inline Cards MakeTestCards(int count, int slots = 10) {
  Cards cards;
  cards.ready = true;
  cards.generation = 1;
  for (int i = 0; i < count; ++i) {
    Card card;
    card.uuid = CardName(i);
    card.index = static_cast<unsigned>(i);
    card.minor = card.index;
    card.bus_id = "0000:0" + std::to_string(i) + ":00.0";
    card.physical_memory = card.memory = 81920;
    card.cores = 100;
    card.slots = slots;
    cards.cards.push_back(std::move(card));
  }
  return cards;
}

inline device::Share ShareOf(int card, device::MiB memory, int cores = 30) {
  return {CardName(card), "NVIDIA", memory, cores};
}

inline const device::PodGrant kOne = {{ShareOf(0, 1000)}};
inline const std::string kSlot = SlotId(CardName(0), 0);

// What a pod asks for that is given GRANT.
inline device::Container AskFor(const device::ContainerGrant& grant) {
  device::Container ask;
  if (grant.empty()) return ask;
  ask.limits = {{"nvidia.com/gpu", std::to_string(grant.size())},
                {"nvidia.com/gpumem", std::to_string(grant.front().memory)},
                {"nvidia.com/gpucores", std::to_string(grant.front().cores)}};
  return ask;
}

// A pod that was bound to the node and is on its way.
inline PodView BoundPod(const std::string& name, device::PodGrant grant, std::int64_t bind_time = 100) {
  PodView pod;
  pod.ns = "default";
  pod.name = name;
  pod.uid = "uid-" + name;
  pod.node = pod.assigned_node = kNode;
  pod.status_phase = "Pending";
  pod.bind_phase = device::kPhaseAllocating;
  pod.bind_time = bind_time;
  pod.scheduler_name = "hami-scheduler";
  for (std::size_t i = 0; i < grant.size(); ++i) {
    pod.asks.push_back(AskFor(grant[i]));
    ContainerView container;
    container.name = "c" + std::to_string(i);
    pod.containers.push_back(std::move(container));
  }
  pod.to_allocate = grant;
  pod.allocated = std::move(grant);
  return pod;
}

// A pod that nobody placed: it asks for COUNT devices, and was put on the node all the same.
inline PodView UnplacedPod(const std::string& name, int count) {
  PodView pod;
  pod.ns = "default";
  pod.name = name;
  pod.uid = "uid-" + name;
  pod.node = kNode;
  pod.status_phase = "Pending";
  pod.scheduler_name = "default-scheduler";
  pod.containers.emplace_back().name = "c0";
  pod.asks.emplace_back().limits["nvidia.com/gpu"] = std::to_string(count);
  return pod;
}

inline PodPtr Ptr(PodView pod) { return std::make_shared<const PodView>(std::move(pod)); }

// What kill -9 is to a test.
struct Killed {};

class World : public Cluster, public RecordKeeper, public ShareFolders, public KubeletBook {
 public:
  // What is true.
  std::map<std::string, PodView> api;  // by uid
  std::optional<std::string> lock;
  std::string disk = EncodeRecords({});
  std::map<std::string, std::string> folders;  // path → cache
  std::map<std::string, std::string> links;    // containers/<uid>_<name> → path
  Holdings holdings;
  std::int64_t now = 1000;
  std::set<std::string> gone;  // what the watch showed the end of
  OriginRules rules{{"hami-scheduler"}, false, {}, {}};

  // How it behaves.
  bool lagging = false;                             // the watch shows nothing until Deliver
  bool soon = false;                                // or until somebody waits for it
  bool others_saved = false;                        // another plugin replaced DISK
  int kill_at = -1;                                 // the call that kills; counted down
  bool kill_after = false;                          // only once it took effect
  std::deque<kube::Reason> refuse;                  // what the next calls to the API end with
  int refuse_release = 0;                           // how many releases of the lock fail
  bool full_disk = false;                           // no folder can be made
  net::Duration budget = std::chrono::seconds(10);  // of the next life's allocations
  bool book_works = true;
  MigWorld* mig = nullptr;  // null: no GPU is divided

  // What was asked.
  int calls = 0;
  int writes = 0;  // to the API server
  int reads = 0;
  int saves = 0;                 // of the records
  net::Duration longest_call{};  // that was allowed
  std::vector<std::string> warnings;
  std::map<std::string, device::StringMap> annotations;  // by uid: what was written to the pods

  void Deliver() {
    for (const auto& [uid, pod] : seen_) {
      if (!api.contains(uid)) gone.insert(uid);
    }
    seen_ = api;
  }

  // Cluster
  std::vector<PodPtr> Pods() override {
    if (!lagging) Deliver();
    std::vector<PodPtr> pods;
    for (const auto& [uid, pod] : seen_) pods.push_back(Ptr(pod));
    return pods;
  }
  std::optional<std::string> Lock() override { return lock; }
  bool Synced() override { return true; }
  bool IsGone(const std::string& uid) override { return gone.contains(uid); }
  std::uint64_t Changes() override { return 0; }
  bool AwaitChange(std::uint64_t, net::Deadline) override {
    if (!soon) return false;
    Deliver();
    return std::exchange(soon, false);
  }
  kube::Result<std::vector<PodPtr>> ListPods(net::Deadline deadline) override {
    const Step step(*this);
    Allow(deadline);
    ++reads;
    if (auto error = TakeRefusal()) return tl::unexpected(*error);
    std::vector<PodPtr> pods;
    for (const auto& [uid, pod] : api) pods.push_back(Ptr(pod));
    return pods;
  }
  kube::Result<PodPtr> GetPod(const std::string& ns, const std::string& name, net::Deadline deadline) override {
    Allow(deadline);
    ++reads;
    if (auto error = TakeRefusal()) return tl::unexpected(*error);
    for (const auto& [uid, pod] : api) {
      if (pod.ns == ns && pod.name == name) return Ptr(pod);
    }
    return PodPtr();
  }
  kube::Status PatchPod(const PodKey& key, const device::StringMap& changes, net::Deadline deadline) override {
    Step step(*this);
    Allow(deadline);
    ++writes;
    if (auto error = TakeRefusal()) return tl::unexpected(*error);
    const auto found = api.find(key.uid);
    if (found == api.end()) return kube::Fail(kube::Reason::kNotFound, "pods \"" + key.name + "\" not found");
    for (const auto& [name, value] : changes) {
      annotations[key.uid][name] = value;
      if (name == device::kBindPhase) found->second.bind_phase = value;
      if (name == kToAllocate) found->second.to_allocate = *device::DecodeGrant(value);
      if (name == kAllocated) found->second.allocated = *device::DecodeGrant(value);
      if (name == device::kMigAllocations) found->second.reservations = *device::DecodeReservations(value);
      if (name == device::kAssignedNode) found->second.assigned_node = value;
    }
    step.Done();
    return {};
  }
  kube::Status ReleaseLock(const std::string& value, net::Deadline deadline) override {
    Step step(*this);
    Allow(deadline);
    ++writes;
    if (auto error = TakeRefusal()) return tl::unexpected(*error);
    if (refuse_release > 0) {
      --refuse_release;
      return kube::Fail(kube::Reason::kTimeout, "refused by the test");
    }
    if (lock == value) lock.reset();
    step.Done();
    return {};
  }
  void Warn(const PodKey& pod, std::string_view reason, std::string_view) override {
    warnings.push_back(base::Concat({pod.name, ":", reason}));
  }

  // RecordKeeper
  base::Result<Records> Load() override {
    others_saved = false;
    return DecodeRecords(disk);
  }
  bool Changed() override { return others_saved; }
  base::Status Save(const Records& records) override {
    Step step(*this);
    disk = EncodeRecords(records);
    ++saves;
    step.Done();
    return {};
  }

  // ShareFolders
  bool Has(const Record& record) override { return folders.contains(record.folder); }
  base::Status Make(const Record& record, const RegionSettings&) override {
    Step step(*this);
    if (full_disk) return base::Fail("no space left");
    folders[record.folder] = record.cache;
    step.Done();
    return {};
  }
  base::Status Link(const Record& record) override {
    links["containers/" + record.owner.uid + "_" + record.container_name] = record.folder;
    return {};
  }
  void Remove(const Record& record) override {
    folders.erase(record.folder);
    std::erase_if(links, [&](const auto& link) { return link.second == record.folder; });
  }
  void RemoveAllBut(const Records& records) override {
    std::erase_if(folders, [&](const auto& folder) {
      return std::none_of(records.begin(), records.end(), [&](const auto& r) { return r.folder == folder.first; });
    });
    std::erase_if(links, [&](const auto& link) { return !folders.contains(link.second); });
  }

  // KubeletBook
  base::Result<Holdings> List(net::Deadline deadline) override {
    const Step step(*this);
    Allow(deadline);
    if (!book_works) return base::Fail("no pod-resources");
    return holdings;
  }

  // A life of the allocator. Its answers are those of production.
  std::unique_ptr<Allocator> NewAllocator(bool concurrent, Cards cards = MakeTestCards(2)) {
    board_ = std::make_shared<const Cards>(std::move(cards));
    AllocatorParts parts;
    parts.cluster = this;
    parts.keeper = this;
    parts.folders = this;
    parts.book = this;
    if (mig != nullptr) {
      keeper_ = std::make_unique<MigKeeper>(*mig, *mig);
      if (!keeper_->Start()) return nullptr;
      parts.mig = keeper_.get();
    }
    parts.library = "/usr/local/vgpu/libvgpu.so.hami-cpp-1";
    parts.cards = [this] { return board_; };
    parts.respond = [this](const Record& record, const Cards& now_cards) {
      ResponseSettings settings;
      settings.options = &options_;
      return MakeResponse(record, now_cards, settings);
    };
    AllocatorOptions options;
    options.node = kNode;
    options.budget = budget;
    options.retry_pause = net::Duration::zero();
    options.unix_time = [this] { return now; };
    options.rules = rules;
    auto allocator = std::make_unique<Allocator>(std::move(parts), options);
    allocator->SetConcurrent(concurrent);
    if (!allocator->Start()) return nullptr;
    return allocator;
  }

  PodView& Add(PodView pod) { return api[pod.uid] = pod; }
  PodView& Pod(const std::string& name) { return api.at("uid-" + name); }
  // The kubelet keeps what it was answered.
  void Hold(const std::string& pod, const std::string& container, const std::vector<std::string>& slots) {
    holdings.push_back({"default", pod, container, Sorted(slots)});
  }

 private:
  // One call out of the allocator: the place where it may die.
  class Step {
   public:
    explicit Step(World& world) : world_(world) {
      ++world_.calls;
      due_ = world_.kill_at >= 0 && world_.kill_at-- == 0;
      if (due_ && !world_.kill_after) throw Killed();
    }
    void Done() const {
      if (due_) throw Killed();
    }

   private:
    World& world_;
    bool due_ = false;
  };

  void Allow(net::Deadline deadline) { longest_call = std::max(longest_call, deadline - net::Clock::now()); }

  std::optional<kube::Error> TakeRefusal() {
    if (refuse.empty()) return std::nullopt;
    const kube::Reason reason = refuse.front();
    refuse.pop_front();
    return kube::Error{{"refused by the test", {}}, reason, 0, {}};
  }

  std::map<std::string, PodView> seen_;
  CardBoard::Snapshot board_;
  std::unique_ptr<MigKeeper> keeper_;
  Options options_;
};

}  // namespace hami::plugin
