// SPDX-License-Identifier: Apache-2.0

#include "kube/client.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <thread>

#include "kube/testing/fake_apiserver.h"
#include "net/testing/certificates.h"

namespace hami::kube {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

json::value PodOf(const std::string& name, json::object labels = {}) {
  return {{"metadata", {{"name", name}, {"namespace", "default"}, {"labels", std::move(labels)}}},
          {"spec", json::object{}},
          {"status", {{"phase", "Pending"}}}};
}

std::string NameOf(const json::value& object) { return std::string(object.at("metadata").at("name").as_string()); }
std::string VersionOf(const json::value& object) {
  return std::string(object.at("metadata").at("resourceVersion").as_string());
}

class ClientTest : public ::testing::Test {
 protected:
  std::unique_ptr<Client> NewClient(const ClientOptions& options = {}) const {
    return *Client::Make(server_.config(), options);
  }
  std::multiset<std::string> Names(const ListRequest& request, const std::function<void()>& on_item = {}) {
    std::multiset<std::string> names;
    ListSink sink;
    sink.item = [&](const json::value& item) {
      names.insert(NameOf(item));
      if (on_item) on_item();
    };
    sink.restart = [&] {
      names.clear();
      ++restarts_;
    };
    const auto version = client_->List(kPods, "", request, sink);
    EXPECT_TRUE(version) << version.error().message;
    return names;
  }

