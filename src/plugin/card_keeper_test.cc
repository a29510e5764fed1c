// SPDX-License-Identifier: Apache-2.0
//
// The keeper on a simulated machine; each test is a child process with a machine of its own.

#include "plugin/card_keeper.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "base/log.h"
#include "base/strings.h"
#include "plugin/mig_mode.h"
#include "plugin/mig_profiles.h"
#include "simgpu/machine/in_child.h"
#include "simgpu/simgpu.h"

#define CHECK_OR(code, condition) \
  if (!(condition)) return (code)

namespace hami::plugin {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// A keeper whose clock is the test's, so that minutes pass when they are told to.
class Bench {
 public:
  explicit Bench(Options options, KeeperTimes times = Quick(), const std::string& library = SIMGPU_NVML_PATH)
      : keeper(std::move(options), board, Hooks(), times, {library, "/nowhere"}), listening_(board.Subscribe([this] {
          const std::scoped_lock lock(mutex_);
          changed_.notify_all();
        })) {}

  static KeeperTimes Quick() {
    KeeperTimes times;
    times.reading = 20ms;
    times.topology = 1ms;
    times.config = 10ms;
    times.retry_first = times.retry_most = 20ms;
    times.xid_slice = 20ms;
    return times;
  }
  template <typename Condition>
  bool Await(const Condition& condition) {
    std::unique_lock lock(mutex_);
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (true) {
      lock.unlock();
      if (condition()) return true;
      if (std::chrono::steady_clock::now() > end) return false;
      lock.lock();
      changed_.wait_for(lock, 5ms);
    }
  }
  bool Healthy(std::size_t card) const { return board.Current()->cards.at(card).healthy; }
  bool Told(const std::string& reason) {
    const std::scoped_lock lock(mutex_);
    return std::any_of(events_.begin(), events_.end(), [&](const NodeEvent& e) { return e.reason == reason; });
  }
  Registration registration() {
    const std::scoped_lock lock(mutex_);
    return registration_;
  }
  // At least one for each look at the driver.
  int registrations() {
    const std::scoped_lock lock(mutex_);
    return registrations_;
  }

  // How many cards were about to be told of, and how many were told of then.
  std::vector<std::pair<std::size_t, std::size_t>> prepared() {
    const std::scoped_lock lock(mutex_);
    return prepared_;
  }

  CardBoard board;
  MigEntries own;  // set before the start
  std::atomic<UnixSeconds> now = 1000;

 private:
  KeeperHooks Hooks() {
    KeeperHooks hooks;
    hooks.clock = [this] { return now.load(); };
    hooks.own_instances = [this] { return own; };
    hooks.before_cards = [this](const Cards& cards) {
      const std::scoped_lock lock(mutex_);
      prepared_.emplace_back(cards.cards.size(), board.Current()->cards.size());
    };
    hooks.on_registration = [this](const Registration& registration) {
      const std::scoped_lock lock(mutex_);
      registration_ = registration;
      ++registrations_;
    };
    hooks.on_event = [this](const NodeEvent& event) {
      const std::scoped_lock lock(mutex_);
      events_.push_back(event);
    };
    return hooks;
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  Registration registration_;
  int registrations_ = 0;
  std::vector<std::pair<std::size_t, std::size_t>> prepared_;
  std::vector<NodeEvent> events_;

 public:
  CardKeeper keeper;

 private:
  CardBoard::Subscription listening_;
};

class CardKeeperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("hami-keeper-test-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    ::setenv("SIMGPU_STATE", (folder_ / "state").c_str(), 1);
    ::setenv("SIMGPU_PROFILE", "ideal", 1);
    ::setenv("SIMGPU", "2xH100", 1);
    ::unsetenv("SIMGPU_CONFIG");
    options_.node_name = "node-1";
    options_.node_config_file = folder_ / "config.json";
  }
  void TearDown() override { fs::remove_all(folder_); }

