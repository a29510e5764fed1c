// SPDX-License-Identifier: Apache-2.0

#include "page/render.h"

#include "base/json.h"
#include "page/feed.h"

namespace hami::page {
namespace {

void AppendInstance(std::string& out, const Instance& instance) {
  Members members(out);
  members.Text("profile", instance.profile);
  members.Count("start", instance.placement.start);
  members.Count("size", instance.placement.size);
  members.Text("pod", instance.pod);
  members.Text("uuid", instance.uuid);
  members.End();
}

void AppendCard(std::string& out, const Card& card) {
  Members members(out);
  members.Text("uuid", card.uuid);
  members.Count("index", card.index);
  members.Text("type", card.type);
  members.Text("mode", card.mode);
  members.Flag("healthy", card.healthy);
  members.Flag("cordoned", card.cordoned);
  members.Flag("usable", card.usable);
  members.Count("numa", card.numa);
  members.Count("memory_mib", card.memory);
  members.Count("cores", card.cores);
  members.Count("shares", card.count);
  members.Count("used_memory_mib", card.used.memory);
  members.Count("used_cores", card.used.cores);
  members.Count("used_shares", card.used.slots);
  ListWriter instances(members.Name("mig"));
  for (const Instance& instance : card.instances) AppendInstance(instances.Next(), instance);
  instances.End();
  members.End();
}

void AppendPod(std::string& out, const Pod& pod) {
  Members members(out);
  members.Text("namespace", pod.ns);
  members.Text("name", pod.name);
  members.Text("uid", pod.uid);
  members.Text("state", pod.unreadable ? "unreadable" : pod.state);
  ListWriter shares(members.Name("shares"));
  for (const Share& share : pod.shares) {
    Members one(shares.Next());
    one.Count("card", share.card);
    one.Count("memory_mib", share.memory);
    one.Count("cores", share.cores);
    one.Count("shares", share.slots);
    one.End();
  }
  shares.End();
  members.End();
}

void AppendReason(std::string& out, const NodesReason& group) {
  Members members(out);
  members.Text("reason", group.reason);
  members.Count("count", group.count);
  ListWriter nodes(members.Name("nodes"));
  for (const std::string& node : group.nodes) AppendText(nodes.Next(), node);
  nodes.End();
  members.End();
}

}  // namespace

std::string& Members::Name(std::string_view name) {
  if (!first_) out_ += ',';
  first_ = false;
  out_ += '"';
  out_ += name;
  out_ += "\":";
  return out_;
}

void AppendText(std::string& out, std::string_view text) { base::AppendJsonString(out, text); }

void AppendName(std::string& out, std::string_view name) {
  out += ",\"";
  out += name;
  out += "\":";
}

void AppendHead(std::string& out, const Head& head) {
  Members members(out);
  members.Count("schema", 1);
  members.Text("epoch", head.epoch);
  members.Count("revision", head.revision);
  members.Flag("full", head.full);
  members.Count("time", head.now);
  members.Text("version", head.version);
}

void AppendNode(std::string& out, const Node& node) {
  Members members(out);
  members.Text("name", node.name);
  members.Flag("readable", node.readable);
  if (node.lock) {
    Members lock(members.Name("lock"));
    lock.Text("since", node.lock->since);
    lock.Text("namespace", node.lock->ns);
    lock.Text("pod", node.lock->pod);
    lock.End();
  } else {
    members.Name("lock") += "null";
  }
  ListWriter cards(members.Name("cards"));
  for (const Card& card : node.cards) AppendCard(cards.Next(), card);
  cards.End();
  ListWriter pods(members.Name("pods"));
  for (const Pod& pod : node.pods) AppendPod(pods.Next(), pod);
  pods.End();
  members.End();
}

void AppendWaiting(std::string& out, const std::vector<WaitingPod>& waiting) {
  ListWriter list(out);
  for (const WaitingPod& pod : waiting) {
    Members members(list.Next());
    members.Text("namespace", pod.ns);
    members.Text("name", pod.name);
    members.Text("uid", pod.uid);
    members.Count("since", pod.since);
    members.Count("last", pod.last);
    members.Count("tries", pod.tries);
    ListWriter reasons(members.Name("reasons"));
    for (const NodesReason& group : pod.reasons) AppendReason(reasons.Next(), group);
    reasons.End();
    members.End();
  }
  list.End();
}

void AppendQuotas(std::string& out, const std::vector<sched::QuotaBooks::Line>& quotas) {
  ListWriter list(out);
  for (const sched::QuotaBooks::Line& line : quotas) {
    Members members(list.Next());
    members.Text("namespace", line.ns);
    members.Text("resource", line.resource);
    members.Count("used", line.used);
    if (line.limit) {
      members.Count("limit", *line.limit);
    } else {
      members.Name("limit") += "null";
    }
    members.End();
  }
  list.End();
}

void AppendStatus(std::string& out, bool leading, bool complete, device::UnixSeconds since) {
  Members members(out);
  members.Flag("leading", leading);
  members.Flag("complete", complete);
  members.Count("since", since);
  members.End();
}

void AppendEvent(std::string& out, const HealthEvent& event) {
  Members members(out);
  members.Count("time", event.time);
  members.Text("node", event.node);
  members.Text("card", event.card);
  members.Text("what", event.what);
  members.End();
}

}  // namespace hami::page
