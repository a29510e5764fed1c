// SPDX-License-Identifier: Apache-2.0
//
// Life with a kubelet that is real as far as gRPC goes: registration, streams, replaced sockets. The letters are those
// of docs/operate/device-plugin.md.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "base/strings.h"
#include "device_plugin.grpc.pb.h"
#include "plugin/kubelet_client.h"
#include "plugin/resource_servers.h"
#include "plugin/testing/allocation_world.h"
#include "plugin/testing/fake_kubelet.h"

namespace hami::plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

class KubeletTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Publish(MakeTestCards(2, 2));
    kubelet_ = std::make_unique<FakeKubelet>(folder_.path());
  }
  void TearDown() override {
    serving_.reset();
    kubelet_.reset();
  }

  void Publish(Cards cards) { board_.Publish(std::move(cards)); }
  void Serve(const std::string& kubelet_socket = "/kubelet.sock") {
    ServingOptions options;
    if (!kubelet_socket.empty()) options.kubelet_socket = folder_.path() + kubelet_socket;
    options.folder = folder_.path();
    options.resource_name = [] { return std::string("nvidia.com/gpu"); };
    options.preferred_allocation = [] { return true; };
    options.first_retry = std::chrono::milliseconds(10);
    options.look_every = std::chrono::hours(1);  // what is noticed was heard of
    KubeletBackend backend;
    backend.board = &board_;
    backend.allocate = [](const std::vector<std::string>& slots) -> base::Result<Response> {
      if (slots.front() == "throw") throw std::runtime_error("a library threw");
      if (slots.front() == "fail") return base::Fail("no pod is on its way");
      Response response;
      response.environment["SLOTS"] = base::Join(slots, ",");
      response.mounts.push_back({"/c", "/h", true});
      response.devices.push_back({"/dev/a", "/dev/b", "rw"});
      response.annotations["k"] = "v";
      response.cdi_devices.push_back("x/y=z");
      return response;
    };
    backend.prefer = [](const PreferredRequest& request) { return request.must_include; };
    serving_ = std::make_unique<Serving>(std::move(options), std::move(backend));
    serving_->Start([this](const base::Error&) { gave_up_.store(true); });
  }

  TempFolder folder_;
  CardBoard board_;
  std::unique_ptr<FakeKubelet> kubelet_;
  std::unique_ptr<Serving> serving_;
  std::atomic<bool> gave_up_ = false;
};

TEST_F(KubeletTest, WhenServingStarts_ThenKubeletGetsRegistrationAndEverySlot) {
  Serve();
  ASSERT_TRUE(kubelet_->WaitForRegistrations(1));
  const auto request = kubelet_->registrations().front();
  EXPECT_EQ(request.version(), "v1beta1");
  EXPECT_EQ(request.endpoint(), "nvidia-gpu.sock");
  EXPECT_EQ(request.resource_name(), "nvidia.com/gpu");
  EXPECT_TRUE(request.options().get_preferred_allocation_available());
  SlotWatcher watcher(folder_.path() + "/nvidia-gpu.sock");
  EXPECT_THAT(watcher.Next(), ElementsAre(SlotId(CardName(0), 0) + " Healthy", SlotId(CardName(0), 1) + " Healthy",
                                          SlotId(CardName(1), 0) + " Healthy", SlotId(CardName(1), 1) + " Healthy"));
}

// L3, L5: recovery is told too, and a change without a listener blocks nobody.
TEST_F(KubeletTest, GivenACardThatFailsAndRecoversWhenItIsWatchedThenBothAreTold) {
  Serve();
  ASSERT_TRUE(kubelet_->WaitForRegistrations(1));
  Cards broken = MakeTestCards(1, 1);
  broken.cards[0].healthy = false;
  Publish(broken);
  Publish(MakeTestCards(1, 1));
  Publish(broken);
  SlotWatcher watcher(folder_.path() + "/nvidia-gpu.sock");
  EXPECT_THAT(watcher.Next(), ElementsAre(SlotId(CardName(0), 0) + " Unhealthy"));
  Publish(MakeTestCards(1, 1));
  EXPECT_THAT(watcher.Next(), ElementsAre(SlotId(CardName(0), 0) + " Healthy"));
}