  void Machine(const std::string& text) {
    std::ofstream(folder_ / "machine") << text;
    ::setenv("SIMGPU_CONFIG", (folder_ / "machine").c_str(), 1);
  }
  void NodeConfigFile(const std::string& text) {
    const fs::path draft = folder_ / "draft";
    std::ofstream(draft) << text;
    fs::rename(draft, options_.node_config_file);
  }
  static bool Inject(const char* text) {
    void* const library = ::dlopen(SIMGPU_NVML_PATH, RTLD_NOW | RTLD_LOCAL);
    const auto inject = reinterpret_cast<decltype(&::simgpu_inject)>(::dlsym(library, "simgpu_inject"));
    return inject != nullptr && inject(text, nullptr, 0) == 1;
  }

  fs::path folder_;
  Options options_;
};

// Files that name the GPUs are there before a slot on one can be asked for, and are not written at every look.
TEST_F(CardKeeperTest, Cards_ArePreparedForBeforeTheyAreTold) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              Bench bench(options_);
              CHECK_OR(1, bench.keeper.Start());
              bench.keeper.SeeNode({}, {});
              CHECK_OR(2, bench.Await([&] { return bench.board.Current()->cards.size() == 2; }));
              const int looks = bench.registrations();
              CHECK_OR(3, bench.Await([&] { return bench.registrations() > looks + 3; }));
              CHECK_OR(4, (bench.prepared() == std::vector<std::pair<std::size_t, std::size_t>>{{2, 0}}));
              return 0;
            }));
}

TEST_F(CardKeeperTest, GivenTwoGpus_WhenStarted_ThenTheyAreOfferedOnceNodeIsSeen) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              options_.topology_score = true;
              Bench bench(options_);
              CHECK_OR(1, bench.keeper.Start());
              CHECK_OR(2, !bench.board.Current()->ready);
              bench.keeper.SeeNode({}, {});
              const auto cards = bench.board.Current();  // no waiting: the driver was read by Start
              CHECK_OR(3, cards->ready && cards->cards.size() == 2 && bench.keeper.ready());
              CHECK_OR(4, cards->cards[0].healthy && cards->cards[0].slots == 10 && cards->cards[0].memory > 70'000);
              CHECK_OR(5, bench.registration().cards.find(cards->cards[0].uuid) != std::string::npos);
              CHECK_OR(6, bench.registration().scores->find(cards->cards[1].uuid) != std::string::npos);
              bench.keeper.AllowConcurrentAllocate(true);
              CHECK_OR(7, bench.registration().concurrent_allocate);
              return 0;
            }));
}

TEST_F(CardKeeperTest, GivenXid_WhenInjected_ThenGpuIsOutAndComesBackAfterItsTime) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              KeeperTimes times = Bench::Quick();
              Bench bench(options_, times);
              CHECK_OR(1, bench.keeper.Start());
              bench.keeper.SeeNode({}, {});
              CHECK_OR(2, Inject("xid device=1 code=31\nxid device=1 code=48"));
              CHECK_OR(3, bench.Await([&] { return !bench.Healthy(1); }));
              CHECK_OR(4, bench.Healthy(0));
              CHECK_OR(5, bench.board.Current()->cards[1].trouble.find("XID 48") == 0);
              // The board is told first.
              CHECK_OR(6, bench.Await([&] { return bench.registration().health.size() == 1; }));
              CHECK_OR(10, bench.Told("GpuUnhealthy"));
              bench.now += 60;
              CHECK_OR(7, !bench.Healthy(1));
              // Probation begins with the first look after the quiet time.
              CHECK_OR(8, bench.Await([&] {
                bench.now += 10;
                return bench.Healthy(1);
              }));
              CHECK_OR(9, bench.Told("GpuRecovered"));
              return 0;
            }));
}

