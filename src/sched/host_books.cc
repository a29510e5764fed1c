// SPDX-License-Identifier: Apache-2.0

#include "sched/host_books.h"

#include <algorithm>
#include <charconv>

#include "device/lists.h"
#include "device/quantity.h"

namespace hami::sched {
namespace {

constexpr std::int64_t kMost = 1LL << 50;  // sums of many pods stay inside 64 bits
constexpr std::int64_t kBytesPerMiB = 1 << 20;

std::int64_t Bounded(std::int64_t amount) { return std::clamp<std::int64_t>(amount, 0, kMost); }

// Thousandths: `500m` is 500, `2` is 2000, `1.5` is 1500.
std::int64_t Thousandths(std::string_view text) {
  if (!text.empty() && text.back() == 'm') {
    const auto whole = device::ParseQuantity(text.substr(0, text.size() - 1));
    return whole ? Bounded(whole->value) : 0;
  }
  const std::size_t point = text.find('.');
  if (point != std::string_view::npos) {
    double value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool plain = read.ec == std::errc() && read.ptr == text.data() + text.size() && value >= 0 && value < 1e9;
    if (plain) return Bounded(static_cast<std::int64_t>(value * 1000));
  }
  const auto whole = device::ParseQuantity(text);
  return whole ? Bounded(Bounded(std::min(whole->value, kMost / 1000)) * 1000) : 0;
}

HostAmounts Plus(const HostAmounts& a, const HostAmounts& b, int sign = 1) {
  return {a.cpu + sign * b.cpu, a.memory + sign * b.memory};
}

HostAmounts Larger(const HostAmounts& a, const HostAmounts& b) {
  return {std::max(a.cpu, b.cpu), std::max(a.memory, b.memory)};
}

// Kubernetes takes the limit for the request where there is only a limit.
HostAmounts RequestOf(const device::Container& container) {
  device::StringMap resources;
  for (const char* name : {"cpu", "memory"}) {
    const std::string* text = device::Find(container.requests, name);
    if (text == nullptr) text = device::Find(container.limits, name);
    if (text != nullptr) resources[name] = *text;
  }
  return ReadHostAmounts(resources);
}

}  // namespace

HostAmounts ReadHostAmounts(const device::StringMap& resources) {
  HostAmounts out;
  if (const std::string* cpu = device::Find(resources, "cpu")) out.cpu = Thousandths(*cpu);
  if (const std::string* memory = device::Find(resources, "memory")) {
    const auto bytes = device::ParseQuantity(*memory);
    if (bytes) out.memory = Bounded(bytes->value) / kBytesPerMiB;
  }
  return out;
}

HostAmounts HostRequest(const device::Pod& pod) {
  HostAmounts sidecars;
  HostAmounts init;
  HostAmounts apps;
  for (const device::InitContainer& container : pod.init_containers) {
    const HostAmounts one = RequestOf(container);
    if (container.sidecar) {
      sidecars = Plus(sidecars, one);
    } else {
      init = Larger(init, Plus(sidecars, one));
    }
  }
  for (const device::Container& container : pod.containers) apps = Plus(apps, RequestOf(container));
  return Larger(init, Plus(sidecars, apps));
}

bool HostBooks::SetNode(std::string_view node, const HostAmounts& all) {
  HostNode& entry = nodes_[std::string(node)];
  if (entry.known && entry.all == all) return false;
  entry.all = all;
  entry.known = true;
  largest_ = Larger(largest_, all);
  return true;
}

void HostBooks::RemoveNode(std::string_view node) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  found->second.known = false;
  if (found->second.pods == 0) nodes_.erase(found);
}

bool HostBooks::Use(std::string_view uid, std::string_view node, const HostAmounts& amounts) {
  const auto known = pods_.find(uid);
  if (known != pods_.end() && *known->second.name == node && known->second.amounts == amounts) return false;
  Drop(uid);
  const auto at = nodes_.try_emplace(std::string(node)).first;
  at->second.used = Plus(at->second.used, amounts);
  ++at->second.pods;
  pods_[std::string(uid)] = {&at->second, &at->first, amounts};
  return true;
}

std::string HostBooks::Drop(std::string_view uid) {
  const auto found = pods_.find(uid);
  if (found == pods_.end()) return {};
  HostNode& node = *found->second.node;
  std::string name = *found->second.name;
  node.used = Plus(node.used, found->second.amounts, -1);
  --node.pods;
  pods_.erase(found);
  if (node.pods == 0 && !node.known) nodes_.erase(nodes_.find(name));
  return name;
}

std::string HostBooks::NodeOf(std::string_view uid) const {
  const auto found = pods_.find(uid);
  return found == pods_.end() ? std::string() : *found->second.name;
}

HostRoom HostBooks::Room(std::string_view node) const {
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || !found->second.known) return {};
  return {Plus(found->second.all, found->second.used, -1), found->second.all, true};
}

}  // namespace hami::sched
