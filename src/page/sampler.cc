// SPDX-License-Identifier: Apache-2.0

#include "page/sampler.h"

#include <algorithm>
#include <atomic>

#include "base/log.h"

namespace hami::page {

Sampler::Sampler(UseHistory& history, SamplerSources sources, net::Duration interval, const net::Canceller& stop)
    : history_(history), sources_(std::move(sources)), interval_(interval), stop_(stop) {}

Sampler::~Sampler() { Stop(); }

void Sampler::Start() {
  thread_ = std::thread([this] {
    do {
      const net::Deadline next = net::After(interval_);
      RunOnce();
      if (stop_.SleepUntil(next)) return;
    } while (!stop_.cancelled());
  });
}

void Sampler::Stop() {
  if (thread_.joinable()) thread_.join();
}

void Sampler::Ask(const MonitorAddress& monitor) {
  if (!monitor.ready) return history_.Silent(monitor.node, "hami-monitor is not ready", sources_.now());
  const auto report = sources_.ask(monitor);
  if (stop_.cancelled()) return;
  if (!report) return history_.Silent(monitor.node, report.error().message, sources_.now());
  if (report->node != monitor.node) {
    return history_.Silent(monitor.node, "hami-monitor says that it is that of node " + report->node, sources_.now());
  }
  history_.Answered(monitor.node, *report, sources_.now());
}

void Sampler::RunOnce() {
  const auto found = sources_.find();
  if (stop_.cancelled()) return;
  const std::string trouble = found ? "" : found.error().message;
  if (!trouble.empty() && trouble != told_) {
    base::LogWarning("the page cannot show use: " + trouble + (found.error().hint.empty() ? "" : "; ") +
                     found.error().hint);
  }
  told_ = trouble;
  if (!found) return history_.ListProblem(trouble);
  std::vector<std::string> nodes;
  for (const MonitorAddress& monitor : *found) nodes.push_back(monitor.node);
  history_.Listed(nodes, sources_.now());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < found->size() && !stop_.cancelled(); i = next++) Ask((*found)[i]);
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < std::min<std::size_t>(kAtOnce, found->size()); ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace hami::page