  FakeApiServer server_;
  std::unique_ptr<Client> client_ = NewClient();
  int restarts_ = 0;
};

TEST_F(ClientTest, GivenAnObjectWhenItLivesItsLifeThenEveryVerbWorks) {
  const auto created = client_->Create(kPods, "default", PodOf("a"));
  ASSERT_TRUE(created) << created.error().message;
  EXPECT_EQ(*client_->Get(kPods, "default", "a"), *created);
  const auto merged =
      client_->Patch(kPods, "default", "a", PatchType::kMerge, {{"metadata", {{"annotations", {{"k", "v"}}}}}});
  ASSERT_TRUE(merged) << merged.error().message;
  EXPECT_EQ(merged->at("metadata").at("annotations").at("k"), "v");
  const auto patched = client_->Patch(
      kPods, "default", "a", PatchType::kJson,
      json::value(json::array{json::object{{"op", "replace"}, {"path", "/metadata/annotations/k"}, {"value", "w"}}}));
  ASSERT_TRUE(patched) << patched.error().message;
  EXPECT_EQ(*client_->Get(kPods, "default", "a"), *patched);
  ASSERT_TRUE(server_.Remove(kPods, "default", "a"));
  EXPECT_EQ(client_->Get(kPods, "default", "a").error().reason, Reason::kNotFound);
}

TEST_F(ClientTest, GivenRefusalsWhenCalledThenEachHasItsReason) {
  const auto created = *client_->Create(kPods, "default", PodOf("a"));
  EXPECT_EQ(client_->Create(kPods, "default", PodOf("a")).error().reason, Reason::kAlreadyExists);
  ASSERT_TRUE(client_->Patch(kPods, "default", "a", PatchType::kMerge, {{"x", 1}}));
  EXPECT_EQ(client_
                ->Patch(kPods, "default", "a", PatchType::kMerge,
                        {{"metadata", {{"resourceVersion", VersionOf(created)}}}, {"x", 2}})
                .error()
                .reason,
            Reason::kConflict);
  EXPECT_EQ(client_->Patch(kPods, "default", "b", PatchType::kMerge, {{"x", 1}}).error().reason, Reason::kNotFound);
  EXPECT_EQ(client_->Patch(kPods, "default", "a", PatchType::kJson, json::array{1}).error().reason, Reason::kInvalid);
}

TEST_F(ClientTest, GivenAPodWhenBoundThenItHasANodeAndASecondBindingConflicts) {
  const auto pod = *client_->Create(kPods, "default", PodOf("a"));
  const std::string uid(pod.at("metadata").at("uid").as_string());
  EXPECT_EQ(client_->Bind("default", "a", "another", "n1").error().reason, Reason::kConflict);
  ASSERT_TRUE(client_->Bind("default", "a", uid, "n1"));
  EXPECT_EQ(server_.Get(kPods, "default", "a")->at("spec").at("nodeName"), "n1");
  EXPECT_EQ(client_->Bind("default", "a", uid, "n2").error().reason, Reason::kConflict);
  EXPECT_EQ(client_->Bind("default", "b", "", "n2").error().reason, Reason::kNotFound);
}

TEST_F(ClientTest, GivenManyObjectsWhenListedInPagesThenEachComesOnce) {
  for (int i = 0; i < 25; ++i) server_.Put(kPods, PodOf("p" + std::to_string(i)));
  EXPECT_EQ(Names({{}, 4}).size(), 25U);
  EXPECT_EQ(server_.Asked("LIST"), 7U);
  EXPECT_EQ(Names({{}, 0}).size(), 25U);
  EXPECT_EQ(server_.Asked("LIST"), 8U);
  EXPECT_EQ(Names({{"", "metadata.name=p7"}, 4}), (std::multiset<std::string>{"p7"}));
}

TEST_F(ClientTest, GivenLabelsWhenSelectedThenOnlyThoseComeBack) {
  server_.Put(kPods, PodOf("a", {{"app", "x"}}));
  server_.Put(kPods, PodOf("b", {{"app", "y"}}));
  server_.Put(kPods, PodOf("c"));
  EXPECT_EQ(Names({{"app=x", ""}, 4}), (std::multiset<std::string>{"a"}));
  EXPECT_EQ(Names({{"app", ""}, 4}), (std::multiset<std::string>{"a", "b"}));
  EXPECT_EQ(Names({{"app!=x", ""}, 4}), (std::multiset<std::string>{"b", "c"}));
}

TEST_F(ClientTest, GivenAnExpiredTokenWhenPagingThenTheListBeginsAgain) {
  for (int i = 0; i < 10; ++i) server_.Put(kPods, PodOf("p" + std::to_string(i)));
  int items = 0;
  const auto names = Names({{}, 4}, [&] {
    if (++items == 3) server_.Compact();
  });
  EXPECT_EQ(names.size(), 10U);
  EXPECT_EQ(restarts_, 1);
}

TEST_F(ClientTest, GivenTokensThatAlwaysExpireWhenPagingThenTheListIsTakenWhole) {
  for (int i = 0; i < 10; ++i) server_.Put(kPods, PodOf("p" + std::to_string(i)));
  EXPECT_EQ(Names({{}, 2}, [&] { server_.Compact(); }).size(), 10U);
  EXPECT_GT(restarts_, 1);
}

TEST_F(ClientTest, GivenChanges_WhenWatched_ThenEventsBookmarksAndEndInOrder) {
  const std::string start = VersionOf(server_.Put(kPods, PodOf("old")));
  server_.Put(kPods, PodOf("a"));
  server_.Put(kPods, PodOf("a", {{"x", "y"}}));
  server_.Remove(kPods, "default", "a");
  server_.Put(kNodes, {{"metadata", {{"name", "n"}}}});
  std::vector<WatchType> types;
  std::string last;
  const auto end = client_->Watch(kPods, "", {{}, start, 60s}, [&](WatchType type, const json::value& object) {
    types.push_back(type);
    last = VersionOf(object);
    if (type == WatchType::kDeleted) server_.SendBookmarks();
    return type != WatchType::kBookmark;
  });
  EXPECT_TRUE(end) << end.error().message;
  EXPECT_EQ(types, (std::vector{WatchType::kAdded, WatchType::kModified, WatchType::kDeleted, WatchType::kBookmark}));
  EXPECT_EQ(last, VersionOf(*server_.Get(kNodes, "", "n")));
}

TEST_F(ClientTest, GivenKnownModifications_WhenWatched_ThenOnlyVersionsAreTold) {
  const std::string start = VersionOf(server_.Put(kPods, PodOf("a")));
  const std::string known = VersionOf(server_.Put(kPods, PodOf("a", {{"x", "1"}})));
  server_.Put(kPods, PodOf("b"));
  const std::string last = VersionOf(server_.Put(kPods, PodOf("a", {{"x", "2"}})));
  std::vector<std::string> asked;
  WatchRequest request{{}, start, 60s};
  request.known = [&](const Identity& object) {
    asked.push_back(std::string(object.ns) + "/" + std::string(object.name) + " " + std::string(object.version));
    return object.version == known;
  };
  std::vector<std::pair<WatchType, std::string>> told;
  const auto end = client_->Watch(kPods, "", request, [&](WatchType type, const json::value& object) {
    told.emplace_back(type, VersionOf(object));
    return told.back().second != last;
  });
  EXPECT_TRUE(end) << end.error().message;
  EXPECT_EQ(asked, (std::vector<std::string>{"default/a " + known, "default/a " + last}));
  ASSERT_EQ(told.size(), 3U);
  EXPECT_EQ(told[0], (std::pair{WatchType::kBookmark, known}));
  EXPECT_EQ(told[1].first, WatchType::kAdded);
  EXPECT_EQ(told[2], (std::pair{WatchType::kModified, last}));
}

TEST_F(ClientTest, GivenReader_WhenListedAndWatched_ThenEachIsReadBeforeTold) {
  server_.Put(kPods, PodOf("a"));
  std::string read;
  CallContext context;
  context.read = [&](base::JsonCursor& cursor, const json::storage_ptr& storage) -> std::optional<json::value> {
    const auto whole = base::TakeParts(cursor, {}, storage);
    if (whole) read = NameOf(*whole);
    return whole ? std::optional<json::value>(json::value(read)) : std::nullopt;
  };
  std::vector<std::string> told;
  const auto tell = [&](const json::value& object) {
    EXPECT_EQ(object, json::value(read));
    told.push_back(read);
  };
  const auto version = client_->List(kPods, "", {}, {tell, {}}, context);
  ASSERT_TRUE(version);
  server_.Put(kPods, PodOf("b"));
  EXPECT_TRUE(client_->Watch(
      kPods, "", {{}, *version, 60s},
      [&](WatchType type, const json::value& object) {
        EXPECT_EQ(type, WatchType::kAdded);
        tell(object);
        return false;
      },
      context));
  EXPECT_EQ(told, (std::vector<std::string>{"a", "b"}));
}

TEST_F(ClientTest, GivenASelectionWhenAnObjectLeavesItThenTheWatchSaysDeleted) {
  const std::string start = VersionOf(server_.Put(kPods, PodOf("a")));
  json::value done = PodOf("a");
  done.at("status").as_object()["phase"] = "Succeeded";
  server_.Put(kPods, done);
  std::vector<WatchType> types;
  const auto end =
      client_->Watch(kPods, "", {{"", "status.phase!=Succeeded"}, start, 60s}, [&](WatchType type, const json::value&) {
        types.push_back(type);
        return false;
      });
  EXPECT_TRUE(end);
  EXPECT_EQ(types, (std::vector{WatchType::kDeleted}));
}

TEST_F(ClientTest, GivenAVersionThatIsGoneWhenWatchedThenExpired) {
  const std::string start = VersionOf(server_.Put(kPods, PodOf("a")));
  server_.Compact();
  const auto end = client_->Watch(kPods, "", {{}, start, 60s}, [](WatchType, const json::value&) { return true; });
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().reason, Reason::kExpired);
}