// One instance of ours on GPU 0 of a node in mode mig.
TEST_F(CardKeeperTest, XidOfAMigInstance_TakesOutItsPlaceAndNotTheGpu) {
  EXPECT_EQ(
      0, simgpu::InChild([&] {
        NodeConfigFile(R"({"nodeconfig":[{"name":"node-1","operatingmode":"mig"}]})");
        NvmlMigDriver driver({SIMGPU_NVML_PATH, "/nowhere"});
        CHECK_OR(1, EnterMig(driver, {}));
        MigEntry entry;
        entry.gpu_uuid = driver.Gpus()->at(0).uuid;
        const auto layout = driver.Layout(entry.gpu_uuid);
        const nvml::MigProfile* const profile = FindProfile(*layout, entry.profile = "1g.10gb");
        const auto gpu_instance = driver.CreateGpuInstance(entry.gpu_uuid, profile->id, {6, 1});
        CHECK_OR(2, gpu_instance);
        const auto compute = driver.CreateComputeInstance(entry.gpu_uuid, *gpu_instance);
        CHECK_OR(3, compute);
        entry.placement = {6, 1};
        entry.gpu_instance = static_cast<int>(*gpu_instance);
        entry.compute_instance = static_cast<int>(compute->id);
        entry.mig_uuid = compute->uuid;
        Bench bench(options_);
        bench.own = {entry};
        CHECK_OR(4, bench.keeper.Start());
        bench.keeper.SeeNode({}, {});
        const auto places = [&] { return bench.board.Current()->cards.at(0).mig_profiles.at(0).placements.size(); };
        CHECK_OR(5, bench.Await([&] { return bench.board.Current()->cards.size() == 2 && places() == 7; }));
        const std::string text = base::Concat({"xid device=0 code=48 gi=", std::to_string(*gpu_instance), " ci=0"});
        CHECK_OR(6, Inject(text.c_str()));
        CHECK_OR(7, bench.Await([&] { return bench.board.Current()->sick.size() == 1; }));
        CHECK_OR(8, places() == 6 && bench.Healthy(0) && bench.Healthy(1));
        CHECK_OR(9, bench.board.Current()->sick[0].uuid == compute->uuid && bench.Told("GpuUnhealthy"));
        CHECK_OR(10, Inject("xid device=0 code=48"));
        CHECK_OR(11, bench.Await([&] { return !bench.Healthy(0); }));
        CHECK_OR(12, bench.Healthy(1));
        return 0;
      }));
}

TEST_F(CardKeeperTest, GivenGpuFallenOffBus_WhenItReturns_ThenItIsOfferedAgain) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              Bench bench(options_);
              CHECK_OR(1, bench.keeper.Start());
              bench.keeper.SeeNode({}, {});
              CHECK_OR(2, Inject("lost device=0"));
              CHECK_OR(3, bench.Await([&] { return !bench.Healthy(0); }));
              CHECK_OR(4, bench.board.Current()->cards.size() == 2 && bench.Healthy(1));
              CHECK_OR(5, Inject("recover device=0"));
              CHECK_OR(6, bench.Await([&] {
                bench.now += 5;
                return bench.Healthy(0);
              }));
              return 0;
            }));
}

TEST_F(CardKeeperTest, GivenXidsOff_WhenGpuIsLost_ThenReadingFindsIt) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              options_.disable_health_checks = "xids";
              Bench bench(options_);
              CHECK_OR(1, bench.keeper.Start());
              bench.keeper.SeeNode({}, {});
              CHECK_OR(2, Inject("xid device=1 code=48\nlost device=0"));
              CHECK_OR(3, bench.Await([&] { return !bench.Healthy(0); }));
              CHECK_OR(4, bench.Healthy(1));
              return 0;
            }));
}

TEST_F(CardKeeperTest, GivenADriverThatFailsAsAWhole_WhenItReturns_ThenTheGpusDo) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              Bench bench(options_);
              CHECK_OR(1, bench.keeper.Start());
              bench.keeper.SeeNode({}, {});
              CHECK_OR(2, Inject("fault call=nvmlDeviceGetCount_v2 error=unknown count=3"));
              CHECK_OR(3, bench.Await([&] { return !bench.Healthy(0) && !bench.Healthy(1); }));
              CHECK_OR(4, bench.Await([&] { return bench.Healthy(0) && bench.Healthy(1); }));
              CHECK_OR(5, bench.registration().health.empty());
              // XIDs are heard in the new session, too.
              CHECK_OR(6, Inject("xid device=0 code=62"));
              CHECK_OR(7, bench.Await([&] { return !bench.Healthy(0); }));
              return 0;
            }));
}

