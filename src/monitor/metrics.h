// SPDX-License-Identifier: Apache-2.0
//
// The metrics page: HAMi's names and labels as its dashboards and alerts know them, ours beside them. Pure: a picture,
// the last answer of the driver and the time in, text out. What is not known is left out, one figure at a time; nothing
// is shown as zero because it could not be asked. The names are listed in docs/operate/monitor.md.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "monitor/picture.h"

namespace hami::monitor {

struct MetricsStyle {
  bool legacy = false;        // the old names too
  bool compat_labels = true;  // HAMi's labels with their defects
};

struct MetricsTime {
  std::int64_t unix_seconds = 0;
  std::chrono::steady_clock::time_point steady{};
  double last_scrape_seconds = 0;  // what rendering took the last time
};

// Figures of the GPUs older than this are no longer shown, only how old they are, if looks are more frequent.
inline constexpr std::chrono::seconds kStaleGpus{60};

// Prometheus' text format 0.0.4.
std::string RenderMetrics(const Picture& picture, const GpusPicture& gpus, const MetricsStyle& style,
                          const MetricsTime& now);
inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace hami::monitor
