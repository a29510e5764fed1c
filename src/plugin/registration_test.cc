// SPDX-License-Identifier: Apache-2.0

#include "plugin/registration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/annotations.h"
#include "kube/testing/json_patch.h"

namespace hami::plugin {
namespace {

namespace json = base::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr device::LocalClock kClock = {1'800'000'000, 0};

Cards TwoCards() {
  Cards cards;
  cards.ready = true;
  Card first;
  first.uuid = "GPU-a";
  first.index = 1;
  first.type = "NVIDIA H100";
  first.memory = 1000;
  first.cores = 100;
  first.slots = 10;
  first.numa_node = 1;
  Card second = first;
  second.uuid = "GPU-b";
  second.index = 0;
  second.numa_node.reset();
  second.healthy = false;
  cards.cards = {first, second};
  return cards;
}

// What the API server holds after PATCH.
device::StringMap After(const device::StringMap& annotations, const json::value& patch) {
  json::object object;
  for (const auto& [key, value] : annotations) object.emplace(key, value);
  json::value node = {{"metadata", json::object{{"annotations", std::move(object)}}}};
  kube::ApplyMergePatch(node, patch);
  device::StringMap out;
  for (const auto& pair : node.at("metadata").at("annotations").as_object()) {
    out[std::string(pair.key())] = std::string(pair.value().as_string());
  }
  return out;
}

Registration Wanted() {
  Registration wanted;
  wanted.cards = EncodeCards(TwoCards());
  return wanted;
}

HealthEntry Out() { return {HealthState::kOut, "XID 62", 5, {1, 2, 3, 4}}; }

TEST(RegistrationTest, GivenCards_WhenEncoded_ThenTheTextIsHamis) {
  EXPECT_EQ(EncodeCards(TwoCards()),
            R"([{"id":"GPU-a","index":1,"count":10,"devmem":1000,"devcore":100,"type":"NVIDIA H100","numa":1,)"
            R"("mode":"hami-core","health":true},)"
            R"({"id":"GPU-b","count":10,"devmem":1000,"devcore":100,"type":"NVIDIA H100","mode":"hami-core"}])");
}

TEST(RegistrationTest, GivenBareNode_WhenPatched_ThenOnePatchSaysAllThatIsWanted) {
  Registration wanted = Wanted();
  wanted.scores = R"([{"uuid":"GPU-a","score":{"GPU-b":20}}])";
  wanted.concurrent_allocate = true;
  wanted.health["GPU-b"] = {HealthState::kUnhealthy, "XID 48", 7, {7}};
  const auto patch = PatchFor({}, wanted, kClock);
  ASSERT_TRUE(patch);
  const auto after = After({{"other", "kept"}}, *patch);
  EXPECT_EQ(after.at(kRegisterKey), wanted.cards);
  EXPECT_EQ(after.at(kScoreKey), *wanted.scores);
  EXPECT_EQ(after.at("hami-cpp/concurrent-allocate"), "1");
  EXPECT_THAT(after.at(kHealthKey), HasSubstr("XID 48"));
  EXPECT_EQ(after.at("other"), "kept");
  EXPECT_FALSE(PatchFor(after, wanted, kClock));
}

// Now and then, and at once when it is of another registration; a scheduler goes by it for longer than that.
TEST(RegistrationTest, ConcurrentNode_SaysThatItsPluginLives) {
  Registration wanted = Wanted();
  wanted.concurrent_allocate = true;
  const auto at = [](device::UnixSeconds later) {
    device::LocalClock clock = kClock;
    clock.now += later;
    return clock;
  };
  const auto after = After({}, *PatchFor({}, wanted, kClock));
  EXPECT_TRUE(device::AllocatesConcurrently(after, wanted.cards, kClock.now + device::kAliveFor));
  EXPECT_FALSE(device::AllocatesConcurrently(after, wanted.cards, kClock.now + device::kAliveFor + 1));
  EXPECT_FALSE(device::AllocatesConcurrently(after, wanted.cards + " ", kClock.now));
  EXPECT_FALSE(PatchFor(after, wanted, at(device::kAliveEvery - 1)));
  const auto again = PatchFor(after, wanted, at(device::kAliveEvery));
  ASSERT_TRUE(again);
  EXPECT_TRUE(OnlySaysAlive(*again));
  EXPECT_TRUE(device::AllocatesConcurrently(After(after, *again), wanted.cards, kClock.now + device::kAliveFor + 1));
  Registration other = wanted;
  other.cards = "[]";
  EXPECT_FALSE(OnlySaysAlive(*PatchFor(after, other, kClock)));
  EXPECT_FALSE(After(after, *PatchFor(after, Wanted(), kClock)).contains(device::kPluginAlive));
  for (const char* text : {"", "1", ",", "x,y", "99999999999999999999,0000000000000000"}) {
    EXPECT_FALSE(device::AliveSince(text, wanted.cards)) << text;
  }
}

TEST(RegistrationTest, GivenDeletedAnnotation_WhenCompared_ThenItComesBack) {
  const auto after = After({}, *PatchFor({}, Wanted(), kClock));
  auto broken = after;
  broken.erase(kRegisterKey);
  const auto patch = PatchFor(broken, Wanted(), kClock);
  ASSERT_TRUE(patch);
  EXPECT_EQ(After(broken, *patch), after);
}

TEST(RegistrationTest, GivenWhatIsNoLongerTrue_WhenPatched_ThenItIsRemoved) {
  const device::StringMap stale = {
      {kScoreKey, "[]"}, {kConcurrentKey, "1"}, {kHealthKey, R"({"GPU-x":{"state":"unhealthy"}})"}};
  const auto after = After(stale, *PatchFor(stale, Wanted(), kClock));
  EXPECT_FALSE(after.contains(kScoreKey) || after.contains(kConcurrentKey) || after.contains(kHealthKey));
}

TEST(RegistrationTest, GivenGpuThatIsOut_WhenPatched_ThenItIsCordonedBesideOthers) {
  Registration wanted = Wanted();
  wanted.health["GPU-a"] = Out();
  const device::StringMap node = {{device::kDeviceCordon, "GPU-z, GPU-y"}};
  const auto after = After(node, *PatchFor(node, wanted, kClock));
  EXPECT_EQ(after.at(device::kDeviceCordon), "GPU-z,GPU-y,GPU-a");
  EXPECT_FALSE(PatchFor(after, wanted, kClock));
  EXPECT_THAT(LiftedCordons(after), IsEmpty());
  EXPECT_EQ(JournalOf(after), wanted.health);
}

TEST(RegistrationTest, GivenOurCordon_WhenLifted_ThenGpuReturnsAndCordonDoesNot) {
  Registration wanted = Wanted();
  wanted.health["GPU-a"] = Out();
  auto node = After({}, *PatchFor({}, wanted, kClock));
  node.erase(device::kDeviceCordon);
  EXPECT_THAT(LiftedCordons(node), ElementsAre("GPU-a"));
  EXPECT_FALSE(PatchFor(node, wanted, kClock));
}

TEST(RegistrationTest, GivenAskingScheduler_WhenAnsweringIsOn_ThenItIsAnsweredOnce) {
  Registration wanted = Wanted();
  auto node = After({}, *PatchFor({}, wanted, kClock));
  node[kHandshakeKey] = "Requesting_2026-08-01 12:00:00";
  EXPECT_FALSE(PatchFor(node, wanted, kClock));  // HAMi's plugin leaves it alone
  wanted.answer_handshake = true;
  const auto answered = After(node, *PatchFor(node, wanted, kClock));
  EXPECT_EQ(answered.at(kHandshakeKey), "Reported_2027-01-15 08:00:00");
  EXPECT_FALSE(PatchFor(answered, wanted, kClock));
}

TEST(RegistrationTest, GivenScoresOfAllGpus_WhenEncoded_ThenOnlyOfferedOnesAppear) {
  device::PairScores scores;
  scores["GPU-a"] = {{"GPU-b", 20}, {"GPU-hidden", 30}};
  scores["GPU-b"] = {{"GPU-a", 20}};
  scores["GPU-hidden"] = {{"GPU-a", 30}};
  const std::string text = EncodeScores(scores, TwoCards());
  EXPECT_EQ(text.find("hidden"), std::string::npos);
  const auto back = device::DecodePairScores(text);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->at("GPU-a").at("GPU-b"), 20);
}

TEST(RegistrationTest, GivenAJournalOfSomebodyElse_WhenRead_ThenItIsNothing) {
  EXPECT_TRUE(JournalOf({{kHealthKey, "not json"}}).empty());
  EXPECT_THAT(LiftedCordons({{kHealthKey, "not json"}}), IsEmpty());
}

}  // namespace
}  // namespace hami::plugin