// L5: to HAMi a failed wait condemns every GPU, and is repeated at once, without end.
TEST_F(CardKeeperTest, GivenFailingXidWait_ThenEachLookAsksOnceAndCondemnsNoGpu) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              const fs::path log = folder_ / "log";
              CHECK_OR(1, ::dup2(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), STDERR_FILENO) >= 0);
              base::StartLog("test", base::LogLevel::kInfo, base::LogStyle::kDaemon);
              Bench bench(options_);
              CHECK_OR(2, bench.keeper.Start());
              bench.keeper.SeeNode({}, {});
              CHECK_OR(3, Inject("fault call=nvmlEventSetWait* error=unknown"));
              const int before = bench.registrations();
              CHECK_OR(4, bench.Await([&] { return bench.registrations() >= before + 10; }));
              CHECK_OR(5, bench.Healthy(0) && bench.Healthy(1));
              int failures = 0;
              std::ifstream lines(log);
              for (std::string line; std::getline(lines, line);)
                failures += line.find("waiting for XID events") != std::string::npos ? 1 : 0;
              CHECK_OR(6, failures > 0 && failures <= bench.registrations() + 1);
              CHECK_OR(7, Inject("clear"));
              CHECK_OR(8, Inject("xid device=0 code=62"));
              CHECK_OR(9, bench.Await([&] { return !bench.Healthy(0); }));
              return 0;
            }));
}

TEST_F(CardKeeperTest, GivenFailingXidWait_WhenItGoesOn_ThenItIsAskedEverMoreSeldom) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              KeeperTimes times = Bench::Quick();
              times.xid_slice = 10ms;
              times.reading = 200ms;
              Bench bench(options_, times);
              CHECK_OR(1, bench.keeper.Start());
              bench.keeper.SeeNode({}, {});
              const auto began = std::chrono::steady_clock::now();
              const int before = bench.registrations();
              CHECK_OR(2, Inject("fault call=nvmlEventSetWait* error=unknown count=7"));
              CHECK_OR(3, bench.Await([&] { return bench.registrations() >= before + 2; }));
              // Heard when the wait works again.
              CHECK_OR(4, Inject("xid device=0 code=62"));
              CHECK_OR(5, bench.Await([&] { return !bench.Healthy(0); }));
              // 10 + 20 + 40 + 80 + 160 + 200 + 200
              CHECK_OR(6, std::chrono::steady_clock::now() - began >= 700ms);
              return 0;
            }));
}

// Looks are an hour apart here: what is noticed is noticed because of the failed wait.
class CardKeeperDeafTest : public CardKeeperTest {
 protected:
  static KeeperTimes Deaf() {
    KeeperTimes times = Bench::Quick();
    times.reading = 1h;
    return times;
  }
  // Returns once a wait has failed and the look for its sake is over.
  static bool MakeDeaf(Bench& bench) {
    const int before = bench.registrations();
    return Inject("fault call=nvmlEventSetWait* error=unknown") &&
           bench.Await([&] { return bench.registrations() > before; });
  }
};

TEST_F(CardKeeperDeafTest, GivenFailingXidWait_WhenXidComes_ThenItCountsOnceWaitWorks) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              Bench bench(options_, Deaf());
              CHECK_OR(1, bench.keeper.Start());
              bench.keeper.SeeNode({}, {});
              CHECK_OR(2, MakeDeaf(bench));
              // No reading shows this one.
              CHECK_OR(3, Inject("xid device=1 code=119"));
              const int before = bench.registrations();
              CHECK_OR(4, bench.Await([&] { return bench.registrations() >= before + 3; }));
              CHECK_OR(5, bench.Healthy(0) && bench.Healthy(1));
              CHECK_OR(6, Inject("clear"));
              CHECK_OR(7, bench.Await([&] { return !bench.Healthy(1); }));
              CHECK_OR(8, bench.Healthy(0));
              CHECK_OR(9, bench.board.Current()->cards[1].trouble.find("XID 119") == 0);
              return 0;
            }));
}

