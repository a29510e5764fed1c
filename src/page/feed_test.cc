// SPDX-License-Identifier: Apache-2.0

#include "page/feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "device/vendors/nvidia.h"

namespace hami::page {
namespace {

namespace json = base::json;
using testing::ElementsAre;

Card ACard(const std::string& uuid, bool healthy = true) {
  Card card;
  card.uuid = uuid;
  card.type = "NVIDIA-H100";
  card.memory = 81920;
  card.cores = 100;
  card.count = 10;
  card.healthy = healthy;
  card.usable = healthy;
  return card;
}

Node ANode(const std::string& name, std::vector<Card> cards = {ACard("GPU-1")}) {
  Node node;
  node.name = name;
  node.cards = std::move(cards);
  return node;
}

json::object Look(const Feed& feed, std::uint64_t since = 0) {
  auto value = base::ParseJson(feed.Render(since, 1000));
  EXPECT_TRUE(value) << value.error().message;
  return value->as_object();
}

std::vector<std::string> Names(const json::object& document) {
  std::vector<std::string> names;
  for (const json::value& node : document.at("nodes").as_array()) names.emplace_back(node.at("name").as_string());
  return names;
}

// NODE CARD WHAT of each.
std::vector<std::string> Events(const json::object& document) {
  std::vector<std::string> lines;
  for (const json::value& event : document.at("events").as_array()) {
    lines.push_back(std::string(event.at("node").as_string()) + " " + std::string(event.at("card").as_string()) + " " +
                    std::string(event.at("what").as_string()));
  }
  return lines;
}

TEST(Feed, TheFirstLookIsEverythingAndLaterOnesWhatChanged) {
  Feed feed("e", "1.0");
  Snapshot snapshot;
  snapshot.nodes = {ANode("a"), ANode("b"), ANode("c")};
  feed.Take(snapshot, 1);
  const json::object first = Look(feed);
  EXPECT_EQ(first.at("full"), true);
  EXPECT_THAT(Names(first), ElementsAre("a", "b", "c"));
  const std::uint64_t revision = feed.revision();

  feed.Take(snapshot, 2);
  EXPECT_EQ(feed.revision(), revision) << "nothing happened";
  snapshot.nodes[1].cards[0].used.memory = 1024;
  feed.Take(snapshot, 3);
  const json::object second = Look(feed, revision);
  EXPECT_EQ(second.at("full"), false);
  EXPECT_THAT(Names(second), ElementsAre("b"));
  EXPECT_EQ(second.if_contains("waiting"), nullptr);
  EXPECT_EQ(second.if_contains("quotas"), nullptr);
  EXPECT_EQ(second.at("nodes").at(0).at("cards").at(0).at("used_memory_mib"), 1024);
}

TEST(Feed, ANodeThatGoesIsNamedAndOneThatComesBackIsNot) {
  Feed feed("e", "1.0");
  Snapshot snapshot;
  snapshot.nodes = {ANode("a"), ANode("b")};
  feed.Take(snapshot, 1);
  const std::uint64_t before = feed.revision();
  Snapshot less;
  less.nodes = {ANode("a")};
  feed.Take(less, 2);
  EXPECT_EQ(Look(feed, before).at("gone"), json::array{"b"});
  EXPECT_THAT(Events(Look(feed, before)), ElementsAre("b  gone"));
  feed.Take(snapshot, 3);
  EXPECT_EQ(Look(feed, before).at("gone"), json::array());
  EXPECT_THAT(Names(Look(feed, before)), ElementsAre("b"));
}

TEST(Feed, HealthIsATimeLine) {
  Feed feed("e", "1.0");
  Snapshot snapshot;
  snapshot.nodes = {ANode("a", {ACard("GPU-1"), ACard("GPU-2", false)})};
  feed.Take(snapshot, 1);
  EXPECT_THAT(Events(Look(feed)), ElementsAre("a GPU-2 unhealthy")) << "what is well at the start is no event";
  snapshot.nodes[0].cards[0].cordoned = true;
  snapshot.nodes[0].cards[1].healthy = true;
  feed.Take(snapshot, 2);
  snapshot.nodes[0].cards.pop_back();
  snapshot.nodes.push_back(ANode("b"));
  feed.Take(snapshot, 3);
  const json::object all = Look(feed);
  EXPECT_THAT(Events(all),
              ElementsAre("a GPU-2 unhealthy", "a GPU-1 cordoned", "a GPU-2 healthy", "a GPU-2 gone", "b  added"));
  EXPECT_EQ(all.at("events").at(3).at("time"), 3);
  EXPECT_EQ(all.at("status").at("since"), 1) << "before that nobody looked";
}

TEST(Feed, ACardThatComesUnwellIsAddedFirst) {
  Feed feed("e", "1.0");
  Snapshot snapshot;
  snapshot.nodes = {ANode("a")};
  feed.Take(snapshot, 1);
  Card sick = ACard("GPU-2", false);
  sick.cordoned = true;
  snapshot.nodes[0].cards.push_back(sick);
  feed.Take(snapshot, 2);
  EXPECT_THAT(Events(Look(feed)), ElementsAre("a GPU-2 added", "a GPU-2 unhealthy", "a GPU-2 cordoned"));
}

TEST(Feed, NodesThatAreStillBeingListedAreNoNews) {
  Feed feed("e", "1.0");
  Snapshot snapshot;
  snapshot.complete = false;
  snapshot.nodes = {ANode("a")};
  feed.Take(snapshot, 1);
  EXPECT_EQ(Look(feed).at("status").at("since"), 0);
  snapshot.complete = true;
  snapshot.nodes.push_back(ANode("b"));
  feed.Take(snapshot, 2);
  EXPECT_THAT(Events(Look(feed)), ElementsAre());
}

TEST(Feed, ARevisionThatIsNotKnownIsAnsweredWithEverything) {
  Feed feed("e", "1.0");
  Snapshot snapshot;
  snapshot.nodes = {ANode("a")};
  feed.Take(snapshot, 1);
  EXPECT_EQ(Look(feed, 999).at("full"), true);
  // More nodes went than are kept.
  const std::uint64_t before = feed.revision();
  Snapshot many;
  for (std::size_t i = 0; i <= Feed::kMostGone + 1; ++i) many.nodes.push_back(ANode("n" + std::to_string(i), {}));
  feed.Take(many, 2);
  feed.Take(snapshot, 3);
  EXPECT_EQ(Look(feed, before).at("full"), true);
  EXPECT_LE(Look(feed).at("events").as_array().size(), Feed::kMostEvents);
}

TEST(Feed, WhateverNamesHoldTheDocumentIsJson) {
  Snapshot snapshot;
  snapshot.nodes = {ANode("a\"b\\\n\x01</script>")};
  snapshot.waiting = {{"ns", "p\"", "u", 1, 2, 3, {{"1/1 \"x\"", 1, {"n\n"}}}}};
  snapshot.quotas = {{"ns", "limits.nvidia.com/gpumem", 5, 10}, {"ns", "x", 1, std::nullopt}};
  const auto value = base::ParseJson(Document(snapshot, "1.0", 1));
  ASSERT_TRUE(value) << value.error().message;
  EXPECT_EQ(value->at("nodes").at(0).at("name"), "a\"b\\\n\x01</script>");
  EXPECT_EQ(value->at("waiting").at(0).at("reasons").at(0).at("nodes").at(0), "n\n");
  EXPECT_EQ(value->at("quotas").at(1).at("limit"), nullptr);
}

TEST(Snapshot, PodsAreShownOnTheirCardsWithTheirInstances) {
  device::Vendors vendors;
  vendors.push_back(std::make_unique<device::NvidiaVendor>(device::NvidiaConfig{}));
  sched::Ledger ledger(vendors);
  device::NodeCards cards;
  device::Device device;
  device.uuid = "GPU-1";
  device.type = "NVIDIA-A100";
  device.memory = 40960;
  device.cores = 100;
  device.count = 7;
  device.mode = device::kModeMig;
  device.healthy = true;
  cards.devices = {device};
  ledger.SetCards("n", 0, cards);
  device::Pod pod;
  pod.ns = "team";
  pod.name = "p";
  pod.uid = "u";
  pod.containers = {{}};
  device::Allocation allocation;
  allocation.grants = {{0, {{{"GPU-1", "NVIDIA", 9856, 28}}}}};
  allocation.reservations = {{0, 0, "GPU-1", "2g.10gb", {2, 2}, "", -1, -1}};
  ledger.Assume(pod, "n", allocation, 100);
  std::vector<Node> nodes;
  CopyNodes(ledger, 0, ledger.node_ids(), nodes);
  ASSERT_EQ(nodes.size(), 1U);
  ASSERT_EQ(nodes[0].pods.size(), 1U);
  EXPECT_STREQ(nodes[0].pods[0].state, "placed");
  ASSERT_EQ(nodes[0].pods[0].shares.size(), 1U);
  EXPECT_EQ(nodes[0].pods[0].shares[0].card, 0);
  EXPECT_EQ(nodes[0].pods[0].shares[0].memory, 9856);
  EXPECT_THAT(nodes[0].cards[0].instances, ElementsAre(Instance{"2g.10gb", {2, 2}, "team/p", ""}));
}

TEST(Snapshot, LocksOfEveryFormAreRead) {
  EXPECT_FALSE(ReadLock(""));
  EXPECT_EQ(ReadLock("2026-01-01T00:00:00Z,ns,p")->pod, "p");
  EXPECT_EQ(ReadLock("2026-01-01T00:00:00Z")->since, "2026-01-01T00:00:00Z");
}

}  // namespace
}  // namespace hami::page