// L2
TEST_F(KubeletTest, GivenACardThatIsAddedWhenItIsWatchedThenItsSlotsAreTold) {
  Serve();
  ASSERT_TRUE(kubelet_->WaitForRegistrations(1));
  SlotWatcher watcher(folder_.path() + "/nvidia-gpu.sock");
  EXPECT_THAT(watcher.Next(), SizeIs(4));
  Publish(MakeTestCards(3, 2));
  EXPECT_THAT(watcher.Next(), SizeIs(6));
}

// gRPC's callback queue sleeps for 100 ms after each quiet second, and every call of that time with it.
TEST_F(KubeletTest, GivenStream_WhenServerIsIdle_ThenNoThreadPollsCallbackQueue) {
  Serve();
  ASSERT_TRUE(kubelet_->WaitForRegistrations(1));
  SlotWatcher watcher(folder_.path() + "/nvidia-gpu.sock");
  EXPECT_THAT(watcher.Next(), SizeIs(4));
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    EXPECT_NE(name.substr(0, 7), "nexting");
  }
}

TEST_F(KubeletTest, GivenTooManyStreams_WhenOpened_ThenRefusedButCallsAnswered) {
  Serve();
  ASSERT_TRUE(kubelet_->WaitForRegistrations(1));
  std::vector<std::unique_ptr<SlotWatcher>> watchers;
  for (int i = 0; i < 16; ++i) {
    watchers.push_back(std::make_unique<SlotWatcher>(folder_.path() + "/nvidia-gpu.sock"));
    EXPECT_THAT(watchers.back()->Next(), SizeIs(4)) << i;
  }
  SlotWatcher one_more(folder_.path() + "/nvidia-gpu.sock");
  EXPECT_THAT(one_more.Next(), IsEmpty());
  PluginClient client(folder_.path() + "/nvidia-gpu.sock");
  EXPECT_TRUE(client.PreferredAvailable());
}

TEST_F(KubeletTest, GivenNoSocketOfAKubeletWhenServingStartsThenNothingIsServed) {
  Serve("");
  serving_->Restart();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/nvidia-gpu.sock"));
  serving_->Stop();
  EXPECT_THAT(kubelet_->registrations(), IsEmpty());
}

TEST_F(KubeletTest, GivenAbsentKubelet_WhenServingStarts_ThenThatIsSaidOnce) {
  base::StartLog("test");
  testing::internal::CaptureStderr();
  Serve("/absent.sock");
  SlotWatcher watcher(folder_.path() + "/nvidia-gpu.sock");
  EXPECT_THAT(watcher.Next(), SizeIs(4));
  serving_->Restart();
  EXPECT_THAT(watcher.Next(), IsEmpty()) << "it serves anew";
  serving_->Stop();
  const std::string said = testing::internal::GetCapturedStderr();
  const std::string line = "waiting for the kubelet at " + folder_.path() + "/absent.sock";
  EXPECT_THAT(said, HasSubstr(line));
  EXPECT_EQ(said.find(line), said.rfind(line)) << said;
}

TEST_F(KubeletTest, GivenNumaTopologyWhenItIsWatchedThenEachSlotSaysItsNode) {
  Cards cards = MakeTestCards(2, 1);
  cards.settings.numa_topology = true;
  cards.cards[1].numa_node = 1;
  Publish(cards);
  Serve();
  SlotWatcher watcher(folder_.path() + "/nvidia-gpu.sock");
  EXPECT_THAT(watcher.Next(),
              ElementsAre(SlotId(CardName(0), 0) + " Healthy", SlotId(CardName(1), 0) + " Healthy on 1"));
}

TEST_F(KubeletTest, GivenStartingContainer_WhenKubeletSaysSo_ThenCallSucceeds) {
  Serve();
  EXPECT_TRUE(PluginClient(folder_.path() + "/nvidia-gpu.sock").PreStart({"a"}).ok());
}

TEST_F(KubeletTest, GivenRestartThatEmptiesFolder_ThenWeServeAndRegisterAnew) {
  Serve();
  ASSERT_TRUE(kubelet_->WaitForRegistrations(1));
  for (int life = 0; life < 3; ++life) {
    kubelet_.reset();
    std::filesystem::remove(folder_.path() + "/nvidia-gpu.sock");
    kubelet_ = std::make_unique<FakeKubelet>(folder_.path());
    ASSERT_TRUE(kubelet_->WaitForRegistrations(1)) << life;
    SlotWatcher watcher(folder_.path() + "/nvidia-gpu.sock");
    EXPECT_THAT(watcher.Next(), SizeIs(4));
  }
}

