// SPDX-License-Identifier: Apache-2.0
//
// Everything the scheduler knows, under one mutex: the ledger of cards, pods and quotas, the decider, the pods that are
// placed and not yet bound, and what is known of each node. An event or a decision holds the mutex for microseconds;
// nobody calls the API server while holding it.
//
// A pod that was placed or bound here stays charged until its end, its failure or its expiry: an older view of it,
// which a watch may still deliver, never takes the charge back.

#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/grant_seal.h"
#include "device/handshake.h"
#include "device/pod.h"
#include "device/vendor.h"
#include "sched/filter.h"
#include "sched/ledger.h"
#include "scheduler/api.h"
#include "scheduler/in_flight.h"
#include "scheduler/node_lock.h"

namespace hami::scheduler {

// A pod as a Filter request brings it.
using Candidate = device::PodObject;

// A resourceVersion of the API server; 0: none.
inline std::uint64_t VersionNumber(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// A pod that was placed and is not known to be bound.
struct Pending {
  enum class Stage {
    kPlaced,   // waits for the bind call
    kBinding,  // a bind call is at work on it
    kUnknown,  // the Binding was posted and nobody knows what became of it
  };
  Candidate candidate;
  std::string node;
  device::Allocation allocation;
  Changes annotations;
  // Where else kube-scheduler may bind it, the node itself included, best first; empty: nowhere.
  std::vector<sched::NodeScore> offered;
  std::uint64_t foreign = 0;  // the node's, when this was decided
  Stage stage = Stage::kPlaced;
  device::UnixSeconds since = 0;
  bool lapsed = false;  // nothing is charged any more: a bind call that comes all the same decides anew
};

// A node that a bind call waited for in vain.
struct TakenNode {
  device::UnixSeconds until = 0;
  std::string lock;  // that stood there
};

// What is known of one node beside its cards.
struct NodeBook {
  NodeView view;
  bool exists = false;
  std::string looked_at;  // the version of the view of which Registration has seen all that concerns it
  // The number of the last change of the node's books that was not decided here: a decision from before is asked again.
  std::uint64_t foreign = 0;
  std::map<std::string, InFlight, std::less<>> in_flight;  // by uid
  bool patching = false;                                   // a bind call is changing the node
  LockSighting lock;                                       // of the view's
  LockSighting own_lock;                                   // of one vendor
  std::string digested;                                    // the other scheduler's ticket that was looked into
  std::string stranger;                                    // the one that is being looked into
  Millis stranger_since = 0;                               // by the steady clock
  std::uint64_t caught_up = 0;                             // the BindTerm in which node and pods were last read anew
  struct Vendor {
    device::HandshakeMemory memory;
    device::HandshakeAction owed = device::HandshakeAction::kNothing;  // to be written on the node
    std::size_t read_from = 0;  // a digest of the annotations that the cards come from; 0: none
  };
  std::vector<Vendor> vendors;
};

struct Borrowed {
  std::string ns;
  std::string name;
  device::UnixSeconds since = 0;
};

// How a pod is to be placed.
struct PlaceOptions {
  bool explain = false;   // list every node's answer
  std::size_t offer = 0;  // so many nodes kube-scheduler may choose from; 0: it goes where it is placed
  bool preempt = false;   // where it finds no place, pods of lower priority are to go
};

// A pod that finds its place when others have gone.
struct Nomination {
  std::string node;
  std::vector<Owner> victims;
  device::Allocation allocation;  // what is kept for it meanwhile
  device::UnixSeconds asked = 0;  // for their eviction, last
  device::UnixSeconds until = 0;  // it is asked for no more
  std::set<std::string> spared;   // uids that cannot be evicted now
};

// A pod that is to go, and the one that it goes for.
struct Eviction {
  Owner victim;
  Owner preemptor;
};

// On a node: when room was last made here, or elsewhere, that pods had been refused for; milliseconds.
inline constexpr const char* kRoomMade = "hami-cpp/room-made";

// What is believed of a pod's annotations. Without one they are believed up to what the pod asks for.
using JudgeClaim = std::function<sched::Trust(const device::Pod& pod)>;
// By the seals of KEYS, which must outlive it; what has none is believed, or not.
JudgeClaim JudgeSeals(device::GrantKeyring& keys, bool believe_unsealed);

class State {
 public:
  State(const device::Vendors& vendors, sched::PolicyDefaults defaults, device::UnixSeconds assume_seconds,
        JudgeClaim judge)
      : ledger(vendors, assume_seconds),
        filter(ledger, vendors, std::move(defaults), hosts),
        vendors_(vendors),
        assume_seconds_(assume_seconds),
        judge_(std::move(judge)) {}

  // What the API server tells. True: the pod is from now on one whose grant nobody can read, which closes its node.
  bool PodSeen(const device::Pod& pod, device::UnixSeconds now);
  void PodGone(std::string_view uid);
  // Read past the watch, which may not have come that far.
  void PodBorrowed(const device::Pod& pod, device::UnixSeconds now);
  void StillBorrowed(const std::string& uid, device::UnixSeconds now);
  // False: the view is older than what is known, and was left aside. RESTORED: by a server whose versions went back.
  bool NodeSeen(NodeView view, bool restored = false);
  // The same by the answer to a call, which may come later than the node's end: only the watch makes nodes exist.
  bool NodeAnswered(NodeView view);
  // Whether there is nothing to learn from this version of the node. Our own writes come back by the watch.
  bool KnowsNode(std::string_view name, std::string_view version) const;
  void NodeGone(std::string_view name);
  void CardsSeen(NodeBook& node, int vendor, const device::NodeCards& cards);

  // Decides where the pod goes and charges it. What is to be written for a pod that was placed is in its Pending, and
  // no more in the decision. Where kube-scheduler may choose (MoveTo), the pod is charged on the best of the nodes,
  // where it will mostly go. A member of a group may wait for the others before it is bound, for longer than others may
  // be kept from two nodes: it is offered the one where it is charged.
  sched::Decision Place(Candidate candidate, std::span<const std::string_view> names, device::UnixSeconds now,
                        const PlaceOptions& options);
  sched::Decision Place(Candidate candidate, std::span<const std::string_view> names, device::UnixSeconds now,
                        bool explain) {
    return Place(std::move(candidate), names, now, PlaceOptions{.explain = explain});
  }
  // kube-scheduler chose NODE of those that the pod was offered: decided there, and charged there and no more where it
  // was. False: there is no room any more, and the pod holds nothing.
  bool MoveTo(std::string_view uid, const std::string& node, device::UnixSeconds now);
  // kube-scheduler says of a pod that was placed that it has no node, and says so since it asked where to put it: it is
  // given up (a wait for its group timed out, a volume could not be had), and what it held is room for others. The same
  // words again are not written, and not seen: from then on the pod is held for no longer than it took, and as long
  // again.
  void Refused(const device::PodObject& pod, device::UnixSeconds now);
  // A bind call waited for NODE in vain. While the lock that stands there stays, and for half a minute at most, pods go
  // there only when they fit on no other node.
  void NodeWasTaken(const std::string& node, device::UnixSeconds now);
  // A bind call is at work on the pod: until that ends, or it is known how it ended, the charge stays.
  void BindBegins(Pending& pending);
  // Whether what was decided for a pod that is being bound can still be had. Where the node has changed by other hands
  // it is decided anew, on the same node: nothing has been written yet.
  bool StillFits(std::string_view uid, device::UnixSeconds now);
  // Takes the charge of a pod that will not be bound back.
  void Drop(std::string_view uid);
  // The same after a bind call that failed: what the pod had is room for others.
  void GiveUp(std::string_view uid);
  // Once, for a pod that asked for nothing and was left to kube-scheduler: true.
  bool TakePassed(std::string_view uid);
  // The pod was asked for with whole nodes, which is a simulation; and whether it was of late, not with names since.
  void Simulated(const std::string& uid, device::UnixSeconds now);
  bool OnlySimulated(const std::string& uid) const { return simulated_.count(uid) > 0; }
  // What is to be evicted now, once.
  std::vector<Eviction> TakeEvictions() { return std::exchange(evictions_, {}); }
  // It cannot go: another choice is made when the pod that needs the room is asked for again.
  void EvictionRefused(const Eviction& eviction);
  // Ends the wish of a pod, that is not bound, for the node.
  void LeaveNode(std::string_view uid, std::string_view node);
  // The pod was bound with what its Pending says.
  void Bound(std::string_view uid, device::UnixSeconds now);
  // Takes the charge of what was placed or passed and never bound; returns the UIDs of those that were placed.
  std::vector<std::string> Expire(device::UnixSeconds now);

  // kube-scheduler asks again for the pods that we refused when it sees what made room, but it may see that before we
  // do; then it is refused again, and does not ask for minutes. (Of a quota that was raised it hears nothing.) So after
  // a refusal, room that we see being made is to be shown on a node, which makes it ask once more.
  //
  // Room was made on NODE; empty: somewhere.
  void RoomMade(std::string_view node);
  // The node to show it on, once.
  std::optional<std::string> TakeRoom();
  // It could not be shown on NODE, and is still to be.
  void RoomNotShown(std::string_view node);

  bool IsBoundTo(std::string_view uid, std::string_view node) const;
  Pending* FindPending(std::string_view uid);
  NodeBook* FindNode(std::string_view name);
  // Exists from the first time that anything is known of the node.
  NodeBook& NodeAt(std::string_view name);
  const device::Vendors& vendors() const { return vendors_; }
  const auto& pendings() const { return pendings_; }
  const auto& nodes() const { return nodes_; }
  // Pods on nodes that the watch has not shown there yet: read past it, or bound by us. One that it never shows (it
  // ended in between) has to be asked for, or it would be charged forever.
  const auto& borrowed() const { return borrowed_; }

  sched::Ledger ledger;
  sched::HostBooks hosts;  // empty unless fragmentation is a default
  sched::Filter filter;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  template <typename T>
  using ByText = std::unordered_map<std::string, T, Hash, std::equal_to<>>;

  // The node's books have changed by other hands. Numbers are never used again, also not for a node that comes back.
  void Changed(std::string_view node);
  // Of a node that does not exist nothing is kept but what bind calls and plugins are at work on.
  void DropIfGone(std::string_view node);
  void NoteInFlight(const device::Pod& pod, const sched::PodRecord& record, device::UnixSeconds now);
  void ForgetInFlight(std::string_view uid, std::string_view node);
  void ForgetPlaced(std::string_view uid);
  // The ledger's part of PodSeen.
  bool Book(const device::Pod& pod);
  // What the pod requests of its node beside devices; and that it does so no more.
  void BookHost(const device::Pod& pod);
  void DropHost(std::string_view uid);
  // Room for a pod that found none: whose pods are to go, and what they have is kept for it.
  void Nominate(const Candidate& candidate, std::span<const std::string_view> names, device::UnixSeconds now,
                sched::Decision& decision);
  bool IsTaken(std::string_view node, device::UnixSeconds now) const;
  // Nodes that are taken come after all others.
  sched::Decision Decide(const device::Pod& pod, std::span<const std::string_view> names,
                         const sched::FilterOptions& options);
  // How long a placement is charged while no bind call comes.
  device::UnixSeconds HoldFor(std::string_view uid) const;
  // Takes the grants and annotations out of the decision.
  void Keep(Candidate candidate, sched::Decision& decision, device::UnixSeconds now, device::UnixSeconds hold);

  const device::Vendors& vendors_;
  const device::UnixSeconds assume_seconds_;
  const JudgeClaim judge_;
  ByText<Pending> pendings_;
  ByText<device::UnixSeconds> passed_;     // asked for nothing and wait for their bind call, until when
  ByText<device::UnixSeconds> simulated_;  // likewise, some of those that were only asked for with whole nodes
  ByText<NodeBook> nodes_;
  std::map<std::string, TakenNode, std::less<>> taken_;
  ByText<device::UnixSeconds> patience_;  // after how long kube-scheduler gave a pod up, that was placed; by uid
  std::map<std::string, Nomination, std::less<>> nominations_;  // by uid
  std::vector<Eviction> evictions_;
  std::map<std::string, Borrowed> borrowed_;  // by uid
  std::uint64_t changes_ = 0;
  bool refused_ = false;  // somebody found no place since room was last shown
  std::optional<std::string> room_;
};

class Books {
 public:
  // ASSUME_SECONDS: how long a pod that was placed keeps its charge without being bound.
  Books(device::Vendors vendors, sched::PolicyDefaults defaults, device::UnixSeconds assume_seconds = 300,
        JudgeClaim judge = {})
      : vendors_(std::move(vendors)),
        defaults_(std::move(defaults)),
        state_(vendors_, defaults_, assume_seconds, std::move(judge)) {}
  Books(const Books&) = delete;
  Books& operator=(const Books&) = delete;

  // F(State&) with the mutex held; its result.
  template <typename F>
  auto Locked(F&& f) {
    const std::scoped_lock lock(mutex_);
    return std::forward<F>(f)(state_);
  }
  // F(const State&) with the mutex held: metrics, admission, checks. Copy out what is needed, format afterwards.
  template <typename F>
  auto Read(F&& f) const {
    const std::scoped_lock lock(mutex_);
    return std::forward<F>(f)(static_cast<const State&>(state_));
  }

  // Configuration: read without the mutex.
  const device::Vendors& vendors() const { return vendors_; }
  const sched::PolicyDefaults& defaults() const { return defaults_; }

 private:
  const device::Vendors vendors_;
  const sched::PolicyDefaults defaults_;
  mutable std::mutex mutex_;
  State state_;
};

}  // namespace hami::scheduler
