// SPDX-License-Identifier: Apache-2.0
//
// Allocations: which container the kubelet is asking for, what it gets, and the books about it. One at a time, as the
// kubelet admits pods. Invariants, whenever the process dies: a grant that was answered has been recorded on disk; a
// record stands for one container; what is wrong in a pod's annotations, the node lock or the folders after a death is
// put right by Tend, which looks at the state and not at what happened. Every way out of Allocate leaves an outcome on
// the pod, or leaves it to Tend to do so as soon as the API server answers.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "plugin/allocation_parts.h"
#include "plugin/mig_keeper.h"

namespace hami::plugin {

struct AllocatorOptions {
  std::string node;
  net::Duration budget = std::chrono::seconds(10);       // all API calls of one allocation together
  net::Duration call_timeout = std::chrono::seconds(2);  // each of them
  net::Duration retry_pause = std::chrono::milliseconds(50);
  std::function<std::int64_t()> unix_time;
  OriginRules rules;
};

// The parts must outlive the allocator.
struct AllocatorParts {
  Cluster* cluster = nullptr;
  RecordKeeper* keeper = nullptr;
  ShareFolders* folders = nullptr;
  KubeletBook* book = nullptr;  // null: nobody tells who holds which slots
  MigKeeper* mig = nullptr;     // null: no GPU is divided here
  std::function<base::Result<Response>(const Record&, const Cards&)> respond;
  std::function<CardBoard::Snapshot()> cards;
  std::string library;  // host path of the libvgpu.so for new containers
};

// One container's wish in GetPreferredAllocation.
struct PreferredRequest {
  std::vector<std::string> available;
  std::vector<std::string> must_include;
  std::size_t size = 0;
};

class Allocator {
 public:
  Allocator(AllocatorParts parts, AllocatorOptions options);

  // Reads the records. Must succeed before anything else is called.
  base::Status Start();

  base::Result<Response> Allocate(const std::vector<std::string>& slots);
  // No errors: without an opinion it is MUST_INCLUDE.
  std::vector<std::string> Prefer(const PreferredRequest& request);

  // Whether several pods may be in flight at once: the kubelet's book must be readable.
  void SetConcurrent(bool concurrent) { concurrent_.store(concurrent); }
  bool concurrent() const { return concurrent_.load(); }

  // Puts right what is not. True when there is something to look at again soon: a pod whose identity is not known yet,
  // or a write that failed.
  bool Tend();

  Records records() const;

  // CHANGE runs while nothing is allocated; it is told which pods use this node's GPUs, or are on their way to, and
  // what was given out.
  void Exclusively(const std::function<void(const std::function<std::vector<std::string>()>& users,
                                            const Records& records)>& change);

 private:
  // What was last written to a pod, until the watch shows it.
  struct Told {
    device::StringMap changes;
    net::Deadline until;
  };
  static constexpr net::Duration kToldFor = std::chrono::seconds(5);
  static constexpr net::Duration kListedFor = std::chrono::seconds(5);
  // The kubelet asks for all containers of a pod at once.
  static constexpr net::Duration kToldAgainFor = std::chrono::minutes(1);
  // A lock without an owner, of HAMi before 2.x, while nobody is on its way.
  static constexpr std::int64_t kNamelessFor = 60;  // seconds
  // A pod that the kubelet has seen is on its way to our watch, too; asking takes longer than that.
  static constexpr net::Duration kWatchPatience = std::chrono::milliseconds(20);

  // All with mutex_ held. A deadline is that of the whole allocation, or of the whole tending.
  std::vector<PodPtr> KnownPods();
  // Pods whose rows stand at the places of others as they are meant.
  std::vector<PodPtr> InPlace(std::vector<PodPtr> pods) const;
  bool KnowsEveryOwner(const std::vector<PodPtr>& pods) const;
  enum class Look { kWatchFirst, kAsk };
  Resolution Find(const std::vector<std::string>& slots, std::size_t size, Look look, net::Deadline end);
  std::optional<Resolution> FindWatched(const std::vector<std::string>& slots, std::size_t size, net::Deadline end);
  Situation SituationOf(std::vector<PodPtr> pods) const;
  struct Granted {
    base::Result<Response> response;
    bool pod_is_gone = false;  // it was known from the watch only
  };
  Granted Grant(const Choice& choice, const std::vector<std::string>& slots, net::Deadline end);
  // The instances that RECORD's container has reserved are there from now on.
  base::Status RealiseMig(Record& record, const Cards& cards, net::Deadline end);
  bool TendMig();
  MigKeeper::Holders MigHolders();
  // Those whose pod is not over, and those that the kubelet alone can tell and still holds. Asks it only then.
  Records RecordsInUse(const std::vector<PodPtr>& pods);
  std::vector<std::string> Users();
  // What was recorded, for a kubelet that asks once more, perhaps for other slots.
  base::Result<Response> AnswerAgain(Record record, const std::vector<std::string>& slots, net::Deadline end);
  base::Error Refuse(const Stranger& stranger, net::Deadline end);
  base::Result<Response> Commit(const Choice& choice, const std::vector<std::string>& slots, net::Deadline end);
  void KeepOrLeave(const Record& before, Record& record) const;
  kube::Status Confirm(const PodView& pod, net::Deadline end);
  kube::Status Publish(const PodView& pod, net::Deadline end);
  void TakeBack(const PodView& pod, int container);
  void MarkFailed(const PodView& pod, const char* event, const std::string& why, net::Deadline end);
  void FailUnreadable(net::Deadline end);

  base::Status SettleWith(const std::vector<PodPtr>& pods, const std::optional<Holdings>& holdings,
                          bool find_undelivered);
  void ReportExchanges(const std::vector<Exchange>& exchanges);
  bool LinkFolders();
  bool MendPods(const std::vector<PodPtr>& pods, net::Deadline end);
  bool MendNamelessLock(const std::string& text, const std::vector<PodPtr>& pods, net::Deadline end);
  bool MendLock(const std::vector<PodPtr>& pods, net::Deadline end);
  std::optional<Holdings> AskKubelet(net::Deadline end);

  kube::Status Patch(const PodKey& pod, const device::StringMap& changes, net::Deadline end);
  kube::Status ReleaseLockOf(const PodView& pod, net::Deadline end);
  base::Status Save(Records records);
  // What another plugin of this node saved, while the one takes over from the other.
  void TakeOver();
  net::Deadline OneCall(net::Deadline end) const;

  const AllocatorParts parts_;
  const AllocatorOptions options_;
  std::atomic<bool> concurrent_ = false;
  mutable std::mutex mutex_;
  Records records_;
  std::map<std::string, Told> told_;  // by uid
  // What the API server listed last, for the pods that the watch has not shown yet.
  std::vector<PodPtr> listed_;
  net::Deadline listed_until_{};
  std::set<std::string> passed_;                      // uids of pods that were refused as never placed
  std::map<ContainerKey, net::Deadline> told_again_;  // of running pods, for which the kubelet asked anew
  // The lock, if it names nobody, and since when it is the same.
  std::string nameless_lock_;
  std::int64_t nameless_since_ = 0;
};

}  // namespace hami::plugin
