// SPDX-License-Identifier: Apache-2.0

#include "page/feed.h"

#include "page/render.h"

namespace hami::page {

void Feed::Note(std::uint64_t next, device::UnixSeconds now, std::string_view node, std::string_view card,
                const char* what) {
  events_.push_back({next, now, std::string(node), std::string(card), what});
  if (events_.size() > kMostEvents) events_.pop_front();
}

void Feed::NoteTroubles(const Node& node, const Card& card, std::uint64_t next, device::UnixSeconds now) {
  if (!card.healthy) Note(next, now, node.name, card.uuid, "unhealthy");
  if (card.cordoned) Note(next, now, node.name, card.uuid, "cordoned");
}

void Feed::NoteHealth(const Node& node, const Entry& before, std::uint64_t next, device::UnixSeconds now) {
  const auto find = [](const auto& list, std::string_view uuid) {
    for (const auto& one : list) {
      if (one.uuid == uuid) return &one;
    }
    return decltype(&list.front()){nullptr};
  };
  for (const Card& card : node.cards) {
    const CardHealth* was = find(before.health, card.uuid);
    if (was == nullptr) {
      Note(next, now, node.name, card.uuid, "added");
      NoteTroubles(node, card, next, now);
      continue;
    }
    if (was->healthy != card.healthy) Note(next, now, node.name, card.uuid, card.healthy ? "healthy" : "unhealthy");
    if (was->cordoned != card.cordoned) {
      Note(next, now, node.name, card.uuid, card.cordoned ? "cordoned" : "uncordoned");
    }
  }
  for (const CardHealth& was : before.health) {
    if (find(node.cards, was.uuid) == nullptr) Note(next, now, node.name, was.uuid, "gone");
  }
}

void Feed::TakeNode(const Node& node, std::uint64_t next, device::UnixSeconds now) {
  std::string text;
  AppendNode(text, node);
  const auto [found, is_new] = nodes_.try_emplace(node.name);
  Entry& entry = found->second;
  entry.seen = round_;
  if (entry.text == text) return;
  if (!is_new) {
    NoteHealth(node, entry, next, now);
  } else {
    // What is there at the start is no event, unless something is wrong with it.
    if (settled_) Note(next, now, node.name, {}, "added");
    for (const Card& card : node.cards) NoteTroubles(node, card, next, now);
  }
  entry.text = std::move(text);
  entry.revision = next;
  entry.health.clear();
  for (const Card& card : node.cards) entry.health.push_back({card.uuid, card.healthy, card.cordoned});
  gone_.erase(node.name);
  revision_ = next;
}

void Feed::DropGone(std::uint64_t next, device::UnixSeconds now) {
  for (auto at = nodes_.begin(); at != nodes_.end();) {
    if (at->second.seen == round_) {
      ++at;
      continue;
    }
    Note(next, now, at->first, {}, "gone");
    gone_[at->first] = next;
    revision_ = next;
    at = nodes_.erase(at);
  }
  if (gone_.size() > kMostGone) {
    gone_.clear();
    kept_from_ = next;
  }
}

void Feed::TakeSection(Section& section, std::string text, std::uint64_t next) {
  if (section.text == text) return;
  section.text = std::move(text);
  section.revision = next;
  revision_ = next;
}

void Feed::Take(const Snapshot& snapshot, device::UnixSeconds now) {
  const std::scoped_lock lock(mutex_);
  const std::uint64_t next = revision_ + 1;
  ++round_;
  for (const Node& node : snapshot.nodes) TakeNode(node, next, now);
  DropGone(next, now);
  std::string text;
  AppendWaiting(text, snapshot.waiting);
  TakeSection(waiting_, std::move(text), next);
  text.clear();
  AppendQuotas(text, snapshot.quotas);
  TakeSection(quotas_, std::move(text), next);
  text.clear();
  if (since_ == 0 && snapshot.complete) since_ = now;
  AppendStatus(text, snapshot.leading, snapshot.complete, since_);
  TakeSection(status_, std::move(text), next);
  settled_ = snapshot.complete;
}

std::uint64_t Feed::revision() const {
  const std::scoped_lock lock(mutex_);
  return revision_;
}

std::string Feed::Render(std::uint64_t since, device::UnixSeconds now) const {
  const std::scoped_lock lock(mutex_);
  const bool full = since == 0 || since > revision_ || since < kept_from_;
  if (full) since = 0;
  std::string out;
  AppendHead(out, {epoch_, version_, revision_, now, full});
  for (const auto& [name, section] :
       {std::pair{"status", &status_}, std::pair{"waiting", &waiting_}, std::pair{"quotas", &quotas_}}) {
    if (section->revision <= since) continue;
    AppendName(out, name);
    out += section->text;
  }
  AppendName(out, "nodes");
  ListWriter nodes(out);
  for (const auto& [name, entry] : nodes_) {
    if (entry.revision > since) nodes.Next() += entry.text;
  }
  nodes.End();
  AppendName(out, "gone");
  ListWriter gone(out);
  for (const auto& [name, revision] : gone_) {
    if (!full && revision > since) AppendText(gone.Next(), name);
  }
  gone.End();
  AppendName(out, "events");
  ListWriter events(out);
  for (const HealthEvent& event : events_) {
    if (event.revision > since) AppendEvent(events.Next(), event);
  }
  events.End();
  out += "}\n";
  return out;
}

std::string Document(const Snapshot& snapshot, std::string_view version, device::UnixSeconds now) {
  Feed feed("once", std::string(version));
  feed.Take(snapshot, now);
  return feed.Render(0, now);
}

}  // namespace hami::page
