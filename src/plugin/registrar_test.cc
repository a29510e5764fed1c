// SPDX-License-Identifier: Apache-2.0

#include "plugin/registrar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "kube/testing/fake_apiserver.h"
#include "kube/testing/json_patch.h"

namespace hami::plugin {
namespace {

namespace json = base::json;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

// One node and its watchers, without HTTP. Fails as it is told to.
class FakeNode final : public NodeApi, public kube::ListWatcher {
 public:
  enum class Fault { kNone, kRefuse, kLoseAnswer };

  kube::ListWatcher& source() override { return *this; }

  kube::Result<std::string> List(const kube::ListSink& sink, const net::Canceller&) override {
    const std::scoped_lock lock(mutex_);
    if (!absent) sink.item(Document());
    return std::to_string(version_);
  }

  kube::Status Watch(const std::string& version, std::chrono::seconds, const kube::OnWatchEvent& on_event,
                     const net::Canceller& stop) override {
    std::unique_lock lock(mutex_);
    std::uint64_t seen = std::stoull(version);
    while (!stop.cancelled()) {
      if (version_ == seen) {
        changed_.wait_for(lock, 20ms);  // the canceller does not wake us
        continue;
      }
      seen = version_;
      const json::value document = Document();
      lock.unlock();
      on_event(kube::WatchType::kModified, document);
      lock.lock();
      changed_.notify_all();
    }
    return kube::Fail(kube::Reason::kCancelled, "stopped");
  }

  kube::Result<json::value> Patch(const json::value& patch, const kube::CallContext&) override {
    const std::scoped_lock lock(mutex_);
    ++patches_;
    changed_.notify_all();
    const Fault fault = faults_ > 0 ? fault_ : Fault::kNone;
    if (faults_ > 0) --faults_;
    if (fault == Fault::kRefuse) return kube::Fail(kube::Reason::kServerError, "no");
    Apply(patch);
    if (fault == Fault::kLoseAnswer) return kube::Fail(kube::Reason::kTimeout, "no answer");
    return Document();
  }

  void Fail(Fault fault, int times) {
    const std::scoped_lock lock(mutex_);
    fault_ = fault;
    faults_ = times;
  }
  // Somebody else's write.
  void Write(const std::string& key, const json::value& value) {
    const std::scoped_lock lock(mutex_);
    Apply({{"metadata", {{"annotations", {{key, value}}}}}});
    changed_.notify_all();
  }
  // Waits until the condition, which may look at patches and annotations, holds.
  template <typename Condition>
  bool Await(const Condition& condition) {
    std::unique_lock lock(mutex_);
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      changed_.wait_for(lock, 5ms);
    }
    return true;
  }
  int patches() const { return patches_; }
  bool absent = false;  // from the first list
  bool Says(const std::string& key, const std::string& text) const {
    const json::value* const value = annotations_.if_contains(key);
    return value != nullptr && value->as_string() == text;
  }