TEST_F(ClientTest, GivenAWatchWhenTheServerEndsItThenThatIsNoError) {
  const std::string start = VersionOf(server_.Put(kPods, PodOf("a")));
  EXPECT_TRUE(client_->Watch(kPods, "", {{}, start, 1s}, [](WatchType, const json::value&) { return true; }));
}

TEST_F(ClientTest, GivenAWatchWhenCancelledThenItEndsAtOnce) {
  const std::string start = VersionOf(server_.Put(kPods, PodOf("a")));
  net::Canceller stop;
  auto watch = std::async(std::launch::async, [&] {
    return client_->Watch(kPods, "", {{}, start, 600s}, [](WatchType, const json::value&) { return true; },
                          {&stop, {}});
  });
  while (server_.watching() == 0) std::this_thread::yield();
  const net::Deadline begin = net::Clock::now();
  stop.Cancel();
  const auto end = watch.get();
  EXPECT_LT(net::Clock::now() - begin, 20s);
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().reason, Reason::kCancelled);
}

TEST_F(ClientTest, GivenConnectionDrop_WhenWriting_ThenErrorLeavesOutcomeOpen) {
  server_.Put(kPods, PodOf("a"));
  const auto patch = [&] { return client_->Patch(kPods, "default", "a", PatchType::kMerge, {{"x", 1}}); };
  server_.Add({.kind = FakeFault::Kind::kDropBefore, .method = "PATCH"});
  EXPECT_EQ(patch().error().reason, Reason::kTransport);
  EXPECT_FALSE(server_.Get(kPods, "default", "a")->as_object().contains("x"));
  server_.Add({.kind = FakeFault::Kind::kDropAfter, .method = "PATCH"});
  EXPECT_EQ(patch().error().reason, Reason::kTransport);
  EXPECT_TRUE(server_.Get(kPods, "default", "a")->as_object().contains("x"));
  EXPECT_TRUE(patch());
}

