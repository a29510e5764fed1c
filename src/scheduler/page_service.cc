// SPDX-License-Identifier: Apache-2.0

#include "scheduler/page_service.h"

#include <algorithm>

#include "base/build_info.h"
#include "base/log.h"
#include "base/strings.h"
#include "device/annotations.h"
#include "page/routes.h"

namespace hami::scheduler {
namespace {

constexpr unsigned kThreads = page::Live::kMostWaiting + 8;
constexpr std::uint64_t kBodyBytes = 4U << 10U;
// Nodes that are copied out of the books in one go.
constexpr sched::NodeId kNodesAtOnce = 16;

void CopyLocks(const State& state, std::size_t from, std::vector<page::Node>& nodes) {
  for (std::size_t i = from; i < nodes.size(); ++i) {
    const auto book = state.nodes().find(nodes[i].name);
    if (book == state.nodes().end()) continue;
    nodes[i].lock = page::ReadLock(device::TextAt(book->second.view.annotations, device::kNodeLock));
  }
}

}  // namespace

PageService::PageService(const Options& options, std::string epoch, Needs needs)
    : options_(options),
      needs_(std::move(needs)),
      live_(std::move(epoch), std::string(base::kBuildInfo.version),
            {[this] { return Take(); }, [this] { return needs_.time.Now() / 1000; }}, needs_.stop),
      sampler_(use_,
               {[this] { return page::FindMonitors(needs_.client, *options_.page_monitors, needs_.stop); },
                [this](const auto& monitor) { return page::AskMonitor(monitor, needs_.stop); },
                [this] { return needs_.time.Now() / 1000; }},
               options_.page_sample_interval, needs_.stop) {}

PageService::~PageService() { Stop(); }

void PageService::Decided(const PodName& pod, const sched::Decision& decision) {
  if (!options_.page) return;
  if (decision.outcome == sched::Outcome::kNoFit) {
    return waiting_.Refused(pod.ns, pod.name, pod.uid, decision.failures, needs_.time.Now() / 1000);
  }
  if (decision.outcome == sched::Outcome::kPlaced) waiting_.Gone(pod.uid);
}

page::Snapshot PageService::Take() {
  page::Snapshot snapshot;
  snapshot.leading = needs_.leads();
  snapshot.complete = needs_.complete();
  snapshot.waiting = waiting_.List(needs_.time.Now() / 1000);
  sched::NodeId from = 0;
  for (bool more = true; more;) {
    needs_.books.Read([&](const State& state) {
      if (from == 0) snapshot.quotas = state.ledger.quotas().Lines();
      const sched::NodeId to = std::min(state.ledger.node_ids(), from + kNodesAtOnce);
      const std::size_t begin = snapshot.nodes.size();
      page::CopyNodes(state.ledger, from, to, snapshot.nodes);
      CopyLocks(state, begin, snapshot.nodes);
      from = to;
      more = from < state.ledger.node_ids();
    });
  }
  return snapshot;
}

base::Status PageService::Start() {
  if (!options_.page) return {};
  net::ServerOptions serving;
  serving.host = options_.page->host;
  serving.port = options_.page->port;
  serving.max_threads = kThreads;
  serving.max_connections = kConnections;
  serving.limits.body_bytes = kBodyBytes;
  page::PageOptions page;
  page.loopback_only = IsLoopback(*options_.page) && !options_.page_tokens;
  if (!IsLoopback(*options_.page) && !options_.cert_file.empty()) {
    serving.tls = net::TlsFiles{options_.cert_file, options_.key_file};
  }
  if (options_.page_tokens) {
    const auto gate = std::make_shared<page::Gate>(page::ReviewBy(needs_.client, "/v1/state"));
    page.check = [gate](const std::string* authorization) { return gate->Check(authorization); };
  }
  page::PageAnswers answers;
  answers.state = [this](const page::Ask& ask, const auto& abandoned) { return live_.Answer(ask, abandoned); };
  if (options_.page_monitors) {
    answers.use = [this](const std::string& node) { return use_.Render(node, needs_.time.Now() / 1000); };
  }
  auto server = net::Server::Start(serving, page::PageRoutes(std::move(answers), std::move(page)));
  if (!server && !options_.page_given) {
    base::LogWarning("there is no page: " + server.error().message +
                     "; give --page-bind-address another port, or nothing");
    return {};
  }
  if (!server) {
    return base::Fail("--page-bind-address: " + server.error().message,
                      "name another address, or end the program that listens there");
  }
  server_ = *std::move(server);
  live_.Start();
  if (options_.page_monitors) sampler_.Start();
  base::LogInfo(
      base::Concat({"the page is on http", serving.tls ? "s" : "", "://", serving.host.empty() ? "*" : serving.host,
                    ":", std::to_string(server_->port()), options_.page_tokens ? "/, for readers with a token" : "/"}));
  return {};
}

void PageService::Stop() {
  if (server_) server_->Stop(std::chrono::seconds(1));
  live_.Stop();
  sampler_.Stop();
}

}  // namespace hami::scheduler
