// SPDX-License-Identifier: Apache-2.0

#include "scheduler/node_lock.h"

#include <gtest/gtest.h>

#include "device/annotations.h"

namespace hami::scheduler {
namespace {

using Kind = GateVerdict::Kind;
using Stage = InFlight::Stage;

constexpr Millis kNow = 1'700'000'000'000;

device::Allocation Grant(std::vector<int> shares_per_container, device::MiB memory) {
  device::PodGrant grant;
  for (const int shares : shares_per_container) {
    device::ContainerGrant& row = grant.emplace_back();
    for (int i = 0; i < shares; ++i) row.push_back({"GPU-" + std::to_string(i), "NVIDIA", memory, 0});
  }
  return {{{0, grant}}, {}};
}

class GateTest : public ::testing::Test {
 protected:
  GateTest() {
    node_.name = "n";
    Add("me", Stage::kWaiting, Grant({1}, 1000));
  }
  void Add(const std::string& uid, Stage stage, const device::Allocation& grant,
           device::UnixSeconds since = kNow / 1000) {
    in_flight_[uid] = {"ns", uid, ShapeOf(grant, {}), since, stage};
  }
  GateVerdict Judge() {
    const std::string me = "me";
    const std::string writer = "w1";
    return JudgeGate({.node = node_,
                      .in_flight = in_flight_,
                      .uid = me,
                      .writer = writer,
                      .takes_lock = takes_lock_,
                      .may_do_without = may_do_without_,
                      .own_lock = own_lock_,
                      .own_lock_age = own_lock_age_,
                      .lock_age = lock_age_,
                      .alone = alone_,
                      .digested = digested_,
                      .now = kNow,
                      .utc_offset_seconds = 0,
                      .bound_here = [this](const std::string& uid) { return bound_.count(uid) > 0; }},
                     options_);
  }
  // As our plugin does, AT that time.
  void SayConcurrent(device::UnixSeconds at) {
    node_.annotations["hami.io/node-nvidia-register"] = "[ours]";
    node_.annotations[kConcurrentAllocate] = "1";
    node_.annotations[device::kPluginAlive] = device::FormatAlive(at, "[ours]");
  }
  // It has stood there for AGE, and says that it has stood for CLAIMED.
  void Lock(Millis age, const std::string& pod) { Lock(age, pod, age); }
  void Lock(Millis age, const std::string& pod, Millis claimed) {
    lock_age_ = age;
    node_.annotations[device::kNodeLock] = FormatLock(kNow - claimed, 0, "ns", pod);
  }

