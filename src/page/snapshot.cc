// SPDX-License-Identifier: Apache-2.0

#include "page/snapshot.h"

#include <algorithm>
#include <map>

#include "base/strings.h"

namespace hami::page {
namespace {

int PositionOf(const std::vector<Card>& cards, std::string_view uuid) {
  for (std::size_t i = 0; i < cards.size(); ++i) {
    if (cards[i].uuid == uuid) return static_cast<int>(i);
  }
  return -1;
}

Card CopyCard(const sched::Node& node, std::size_t position) {
  const device::Device& device = node.devices()[position];
  Card card;
  card.uuid = device.uuid;
  card.index = device.index;
  card.type = device.type;
  card.mode = device.mode;
  card.memory = device.memory;
  card.cores = device.cores;
  card.count = device.count;
  card.numa = device.numa;
  card.healthy = device.healthy;
  card.cordoned = device.cordoned;
  card.usable = node.usable(position);
  card.used = node.used()[position];
  return card;
}

void AddPod(const sched::PodRecord& record, Node& node) {
  Pod pod;
  pod.ns = record.ns;
  pod.name = record.name;
  pod.uid = record.uid;
  pod.state = record.bound ? "bound" : record.held ? "binding" : "placed";
  pod.unreadable = record.charge.unreadable;
  for (const sched::PodCharge& charge : record.charge.cards) {
    pod.shares.push_back({PositionOf(node.cards, charge.uuid), charge.memory, charge.cores, charge.slots});
  }
  for (const device::MigReservation& reservation : record.charge.reservations) {
    const int card = PositionOf(node.cards, reservation.gpu_uuid);
    if (card < 0) continue;
    node.cards[static_cast<std::size_t>(card)].instances.push_back(
        {reservation.profile, reservation.placement, record.ns + "/" + record.name, reservation.mig_uuid});
  }
  node.pods.push_back(std::move(pod));
}

}  // namespace

std::optional<Lock> ReadLock(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const std::vector<std::string> parts = base::Split(text, ',');
  if (parts.size() != 3) return Lock{std::string(text), {}, {}};
  return Lock{parts[0], parts[1], parts[2]};
}

void CopyNodes(const sched::Ledger& ledger, sched::NodeId from, sched::NodeId to, std::vector<Node>& out) {
  for (sched::NodeId id = from; id < to; ++id) {
    if (!ledger.exists(id)) continue;
    const sched::Node& node = ledger.node(id);
    if (!node.registered() && node.pods.empty()) continue;
    Node& copy = out.emplace_back();
    copy.name = node.name();
    copy.readable = node.readable();
    copy.cards.reserve(node.devices().size());
    for (std::size_t i = 0; i < node.devices().size(); ++i) copy.cards.push_back(CopyCard(node, i));
    copy.pods.reserve(node.pods.size());
    for (const sched::PodId pod : node.pods) AddPod(ledger.pod(pod), copy);
  }
}

std::vector<NodesReason> GroupReasons(const std::vector<sched::NodeReason>& failures, bool names) {
  std::map<std::string_view, NodesReason> groups;
  for (const sched::NodeReason& failure : failures) {
    NodesReason& group = groups[failure.reason];
    ++group.count;
    if (names) group.nodes.push_back(failure.node);
  }
  std::vector<NodesReason> list;
  for (auto& [reason, group] : groups) {
    group.reason = reason;
    std::sort(group.nodes.begin(), group.nodes.end());
    list.push_back(std::move(group));
  }
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
  return list;
}

}  // namespace hami::page
