// SPDX-License-Identifier: Apache-2.0

#include "monitor/metrics.h"

#include "base/build_info.h"
#include "base/exposition.h"
#include "base/strings.h"
#include "monitor/metrics_parts.h"
#include "monitor/options.h"

namespace hami::monitor {
namespace {

// About what a page takes, so that it does not grow piece by piece.
constexpr std::size_t kPageBytes = 64 << 10;
constexpr std::size_t kDeviceBytes = 4 << 10;

constexpr auto kGauge = base::Exposition::Type::kGauge;
constexpr auto kCounter = base::Exposition::Type::kCounter;

void RenderSelf(const Picture& picture, const GpusPicture& gpus, const MetricsTime& now, base::Exposition& page) {
  const base::LabelText labels{{"node", picture.node}, {"zone", kZone}};
  const auto one = [&](std::string_view name, base::Exposition::Type type, std::string_view help, auto value) {
    page.Family(name, type, help);
    page.Sample(labels, value);
  };
  const SelfPicture& self = picture.self;
  one("hami_monitor_ticks_total", kCounter, "Rounds of reading regions and giving feedback", self.ticks);
  one("hami_monitor_tick_seconds", kGauge, "What the last round took", self.tick_seconds);
  one("hami_monitor_scrape_seconds", kGauge, "What rendering this page took the last time", now.last_scrape_seconds);
  one("hami_monitor_writes_total", kCounter, "Words of regions that were written: feedback and limits", self.writes);
  one("hami_monitor_failed_writes_total", kCounter, "Words that could not be written", self.failed_writes);
  one("hami_monitor_directories_removed_total", kCounter, "Directories of pods that were gone",
      self.directories_removed);
  one("hami_monitor_pods_known", kGauge, "1 once the pods of the node are known",
      std::uint64_t{self.pods_known ? 1U : 0U});
  one("hami_monitor_containers_listed", kGauge, "1 when the last round could list the containers' directories",
      std::uint64_t{self.folder_problem.empty() ? 1U : 0U});
  one("hami_monitor_nvml_up", kGauge, "1 when the GPUs answered the last time they were asked",
      std::uint64_t{gpus.answering ? 1U : 0U});
  if (gpus.taken != std::chrono::steady_clock::time_point{}) {
    one("hami_monitor_gpu_sample_age_seconds", kGauge, "How old the figures of the GPUs are",
        std::chrono::duration<double>(now.steady - gpus.taken).count());
  }
}

void RenderBuild(base::Exposition& page) {
  page.Family("hami_build_info", kGauge, "What this program was built from");
  page.Sample(base::LabelText{{"version", base::kBuildInfo.version},
                              {"revision", base::kBuildInfo.revision},
                              {"build_date", base::kBuildInfo.date},
                              {"go_version", ""},
                              {"compiler", kCompiler},
                              {"platform", "linux/" HAMI_ARCHITECTURE}},
              std::uint64_t{1});
}

}  // namespace

std::string RenderMetrics(const Picture& picture, const GpusPicture& gpus, const MetricsStyle& style,
                          const MetricsTime& now) {
  std::size_t devices = 0;
  for (const ContainerPicture& container : picture.containers) devices += container.region.devices.size();
  base::Exposition page(kPageBytes + devices * kDeviceBytes);
  if (!gpus.OlderThan(kStaleGpus, now.steady)) {
    RenderGpus(picture.node, gpus, style, page);
    RenderMigDevices(picture, gpus, page);
  }
  RenderContainers(picture, style, now.unix_seconds, page);
  RenderSelf(picture, gpus, now, page);
  RenderBuild(page);
  return page.Take();
}

}  // namespace hami::monitor
