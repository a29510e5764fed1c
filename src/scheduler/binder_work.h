// SPDX-License-Identifier: Apache-2.0
//
// One bind call at work, as the parts of the binder hand it to each other: which pod and node, what it has of the node,
// and what it may have left behind. Private to the binder.

#pragma once

#include <string>
#include <string_view>

#include "base/strings.h"
#include "scheduler/binder.h"

namespace hami::scheduler {

// The locks of the vendors of which an app container holds a share: those by which their plugins recognise the pod.
struct VendorLocks {
  bool node = false;
  bool may_do_without = true;
  std::string_view own;
};

// The server may have done it all the same.
inline bool Silent(kube::Reason reason) {
  switch (reason) {
    case kube::Reason::kTransport:
    case kube::Reason::kTimeout:
    case kube::Reason::kCancelled:
    case kube::Reason::kBadAnswer:
    case kube::Reason::kServerError:
      return true;
    default:
      return false;
  }
}

inline tl::unexpected<base::Error> Failed(std::string_view doing, const kube::Error& error) {
  return base::Fail(base::Concat({doing, ": ", error.message}));
}

// A bind call that has not got its node at once.
class Binder::Waiting {
 public:
  explicit Waiting(std::atomic<int>& all) : all_(all), count_(all.fetch_add(1) + 1) {}
  ~Waiting() { all_.fetch_sub(1); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  int count() const { return count_; }  // of them, when this came

 private:
  std::atomic<int>& all_;
  const int count_;
};

struct Binder::Work {
  Owner pod;
  std::string node;
  bool bare = false;  // it asked for nothing
  VendorLocks locks;
  bool group = false;
  BindTerm term;
  bool ticketed = false;  // the node is ours
  bool paper = false;     // and says so
  Trace trace = Trace::kNone;
  bool unknown = false;       // whether it was bound will be found out
  std::string version;        // of the node, that the verdict was based on
  std::string lock;           // the lock that stands there, and the ticket
  std::string orphaned_lock;  // one whose owner will not come
  Millis next_ask = 0;
  Binding binding;
};

}  // namespace hami::scheduler
