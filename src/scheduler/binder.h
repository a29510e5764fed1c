// SPDX-License-Identifier: Apache-2.0
//
// Brings a placed pod to its node: where a lock or a ticket is needed (node_lock.h, bind_lease.h) by a write of the
// node, then by a Binding that carries the pod's annotations, so that a pod is never bound without them nor annotated
// without being bound. A failure at any point gives back the charge and the lock; when nobody can tell whether the
// Binding happened, the pod keeps its charge until the question is settled. A pod that was not placed here, or whose
// charge has expired, is refused: the next Filter places it again. A pod that asked for nothing is bound by a
// bare Binding. Thread-safe; one call works on one pod.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/grant_seal.h"
#include "scheduler/api.h"
#include "scheduler/bind_lease.h"
#include "scheduler/books.h"
#include "scheduler/events.h"
#include "scheduler/node_lock.h"

namespace hami::scheduler {

struct BindRequest {
  std::string ns;
  std::string name;
  std::string uid;
  std::string node;
};

struct BinderOptions {
  std::string writer = "hami-scheduler";  // NewWriterName: tells our tickets from those of others
  LockOptions lock;
  device::GrantKeyring* keys = nullptr;  // what grants are sealed with; none: they are not
  // How long a bind call waits for a node that is taken: members of a PodGroup, which fail together, and others.
  Millis group_wait = 28'000;
  Millis other_wait = 2'000;
  int most_waiting = 192;  // more are refused at once: each holds a thread of the server, and so do reviews and filters
  Millis look_again = 10;  // while waiting
  Millis ask_again = 1'000;  // between two questions whether a lock's owner exists
};

class Binder {
 public:
  Binder(Books& books, Api& api, Time& time, BindLease& lease, RecordEvent record, BinderOptions options)
      : books_(books),
        api_(api),
        time_(time),
        lease_(lease),
        record_(std::move(record)),
        options_(std::move(options)) {}

  base::Status Bind(const BindRequest& request, const std::function<bool()>& abandoned);

  // Settles the Bindings nobody heard back from. Called now and then.
  void Settle();
  bool Unsettled() const;
  // Whatever was posted for the pod before fails from now on. NotFound: there is no such pod any more.
  kube::Status RevokeBefore(const Owner& pod);

  struct Counters {
    std::uint64_t bound = 0;
    std::uint64_t failed = 0;
    std::uint64_t unknown = 0;  // ended without knowing; what such a one turns out to be is counted then
    std::uint64_t contended = 0;
    std::uint64_t asked_again = 0;  // decided anew because the node had changed
  };
  Counters counters() const;

 private:
  struct Work;
  class Waiting;
  static constexpr int kMostTries = 6;  // of one write that others keep getting in the way of
  // What a pod turned out to be after an answer that says little.
  enum class Fate { kOurs, kFree, kLost };
  // What a bind call may have left on its node.
  enum class Trace {
    kNone,
    kWritten,  // as far as the books know
    kUnheard,  // by a write whose answer nobody heard: the node itself has to be asked
  };
  // What is left on a node for a pod that gives it back.
  enum class Left {
    kNothing,  // or what the pod is bound by
    kInUse,    // by its next bind call: when that is over, it is to be looked at again
  };
  struct Release {
    std::string node;
    Owner pod;
    bool unheard = false;
    bool own_lock = false;  // the pod took that of its vendor, too
  };

  base::Status Run(Work& work, const std::function<bool()>& abandoned);
  bool BoundTo(const std::string& uid, const std::string& node) const;
  base::Status BindBare(const Work& work);
  base::Status Start(State& state, Work& work);
  // VERDICT: the first, that was not to go at once.
  base::Status TakeNode(Work& work, GateVerdict verdict, const std::function<bool()>& abandoned);
  GateVerdict Judge(State& state, Work& work, bool caught_up);
  GateVerdict JudgeAgain(Work& work);
  // The node was waited for in vain: the next pods are for others, if they can be.
  void GoElsewhere(const std::string& node);
  base::Status WriteTicket(Work& work, const GateVerdict& verdict);
  // Both: false when it is too early to go on.
  base::Result<bool> OwnerIsGone(Work& work, const Owner& owner);
  base::Result<bool> Digest(Work& work, const Ticket& ticket, const std::string& text);
  base::Result<bool> CatchUp(Work& work);
  base::Result<bool> IsSettled(const Owner& owner, const std::string& node, Millis age);
  // The pod's placement here, when no Binding of ours can be on its way: kube-scheduler has handed the pod over to us.
  static Pending* OnOurHands(State& state, const Owner& owner, const std::string& node);
  void AdoptRevoked(const Owner& owner, const std::string& node, const PodView& pod);
  base::Status Prepare(State& state, Work& work);
  void Seal(Binding& binding, const device::StringMap& carried) const;
  base::Status Post(Work& work);
  base::Status AfterSilence(Work& work, const Pending& pending, const kube::Error& error);
  Fate Examine(const Pending& pending, const PodView& pod, std::string& why) const;
  Fate ExamineSealed(const Pending& pending, const PodView& pod, std::string& why) const;
  static device::StringMap LabelsFor(const std::string& node);
  void Succeed(const Owner& pod);
  // The same of a Binding whose answer was not heard.
  void FoundBound(const Owner& pod, const std::string& node);
  void GiveBack(const Owner& pod, const std::string& node, Trace trace);
  kube::Result<Left> ReleaseNode(const Release& release);
  void Owe(Release release);
  kube::Result<PodView> Revoke(const Owner& owner);
  void SettleUnknown();
  void SettleReleases();
  void SettleBorrowed();

  Books& books_;
  Api& api_;
  Time& time_;
  BindLease& lease_;
  const RecordEvent record_;
  const BinderOptions options_;
  std::mutex mutex_;
  std::vector<Release> owed_;  // nodes that could not be given back yet
  std::atomic<int> waiting_ = 0;
  std::atomic<std::uint64_t> bound_ = 0, failed_ = 0, unknown_ = 0, contended_ = 0, asked_again_ = 0;
};

}  // namespace hami::scheduler
