// SPDX-License-Identifier: Apache-2.0

#include "scheduler/bind_lease.h"

#include "scheduler/testing/binder.h"

namespace hami::scheduler {
namespace {

using testing::BinderTest;
using testing::Fault;
using testing::Scheduler;

TEST(MembersTest, TextIsReadAsItIsWritten) {
  const Members members = {{"a", "1"}, {"b", "22"}};
  EXPECT_EQ(FormatMembers(members), "a=1,b=22");
  EXPECT_EQ(ParseMembers("a=1,b=22"), members);
  EXPECT_EQ(ParseMembers(""), Members{});
  for (const char* text : {"a", "a=", "=1", "a=1,", ",a=1", "a=1,a=2", "a=1,b"})
    EXPECT_EQ(ParseMembers(text), std::nullopt) << text;
}

// What member "a" makes of a lease.
struct Row {
  const char* name;
  LeaseView lease;
  bool wants, drained, cleaned;
  std::set<std::string> dead;
  // What is to be written: HOLDER/MEMBERS/"unclean"; nothing: no write.
  const char* written;
  BindMode mode;
};

LeaseView Lease(const char* holder, const char* members, bool unclean = false) {
  return {"uid", "7", holder, members, unclean, 0};
}

TEST(NextLeaseTest, EverySituationHasItsStep) {
  const LeaseView none;
  const Row rows[] = {
      {"no lease yet", none, true, true, false, {}, "a/a=9/", BindMode::kAlone},
      {"nobody is there", Lease("", ""), true, true, false, {}, "a/a=9/", BindMode::kAlone},
      {"ours", Lease("a", "a=8"), true, false, false, {}, "a/a=9/", BindMode::kAlone},
      {"ours, another came", Lease("a", "a=8,b=1"), true, false, false, {}, "a/a=9,b=1/", BindMode::kNobody},
      {"ours, another came, drained", Lease("a", "a=8,b=1"), true, true, false, {}, "/a=9,b=1/", BindMode::kTickets},
      {"ours, another came and died", Lease("a", "a=8,b=1"), true, false, false, {"b"}, "a/a=9/", BindMode::kAlone},
      {"another's", Lease("b", "b=1"), true, true, false, {}, "b/a=9,b=1/", BindMode::kNobody},
      {"a dead one's", Lease("b", "b=1"), true, true, false, {"b"}, "a/a=9/unclean", BindMode::kNobody},
      {"a dead one's, who was no member", Lease("b", ""), true, true, false, {"b"}, "a/a=9/unclean", BindMode::kNobody},
      {"a dead one's, others live",
       Lease("b", "b=1,c=1"),
       true,
       true,
       false,
       {"b"},
       "a/a=9,c=1/unclean",
       BindMode::kNobody},
      {"ours after a dead one", Lease("a", "a=8", true), true, true, false, {}, "a/a=9/unclean", BindMode::kNobody},
      {"ours, cleaned", Lease("a", "a=8", true), true, true, true, {}, "a/a=9/", BindMode::kAlone},
      {"ours, cleaned, others live",
       Lease("a", "a=8,c=1", true),
       true,
       true,
       true,
       {},
       "/a=9,c=1/",
       BindMode::kTickets},
      {"left unclean", Lease("", "", true), true, true, false, {}, "a/a=9/unclean", BindMode::kNobody},
      {"left unclean, and what we cleaned was before",
       Lease("", "", true),
       true,
       true,
       true,
       {},
       "a/a=9/unclean",
       BindMode::kNobody},
      {"a dead one of several", Lease("", "a=8,b=1"), true, true, false, {"b"}, "a/a=9/", BindMode::kAlone},
      {"several", Lease("", "a=8,b=1"), true, true, false, {}, "/a=9,b=1/", BindMode::kTickets},
      {"several, and we are new", Lease("", "b=1,c=1"), true, true, false, {}, "/a=9,b=1,c=1/", BindMode::kTickets},
      {"we leave", Lease("a", "a=8"), false, true, false, {}, "//", BindMode::kNobody},
      {"we leave, not drained", Lease("a", "a=8"), false, false, false, {}, "a/a=9/", BindMode::kNobody},
      {"we leave, not cleaned", Lease("a", "a=8", true), false, true, false, {}, "//unclean", BindMode::kNobody},
      {"we leave several", Lease("", "a=8,b=1"), false, true, false, {}, "/b=1/", BindMode::kNobody},
      {"we are not there and want nothing", Lease("b", "b=1"), false, true, false, {"b"}, nullptr, BindMode::kNobody},
      {"members that nobody can read", Lease("", "?"), true, true, false, {}, "a/a=9/", BindMode::kAlone},
  };
  for (const Row& row : rows) {
    const LeaseStep step = NextLease({row.lease, "a", "9", row.wants, row.drained, row.cleaned, row.dead});
    EXPECT_EQ(step.writes, row.written != nullptr) << row.name;
    EXPECT_EQ(step.mode, row.mode) << row.name;
    EXPECT_EQ(step.next.version, row.lease.version) << row.name;
    if (row.written == nullptr) continue;
    EXPECT_EQ(step.next.holder + "/" + step.next.members + "/" + (step.next.unclean ? "unclean" : ""), row.written)
        << row.name;
  }
}

// "c" is a node whose plugin needs no lock.
class BindLeaseTest : public BinderTest {
 protected:
  BindLeaseTest() {
    a_ = std::make_unique<Scheduler>(cluster_, "a", true);
    b_ = std::make_unique<Scheduler>(cluster_, "b", true);
  }
  bool PlaceAndBind(Scheduler& scheduler, const std::string& uid, const std::string& node = "c") {
    AddPod(uid, 1000);
    return Place(scheduler, uid, node) && Bind(scheduler, uid, node);
  }
  // Seconds of beats of those who are given.
  void Pass(int seconds, std::initializer_list<Scheduler*> who) {
    for (int i = 0; i < seconds; ++i) {
      cluster_.now += 1000;
      for (Scheduler* one : who) one->lease.Tick();
    }
  }
  BindMode Mode(Scheduler& scheduler) { return scheduler.lease.term().mode; }
};

TEST_F(BindLeaseTest, GivenOneScheduler_WhenItBinds_ThenThatIsOneWrite) {
  a_->lease.Tick();
  EXPECT_EQ(Mode(*a_), BindMode::kAlone);
  EXPECT_TRUE(PlaceAndBind(*a_, "p"));
  a_->watch.Drain();  // of the Binding: the watch has passed the begin of the term
  a_->api.calls.clear();
  EXPECT_TRUE(PlaceAndBind(*a_, "q"));
  EXPECT_EQ(a_->api.calls, (std::map<std::string, int>{{"BIND", 1}}));
  EXPECT_EQ(device::Find(cluster_.nodes["c"].annotations, kBindTicket), nullptr);
}

TEST_F(BindLeaseTest, GivenPluginThatNeedsLock_WhenOneAloneBinds_ThenLockIsTaken) {
  a_->lease.Tick();
  EXPECT_TRUE(PlaceAndBind(*a_, "p", "n"));
  ASSERT_NE(Lock(), nullptr);
  EXPECT_NE(Lock()->find("pod-p"), std::string::npos);
}

TEST_F(BindLeaseTest, GivenOneThatIsNobodyYet_WhenItBinds_ThenItWaitsAndSaysWhy) {
  a_->lease.Tick();
  b_->lease.Tick();
  EXPECT_EQ(Mode(*b_), BindMode::kNobody);
  AddPod("p");
  ASSERT_TRUE(Place(*b_, "p", "c"));
  const Millis begin = cluster_.now;
  const base::Status bound = Bind(*b_, "p", "c");
  ASSERT_FALSE(bound);
  EXPECT_NE(bound.error().message.find("another scheduler binds pods"), std::string::npos);
  EXPECT_GE(cluster_.now - begin, 2000);
  EXPECT_EQ(b_->charged(), 0U);
}

TEST_F(BindLeaseTest, GivenTwoBinders_ThenBothWriteTicketsInSecondsUntilOneIsAlone) {
  a_->lease.Tick();
  EXPECT_TRUE(PlaceAndBind(*a_, "p"));
  b_->lease.Tick();
  Pass(2, {a_.get(), b_.get()});
  EXPECT_EQ(Mode(*a_), BindMode::kTickets);
  EXPECT_EQ(Mode(*b_), BindMode::kTickets);
  EXPECT_TRUE(PlaceAndBind(*a_, "q"));
  ASSERT_NE(device::Find(cluster_.nodes["c"].annotations, kBindTicket), nullptr);
  b_->watch.Drain();
  EXPECT_TRUE(PlaceAndBind(*b_, "r"));
  b_->wants = false;
  Pass(2, {b_.get(), a_.get()});
  EXPECT_EQ(Mode(*b_), BindMode::kNobody);
  EXPECT_EQ(Mode(*a_), BindMode::kAlone);
  EXPECT_TRUE(cluster_.violations.empty());
}

TEST_F(BindLeaseTest, GivenLeadersOrderlyEnd_WhenAnotherLeads_ThenItIsAloneAtOnce) {
  b_->wants = false;
  Pass(2, {a_.get(), b_.get()});
  a_->wants = false;
  a_->lease.Tick();
  b_->wants = true;
  b_->lease.Tick();
  EXPECT_EQ(Mode(*b_), BindMode::kAlone);
  EXPECT_EQ(b_->api.calls["PATCH pod"], 0) << "nothing was left to be marked";
}

// Each bound by the other before our term: the watch has not shown it.
TEST_F(BindLeaseTest, GivenLaggingWatch_WhenTermBegins_ThenNodeIsReadAnew) {
  b_->wants = false;
  a_->lease.Tick();
  AddPod("p", 12'000);
  ASSERT_TRUE(Place(*a_, "p", "c"));
  ASSERT_TRUE(Bind(*a_, "p", "c"));
  a_->wants = false;
  a_->lease.Tick();
  b_->wants = true;
  b_->lease.Tick();
  ASSERT_EQ(Mode(*b_), BindMode::kAlone);
  AddPod("q", 12'000);
  ASSERT_TRUE(Place(*b_, "q", "c")) << "by the old books";
  EXPECT_FALSE(Bind(*b_, "q", "c"));
  EXPECT_TRUE(cluster_.violations.empty());
}

TEST_F(BindLeaseTest, GivenOneDiedAlone_WhenItsBindingArrivesLate_ThenItIsRefused) {
  a_->lease.Tick();
  AddPod("p", 12'000);
  ASSERT_TRUE(Place(*a_, "p", "c"));
  std::function<void()> late;
  a_->api.fault = [](const std::string& call) {
    return call == "BIND" || call == "PATCH pod" ? Fault::kDelayed : Fault::kNone;
  };
  a_->api.delay = [&](std::function<void()> write) { late = late ? late : std::move(write); };
  EXPECT_FALSE(Bind(*a_, "p", "c"));
  ASSERT_TRUE(late);
  b_->watch.Drain();
  Pass(10, {b_.get()});
  ASSERT_EQ(Mode(*b_), BindMode::kAlone);
  AddPod("q", 12'000);
  ASSERT_TRUE(Place(*b_, "q", "c"));
  b_->api.fault = [&](const std::string& call) {
    if (call == "BIND") late();
    return Fault::kNone;
  };
  EXPECT_TRUE(Bind(*b_, "q", "c"));
  EXPECT_TRUE(Pod("p").node_name.empty());
  EXPECT_TRUE(cluster_.violations.empty());
}

// A policy of the cluster may forbid it.
TEST_F(BindLeaseTest, GivenUnmarkablePod_WhenNothingCanArrive_ThenBindingGoesOn) {
  a_->lease.Tick();
  AddPod("p");
  AddPod("q");
  // Refused is whichever comes first, and the other one is marked.
  b_->api.fault = Once("PATCH pod", Fault::kRefusedBefore);
  Pass(9, {b_.get()});
  EXPECT_EQ(Pod("p").annotations.count(kBindRevoked) + Pod("q").annotations.count(kBindRevoked), 1U);
  b_->api.fault = [](const std::string& call) { return call == "PATCH pod" ? Fault::kRefusedBefore : Fault::kNone; };
  Pass(110, {b_.get()});
  EXPECT_EQ(Mode(*b_), BindMode::kNobody);
  Pass(20, {b_.get()});
  EXPECT_EQ(Mode(*b_), BindMode::kAlone);
}

TEST_F(BindLeaseTest, GivenManyPodsAndSlowServer_WhenMarkingThem_ThenBeatGoesOn) {
  a_->lease.Tick();
  for (int i = 0; i < 30; ++i) AddPod("p" + std::to_string(i));
  b_->api.fault = [&](const std::string& call) {
    if (call == "PATCH pod") cluster_.now += 900;
    return Fault::kNone;
  };
  Pass(8, {b_.get()});
  for (int i = 0; i < 30 && Mode(*b_) != BindMode::kAlone; ++i) {
    const Millis begin = cluster_.now;
    Pass(1, {b_.get()});
    EXPECT_LT(cluster_.now - begin, 4000);
  }
  EXPECT_EQ(Mode(*b_), BindMode::kAlone);
}

// It lives, and hears from the server again only after another took over.
TEST_F(BindLeaseTest, GivenOneThatWasCutOff_WhenItsTimeIsOver_ThenItBindsNoMore) {
  a_->lease.Tick();
  AddPod("p", 12'000);
  ASSERT_TRUE(Place(*a_, "p", "c"));
  cluster_.now += 4'999;
  EXPECT_EQ(Mode(*a_), BindMode::kAlone);
  cluster_.now += 1;
  EXPECT_EQ(Mode(*a_), BindMode::kNobody);
  EXPECT_FALSE(Bind(*a_, "p", "c"));
}

TEST_F(BindLeaseTest, GivenABindingOnItsWay_WhenAnotherComes_ThenItIsWaitedFor) {
  a_->lease.Tick();
  AddPod("p", 12'000);
  ASSERT_TRUE(Place(*a_, "p", "c"));
  a_->api.fault = [&](const std::string& call) {
    if (call != "BIND") return Fault::kNone;
    for (int i = 0; i < 4; ++i) {
      b_->lease.Tick();
      a_->lease.Tick();
      EXPECT_EQ(Mode(*a_), BindMode::kNobody);
      EXPECT_EQ(Mode(*b_), BindMode::kNobody);
    }
    return Fault::kNone;
  };
  EXPECT_TRUE(Bind(*a_, "p", "c"));
  Pass(2, {a_.get(), b_.get()});
  EXPECT_EQ(Mode(*b_), BindMode::kTickets);
}

// The answer was lost, and nobody can be asked what became of it.
TEST_F(BindLeaseTest, GivenUnknownOutcome_WhenAnotherComes_ThenItIsSettledFirst) {
  a_->lease.Tick();
  AddPod("p", 12'000);
  ASSERT_TRUE(Place(*a_, "p", "c"));
  a_->api.fault = [](const std::string& call) {
    return call == "BIND" || call == "PATCH pod" ? Fault::kRefusedBefore : Fault::kNone;
  };
  EXPECT_FALSE(Bind(*a_, "p", "c"));
  ASSERT_TRUE(a_->binder.Unsettled());
  Pass(20, {b_.get(), a_.get()});
  EXPECT_EQ(Mode(*a_), BindMode::kNobody);
  EXPECT_EQ(Mode(*b_), BindMode::kNobody) << "the other one lives";
  a_->api.fault = nullptr;
  a_->keeper.RunOnce();
  Pass(2, {a_.get(), b_.get()});
  EXPECT_EQ(Mode(*b_), BindMode::kTickets);
}

TEST_F(BindLeaseTest, GivenEndedTerm_WhenItsBindingComesLate_ThenItIsNotPosted) {
  a_->lease.Tick();
  const BindTerm first = a_->lease.term();
  const auto may = [&](bool ticketed) { return BindLease::Posting(a_->lease, first, ticketed).may(); };
  EXPECT_TRUE(may(false));
  b_->lease.Tick();
  Pass(2, {a_.get(), b_.get()});
  ASSERT_EQ(Mode(*a_), BindMode::kTickets);
  EXPECT_FALSE(may(false));
  EXPECT_TRUE(may(true));
  b_->wants = false;
  Pass(2, {b_.get(), a_.get()});
  ASSERT_EQ(Mode(*a_), BindMode::kAlone);
  EXPECT_FALSE(may(false)) << "the other one was there in between";
  cluster_.now += 5'000;
  EXPECT_FALSE(may(true));
}

// Its time ran out, another was alone and went again: it finds the lease as if nothing had been.
TEST_F(BindLeaseTest, GivenOneCutOff_WhenAnotherCameAndWent_ThenNewTermBegins) {
  a_->lease.Tick();
  const BindTerm first = a_->lease.term();
  AddPod("q", 12'000);
  ASSERT_TRUE(Place(*a_, "q", "c"));
  Pass(12, {b_.get()});
  ASSERT_EQ(Mode(*b_), BindMode::kAlone);
  AddPod("p", 12'000);
  ASSERT_TRUE(Place(*b_, "p", "c"));
  ASSERT_TRUE(Bind(*b_, "p", "c"));
  b_->wants = false;
  b_->lease.Tick();
  a_->lease.Tick();
  ASSERT_EQ(Mode(*a_), BindMode::kAlone);
  EXPECT_NE(a_->lease.term().number, first.number);
  EXPECT_FALSE(Bind(*a_, "q", "c")) << "its watch has shown nothing of p";
  EXPECT_TRUE(cluster_.violations.empty());
}

TEST_F(BindLeaseTest, WhenOnlyOneWatchPassedTermsBegin_ThenLeaseHasNotCaughtUp) {
  Versions reached;
  BindLease lease(a_->api, cluster_, {[] { return true; }, [] { return false; }, [&] { return reached; }, {}}, {});
  lease.Tick();
  const BindTerm term = lease.term();
  ASSERT_EQ(term.mode, BindMode::kAlone);
  ASSERT_GT(term.from.pods, 0U);
  const std::uint64_t far = term.from.pods;
  for (const Versions& short_of : {Versions{far, far - 1}, Versions{far - 1, far}}) {
    reached = short_of;
    EXPECT_FALSE(lease.CaughtUp(term));
  }
  reached = {far, far};
  EXPECT_TRUE(lease.CaughtUp(term));
}

TEST_F(BindLeaseTest, GivenNoRightToLease_WhenSecondsPass_ThenTicketsAreWritten) {
  cluster_.lease_forbidden = true;
  a_->lease.Tick();
  EXPECT_EQ(Mode(*a_), BindMode::kNobody) << "it may be a server that is starting";
  Pass(4, {a_.get()});
  EXPECT_EQ(Mode(*a_), BindMode::kTickets);
  EXPECT_TRUE(PlaceAndBind(*a_, "p"));
  EXPECT_NE(device::Find(cluster_.nodes["c"].annotations, kBindTicket), nullptr);
  cluster_.lease_forbidden = false;
  a_->lease.Tick();
  EXPECT_EQ(Mode(*a_), BindMode::kAlone);
}

TEST_F(BindLeaseTest, GivenRemovedLease_WhenNextBeatIsDue_ThenItIsThereAgain) {
  a_->lease.Tick();
  cluster_.lease = {};
  a_->lease.Tick();
  EXPECT_EQ(Mode(*a_), BindMode::kAlone);
  EXPECT_EQ(cluster_.lease.holder, "a");
}

}  // namespace
}  // namespace hami::scheduler