  NodeView node_;
  std::map<std::string, InFlight, std::less<>> in_flight_;
  std::map<std::string, bool> bound_;
  bool takes_lock_ = true;
  bool may_do_without_ = true;
  std::string own_lock_;
  Millis own_lock_age_ = 0;
  Millis lock_age_ = 0;
  bool alone_ = false;
  std::string digested_;
  LockOptions options_;
};

TEST(LockTextTest, GivenTimesAsGoWritesThem_WhenRead_ThenTheyAreTheSameMoment) {
  EXPECT_EQ(FormatLock(kNow, 0, "ns", "p"), "2023-11-14T22:13:20Z,ns,p");
  EXPECT_EQ(FormatLock(kNow, 8 * 3600, "ns", "p"), "2023-11-15T06:13:20+08:00,ns,p");
  for (const char* text : {"2023-11-14T22:13:20Z,ns,p", "2023-11-15T06:13:20+08:00,ns,p",
                           "2023-11-14T16:43:20.123-05:30,ns,p", "2023-11-14T22:13:20Z"}) {
    const auto lock = ParseLock(text);
    ASSERT_TRUE(lock) << text;
    EXPECT_EQ(lock->time, kNow) << text;
  }
}

TEST(LockTextTest, GivenWhatIsNoLock_WhenRead_ThenItIsRefused) {
  for (const char* text : {"", "x", "2023-11-14_ns_p", "2023-11-14T22:13:20Z,ns", "2023-11-14T22:13:20Z,ns,", "a,b,c",
                           "2023-02-30T22:13:20Z,ns,p", "2023-11-14T22:13:20+25:00,ns,p", "2023-11-14T22:13:20,ns,p",
                           "2023-11-14T22:13:20Zx,ns,p", "2023-11-14T22:-3:20Z,ns,p"}) {
    EXPECT_FALSE(ParseLock(text)) << text;
  }
}

TEST(TicketTest, GivenATicket_WhenWrittenAndRead_ThenItIsTheSame) {
  const Ticket ticket{kNow, "w", {{"a", "b", "c"}, {"d", "e", "f"}}};
  const auto read = ParseTicket(FormatTicket(ticket));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->pods, ticket.pods);
  EXPECT_EQ(read->writer, "w");
  for (const char* text : {"", "1", "x;w", "1;;a/b/c", "1;w;a/b", "1;w;a//c", "99999999999999999999;w"}) {
    EXPECT_FALSE(ParseTicket(text)) << text;
  }
}

TEST_F(GateTest, GivenAFreeNode_WhenAPodWantsIt_ThenLockAndTicketGoInOneWrite) {
  const GateVerdict verdict = Judge();
  ASSERT_EQ(verdict.kind, Kind::kGo);
  EXPECT_EQ(verdict.changes,
            (Changes{{kBindTicket, "1700000000000;w1;ns/me/me"}, {device::kNodeLock, "2023-11-14T22:13:20Z,ns,me"}}));
}

TEST_F(GateTest, GivenPodWithoutAppDevices_WhenNodeIsLocked_ThenItNeedsNoLock) {
  Lock(1000, "other");
  takes_lock_ = false;
  const GateVerdict verdict = Judge();
  ASSERT_EQ(verdict.kind, Kind::kGo);
  EXPECT_EQ(verdict.changes.size(), 1U);
}

TEST_F(GateTest, GivenALock_WhenItsOwnerIsUnknown_ThenTheOwnerIsLookedFor) {
  Lock(1000, "other");
  const GateVerdict verdict = Judge();
  EXPECT_EQ(verdict.kind, Kind::kAskOwner);
  EXPECT_EQ(verdict.owner, (Owner{"ns", "other", ""}));
}

TEST_F(GateTest, GivenALock_WhenOurPodInFlightHoldsIt_ThenTheNodeIsTaken) {
  Lock(1000, "other");
  Add("other", Stage::kBound, Grant({1}, 1000));
  const GateVerdict verdict = Judge();
  EXPECT_EQ(verdict.kind, Kind::kTaken);
  EXPECT_EQ(verdict.reason, "node n has been locked within 5m0s: node lock contention");
}

TEST_F(GateTest, GivenALock_WhenItIsOldOrOwnOrLeftBehind_ThenItIsTakenOver) {
  Lock(options_.lock_timeout + 1, "other");
  EXPECT_EQ(Judge().kind, Kind::kGo);
  Lock(1000, "me");
  EXPECT_EQ(Judge().kind, Kind::kGo);
  Lock(1000, "other");  // ours by its ticket, and its pod is not in flight any more
  node_.annotations[kBindTicket] = FormatTicket({kNow - 1000, "w1", {{"ns", "other", "u"}}});
  EXPECT_EQ(Judge().kind, Kind::kGo);
}

// How long the lock has stood decides, and not when its pod was bound: that is how HAMi's scheduler takes it, too.
TEST_F(GateTest, GivenTooOldLock_WhenItsPodWasBoundLater_ThenItIsTakenOver) {
  Add("other", Stage::kBound, Grant({1}, 1000), kNow / 1000 - 10);
  Lock(options_.lock_timeout, "other");
  EXPECT_EQ(Judge().kind, Kind::kTaken);
  Lock(options_.lock_timeout + 1, "other");
  EXPECT_EQ(Judge().kind, Kind::kGo);
}

// Of two machines one's clock is wrong: by what the lock says of its time it would be taken over as soon as it stands.
TEST_F(GateTest, GivenAClockThatIsWrong_WhenALockIsYoung_ThenItStaysTaken) {
  for (const Millis claimed : {options_.lock_timeout + 2000, Millis{86'400'000}, -options_.lock_timeout - 2000}) {
    Lock(2000, "other", claimed);
    EXPECT_EQ(Judge().kind, Kind::kAskOwner) << claimed;
    Lock(options_.lock_timeout + 1, "other", claimed);
    EXPECT_EQ(Judge().kind, Kind::kGo) << claimed;
  }
}

TEST(LockSightingTest, ALocksAgeIsHowLongItIsKnown) {
  LockSighting lock;
  EXPECT_EQ(lock.See("", 1'000), 1'000);
  EXPECT_EQ(lock.See("2023-11-14T22:13:20Z,ns,a", 5'000), 0);
  EXPECT_EQ(lock.See("2023-11-14T22:13:20Z,ns,a", 9'000), 4'000);
  EXPECT_EQ(lock.See("2023-11-14T22:13:20Z,ns,b", 9'500), 0) << "a successor's";
  EXPECT_EQ(lock.See("", 10'000), 0);
  EXPECT_EQ(lock.See("2023-11-14T22:13:20Z,ns,b", 12'000), 0) << "taken again";
}

TEST_F(GateTest, GivenTooOldLock_WhenBindingMayBeOnItsWay_ThenNodeStaysTaken) {
  Add("other", Stage::kTicketed, Grant({1}, 1000), kNow / 1000 - 10);
  Lock(options_.lock_timeout + 1, "other");
  EXPECT_EQ(Judge().kind, Kind::kTaken);
}

TEST_F(GateTest, GivenYoungOwnerlessLock_ThenNobodyIsAskedAndNodeIsTaken) {
  node_.annotations[device::kNodeLock] = "2023-11-14T22:13:10Z";  // as HAMi's oldest versions wrote it
  EXPECT_EQ(Judge().kind, Kind::kTaken);
  node_.annotations[device::kNodeLock] = "2023-11-14T22:08:19Z";
  EXPECT_EQ(Judge().kind, Kind::kTaken);
  lock_age_ = options_.lock_timeout + 1;
  EXPECT_EQ(Judge().kind, Kind::kGo);
}

// HAMi's scheduler knows of no ticket and of no nodes that need no lock.
TEST_F(GateTest, GivenConcurrentNode_WhenHamisLockStands_ThenItIsHonoured) {
  SayConcurrent(kNow / 1000);
  Lock(1000, "other");
  EXPECT_EQ(Judge().kind, Kind::kAskOwner);
  Lock(options_.lock_timeout + 1, "other");
  const GateVerdict verdict = Judge();
  ASSERT_EQ(verdict.kind, Kind::kGo);
  EXPECT_EQ(verdict.changes.size(), 1U) << "the lock is left to its plugin";
}

TEST_F(GateTest, GivenUnreadableLock_WhenPodWantsNode_ThenRefusalNamesRemedy) {
  node_.annotations[device::kNodeLock] = "garbage";
  const GateVerdict verdict = Judge();
  EXPECT_EQ(verdict.kind, Kind::kRefused);
  EXPECT_NE(verdict.reason.find("remove it"), std::string::npos);
}

TEST_F(GateTest, GivenAlikePodsOnConcurrentNode_ThenTheyGoTogetherWithoutLock) {
  SayConcurrent(kNow / 1000);
  Add("bound", Stage::kBound, Grant({1}, 1000));
  Add("along", Stage::kWaiting, Grant({1}, 1000));
  Add("unlike", Stage::kWaiting, Grant({1}, 2000));
  const GateVerdict verdict = Judge();
  ASSERT_EQ(verdict.kind, Kind::kGo);
  EXPECT_EQ(verdict.changes, (Changes{{kBindTicket, "1700000000000;w1;ns/along/along;ns/me/me"}}));
  EXPECT_EQ(verdict.named, (std::vector<std::string>{"along", "me"}));
}

// A plugin that was killed takes nothing back, and HAMi's may serve the node by now: one pod after the other.
TEST_F(GateTest, PromiseOfAPluginThatIsGone_DoesNotCount) {
  const auto locks = [this] {
    const GateVerdict verdict = Judge();
    EXPECT_EQ(verdict.kind, Kind::kGo);
    return verdict.changes.size() == 2;  // the ticket, and the lock
  };
  SayConcurrent(kNow / 1000 - device::kAliveFor);
  EXPECT_FALSE(locks());
  SayConcurrent(kNow / 1000 + device::kAliveFor);
  EXPECT_FALSE(locks()) << "clocks differ";
  SayConcurrent(kNow / 1000 - device::kAliveFor - 1);
  EXPECT_TRUE(locks());
  SayConcurrent(kNow / 1000);
  node_.annotations["hami.io/node-nvidia-register"] = "[another plugin's]";
  EXPECT_TRUE(locks());
  SayConcurrent(kNow / 1000);
  node_.annotations.erase(device::kPluginAlive);
  EXPECT_TRUE(locks());
}

TEST_F(GateTest, GivenConcurrentNode_WhenPodOfSameSizeDiffers_ThenItWaits) {
  SayConcurrent(kNow / 1000);
  Add("bound", Stage::kBound, Grant({1}, 2000));
  EXPECT_EQ(Judge().kind, Kind::kTaken);
  Add("bound", Stage::kBound, Grant({2}, 2000));
  EXPECT_EQ(Judge().kind, Kind::kGo) << "sizes tell them apart";
  Add("bound", Stage::kBound, Grant({1}, 2000), kNow / 1000 - 301);
  EXPECT_EQ(Judge().kind, Kind::kGo) << "no plugin is waited for forever";
}

TEST_F(GateTest, GivenOthersTicket_WhenPodsAreUnknown_ThenItIsLookedIntoFirst) {
  const std::string ticket = FormatTicket({kNow - 1000, "w2", {{"ns", "p", "u"}}});
  node_.annotations[kBindTicket] = ticket;
  EXPECT_EQ(Judge().kind, Kind::kDigest);
  bound_["u"] = true;
  EXPECT_EQ(Judge().kind, Kind::kGo);
  bound_.clear();
  digested_ = ticket;
  EXPECT_EQ(Judge().kind, Kind::kGo);
  // A ticket that names nobody still says that another was here.
  node_.annotations[kBindTicket] = FormatTicket({kNow - 1000, "w2", {}});
  EXPECT_EQ(Judge().kind, Kind::kDigest);
}

// Its writer may have died between the two writes of a bind: what the ticket leads to decides about the lock.
TEST_F(GateTest, GivenOthersTicketAndLock_WhenUnbound_ThenItIsLookedIntoFirst) {
  const std::string ticket = FormatTicket({kNow - 1000, "w2", {{"ns", "p", "u"}}});
  node_.annotations[kBindTicket] = ticket;
  Lock(1000, "p");
  EXPECT_EQ(Judge().kind, Kind::kDigest);
  digested_ = ticket;
  EXPECT_EQ(Judge().kind, Kind::kGo) << "its pod will not be bound any more";
  bound_["u"] = true;
  EXPECT_EQ(Judge().kind, Kind::kAskOwner) << "it was bound, and its plugin has the lock to release";
}

TEST_F(GateTest, GivenLockNewerThanTicketOfItsPod_ThenItIsSomebodyElsesLock) {
  const std::string ticket = FormatTicket({kNow - 9000, "w2", {{"ns", "p", "u"}}});
  node_.annotations[kBindTicket] = digested_ = ticket;
  Lock(1000, "p");  // HAMi's scheduler took the same pod over
  EXPECT_EQ(Judge().kind, Kind::kAskOwner);
}

TEST_F(GateTest, GivenLockAndTicket_WhenGivenBack_ThenOnlyWhatIsOursGoes) {
  const Owner me{"ns", "me", "me"};
  Lock(0, "me");
  node_.annotations[kBindTicket] = FormatTicket({kNow, "w1", {me, {"ns", "b", "c"}}});
  EXPECT_EQ(ReleaseChanges(node_, me, "w1", kNow),
            (Changes{{kBindTicket, "1700000000000;w1;ns/b/c"}, {device::kNodeLock, std::nullopt}}));
  EXPECT_TRUE(ReleaseChanges(node_, me, "w2", kNow).empty()) << "the same pod, bound by another scheduler";
  Lock(0, "b");
  EXPECT_EQ(ReleaseChanges(node_, me, "w1", kNow).size(), 1U);
}

constexpr const char* kOwnLock = "cambricon.com/dsmlu.lock";

TEST_F(GateTest, TwoVendorsLocksGoInOneWriteAndComeBackTogether) {
  own_lock_ = kOwnLock;
  const GateVerdict verdict = Judge();
  ASSERT_EQ(verdict.kind, Kind::kGo);
  EXPECT_EQ(verdict.changes, (Changes{{kBindTicket, "1700000000000;w1;ns/me/me"},
                                      {device::kNodeLock, "2023-11-14T22:13:20Z,ns,me"},
                                      {kOwnLock, "2023-11-14T22:13:20Z"}}));
  for (const auto& [key, value] : verdict.changes) node_.annotations[key] = *value;
  EXPECT_EQ(ReleaseChanges(node_, {"ns", "me", "me"}, "w1", kNow, kOwnLock),
            (Changes{{kBindTicket, "1700000000000;w1"}, {device::kNodeLock, std::nullopt}, {kOwnLock, std::nullopt}}));
  EXPECT_EQ(ReleaseChanges(node_, {"ns", "me", "me"}, "w1", kNow).size(), 2U) << "of a pod that did not take it";
}

TEST_F(GateTest, EitherOfTwoLocksLeavesNoneBehind) {
  own_lock_ = kOwnLock;
  node_.annotations[kOwnLock] = "2023-11-14T22:13:19Z";
  EXPECT_EQ(Judge().kind, Kind::kTaken);
  EXPECT_EQ(Judge().reason, "node n has been locked within 2 minutes: node lock contention");
  EXPECT_TRUE(Judge().changes.empty());
  node_.annotations.erase(kOwnLock);
  Lock(1000, "other");
  EXPECT_EQ(Judge().kind, Kind::kAskOwner);
  EXPECT_TRUE(Judge().changes.empty());
}

TEST_F(GateTest, AnOwnLockIsTakenOverAfterTwoMinutes) {
  own_lock_ = kOwnLock;
  takes_lock_ = false;
  alone_ = true;
  node_.annotations[kOwnLock] = "2023-11-14T22:10:00Z";
  own_lock_age_ = kOwnLockTimeout;
  EXPECT_EQ(Judge().kind, Kind::kTaken);
  own_lock_age_ = kOwnLockTimeout + 1;
  EXPECT_EQ(Judge().kind, Kind::kGo);
  EXPECT_EQ(Judge().changes.back().first, kOwnLock);
}

TEST_F(GateTest, OthersOwnLockIsNothingToAPodWithoutOne) {
  node_.annotations[kOwnLock] = "2023-11-14T22:13:19Z";
  EXPECT_EQ(Judge().kind, Kind::kGo);
}

TEST_F(GateTest, APluginThatNeedsNoLockSpeaksForItselfAlone) {
  SayConcurrent(kNow / 1000);
  EXPECT_EQ(Judge().changes.size(), 1U);
  may_do_without_ = false;
  EXPECT_EQ(Judge().changes.size(), 2U) << "another vendor's plugin finds its pod by the lock";
}

TEST(InFlightTest, GivenGrants_WhenCompared_ThenCardsDoNotMatterButAmountsDo) {
  device::Allocation a = Grant({2, 0}, 1000);
  device::Allocation b = a;
  b.grants[0].second[0][0].uuid = "GPU-9";
  EXPECT_TRUE(MayBeTogether(ShapeOf(a, {}), ShapeOf(b, {})));
  b.grants[0].second[0][0].memory = 999;
  EXPECT_FALSE(MayBeTogether(ShapeOf(a, {}), ShapeOf(b, {})));
  EXPECT_TRUE(MayBeTogether(ShapeOf(Grant({2, 3}, 1000), {}), ShapeOf(Grant({1}, 1), {})));
  EXPECT_FALSE(MayBeTogether(ShapeOf(Grant({2, 1}, 1000), {}), ShapeOf(Grant({1}, 1000), {})));
  a.reservations.push_back({0, 0, "GPU-0", "1g.5gb", {0, 1}, {}, -1, -1});
  EXPECT_FALSE(MayBeTogether(ShapeOf(a, {}), ShapeOf(Grant({2, 0}, 1000), {}))) << "MIG and not";
}

// The plugin writes it into the region before anybody knows which of the two it is for.
TEST(InFlightTest, GivenLikeGrants_WhenUsedDifferently_ThenNotInterchangeable) {
  const device::Allocation grant = Grant({1}, 1000);
  device::Pod pod;
  pod.ns = "team";
  pod.containers.emplace_back().terms = {{"CUDA_TASK_PRIORITY", "1"}};
  device::Pod other = pod;
  other.ns = "elsewhere";
  EXPECT_TRUE(MayBeTogether(ShapeOf(grant, pod), ShapeOf(grant, other)));
  other.containers[0].terms["CUDA_TASK_PRIORITY"] = "0";
  EXPECT_FALSE(MayBeTogether(ShapeOf(grant, pod), ShapeOf(grant, other)));
  pod.containers[0].terms = other.containers[0].terms = {{"CUDA_DISABLE_CONTROL", "true"}};
  EXPECT_FALSE(MayBeTogether(ShapeOf(grant, pod), ShapeOf(grant, other))) << "it may count in one namespace only";
  other.ns = pod.ns;
  EXPECT_TRUE(MayBeTogether(ShapeOf(grant, pod), ShapeOf(grant, other)));
  // Init containers come first, and one without a share has no say.
  pod.init_containers.emplace_back().terms = {{"runAsUser", "7"}};
  other.init_containers.emplace_back().terms = {{"runAsUser", "8"}};
  EXPECT_TRUE(MayBeTogether(ShapeOf(Grant({0, 1}, 1000), pod), ShapeOf(Grant({0, 1}, 1000), other)));
  EXPECT_FALSE(MayBeTogether(ShapeOf(Grant({1, 0}, 1000), pod), ShapeOf(Grant({1, 0}, 1000), other)));
  device::Pod without_init = other;
  without_init.init_containers.clear();
  without_init.containers.insert(without_init.containers.begin(), other.init_containers[0]);
  EXPECT_FALSE(MayBeTogether(ShapeOf(Grant({1, 0}, 1000), without_init), ShapeOf(Grant({1, 0}, 1000), other)));
}

TEST(InFlightTest, GivenValueThatReadsLikeSeveral_ThenItIsUnlikeThose) {
  const device::Allocation grant = Grant({1}, 1000);
  device::Pod crafted;
  crafted.containers.emplace_back().terms = {{"CUDA_OVERSUBSCRIBE", "false,CUDA_TASK_PRIORITY=0"}};
  device::Pod plain;
  plain.containers.emplace_back().terms = {{"CUDA_OVERSUBSCRIBE", "false"}, {"CUDA_TASK_PRIORITY", "0"}};
  EXPECT_FALSE(MayBeTogether(ShapeOf(grant, crafted), ShapeOf(grant, plain)));
}

TEST_F(GateTest, GivenFutureBindTime_ThenPodIsAwaitedNoLongerThanLockLasts) {
  SayConcurrent(kNow / 1000);
  Add("other", Stage::kBound, Grant({1}, 2000), kNow / 1000 + 365 * 86'400);
  EXPECT_EQ(Judge().kind, Kind::kGo);
  Add("other", Stage::kBound, Grant({1}, 2000), kNow / 1000 + 60);
  EXPECT_EQ(Judge().kind, Kind::kTaken);
}

}  // namespace
}  // namespace hami::scheduler
