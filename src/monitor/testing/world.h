// SPDX-License-Identifier: Apache-2.0
//
// A monitor over a folder of regions, with the pods, the GPUs and the time that a test gives it.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "monitor/metrics.h"
#include "monitor/monitor.h"
#include "region/testing/region.h"

namespace hami::monitor {

namespace fs = std::filesystem;
using region::MakeHamiFile;
using region::RawFile;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

inline constexpr std::int64_t kSwitchAt = 2'008'900;
inline constexpr std::int64_t kRecentAt = 2'008'904;
inline constexpr std::int64_t kPriorityAt = 2'008'908;
inline constexpr std::int64_t kLimitAt = 1600;
inline constexpr std::int64_t kSmLimitAt = 1728;
inline constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
inline const std::string kUuid = "GPU-0";

class MonitorTest : public testing::Test {
 protected:
  MonitorTest() { fs::create_directories(temp_ / "containers"); }

  Monitor::Outside Outside() {
    return {[this] { return pods_; }, [this] { return gpus_; },
            [this](const kube::Pod& pod, kube::EventType, std::string_view reason, std::string_view message) {
              events_.push_back(pod.metadata.name + ": " + std::string(reason) + ": " + std::string(message));
            }};
  }
  Monitor& TheMonitor() {
    if (!monitor_) monitor_ = std::make_unique<Monitor>(config_, Outside());
    return *monitor_;
  }
  void Tick(seconds after = seconds(1)) {
    now_.wall += after;
    now_.steady += after;
    TheMonitor().Tick(now_);
  }
  std::shared_ptr<const Picture> Last() { return TheMonitor().Last(); }

  kube::Pod& AddPod(const std::string& name, kube::StringMap annotations = {}) {
    auto pod = std::make_shared<kube::Pod>();
    pod->metadata.ns = "team";
    pod->metadata.name = name;
    pod->metadata.uid = "uid-" + name;
    pod->metadata.annotations = std::move(annotations);
    kube::Container init;
    init.name = "setup";
    kube::Container sidecar;
    sidecar.name = "proxy";
    sidecar.restart_always = true;
    pod->init_containers = {init, sidecar};
    kube::Container main;
    main.name = "main";
    pod->containers = {main};
    pods_.pods.push_back(pod);
    return *pod;
  }
  static kube::StringMap Granted(const std::string& resize = "") {
    kube::StringMap annotations{{"hami.io/vgpu-devices-allocated", ";;" + kUuid + ",NVIDIA,4096,30:;"}};
    if (!resize.empty()) annotations["hami-cpp/resize"] = resize;
    return annotations;
  }
  std::string FolderOf(const std::string& pod, const std::string& container) const {
    return temp_.path() + "/containers/uid-" + pod + "_" + container;
  }
  // A region as HAMi's library leaves it, on one GPU.
  std::string AddRegion(const std::string& pod, const std::string& container, std::int32_t priority = 1) {
    fs::create_directories(FolderOf(pod, container));
    const std::string path = FolderOf(pod, container) + "/r.cache";
    MakeHamiFile(path);
    const RawFile file(path);
    file.Set<std::uint64_t>(56, 1);
    for (std::size_t i = 0; i < kUuid.size(); ++i) file.Set<char>(64 + static_cast<std::int64_t>(i), kUuid[i]);
    file.Set<std::int32_t>(kPriorityAt, priority);
    file.Set<std::uint64_t>(kLimitAt, 4096 * kMiB);
    file.Set<std::uint64_t>(kSmLimitAt, 30);
    CatchUp();
    return path;
  }
  // A directory's time of change is the machine's and can not be set: however long it took to make, the test's clock is
  // not behind it.
  void CatchUp() {
    const auto behind = std::max(std::chrono::system_clock::now() - now_.wall, std::chrono::system_clock::duration(0));
    now_.wall += behind;
    now_.steady += behind;
  }
  template <typename T>
  static T Get(const std::string& path, std::int64_t offset) {
    return RawFile(path).Get<T>(offset);
  }

  const region::TempFolder temp_;
  Pods pods_{true, {}};
  std::shared_ptr<const GpusPicture> gpus_ = std::make_shared<const GpusPicture>();
  std::vector<std::string> events_;
  Monitor::Config config_{"node-1", temp_.path(), std::chrono::milliseconds(1000), seconds(300), true, true};
  Now now_{std::chrono::system_clock::now(), std::chrono::steady_clock::now()};
  std::unique_ptr<Monitor> monitor_;
};

}  // namespace hami::monitor
