// SPDX-License-Identifier: Apache-2.0

#include "plugin/registrar.h"

#include <algorithm>
#include <ctime>
#include <random>
#include <utility>

#include "base/log.h"
#include "base/strings.h"
#include "kube/resource.h"
#include "kube/views.h"

namespace hami::plugin {
namespace {

namespace json = base::json;

// After so long without a dispute the next one begins from the start.
constexpr auto kPeace = std::chrono::minutes(5);

device::LocalClock SystemClock() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return {now, static_cast<int>(local.tm_gmtoff)};
}

std::function<double()> Generator() {
  return [engine = std::mt19937_64(std::random_device()())]() mutable {
    return std::uniform_real_distribution<double>(0, 1)(engine);
  };
}

kube::ReflectorOptions Named(kube::ReflectorOptions options) {
  options.name = "this node";
  return options;
}

// Whether the state A is certainly older than B. Versions are numbers wherever they are comparable at all.
bool IsOlder(const kube::Metadata& a, const kube::Metadata& b) {
  const auto left = base::ParseNumber(a.resource_version);
  const auto right = base::ParseNumber(b.resource_version);
  return a.uid == b.uid && left && right && *left < *right;
}

}  // namespace

ApiNode::ApiNode(kube::Client& client, std::string node)
    : client_(client), node_(std::move(node)), source_(client, kube::kNodes, {}, {{}, "metadata.name=" + node_}) {}

kube::Result<json::value> ApiNode::Patch(const json::value& patch, const kube::CallContext& context) {
  return client_.Patch(kube::kNodes, {}, node_, kube::PatchType::kMerge, patch, context);
}

Registrar::Registrar(NodeApi& api, OnNode on_node, RegistrarOptions options)
    : api_(api),
      on_node_(std::move(on_node)),
      options_(std::move(options)),
      reflector_(api.source(), *this, Named(options_.watch)),
      retry_(options_.retry_first, options_.retry_most),
      contest_(options_.contest_first, options_.contest_most) {
  if (!options_.clock) options_.clock = SystemClock;
  if (!options_.random) options_.random = Generator();
}

void Registrar::Start() {
  reflector_.Start();
  thread_ = std::thread([this] { Run(); });
}

void Registrar::Stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  stop_.Cancel();
  reflector_.Stop();
  if (thread_.joinable()) thread_.join();
}

void Registrar::Withdraw() {
  std::optional<json::value> patch;
  {
    const std::scoped_lock lock(mutex_);
    withdrawn_ = true;
    if (!wanted_ || !wanted_->concurrent_allocate) return;
    wanted_->concurrent_allocate = false;
    if (node_) patch = PatchFor(node_->annotations, *wanted_, options_.clock());
  }
  if (patch) Send(*patch);
}

void Registrar::Want(Registration registration) {
  const std::scoped_lock lock(mutex_);
  registration.concurrent_allocate = registration.concurrent_allocate && !withdrawn_;
  if (wanted_ == registration) return;
  wanted_ = std::move(registration);
  registered_ = false;
  changed_.notify_all();
}

void Registrar::Take(const kube::Metadata& node) {
  // Between the answer to a patch and the watch's news of it, the watch may still tell what was before.
  if (node_ && IsOlder(node, *node_)) return;
  node_ = node;
  changed_.notify_all();
}

void Registrar::OnChange(const kube::Change& change) {
  if (change.object == nullptr || change.type == kube::ChangeType::kDeleted) {
    const std::scoped_lock lock(mutex_);
    node_.reset();
    settled_.reset();
    registered_ = false;
    return;
  }
  const auto node = kube::ReadMetadata(*change.object, IsNodeKey);
  if (!node) return;
  on_node_({node->uid, node->labels, node->annotations});
  const std::scoped_lock lock(mutex_);
  Take(*node);
}

std::optional<json::value> Registrar::NextPatch(net::Deadline now, net::Deadline& again) {
  again = net::kNever;
  NoteAbsence(now);
  if (!node_) again = now + options_.node_patience / 4;
  if (!wanted_ || !node_) return std::nullopt;
  auto patch = PatchFor(node_->annotations, *wanted_, options_.clock());
  registered_ = !patch.has_value();
  if (!patch) {
    settled_ = wanted_;
    if (wanted_->concurrent_allocate) again = now + options_.look_every;
    return std::nullopt;
  }
  again = retry_at_;
  // It said so before: somebody else changed it.
  const bool contested = settled_ == wanted_ && !OnlySaysAlive(*patch);
  if (contested) again = std::max(again, contest_at_);
  if (now < again) return std::nullopt;
  if (contested) {
    if (now - contest_at_ > kPeace) {
      contest_.Reset();
      told_contest_ = false;
    }
    if (!std::exchange(told_contest_, true)) {
      base::LogWarning(base::Concat({"somebody else writes what node ", options_.node, " says of its GPUs: ",
                                     "is NODE_NAME right, or does another device plugin serve this node?"}));
    }
    contest_at_ = now + contest_.Next(options_.random());
  }
  return patch;
}

// A wrong name is a node that is not there, which no watch complains about.
void Registrar::NoteAbsence(net::Deadline now) {
  if (node_ || !reflector_.synced()) {
    absent_since_.reset();
    if (node_) trouble_.clear();
    return;
  }
  if (!absent_since_) absent_since_ = now;
  if (now - *absent_since_ < options_.node_patience || !trouble_.empty()) return;
  trouble_ = base::Concat({"there is no node ", base::Printable(options_.node),
                           ": set NODE_NAME from spec.nodeName (fieldRef), or --node-name"});
  base::LogError(trouble_ + "; nothing is offered until there is one");
}

std::string Registrar::trouble() const {
  const std::scoped_lock lock(mutex_);
  return trouble_;
}

void Registrar::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    net::Deadline again = net::kNever;
    if (const auto patch = NextPatch(net::Clock::now(), again)) {
      lock.unlock();
      Send(*patch);
      lock.lock();
    } else if (again == net::kNever) {
      changed_.wait(lock);  // waiting until "never" overflows in some libraries
    } else {
      changed_.wait_until(lock, again);
    }
  }
}

void Registrar::Send(const json::value& patch) {
  const auto answer = api_.Patch(patch, {&stop_, options_.call_timeout});
  const std::scoped_lock lock(mutex_);
  if (answer) {
    ++patches_;
    retry_.Reset();
    last_report_.clear();
    if (const auto node = kube::ReadMetadata(*answer, IsNodeKey)) Take(*node);
    return;
  }
  ++failures_;
  retry_at_ = net::Clock::now() + retry_.Next(options_.random());
  if (answer.error().message != last_report_ && answer.error().reason != kube::Reason::kCancelled) {
    last_report_ = answer.error().message;
    base::LogWarning("the node can not be told about its GPUs, trying again: " + last_report_);
  }
}

}  // namespace hami::plugin
