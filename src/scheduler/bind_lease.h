// SPDX-License-Identifier: Apache-2.0
//
// Who may bind, and whether a ticket on the node (node_lock.h) is needed for it. A scheduler that is alone needs none:
// nobody decides beside it. That it is alone it knows by a lease that all schedulers of a cluster share:
//
//   holder           who is alone; nobody: whoever is a member binds, and writes tickets
//   members          who binds or wants to, each with a beat that changes as long as it lives
//
// Every write holds only for the version of the lease that it was based on, so there is one history of it. A member's
// word, that it may bind, is good for kHold from before it sent its last beat; a beat that stood still for kPatience
// is that of a dead one. In between nobody binds for it. From this follow the four changes:
//
//   nobody    -> holder    when there is no other member
//   holder    -> nobody    when another member has come, and nothing the holder posted is still on its way
//   dead one  -> holder    what the dead one posted may still arrive, which the lease says: before anybody binds,
//                          every pod that has no node is marked revoked, so that its version is another and such a
//                          Binding is refused
//   member    -> gone      it does not want any more, or is dead; its tickets speak for it
//
// Each time that somebody gets to bind a term begins, and what others did before it must be in the books before a node
// is used: its watches have come as far as the server was when the term began, or the node is read anew.
//
// Where the lease can not be had for want of rights, every bind writes its ticket, as if others were there.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "net/cancel.h"
#include "scheduler/api.h"

namespace hami::scheduler {

// On the lease: `WRITER=BEAT,…`.
inline constexpr const char* kMembers = "hami-cpp/binders";
inline constexpr const char* kUnclean = "hami-cpp/unclean";  // there: LeaseView::unclean

using Members = std::map<std::string, std::string, std::less<>>;  // writer to beat
// Nothing: no such text. A writer or beat is never empty.
std::optional<Members> ParseMembers(std::string_view text);
std::string FormatMembers(const Members& members);

enum class BindMode {
  kNobody,   // may not bind
  kTickets,  // with a ticket on the node
  kAlone,    // without
};

// From one change of the mode to the next.
struct BindTerm {
  BindMode mode = BindMode::kNobody;
  std::uint64_t number = 0;
  Versions from;
};

// What to do about a lease. Pure.
struct LeaseInput {
  LeaseView lease;
  std::string self;
  std::string beat;            // our next
  bool wants = true;           // do we want to bind?
  bool drained = true;         // nothing that we posted alone is on its way
  bool cleaned = false;        // since we hold it every pod without a node was revoked
  std::set<std::string> dead;  // members, or a holder, whose beat stood still
};
struct LeaseStep {
  bool writes = false;
  LeaseView next;                     // to be written
  BindMode mode = BindMode::kNobody;  // once that is done
};
LeaseStep NextLease(const LeaseInput& input);

struct BindLeaseOptions {
  std::string writer = "hami-scheduler";
  bool enabled = true;  // false: tickets always
  Millis hold = 5'000;
  Millis patience = 8'000;
  Millis beat = 1'000;
  // How long the server may say that we have no right to the lease before we do without it: at the start, and later,
  // when others may have it.
  Millis forbidden_first = 3'000;
  Millis forbidden_later = 60'000;
  Millis longest_request = 120'000;  // kube-apiserver ends each after --request-timeout, a minute
};

class BindLease {
 public:
  struct Needs {
    std::function<bool()> wants;        // does this scheduler place pods?
    std::function<bool()> unsettled;    // are there Bindings of which nobody knows what became of them?
    std::function<Versions()> reached;  // how far the watches have come
    std::function<kube::Status(const Owner&)> revoke;
  };
  BindLease(Api& api, Time& time, Needs needs, BindLeaseOptions options);

  // One look at the lease, and what that asks for. From one thread.
  void Tick();
  // Ticks until STOP is thrown, and leaves then. Nobody may be binding any more.
  void Run(const net::Canceller& stop);

  BindTerm term() const;
  // Is what others did before TERM in the books?
  bool CaughtUp(const BindTerm& term) const;

  // While this lives a Binding may be posted that was prepared in TERM, and nobody else takes over in good order.
  class Posting {
   public:
    Posting(BindLease& lease, const BindTerm& term, bool ticketed);
    ~Posting();
    Posting(const Posting&) = delete;
    Posting& operator=(const Posting&) = delete;
    // To be asked before every Binding.
    bool may() const;

   private:
    BindLease& lease_;
    const BindTerm term_;
    const bool ticketed_;
  };

 private:
  struct Seen {
    std::string beat;
    Millis since = 0;
  };

  bool Turn();
  bool Read();
  void Refused(const kube::Error& error);
  void SayOnce(std::string complaint);
  LeaseStep Decide();
  std::set<std::string> Dead(Millis now) const;
  void Observe(Millis now);
  void Enter(BindMode mode, Millis sent);
  void EndTerm();
  void Tell(BindMode mode) const;
  void Clean();
  bool Drained() const;
  bool MayPost(const BindTerm& term, bool ticketed) const;

  Api& api_;
  Time& time_;
  const Needs needs_;
  const BindLeaseOptions options_;

  // Of the ticking thread alone:
  std::optional<LeaseView> lease_;  // nothing: to be read
  std::map<std::string, Seen> seen_;
  std::uint64_t beats_ = 0;
  bool known_ = false;  // it was read or written once
  bool leaving_ = false;
  std::optional<Millis> forbidden_since_;
  bool cleaned_ = false;
  std::optional<std::vector<Owner>> to_revoke_;
  Millis cleaning_since_ = 0;
  std::string complaint_;  // the last one

  mutable std::mutex mutex_;
  BindTerm term_;
  // Of the lease when the term began: while both are the same nobody else was alone.
  std::string term_uid_;
  std::uint64_t term_transitions_ = 0;
  std::uint64_t terms_ = 0;
  Millis valid_until_ = 0;
  int posting_ = 0;
};

}  // namespace hami::scheduler