TEST_F(KubeletTest, GivenReplacedFolder_WhenKubeletStartsInIt_ThenItHearsOfUs) {
  const TempFolder other;
  Serve();
  ASSERT_TRUE(kubelet_->WaitForRegistrations(1));
  kubelet_.reset();
  // At no time there is none.
  ASSERT_EQ(::renameat2(AT_FDCWD, folder_.path().c_str(), AT_FDCWD, other.path().c_str(), RENAME_EXCHANGE), 0);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!std::filesystem::exists(folder_.path() + "/nvidia-gpu.sock") && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kubelet_ = std::make_unique<FakeKubelet>(folder_.path());
  EXPECT_TRUE(kubelet_->WaitForRegistrations(1));
}

// The one that starts takes over, and its predecessor does not take the resource back.
TEST_F(KubeletTest, TwoPluginsOfOneResource_DoNotFight) {
  Serve();
  ASSERT_TRUE(kubelet_->WaitForRegistrations(1));
  std::vector<std::string> told;
  ServingOptions options;
  options.kubelet_socket = folder_.path() + "/kubelet.sock";
  options.folder = folder_.path();
  options.resource_name = [] { return std::string("nvidia.com/gpu"); };
  options.preferred_allocation = [] { return true; };
  options.on_trouble = [&](const std::string& trouble) { told.push_back(trouble); };
  KubeletBackend backend;
  backend.board = &board_;
  {
    Serving second(options, backend);
    second.Start([](const base::Error&) {});
    ASSERT_TRUE(kubelet_->WaitForRegistrations(2));
    const std::string endpoint = kubelet_->registrations().back().endpoint();
    EXPECT_NE(endpoint, "nvidia-gpu.sock");
    SlotWatcher watcher(folder_.path() + "/" + endpoint);
    EXPECT_THAT(watcher.Next(), SizeIs(4));
    serving_->Look();
    SlotWatcher first(folder_.path() + "/nvidia-gpu.sock");
    EXPECT_THAT(first.Next(), SizeIs(4)) << "what it served before it goes on serving";
    second.Stop();
  }
  EXPECT_THAT(told, ElementsAre(HasSubstr("another device plugin serves nvidia.com/gpu")));
  EXPECT_THAT(kubelet_->registrations(), SizeIs(2));
}

// HAMi's plugin takes our name: that is said, and nothing of it is undone until that one ends.
TEST_F(KubeletTest, SocketTakenByAnother_IsSaidAndLeftAlone) {
  Serve();
  ASSERT_TRUE(kubelet_->WaitForRegistrations(1));
  const std::string socket = folder_.path() + "/nvidia-gpu.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket.copy(address.sun_path, sizeof address.sun_path - 1);
  {
    const base::Fd other(::socket(AF_UNIX, SOCK_STREAM, 0));
    // At no time there is none: it is made beside, and renamed.
    sockaddr_un beside = address;
    std::strcat(beside.sun_path, ".new");
    ASSERT_EQ(::bind(other.get(), reinterpret_cast<const sockaddr*>(&beside), sizeof beside), 0);
    ASSERT_EQ(::listen(other.get(), 5), 0);
    ASSERT_EQ(::rename(beside.sun_path, socket.c_str()), 0);
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (serving_->trouble().empty() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_THAT(serving_->trouble(), HasSubstr("another device plugin took over"));
    EXPECT_FALSE(serving_->registered());
    EXPECT_THAT(kubelet_->registrations(), SizeIs(1));
  }
  serving_->Look();
  EXPECT_TRUE(kubelet_->WaitForRegistrations(2)) << "that one ended";
}

// L1: nothing of an earlier life stays.
TEST_F(KubeletTest, GivenManyServingRestarts_ThenThreadsAreNoMoreThanBefore) {
  Serve();
  ASSERT_TRUE(kubelet_->WaitForRegistrations(1));
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
  };
  serving_->Restart();
  ASSERT_TRUE(kubelet_->WaitForRegistrations(2));
  const auto before = threads();
  for (std::size_t i = 3; i <= 10; ++i) {
    serving_->Restart();
    ASSERT_TRUE(kubelet_->WaitForRegistrations(i));
  }
  // gRPC keeps a few threads of its own, which come and go.
  EXPECT_LE(threads(), before + 4);
}