TEST_F(ClientTest, GivenASlowServerWhenTheTimeoutPassesThenTimeout) {
  server_.Put(kPods, PodOf("a"));
  server_.Add({.kind = FakeFault::Kind::kDelay, .method = "GET", .delay = 300ms});
  EXPECT_EQ(client_->Get(kPods, "default", "a", {nullptr, 30ms}).error().reason, Reason::kTimeout);
}

TEST_F(ClientTest, GivenA429WhenItSaysWhenToComeBackThenTheCallIsTriedAgain) {
  server_.Put(kPods, PodOf("a"));
  server_.Add({.kind = FakeFault::Kind::kStatus, .method = "GET", .status = 429, .retry_after = 1});
  EXPECT_TRUE(client_->Get(kPods, "default", "a"));
  EXPECT_EQ(client_->counters().retries, 1U);
  server_.Add({.kind = FakeFault::Kind::kStatus, .method = "GET", .status = 429, .retry_after = 60});
  const auto later = client_->Get(kPods, "default", "a");
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().reason, Reason::kTooManyRequests);
  EXPECT_EQ(later.error().retry_after, 60s);
}

TEST_F(ClientTest, GivenAServerErrorWhenReturnedThenItIsNotRepeated) {
  server_.Add({.kind = FakeFault::Kind::kStatus, .status = 500});
  EXPECT_EQ(client_->Get(kPods, "default", "a").error().reason, Reason::kServerError);
  EXPECT_EQ(server_.AskedInAll(), 1U);
}

TEST_F(ClientTest, GivenARateLimitWhenCallsComeFasterThenTheyAreSpread) {
  server_.Put(kPods, PodOf("a"));
  ClientOptions options;
  options.qps = 50;
  options.burst = 1;
  const auto client = NewClient(options);
  const net::Deadline start = net::Clock::now();
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(client->Get(kPods, "default", "a"));
  EXPECT_GE(net::Clock::now() - start, 95ms);
}

TEST_F(ClientTest, GivenRateLimit_WhenNoTimeToWait_ThenNotSentAndNoTurnIsTaken) {
  server_.Put(kPods, PodOf("a"));
  ClientOptions options;
  options.qps = 2;
  options.burst = 1;
  options.timeout = 100ms;
  const auto client = NewClient(options);
  ASSERT_TRUE(client->Get(kPods, "default", "a"));
  for (int i = 0; i < 50; ++i) {
    const auto got = client->Get(kPods, "default", "a");
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().reason, Reason::kNotSent);
  }
  const net::Canceller stop;
  const std::jthread soon([&] {
    std::this_thread::sleep_for(50ms);
    const_cast<net::Canceller&>(stop).Cancel();
  });
  EXPECT_FALSE(client->Get(kPods, "default", "a", {&stop, 10s}));
  EXPECT_EQ(server_.AskedInAll(), 1U);
  std::this_thread::sleep_for(500ms);
  EXPECT_TRUE(client->Get(kPods, "default", "a"));
}

TEST(ClientAccess, GivenRenewedTokenFile_WhenRefused_ThenRepeatedWithNewToken) {
  std::string pattern = ::testing::TempDir() + "/hami-token-XXXXXX";
  const fs::path folder = ::mkdtemp(pattern.data());
  FakeOptions options;
  options.token = "new";
  FakeApiServer server(options);
  server.Put(kPods, PodOf("a"));
  Config config = server.config();
  config.token.clear();
  config.token_file = folder / "token";
  std::ofstream(config.token_file) << "old";
  const auto client = *Client::Make(config);
  EXPECT_EQ(client->Get(kPods, "default", "a").error().reason, Reason::kUnauthorized);
  std::ofstream(config.token_file) << "new";
  EXPECT_TRUE(client->Get(kPods, "default", "a"));
  fs::remove_all(folder);
}