 private:
  void Apply(const json::value& patch) {
    json::value node = {{"metadata", json::object{{"annotations", annotations_}}}};
    kube::ApplyMergePatch(node, patch);
    annotations_ = node.at("metadata").at("annotations").as_object();
    ++version_;
  }
  json::value Document() const {
    return {{"metadata",
             {{"name", "node-1"},
              {"uid", "u1"},
              {"resourceVersion", std::to_string(version_)},
              {"labels", {{"pool", "a"}}},
              {"annotations", annotations_}}}};
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  json::object annotations_;
  std::uint64_t version_ = 5;
  int patches_ = 0;
  Fault fault_ = Fault::kNone;
  int faults_ = 0;
};

Registration Wanted(const std::string& cards) {
  Registration wanted;
  wanted.cards = cards;
  return wanted;
}

RegistrarOptions Quick() {
  RegistrarOptions options;
  options.retry_first = 1ms;
  options.retry_most = 2ms;
  options.random = [] { return 0.0; };
  options.clock = [] { return device::LocalClock{1'800'000'000, 0}; };
  return options;
}

TEST(RegistrarTest, GivenABareNode_WhenWanted_ThenOnePatchTellsItAll) {
  FakeNode node;
  Registrar registrar(
      node, [](const SeenNode&) {}, Quick());
  registrar.Start();
  registrar.Want(Wanted("[1]"));
  EXPECT_TRUE(node.Await([&] { return registrar.registered(); }));
  // What changes nothing costs nothing.
  registrar.Want(Wanted("[1]"));
  node.Write("somebody/else", "1");
  registrar.Want(Wanted("[2]"));
  EXPECT_TRUE(node.Await([&] { return registrar.registered() && node.Says(kRegisterKey, "[2]"); }));
  EXPECT_EQ(node.patches(), 2);
  EXPECT_EQ(registrar.counters().patches, 2U);
}

TEST(RegistrarTest, GivenFailedPatches_WhenNothingChanges_ThenTheyAreTriedAgain) {
  FakeNode node;
  node.Fail(FakeNode::Fault::kRefuse, 3);
  Registrar registrar(
      node, [](const SeenNode&) {}, Quick());
  registrar.Want(Wanted("[1]"));
  registrar.Start();
  EXPECT_TRUE(node.Await([&] { return registrar.registered(); }));
  EXPECT_EQ(node.patches(), 4);
  EXPECT_EQ(registrar.counters().failures, 3U);
}

TEST(RegistrarTest, GivenLostAnswer_WhenWatchTellsOfPatch_ThenItIsNotSentAgain) {
  FakeNode node;
  node.Fail(FakeNode::Fault::kLoseAnswer, 1);
  RegistrarOptions options = Quick();
  options.retry_first = options.retry_most = 1h;
  Registrar registrar(
      node, [](const SeenNode&) {}, options);
  registrar.Want(Wanted("[1]"));
  registrar.Start();
  EXPECT_TRUE(node.Await([&] { return registrar.registered(); }));
  EXPECT_EQ(node.patches(), 1);
}

// What was promised is taken back at once, and nothing promises it again.
TEST(RegistrarTest, Withdrawn_SaysNothingOfConcurrencyAnyMore) {
  FakeNode node;
  Registrar registrar(
      node, [](const SeenNode&) {}, Quick());
  Registration wanted = Wanted("[1]");
  wanted.concurrent_allocate = true;
  registrar.Want(wanted);
  registrar.Start();
  ASSERT_TRUE(node.Await([&] { return registrar.registered() && node.Says(kConcurrentKey, "1"); }));
  registrar.Withdraw();
  EXPECT_TRUE(node.Await([&] { return !node.Says(kConcurrentKey, "1"); }));
  registrar.Want(wanted);
  wanted.cards = "[2]";
  registrar.Want(wanted);
  EXPECT_TRUE(node.Await([&] { return node.Says(kRegisterKey, "[2]"); }));
  EXPECT_FALSE(node.Says(kConcurrentKey, "1"));
}

TEST(RegistrarTest, TimeToSayThatItLives_IsNoticed) {
  FakeNode node;
  std::atomic<device::UnixSeconds> now = 1'800'000'000;
  RegistrarOptions options = Quick();
  options.contest_first = options.contest_most = 1h;
  options.look_every = 1ms;
  options.clock = [&] { return device::LocalClock{now.load(), 0}; };
  Registrar registrar(
      node, [](const SeenNode&) {}, options);
  Registration wanted = Wanted("[1]");
  wanted.concurrent_allocate = true;
  registrar.Want(wanted);
  registrar.Start();
  const auto said = [&] { return node.Says(device::kPluginAlive, device::FormatAlive(now, "[1]")); };
  ASSERT_TRUE(node.Await(said));
  for (int i = 0; i < 2; ++i) {
    now += device::kAliveEvery;
    EXPECT_TRUE(node.Await(said)) << "it is no dispute";
  }
  EXPECT_EQ(node.patches(), 3);
}

TEST(RegistrarTest, NodeThatIsNotThere_IsSaid) {
  FakeNode node;
  node.absent = true;
  RegistrarOptions options = Quick();
  options.node = "node-x";
  options.node_patience = 5ms;
  Registrar registrar(
      node, [](const SeenNode&) {}, options);
  registrar.Want(Wanted("[1]"));
  registrar.Start();
  EXPECT_TRUE(node.Await([&] { return registrar.trouble().find("there is no node node-x") == 0; }));
  node.Write("somebody/else", "1");  // there it is
  EXPECT_TRUE(node.Await([&] { return registrar.registered() && registrar.trouble().empty(); }));
}

TEST(RegistrarTest, GivenDeletedAnnotation_WhenNoticed_ThenItComesBack) {
  FakeNode node;
  Registrar registrar(
      node, [](const SeenNode&) {}, Quick());
  registrar.Want(Wanted("[1]"));
  registrar.Start();
  ASSERT_TRUE(node.Await([&] { return registrar.registered(); }));
  node.Write(kRegisterKey, nullptr);
  EXPECT_TRUE(node.Await([&] { return node.patches() == 2 && node.Says(kRegisterKey, "[1]"); }));
}

TEST(RegistrarTest, GivenOtherWriter_WhenItGoesOn_ThenNoRaceButOurChangesPass) {
  FakeNode node;
  RegistrarOptions options = Quick();
  options.contest_first = options.contest_most = 1h;
  Registrar registrar(
      node, [](const SeenNode&) {}, options);
  registrar.Want(Wanted("[1]"));
  registrar.Start();
  ASSERT_TRUE(node.Await([&] { return registrar.registered(); }));
  node.Write(kRegisterKey, "theirs");
  ASSERT_TRUE(node.Await([&] { return node.patches() == 2 && registrar.registered(); }));
  node.Write(kRegisterKey, "theirs again");
  ASSERT_TRUE(node.Await([&] { return !registrar.registered(); }));
  EXPECT_EQ(node.patches(), 2);  // the next correction waits
  registrar.Want(Wanted("[2]"));
  EXPECT_TRUE(node.Await([&] { return node.Says(kRegisterKey, "[2]"); }));
  EXPECT_EQ(node.patches(), 3);
}

TEST(RegistrarTest, GivenNode_WhenSeen_ThenLabelsAndOurAnnotationsAreHandedOn) {
  FakeNode node;
  node.Write(kHealthKey, "{}");
  node.Write("somebody/else", "1");
  std::mutex mutex;
  SeenNode seen;
  Registrar registrar(
      node,
      [&](const SeenNode& now) {
        const std::scoped_lock lock(mutex);
        seen = now;
      },
      Quick());
  registrar.Start();
  EXPECT_TRUE(node.Await([&] {
    const std::scoped_lock lock(mutex);
    return !seen.uid.empty();
  }));
  registrar.Stop();
  EXPECT_EQ(seen.labels.at("pool"), "a");
  EXPECT_EQ(seen.annotations, (device::StringMap{{kHealthKey, "{}"}}));
  EXPECT_EQ(node.patches(), 0);  // nothing was wanted yet
}

TEST(RegistrarTest, GivenApiServer_ThenOnlyThisNodeIsWatchedAndPatched) {
  kube::FakeApiServer server;
  server.Put(kube::kNodes, json::parse(R"({"metadata":{"name":"node-1","annotations":{"a":"b"}}})"));
  server.Put(kube::kNodes, json::parse(R"({"metadata":{"name":"node-2"}})"));
  auto client = kube::Client::Make(server.config());
  ASSERT_TRUE(client);
  ApiNode api(**client, "node-1");
  std::atomic<int> seen = 0;
  Registrar registrar(
      api, [&](const SeenNode&) { ++seen; }, Quick());
  registrar.Want(Wanted("[1]"));
  registrar.Start();
  FakeNode waiter;
  ASSERT_TRUE(waiter.Await([&] { return registrar.registered(); }));
  registrar.Stop();
  const auto node = server.Get(kube::kNodes, "", "node-1");
  ASSERT_TRUE(node);
  EXPECT_EQ(node->at("metadata").at("annotations").at(kRegisterKey).as_string(), "[1]");
  EXPECT_EQ(node->at("metadata").at("annotations").at("a").as_string(), "b");
  EXPECT_EQ(server.Asked("PATCH"), 1U);
  EXPECT_EQ(server.Asked("LIST"), 1U);
  EXPECT_GE(seen.load(), 1);
  EXPECT_FALSE(server.Get(kube::kNodes, "", "node-2")->at("metadata").as_object().contains("annotations"));
}

}  // namespace
}  // namespace hami::plugin
