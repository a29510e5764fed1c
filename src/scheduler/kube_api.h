// SPDX-License-Identifier: Apache-2.0
//
// Api over a real API server, and Time as the clock on the wall. Every call has a deadline of its own. Servers before
// 1.35 merge a Binding's annotations into the pod but not its labels: the first Binding shows which kind this one is,
// and where labels are left behind they are patched after each.

#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <utility>

#include "device/vendor.h"
#include "kube/client.h"
#include "scheduler/api.h"

namespace hami::scheduler {

class KubeApi final : public Api {
 public:
  // Both must outlive this. SELECTOR: labels of the nodes that are registered. TIMEOUT of one call. GIVE_UP, if given,
  // ends all calls, those under way included.
  KubeApi(kube::Client& client, const device::Vendors& vendors, std::map<std::string, std::string> selector = {},
          net::Duration timeout = std::chrono::seconds(10), LeaseName lease = {},
          const net::Canceller* give_up = nullptr)
      : client_(client),
        vendors_(vendors),
        selector_(std::move(selector)),
        timeout_(timeout),
        lease_(std::move(lease)),
        give_up_(give_up) {}

  kube::Result<NodeView> GetNode(std::string_view node) override;
  kube::Result<NodeView> PatchNode(std::string_view node, std::string_view version, const Changes& changes) override;
  kube::Result<PodView> GetPod(std::string_view ns, std::string_view name) override;
  kube::Result<PodView> PatchPod(std::string_view ns, std::string_view name, std::string_view uid,
                                 const Changes& changes) override;
  kube::Result<std::vector<device::Pod>> PodsOn(std::string_view node) override;
  kube::Status Evict(const Owner& pod, bool only_try) override;
  kube::Status Bind(const Binding& binding) override;
  void BringLabels(const Binding& binding) override;
  kube::Result<std::vector<Owner>> Unbound() override;
  kube::Result<Versions> Heads() override;
  kube::Result<LeaseView> GetLease() override;
  kube::Result<LeaseView> WriteLease(const LeaseView& lease) override;

 private:
  enum class Labels { kUnknown, kCarried, kLeftBehind };

  bool BroughtAlong(const Binding& binding);

  kube::Client& client_;
  std::atomic<Labels> labels_ = Labels::kUnknown;
  const device::Vendors& vendors_;
  const std::map<std::string, std::string> selector_;
  const net::Duration timeout_;
  const LeaseName lease_;
  const net::Canceller* const give_up_;
  // A beat that takes longer comes too late to be of use.
  const net::Duration lease_time_ = std::min<net::Duration>(timeout_, std::chrono::seconds(3));
};

class WallTime final : public Time {
 public:
  // Sleeps end early when STOP is thrown.
  explicit WallTime(const net::Canceller& stop) : stop_(stop) {}
  Millis Now() override;
  Millis Steady() override;
  int UtcOffset() override;
  bool Sleep(Millis span) override;

 private:
  const net::Canceller& stop_;
};

// A name for this run of the program that no other has.
std::string NewWriterName();

}  // namespace hami::scheduler
