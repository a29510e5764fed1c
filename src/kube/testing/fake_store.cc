// SPDX-License-Identifier: Apache-2.0

#include "kube/testing/fake_store.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "base/json_cursor.h"
#include "base/strings.h"

namespace hami::kube {
namespace {

constexpr std::string_view kNoVersion = "(no version yet)";
constexpr const char* kCreated = "2024-01-01T00:00:00Z";

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

// OBJECT as it is kept, but for its version.
std::shared_ptr<FakeObject> Make(json::value& object) {
  MetadataOf(object)["resourceVersion"] = View(kNoVersion);
  auto made = std::make_shared<FakeObject>();
  made->text = json::serialize(object);
  made->version_at = made->text.find(kNoVersion);
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

// Whether MADE, which has no version yet, says what OBJECT says.
bool SaysTheSame(const FakeObject& made, const FakeObject& object) {
  const std::string_view one = made.text;
  const std::string_view other = object.text;
  const std::string version = std::to_string(object.version);
  return made.version_at == object.version_at && one.substr(0, made.version_at) == other.substr(0, made.version_at) &&
         one.substr(made.version_at + kNoVersion.size()) == other.substr(made.version_at + version.size());
}

std::string NewUid(std::uint64_t number) {
  std::array<char, 48> uid{};
  std::snprintf(uid.data(), uid.size(), "00000000-0000-4000-8000-%012llx", static_cast<unsigned long long>(number));
  return uid.data();
}

// The names of an object that says nothing else that a store looks at.
struct PlainNames {
  std::string_view name, ns;
  std::size_t inside = 0;  // where its metadata begins, behind the brace
};

std::optional<PlainNames> NamesIn(std::string_view text) {
  PlainNames names;
  base::JsonCursor cursor(text);
  const auto name = [&](std::string_view key, bool plain) {
    std::string_view* const to = key == "name" ? &names.name : key == "namespace" ? &names.ns : nullptr;
    return plain && to != nullptr && to->empty() && cursor.TakeString(*to, plain) && plain;
  };
  const bool taken = cursor.TakeObject([&](std::string_view key, bool plain) {
    std::string_view passed;
    if (!plain || key == "spec" || key == "status") return false;
    if (key != "metadata") return cursor.TakeValue(passed);
    if (names.inside != 0 || cursor.Next() != '{') return false;
    names.inside = cursor.at() + 1;
    return cursor.TakeObject(name);
  });
  if (!taken || !cursor.AtEnd() || names.name.empty()) return std::nullopt;
  return names;
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

FakePtr FakeStore::Find(std::string_view plural, std::string_view key) const {
  const auto kind = kinds_.find(plural);
  if (kind == kinds_.end()) return nullptr;
  const auto found = kind->second.objects.find(key);
  return found == kind->second.objects.end() ? nullptr : found->second;
}

FakeStore::Kind& FakeStore::KindOf(std::string_view plural) {
  const auto found = kinds_.find(plural);
  return found != kinds_.end() ? found->second : kinds_[std::string(plural)];
}

void FakeStore::Append(Kind& kind, FakeEvent event) {
  kind.version = version_ = event.version;
  history_.push_back(std::move(event));
  while (history_.size() > most_history_) {
    compacted_ = history_.front().version;
    history_.pop_front();
  }
  kind.changed.notify_all();
}

FakePtr FakeStore::Store(std::string_view plural, FakePtr& slot, std::shared_ptr<FakeObject> made) {
  made->version = version_ + 1;
  made->text.replace(made->version_at, kNoVersion.size(), std::to_string(made->version));
  FakePtr before = std::exchange(slot, std::move(made));
  Append(KindOf(plural), {slot->version, std::string(plural), std::move(before), slot, {}});
  return slot;
}

FakeOutcome FakeStore::Create(std::string_view plural, std::string_view ns, json::value object) {
  if (!object.is_object()) return {400, "BadRequest", "not an object", nullptr};
  json::object& metadata = MetadataOf(object);
  if (!ns.empty()) metadata["namespace"] = View(ns);
  std::string name = base::GetString(metadata, "name").value_or("");
  const std::string prefix = base::GetString(metadata, "generateName").value_or("");
  if (name.empty() && prefix.empty()) return {422, "Invalid", "name or generateName is required", nullptr};
  const std::uint64_t number = next_uid_++;
  if (name.empty()) name = prefix + std::to_string(number);
  metadata["name"] = name;
  if (!base::GetString(metadata, "uid")) metadata["uid"] = NewUid(number);
  if (!metadata.contains("creationTimestamp")) metadata["creationTimestamp"] = kCreated;
  return Add(plural, KeyOf(ns, name), Make(object));
}

std::optional<FakeOutcome> FakeStore::CreatePlain(std::string_view plural, std::string_view ns, std::string_view text) {
  const auto names = NamesIn(text);
  if (!names || base::PlainLength(ns) != ns.size()) return std::nullopt;
  if (!ns.empty() && !names->ns.empty() && names->ns != ns) return std::nullopt;
  auto made = std::make_shared<FakeObject>();
  made->uid = NewUid(next_uid_++);
  made->name = names->name;
  made->ns = names->ns.empty() ? ns : names->ns;
  std::string& own = made->text;
  own.reserve(text.size() + 256);
  own.append(text.substr(0, names->inside)).append(R"("resourceVersion":")");
  made->version_at = own.size();
  own.append(kNoVersion).append(R"(","uid":")").append(made->uid);
  own.append(R"(","creationTimestamp":")").append(kCreated).append("\",");
  if (names->ns.empty() && !ns.empty()) own.append(R"("namespace":")").append(ns).append("\",");
  own.append(text.substr(names->inside));
  return Add(plural, KeyOf(ns, names->name), std::move(made));
}

FakeOutcome FakeStore::Add(std::string_view plural, const std::string& key, std::shared_ptr<FakeObject> made) {
  const std::scoped_lock lock(mutex_);
  FakePtr& slot = KindOf(plural).objects[key];
  if (!slot) return {201, "", "", Store(plural, slot, std::move(made))};
  return {409, "AlreadyExists", std::string(plural) + " \"" + made->name + "\" already exists", nullptr};
}

FakeOutcome FakeStore::Modify(std::string_view plural, std::string_view ns, std::string_view name,
                              const Change& change) {
  const std::string key = KeyOf(ns, name);
  while (true) {
    const FakeOutcome current = Get(plural, ns, name);
    if (current.status >= 400) return current;
    const FakePtr& before = current.object;
    json::monotonic_resource memory;
    json::value object = json::parse(before->text, &memory);
    FakeOutcome outcome = change(object);
    if (outcome.status >= 400) return outcome;
    if (!object.is_object()) return {422, "Invalid", "not an object", nullptr};
    json::object& metadata = MetadataOf(object);
    const std::string version = base::GetString(metadata, "resourceVersion").value_or("");
    if (!version.empty() && version != std::to_string(before->version)) {
      return {409, "Conflict", "the object has been modified; please apply your changes to the latest version",
              nullptr};
    }
    if (TextAt(object, "metadata", "uid") != before->uid) {
      if (metadata.contains("uid")) return {409, "Conflict", "the uid in the precondition differs", nullptr};
      metadata["uid"] = before->uid;
    }
    metadata["name"] = View(name);
    std::shared_ptr<FakeObject> made = Make(object);
    // As etcd3 storage: what changes nothing is no event.
    const bool same = SaysTheSame(*made, *before);
    const std::scoped_lock lock(mutex_);
    Objects& objects = KindOf(plural).objects;
    const auto found = objects.find(key);
    if (found == objects.end() || found->second != before) continue;
    if (same) return {200, "", "", before};
    return {outcome.status, "", "", Store(plural, found->second, std::move(made))};
  }
}

FakeOutcome FakeStore::Delete(std::string_view plural, std::string_view ns, std::string_view name) {
  const std::string key = KeyOf(ns, name);
  const std::scoped_lock lock(mutex_);
  const FakePtr before = Find(plural, key);
  if (!before) return NotFound(plural, name);
  Kind& kind = KindOf(plural);
  kind.objects.erase(key);
  const std::uint64_t version = version_ + 1;
  std::string text = before->text;
  text.replace(before->version_at, std::to_string(before->version).size(), std::to_string(version));
  Append(kind, {version, std::string(plural), before, nullptr, std::move(text)});
  return {200, "", "", before};
}

FakeOutcome FakeStore::Get(std::string_view plural, std::string_view ns, std::string_view name) const {
  const std::string key = KeyOf(ns, name);
  const std::scoped_lock lock(mutex_);
  FakePtr found = Find(plural, key);
  if (!found) return NotFound(plural, name);
  return {200, "", "", std::move(found)};
}

FakeStore::Page FakeStore::List(std::string_view plural, const FakeSelector& selector, std::size_t limit,
                                const std::string& after) const {
  const std::scoped_lock lock(mutex_);
  Page page;
  page.version = version_;
  const auto kind = kinds_.find(plural);
  if (kind == kinds_.end()) return page;
  const Objects& objects = kind->second.objects;
  std::string key;
  for (auto item = after.empty() ? objects.begin() : objects.upper_bound(after); item != objects.end(); ++item) {
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
  const auto kind = kinds_.find(plural);
  return kind == kinds_.end() ? 0 : kind->second.objects.size();
}

FakeStore::Batch FakeStore::WaitForEvents(std::string_view plural, std::uint64_t after, net::Deadline deadline) {
  std::unique_lock lock(mutex_);
  const std::uint64_t wakes = wakes_;
  Kind& kind = KindOf(plural);
  kind.changed.wait_until(lock, deadline,
                          [&] { return kind.version > after || wakes_ != wakes || compacted_ > after; });
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
  for (auto& [plural, kind] : kinds_) kind.changed.notify_all();
}

void FakeStore::WakeAll() {
  const std::scoped_lock lock(mutex_);
  ++wakes_;
  for (auto& [plural, kind] : kinds_) kind.changed.notify_all();
}

}  // namespace hami::kube
