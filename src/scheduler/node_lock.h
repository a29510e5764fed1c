// SPDX-License-Identifier: Apache-2.0
//
// May a pod go to a node now? Pure: the node's annotations, the pods in flight and the time go in; what to write, whom
// to ask about, or why not come out.
//
// Two annotations guard a node. `hami.io/mutex.lock` is the protocol with HAMi's plugin: one pod at a time between bind
// and Allocate, which the plugin recognises by it and then releases. A node whose plugin needs none says so by
// `hami-cpp/concurrent-allocate: "1"`, which counts while that plugin lives. `hami-cpp/bind-ticket` is between
// schedulers: it names its writer and the pods whose Binding the writer is about to post. Both go out in one write that
// holds only for the version of the node it was based on, so that of two schedulers one must see the other's ticket. It
// goes on only when its books hold every pod that the other may have bound: the last ones named are in its books (a
// watch that showed them has shown the earlier ones), or it has read the node's pods anew.

#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/sign_of_life.h"
#include "scheduler/api.h"
#include "scheduler/in_flight.h"

namespace hami::scheduler {

inline constexpr const char* kBindTicket = "hami-cpp/bind-ticket";
using device::kConcurrentAllocate;
// On a pod: the writer whose Binding it was. Two schedulers may decide alike down to the second.
inline constexpr const char* kBoundBy = "hami-cpp/bound-by";
// On a pod: what makes a Binding posted before fail. Its value only has to be new.
inline constexpr const char* kBindRevoked = "hami-cpp/bind-revoked";

struct LockOptions {
  Millis lock_timeout = 300'000;  // --node-lock-timeout: one that has stood longer may be taken over
  // A pod that another scheduler's ticket names and that is not bound after this long is revoked. Nothing but that
  // scheduler's time is at stake, should it be alive: a Binding that still comes is refused, and its pod placed again.
  Millis ticket_patience = 5'000;
};

// `TIME,NAMESPACE,POD`; the last two empty in the oldest form.
struct LockText {
  Millis time = 0;
  std::string ns;
  std::string pod;
};
std::optional<LockText> ParseLock(std::string_view text);
// How long the lock of a node has stood there, by a clock that nobody sets. What the lock itself says of its time is by
// the clock of another machine, and is read with that of ours: with either of them wrong a lock that has just been
// taken looks old. So its age is how long it has been known here; a lock from before this program's start counts anew.
class LockSighting {
 public:
  // TEXT stands there now; empty: no lock does. The age.
  Millis See(std::string_view text, Millis steady) {
    if (text != text_) {
      text_ = text;
      since_ = steady;
    }
    return steady - since_;
  }

 private:
  std::string text_;
  Millis since_ = 0;
};

// RFC 3339, at OFFSET seconds from UTC.
std::string FormatTime(Millis time, int offset_seconds);
std::string FormatLock(Millis time, int offset_seconds, std::string_view ns, std::string_view pod);

struct Ticket {
  Millis time = 0;
  std::string writer;
  std::vector<Owner> pods;
};
// `UNIXMILLIS;WRITER;NS/NAME/UID;…`
std::optional<Ticket> ParseTicket(std::string_view text);
std::string FormatTicket(const Ticket& ticket);

struct GateInput {
  const NodeView& node;
  const std::map<std::string, InFlight, std::less<>>& in_flight;  // by uid, the pod itself included
  const std::string& uid;                                         // of the pod that wants the node
  const std::string& writer;                                      // who we are
  bool takes_lock = true;
  bool may_do_without = true;   // every plugin that would be waited for may say that it needs no lock
  std::string_view own_lock{};  // of one vendor, beside the node's; empty: the pod needs none
  Millis own_lock_age = 0;
  Millis lock_age = 0;         // LockSighting's
  bool lock_orphaned = false;  // its owner was looked for and will not come
  bool alone = false;          // nobody else binds: no ticket is needed where no lock is
  std::string_view digested;   // the ticket of another writer that was looked into
  Millis now = 0;
  int utc_offset_seconds = 0;
  std::function<bool(const std::string& uid)> bound_here;  // in our books
};

struct GateVerdict {
  enum class Kind {
    kGo,        // write CHANGES; none: nothing stands in the way and nothing is to be written
    kAskOwner,  // does the lock's OWNER exist?
    kDigest,    // look into TICKET
    kCatchUp,   // read the node and its pods anew
    kTaken,     // not now
    kRefused,   // not until somebody repairs the node
  };
  Kind kind = Kind::kTaken;
  std::string reason;              // of all but kGo, for the pod's event
  Changes changes;                 // of kGo
  std::vector<std::string> named;  // of kGo: whom the new ticket names
  Owner owner;                     // of kAskOwner
  Ticket ticket;                   // of kDigest
  std::string ticket_text;
};

GateVerdict JudgeGate(const GateInput& input, const LockOptions& options);

// A lock of one vendor names no owner: it stands until its plugin has served the pod, or for this long.
inline constexpr Millis kOwnLockTimeout = 120'000;

// What gives the node back after POD was not bound: its locks, OWN_LOCK if it took one, and its place on our ticket.
// The rest of the ticket stays: another scheduler has to know that we were here. Empty when there is nothing to give
// back.
Changes ReleaseChanges(const NodeView& node, const Owner& pod, const std::string& writer, Millis now,
                       std::string_view own_lock = {});

}  // namespace hami::scheduler
