// SPDX-License-Identifier: Apache-2.0

#include "kube/fake_store.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/strings.h"

namespace hami::kube {
namespace {

json::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string KeyOf(std::string_view ns, std::string_view name) { return std::string(ns).append("/").append(name); }

std::string TextAt(const json::value& object, std::string_view part, std::string_view key) {
  const json::object* whole = object.if_object();
  const json::value* inner = whole == nullptr ? nullptr : whole->if_contains(View(part));
  if (inner == nullptr || !inner->is_object()) return {};
  return base::GetString(inner->get_object(), key).value_or("");
}

json::object& MetadataOf(json::value& object) {
  json::value& metadata = object.as_object()["metadata"];
  if (!metadata.is_object()) metadata.emplace_object();
  return metadata.get_object();
}

FakeOutcome NotFound(std::string_view plural, std::string_view name) {
  return {404, "NotFound", std::string(plural) + " \"" + std::string(name) + "\" not found", nullptr};
}

}  // namespace

bool FakeSelector::ParseTerms(std::string_view text, std::vector<Term>& terms) {
  for (const std::string& part : base::Split(text, ',')) {
    const auto equals = part.find('=');
    if (equals == std::string::npos) {
      if (part.empty() || part.find(' ') != std::string::npos) return false;
      terms.push_back({part, Operation::kExists, ""});
    } else if (equals > 0 && part[equals - 1] == '!') {
      terms.push_back({part.substr(0, equals - 1), Operation::kDiffers, part.substr(equals + 1)});
    } else {
      const std::size_t skip = part.compare(equals, 2, "==") == 0 ? 2 : 1;
      terms.push_back({part.substr(0, equals), Operation::kEquals, part.substr(equals + skip)});
    }
  }
  return true;
}

std::optional<FakeSelector> FakeSelector::Parse(std::string_view labels, std::string_view fields, std::string ns) {
  FakeSelector selector;
  selector.ns_ = std::move(ns);
  if (!ParseTerms(labels, selector.labels_) || !ParseTerms(fields, selector.fields_)) return std::nullopt;
  for (const Term& term : selector.fields_) {
    const bool known = term.key == "metadata.name" || term.key == "metadata.namespace" || term.key == "spec.nodeName" ||
                       term.key == "status.phase";
    if (!known || term.operation == Operation::kExists) return std::nullopt;
  }
  return selector;
}

bool FakeSelector::Matches(const FakePtr& object) const {
  if (!object || (!ns_.empty() && object->ns != ns_)) return false;
  for (const Term& term : labels_) {
    const auto found = object->labels.find(term.key);
    const bool has = found != object->labels.end();
    const bool equal = has && found->second == term.value;
    if (term.operation == Operation::kExists ? !has : (term.operation == Operation::kEquals) != equal) return false;
  }
  return std::all_of(fields_.begin(), fields_.end(), [&](const Term& term) {
    const std::string& value = term.key == "metadata.name"        ? object->name
                               : term.key == "metadata.namespace" ? object->ns
                               : term.key == "spec.nodeName"      ? object->node_name
                                                                  : object->phase;
    return (value == term.value) == (term.operation == Operation::kEquals);
  });
}

FakePtr FakeStore::Stamp(json::value& object, std::uint64_t version) const {
  MetadataOf(object)["resourceVersion"] = std::to_string(version);
  auto made = std::make_shared<FakeObject>();
  made->version = version;
  made->text = json::serialize(object);
  made->uid = TextAt(object, "metadata", "uid");
  made->name = TextAt(object, "metadata", "name");
  made->ns = TextAt(object, "metadata", "namespace");
  made->node_name = TextAt(object, "spec", "nodeName");
  made->phase = TextAt(object, "status", "phase");
  if (const json::value* labels = MetadataOf(object).if_contains("labels"); labels != nullptr && labels->is_object()) {
    for (const auto& [key, value] : labels->get_object()) {
      if (value.is_string()) made->labels.emplace(key, std::string(value.get_string()));
    }
  }
  return made;
}

void FakeStore::Append(FakeEvent event) {
  version_ = event.version;
  history_.push_back(std::move(event));
  while (history_.size() > most_history_) {
    compacted_ = history_.front().version;
    history_.pop_front();
  }
  changed_.notify_all();
}

FakeOutcome FakeStore::Create(std::string_view plural, std::string_view ns, json::value object) {
  if (!object.is_object()) return {400, "BadRequest", "not an object", nullptr};
  const std::scoped_lock lock(mutex_);
  json::object& metadata = MetadataOf(object);
  if (!ns.empty()) metadata["namespace"] = View(ns);
  std::string name = base::GetString(metadata, "name").value_or("");
  if (name.empty()) {
    const std::string prefix = base::GetString(metadata, "generateName").value_or("");
    if (prefix.empty()) return {422, "Invalid", "name or generateName is required", nullptr};
    name = prefix + std::to_string(next_uid_);
    metadata["name"] = name;
  }
  if (!base::GetString(metadata, "uid")) {
    std::array<char, 48> uid{};
    std::snprintf(uid.data(), uid.size(), "00000000-0000-4000-8000-%012llx",
                  static_cast<unsigned long long>(next_uid_));
    metadata["uid"] = uid.data();
  }
  ++next_uid_;
  if (!metadata.contains("creationTimestamp")) metadata["creationTimestamp"] = "2024-01-01T00:00:00Z";
  Objects& objects = objects_.try_emplace(std::string(plural)).first->second;
  const auto [slot, fresh] = objects.try_emplace(KeyOf(ns, name));
  if (!fresh) return {409, "AlreadyExists", std::string(plural) + " \"" + name + "\" already exists", nullptr};
  slot->second = Stamp(object, version_ + 1);
  const FakePtr stored = slot->second;
  Append({stored->version, std::string(plural), nullptr, stored, {}});
  return {201, "", "", stored};
}

FakeStore::Objects::const_iterator FakeStore::Find(std::string_view plural, std::string_view ns, std::string_view name,
                                                   const Objects** objects) const {
  const auto kind = objects_.find(plural);
  *objects = kind == objects_.end() ? nullptr : &kind->second;
  return kind == objects_.end() ? Objects::const_iterator() : kind->second.find(KeyOf(ns, name));
}

FakeOutcome FakeStore::Modify(std::string_view plural, std::string_view ns, std::string_view name,
                              const Change& change) {
  const std::scoped_lock lock(mutex_);
  const auto kind = objects_.find(plural);
  if (kind == objects_.end()) return NotFound(plural, name);
  const auto slot = kind->second.find(KeyOf(ns, name));
  if (slot == kind->second.end()) return NotFound(plural, name);
  const FakePtr before = slot->second;
  json::value object = before->Value();
  FakeOutcome outcome = change(object);
  if (outcome.status >= 400) return outcome;
  if (!object.is_object()) return {422, "Invalid", "not an object", nullptr};
  json::object& metadata = MetadataOf(object);
  const std::string version = base::GetString(metadata, "resourceVersion").value_or("");
  if (!version.empty() && version != std::to_string(before->version)) {
    return {409, "Conflict", "the object has been modified; please apply your changes to the latest version", nullptr};
  }
  if (TextAt(object, "metadata", "uid") != before->uid) {
    if (metadata.contains("uid")) return {409, "Conflict", "the uid in the precondition differs", nullptr};
    metadata["uid"] = before->uid;
  }
  metadata["name"] = View(name);
  metadata["resourceVersion"] = std::to_string(before->version);
  // As etcd3 storage: what changes nothing is no event.
  if (json::serialize(object) == before->text) return {200, "", "", before};
  slot->second = Stamp(object, version_ + 1);
  const FakePtr after = slot->second;
  Append({after->version, std::string(plural), before, after, {}});
  return {outcome.status, "", "", after};
}

FakeOutcome FakeStore::Delete(std::string_view plural, std::string_view ns, std::string_view name,
                              std::string_view uid) {
  const std::scoped_lock lock(mutex_);
  const auto kind = objects_.find(plural);
  if (kind == objects_.end()) return NotFound(plural, name);
  const auto slot = kind->second.find(KeyOf(ns, name));
  if (slot == kind->second.end()) return NotFound(plural, name);
  const FakePtr before = slot->second;
  if (!uid.empty() && before->uid != uid) return {409, "Conflict", "the uid in the precondition differs", nullptr};
  kind->second.erase(slot);
  json::value last = before->Value();
  const std::uint64_t version = version_ + 1;
  MetadataOf(last)["resourceVersion"] = std::to_string(version);
  Append({version, std::string(plural), before, nullptr, json::serialize(last)});
  return {200, "", "", before};
}

FakeOutcome FakeStore::Get(std::string_view plural, std::string_view ns, std::string_view name) const {
  const std::scoped_lock lock(mutex_);
  const Objects* objects = nullptr;
  const auto found = Find(plural, ns, name, &objects);
  if (objects == nullptr || found == objects->end()) return NotFound(plural, name);
  return {200, "", "", found->second};
}

FakeStore::Page FakeStore::List(std::string_view plural, const FakeSelector& selector, std::size_t limit,
                                const std::string& after) const {
  const std::scoped_lock lock(mutex_);
  Page page;
  page.version = version_;
  const auto kind = objects_.find(plural);
  if (kind == objects_.end()) return page;
  std::string key;
  for (auto item = after.empty() ? kind->second.begin() : kind->second.upper_bound(after); item != kind->second.end();
       ++item) {
    if (!selector.Matches(item->second)) continue;
    if (limit != 0 && page.objects.size() == limit) {
      page.last_key = std::move(key);
      break;
    }
    page.objects.push_back(item->second);
    key = item->first;
  }
  return page;
}

std::size_t FakeStore::Count(std::string_view plural) const {
  const std::scoped_lock lock(mutex_);
  const auto kind = objects_.find(plural);
  return kind == objects_.end() ? 0 : kind->second.size();
}

FakeStore::Batch FakeStore::WaitForEvents(std::string_view plural, std::uint64_t after, net::Deadline deadline) const {
  std::unique_lock lock(mutex_);
  const std::uint64_t wakes = wakes_;
  changed_.wait_until(lock, deadline, [&] { return version_ > after || wakes_ != wakes || compacted_ > after; });
  Batch batch;
  batch.version = std::max(version_, after);
  batch.expired = compacted_ > after;
  if (batch.expired) return batch;
  const auto first = std::upper_bound(history_.begin(), history_.end(), after,
                                      [](std::uint64_t version, const FakeEvent& e) { return version < e.version; });
  for (auto event = first; event != history_.end(); ++event) {
    if (event->plural == plural) batch.events.push_back(*event);
  }
  return batch;
}

std::uint64_t FakeStore::version() const {
  const std::scoped_lock lock(mutex_);
  return version_;
}

std::uint64_t FakeStore::oldest() const {
  const std::scoped_lock lock(mutex_);
  return compacted_;
}

void FakeStore::Compact() {
  const std::scoped_lock lock(mutex_);
  // The version moves on, so that even who saw everything has to list again.
  compacted_ = ++version_;
  history_.clear();
  changed_.notify_all();
}

void FakeStore::WakeAll() {
  const std::scoped_lock lock(mutex_);
  ++wakes_;
  changed_.notify_all();
}

}  // namespace hami::kube