TEST_F(KubeletTest, GivenAnAnswerWhenTheKubeletAsksThenEveryPartOfItArrives) {
  Serve();
  ASSERT_TRUE(kubelet_->WaitForRegistrations(1));
  PluginClient client(folder_.path() + "/nvidia-gpu.sock");
  v1beta1::AllocateResponse response;
  ASSERT_TRUE(client.Allocate({"a", "b"}, &response).ok());
  ASSERT_EQ(response.container_responses_size(), 1);
  const auto& one = response.container_responses(0);
  EXPECT_EQ(one.envs().at("SLOTS"), "a,b");
  EXPECT_EQ(one.mounts(0).container_path(), "/c");
  EXPECT_TRUE(one.mounts(0).read_only());
  EXPECT_EQ(one.devices(0).host_path(), "/dev/b");
  EXPECT_EQ(one.annotations().at("k"), "v");
  EXPECT_EQ(one.cdi_devices(0).name(), "x/y=z");
}

// A8: what goes wrong is an error of this call, with its reason, and the next is answered.
TEST_F(KubeletTest, GivenACallThatFailsOrThrowsWhenTheNextComesThenItIsAnswered) {
  Serve();
  ASSERT_TRUE(kubelet_->WaitForRegistrations(1));
  PluginClient client(folder_.path() + "/nvidia-gpu.sock");
  v1beta1::AllocateResponse response;
  EXPECT_THAT(client.Allocate({"fail"}, &response).error_message(), HasSubstr("no pod is on its way"));
  EXPECT_THAT(client.Allocate({"throw"}, &response).error_message(), HasSubstr("a library threw"));
  EXPECT_TRUE(client.Allocate({"a"}, &response).ok());
}

TEST_F(KubeletTest, GivenSeveralWishes_WhenNoOpinion_ThenEachIsAnsweredInOrder) {
  Serve();
  ASSERT_TRUE(kubelet_->WaitForRegistrations(1));
  PluginClient client(folder_.path() + "/nvidia-gpu.sock");
  const auto response = client.Prefer({{"a", {}}, {"b", {"b"}}, {"c", {}}});
  ASSERT_EQ(response.container_responses_size(), 3);
  EXPECT_EQ(response.container_responses(0).deviceids_size(), 0);
  EXPECT_EQ(response.container_responses(1).deviceids(0), "b");
  EXPECT_EQ(response.container_responses(2).deviceids_size(), 0);
  EXPECT_TRUE(client.PreferredAvailable());
}

TEST_F(KubeletTest, GivenMissingFolder_WhenListeningFailsSixTimes_ThenItGivesUp) {
  ServingOptions options;
  options.kubelet_socket = folder_.path() + "/missing/kubelet.sock";
  options.folder = folder_.path() + "/missing";
  options.resource_name = [] { return std::string("nvidia.com/gpu"); };
  options.preferred_allocation = [] { return true; };
  options.first_retry = options.most_retry = std::chrono::milliseconds(1);
  KubeletBackend backend;
  backend.board = &board_;
  Serving serving(std::move(options), std::move(backend));
  std::mutex mutex;
  std::condition_variable changed;
  bool gave_up = false;
  serving.Start([&](const base::Error&) {
    const std::lock_guard lock(mutex);
    gave_up = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return gave_up; }));
}

TEST_F(KubeletTest, GivenALogOfObjectsWhenGrpcComplainsThenThatIsAnObjectToo) {
  base::StartLog("test", base::LogLevel::kInfo, base::LogStyle::kJson);
  testing::internal::CaptureStderr();
  KubeletBackend backend;
  backend.board = &board_;
  EXPECT_FALSE(KubeletServer::Start(folder_.path() + "/missing/nvidia-gpu.sock", std::move(backend)));
  const std::string said = testing::internal::GetCapturedStderr();
  base::StartLog("test");
  EXPECT_NE(said.find("gRPC: "), std::string::npos) << said;
  for (const std::string& line : base::Split(said, '\n')) {
    EXPECT_TRUE(line.empty() || base::ParseJson(line)) << line;
  }
}