TEST_F(CardKeeperDeafTest, GivenFailingXidWait_WhenGpuIsLost_ThenReadingFindsItSoon) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              Bench bench(options_, Deaf());
              CHECK_OR(1, bench.keeper.Start());
              bench.keeper.SeeNode({}, {});
              CHECK_OR(2, MakeDeaf(bench));
              CHECK_OR(3, Inject("lost device=1"));
              CHECK_OR(4, bench.Await([&] { return !bench.Healthy(1); }));
              CHECK_OR(5, bench.Healthy(0));
              CHECK_OR(6, bench.board.Current()->cards[1].trouble.find("lost: ") == 0);
              return 0;
            }));
}

TEST_F(CardKeeperDeafTest, GivenFailingXidWait_WhenMemoryErrs_ThenGpusCountsShowIt) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              Bench bench(options_, Deaf());
              CHECK_OR(1, bench.keeper.Start());
              bench.keeper.SeeNode({}, {});
              CHECK_OR(2, MakeDeaf(bench));
              CHECK_OR(3, Inject("set device=0 ecc_uncorrected=1\nset device=1 ecc_corrected=1"));
              CHECK_OR(4, bench.Await([&] { return !bench.Healthy(0); }));
              CHECK_OR(5, bench.Healthy(1));
              CHECK_OR(6, bench.board.Current()->cards[0].trouble.find("XID 48") != std::string::npos);
              return 0;
            }));
}

TEST_F(CardKeeperTest, GivenHangingDriver_ThenGpusAreNotOfferedUntilItAnswers) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              KeeperTimes times = Bench::Quick();
              times.silence = 50ms;
              times.stop_grace = 50ms;
              Bench bench(options_, times);
              CHECK_OR(1, bench.keeper.Start());
              bench.keeper.SeeNode({}, {});
              CHECK_OR(2, Inject("fault call=nvmlDeviceGetCount_v2 error=0 delay_ms=1500 count=1"));
              CHECK_OR(3, bench.Await([&] { return !bench.Healthy(0); }));
              CHECK_OR(4, bench.board.Current()->cards[0].trouble == "the GPU driver does not answer");
              CHECK_OR(5, bench.Await([&] { return bench.Healthy(0); }));
              return 0;
            }));
}

TEST_F(CardKeeperTest, GivenNoDriver_WhenFatal_ThenStartSaysSoAndOtherwiseItWaits) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              Bench fatal(options_, Bench::Quick(), "/nowhere/libnvidia-ml.so.1");
              const auto started = fatal.keeper.Start();
              CHECK_OR(1, !started && started.error().hint.find("fail-on-init-error") != std::string::npos);
              options_.fail_on_init_error = false;
              const std::string late = folder_ / "libnvidia-ml.so.1";
              Bench patient(options_, Bench::Quick(), late);
              CHECK_OR(2, patient.keeper.Start());
              patient.keeper.SeeNode({}, {});
              CHECK_OR(3, !patient.keeper.ready() && !patient.board.Current()->ready);
              fs::create_symlink(SIMGPU_NVML_PATH, late);
              CHECK_OR(4, patient.Await([&] { return patient.board.Current()->ready; }));
              return 0;
            }));
}

