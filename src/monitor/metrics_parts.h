// SPDX-License-Identifier: Apache-2.0
//
// The parts of the metrics page, between the files that render it.

#pragma once

#include "base/exposition.h"
#include "monitor/metrics.h"

namespace hami::monitor {

// On every metric but hami_build_info.
inline constexpr std::string_view kZone = "vGPU";

#if defined(__clang__)
inline constexpr std::string_view kCompiler = "clang";
#else
inline constexpr std::string_view kCompiler = "gcc";
#endif
#if defined(__aarch64__)
#define HAMI_ARCHITECTURE "arm64"
#else
#define HAMI_ARCHITECTURE "amd64"
#endif

void RenderGpus(const std::string& node, const GpusPicture& gpus, const MetricsStyle& style, base::Exposition& page);
// Figures of MIG devices; of those that a reservation names also by container.
void RenderMigDevices(const Picture& picture, const GpusPicture& gpus, base::Exposition& page);
void RenderContainers(const Picture& picture, const MetricsStyle& style, std::int64_t unix_seconds,
                      base::Exposition& page);

}  // namespace hami::monitor