TEST(CrashBudgetTest, GivenFailuresAnHourApartWhenTheyGoOnForEverThenNobodyGivesUp) {
  CrashBudget budget;
  net::Deadline now{std::chrono::hours(1)};
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(budget.Allows(now));
    now += std::chrono::hours(1);
  }
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(budget.Allows(now));
  EXPECT_TRUE(budget.Allows(now));
  EXPECT_FALSE(budget.Allows(now));
}

// --mig-strategy=mixed: a resource, a socket and slots of their own for each profile, for as long as there are devices.
TEST_F(KubeletTest, ProfilesOfMigDevices_HaveASocketEach) {
  const auto with = [](const std::vector<std::string>& profiles) {
    Cards cards = MakeTestCards(1, 1);
    for (unsigned i = 0; i < profiles.size(); ++i) {
      Card card = cards.cards[0];
      card.uuid = base::Concat({"MIG-", std::to_string(i)});
      card.part = MigPart{CardName(0), profiles[i], i, i, 0};
      cards.parts.push_back(std::move(card));
    }
    return cards;
  };
  Publish(with({"1g.10gb", "3g.40gb", "1g.10gb"}));
  ServingOptions options;
  options.kubelet_socket = folder_.path() + "/kubelet.sock";
  options.folder = folder_.path();
  options.resource_name = [] { return std::string("nvidia.com/gpu"); };
  options.preferred_allocation = [] { return true; };
  KubeletBackend backend;
  backend.board = &board_;
  backend.allocate = [](const auto&) -> base::Result<Response> { return base::Fail("these are shares"); };
  ResourceServers servers(std::move(options), std::move(backend), [](const auto& slots) -> base::Result<Response> {
    Response response;
    response.environment["PARTS"] = base::Join(slots, ",");
    return response;
  });
  servers.Start([](const base::Error&) {});
  ASSERT_TRUE(kubelet_->WaitForRegistrations(3));
  std::map<std::string, std::string> endpoints;
  for (const auto& one : kubelet_->registrations()) endpoints[one.resource_name()] = one.endpoint();
  EXPECT_THAT(endpoints, ElementsAre(Pair("nvidia.com/gpu", "nvidia-gpu.sock"),
                                     Pair("nvidia.com/mig-1g.10gb", "nvidia-mig-1g.10gb.sock"),
                                     Pair("nvidia.com/mig-3g.40gb", "nvidia-mig-3g.40gb.sock")));
  const std::string small = folder_.path() + "/nvidia-mig-1g.10gb.sock";
  EXPECT_THAT(SlotWatcher(small).Next(), ElementsAre("MIG-0 Healthy", "MIG-2 Healthy"));
  v1beta1::AllocateResponse response;
  EXPECT_TRUE(PluginClient(small).Allocate({"MIG-2"}, &response).ok());
  EXPECT_EQ(response.container_responses(0).envs().at("PARTS"), "MIG-2");

  Publish(with({"1g.10gb"}));
  servers.Follow(*board_.Current());
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/nvidia-mig-3g.40gb.sock"));
  EXPECT_TRUE(std::filesystem::exists(small));
  servers.Stop();
  EXPECT_FALSE(std::filesystem::exists(small));
}

TEST_F(KubeletTest, GivenPodResources_WhenListed_ThenOnlyOurResourceIsIncluded) {
  kubelet_->AddHolding("default", "a", "c0", "nvidia.com/gpu", {"s2", "s1"});
  kubelet_->AddHolding("default", "b", "c0", "other.com/nic", {"n1"});
  PodResourcesBook book(folder_.path() + "/pod-resources.sock", [] { return std::string("nvidia.com/gpu"); });
  const auto holdings = book.List(net::After(std::chrono::seconds(10)));
  ASSERT_TRUE(holdings) << holdings.error().message;
  EXPECT_EQ(*holdings, (Holdings{{"default", "a", "c0", {"s1", "s2"}}}));
}

TEST(PodResourcesTest, GivenNoKubeletWhenTheyAreListedThenThatIsAnErrorInTime) {
  PodResourcesBook book("/nonexistent/kubelet.sock", [] { return std::string("nvidia.com/gpu"); });
  EXPECT_FALSE(book.List(net::After(std::chrono::milliseconds(500))));
}

}  // namespace
}  // namespace hami::plugin