TEST_F(CardKeeperTest, GivenConfigurationChange_WhenBad_ThenLastGoodOneStays) {
  EXPECT_EQ(
      0, simgpu::InChild([&] {
        NodeConfigFile(R"({"nodeconfig":[{"name":"node-1","devicesplitcount":3}]})");
        Bench bench(options_);
        CHECK_OR(1, bench.keeper.Start());
        bench.keeper.SeeNode({}, {});
        CHECK_OR(2, bench.board.Current()->cards[0].slots == 3);
        NodeConfigFile(R"({"nodeconfig":[{"name":"node-1","devicesplitcount":"many"}]})");
        CHECK_OR(3, bench.Await([&] { return bench.Told("InvalidDeviceConfig"); }));
        CHECK_OR(4, bench.board.Current()->cards[0].slots == 3);
        NodeConfigFile(R"({"nodeconfig":[{"name":"node-1","devicesplitcount":5,"filterdevices":{"index":[1]}}]})");
        CHECK_OR(5, bench.Await([&] { return bench.board.Current()->cards.size() == 1; }));
        CHECK_OR(6, bench.board.Current()->cards[0].slots == 5);
        return 0;
      }));
}

TEST_F(CardKeeperTest, ConfigRefusedForALabel_IsUsedWhenTheLabelGoes) {
  EXPECT_EQ(
      0, simgpu::InChild([&] {
        NodeConfigFile(R"({"nodeconfig":[{"name":"node-1","devicesplitcount":3}]})");
        KeeperTimes times = Bench::Quick();
        times.config = 60s;
        Bench bench(options_, times);
        CHECK_OR(1, bench.keeper.Start());
        bench.keeper.SeeNode({{"pool", "odd"}}, {});
        CHECK_OR(2, bench.board.Current()->cards[0].slots == 3);
        NodeConfigFile(
            R"({"nodeconfig":[{"selector":"pool=odd","operatingmode":"fast"},{"name":"node-*","devicesplitcount":5}]})");
        CHECK_OR(3, bench.Await([&] { return bench.Told("InvalidDeviceConfig"); }));
        CHECK_OR(4, bench.board.Current()->cards[0].slots == 3);
        bench.keeper.SeeNode({}, {});
        CHECK_OR(5, bench.board.Current()->cards[0].slots == 5);
        return 0;
      }));
}

// A mounted ConfigMap: the file is a link through `..data`, and that is what is swapped.
TEST_F(CardKeeperTest, GivenMountedConfigMap_WhenSwapped_ThenItIsNoticedAtOnce) {
  EXPECT_EQ(0, simgpu::InChild([&] {
              const fs::path mount = folder_ / "mount";
              for (const char* version : {"..1", "..2"}) {
                fs::create_directories(mount / version);
                std::ofstream(mount / version / "config.json")
                    << R"({"nodeconfig":[{"name":"node-1","devicesplitcount":)" << version + 2 << "}]}";
              }
              fs::create_symlink("..1", mount / "..data");
              fs::create_symlink("..data/config.json", mount / "config.json");
              options_.node_config_file = mount / "config.json";
              KeeperTimes times = Bench::Quick();
              times.config = 1h;
              Bench bench(options_, times);
              CHECK_OR(1, bench.keeper.Start());
              bench.keeper.SeeNode({}, {});
              CHECK_OR(2, bench.board.Current()->cards[0].slots == 1);
              fs::create_symlink("..2", mount / "..data_tmp");
              fs::rename(mount / "..data_tmp", mount / "..data");
              CHECK_OR(3, bench.Await([&] { return bench.board.Current()->cards[0].slots == 2; }));
              // Edited in place, as by hand.
              std::ofstream(mount / "..2" / "config.json") << R"({"nodeconfig":[{"name":"node-1"}]})";
              std::ofstream(mount / "touched") << "";
              CHECK_OR(4, bench.Await([&] { return bench.board.Current()->cards[0].slots == 10; }));
              return 0;
            }));
}

TEST_F(CardKeeperTest, GivenBadConfiguration_WhenStarting_ThenPluginDoesNotStart) {
  NodeConfigFile(R"({"nodeconfig":[{"name":"node-1","devicesplitcout":3}]})");
  CardBoard board;
  CardKeeper keeper(options_, board, {}, {}, {"/nowhere/libnvidia-ml.so.1", "/sys"});
  const auto started = keeper.Start();
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message.find("config.json:1: nodeconfig[0].devicesplitcout"), std::string::npos);
}

}  // namespace
}  // namespace hami::plugin