TEST(ClientAccess, GivenTlsWhenTheAuthorityIsKnownThenCallsAndWatchesWork) {
  std::string pattern = ::testing::TempDir() + "/hami-tls-XXXXXX";
  const fs::path folder = ::mkdtemp(pattern.data());
  net::TestAuthority authority;
  const auto issued = authority.Issue("server", "IP:127.0.0.1");
  FakeOptions options;
  options.tls = net::TlsFiles{folder / "crt", folder / "key"};
  std::ofstream(options.tls->certificate) << issued.certificate_pem;
  std::ofstream(options.tls->key) << issued.key_pem;
  {
    FakeApiServer server(options);
    Config config = server.config();
    EXPECT_EQ((*Client::Make(config))->Get(kPods, "default", "a").error().reason, Reason::kTransport);
    config.tls.ca.data = authority.certificate_pem();
    const auto client = *Client::Make(config);
    const auto pod = client->Create(kPods, "default", PodOf("a"));
    ASSERT_TRUE(pod) << pod.error().message;
    server.Put(kPods, PodOf("b"));
    std::string name;
    EXPECT_TRUE(client->Watch(kPods, "", {{}, VersionOf(*pod), 60s}, [&](WatchType, const json::value& object) {
      name = NameOf(object);
      return false;
    }));
    EXPECT_EQ(name, "b");
  }
  fs::remove_all(folder);
}

TEST_F(ClientTest, GivenManyObjectsWhenCreatedTogetherThenEachHasItsOwnOutcome) {
  // Asked to come again, and refused for good.
  server_.Add({.kind = FakeFault::Kind::kStatus, .method = "POST", .status = 429});
  server_.Add({.kind = FakeFault::Kind::kStatus, .method = "POST", .status = 403});
  std::vector<NewObject> objects;
  for (const char* name : {"again", "refused", "a", "a"}) objects.push_back({"default", json::serialize(PodOf(name))});
  const auto created = client_->CreateAll(kPods, objects);
  ASSERT_EQ(created.size(), 4U);
  EXPECT_TRUE(created[0]) << created[0].error().message;
  EXPECT_EQ(created[1].error().reason, Reason::kForbidden);
  EXPECT_TRUE(created[2]);
  EXPECT_EQ(created[3].error().reason, Reason::kAlreadyExists);
  EXPECT_EQ(Names({}), (std::multiset<std::string>{"again", "a"}));
}

TEST_F(ClientTest, GivenObjectWithNoMoreThanNames_WhenCreated_ThenLikeAnyOther) {
  const json::value event = {{"metadata", {{"name", "a.1"}}}, {"involvedObject", {{"name", "a"}}}, {"count", 1}};
  const auto created = client_->Create(kEvents, "ns", event);
  ASSERT_TRUE(created) << created.error().message;
  EXPECT_EQ(*client_->Get(kEvents, "ns", "a.1"), *created);
  EXPECT_EQ(server_.All(kEvents, "ns"), std::vector<json::value>{*created});
  json::value told;
  EXPECT_TRUE(client_->Watch(kEvents, "", {{}, "1", 60s}, [&](WatchType, const json::value& object) {
    told = object;
    return false;
  }));
  EXPECT_EQ(told, *created);
  EXPECT_EQ(client_->Create(kEvents, "ns", event).error().reason, Reason::kAlreadyExists);
  const auto counted = client_->Patch(kEvents, "ns", "a.1", PatchType::kMerge, {{"count", 2}});
  ASSERT_TRUE(counted) << counted.error().message;
  // The same with a label.
  json::value labelled = event;
  labelled.at("metadata").as_object()["labels"] = {{"k", "v"}};
  labelled.at("metadata").as_object()["name"] = "b.1";
  json::value other = *client_->Create(kEvents, "ns", labelled);
  json::object& metadata = other.at("metadata").as_object();
  metadata.erase("labels");
  metadata["name"] = "a.1";
  for (const char* key : {"uid", "resourceVersion"}) {
    EXPECT_NE(metadata.at(key), created->at("metadata").at(key));
    metadata[key] = created->at("metadata").at(key);
  }
  EXPECT_EQ(other, *created);
}

}  // namespace
}  // namespace hami::kube
