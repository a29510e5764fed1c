// SPDX-License-Identifier: Apache-2.0

#include "kube/testing/fake_apiserver.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <thread>

#include "base/log.h"
#include "base/strings.h"
#include "kube/scanner.h"
#include "kube/testing/json_patch.h"

namespace hami::kube {
namespace {

constexpr auto kWatchStep = std::chrono::milliseconds(100);
// After events a watch gathers this long before it looks for more: a stream of them is then told in few pieces.
constexpr auto kWatchRest = std::chrono::milliseconds(2);

net::Response JsonAnswer(int status, std::string body) {
  return {status, {{"Content-Type", "application/json"}}, std::move(body), {}};
}

std::string StatusText(int code, const std::string& reason, const std::string& message) {
  return json::serialize(json::value{{"kind", "Status"},
                                     {"apiVersion", "v1"},
                                     {"metadata", json::object{}},
                                     {"status", code < 400 ? "Success" : "Failure"},
                                     {"message", message},
                                     {"reason", reason},
                                     {"code", code}});
}

net::Response Refusal(int code, const std::string& reason, const std::string& message) {
  return JsonAnswer(code, StatusText(code, reason, message));
}

net::Response AnswerOf(const FakeOutcome& outcome) {
  if (outcome.status >= 400) return Refusal(outcome.status, outcome.reason, outcome.message);
  return JsonAnswer(outcome.status, outcome.object->text);
}

std::string Parameter(const net::Query& query, std::string_view key) {
  const auto found = std::find_if(query.begin(), query.end(), [&](const auto& pair) { return pair.first == key; });
  return found == query.end() ? std::string() : found->second;
}

std::string KindOf(std::string_view plural) {
  for (const Resource& resource : {kPods, kNodes, kEvents, kConfigMaps, kResourceQuotas, kLeases}) {
    if (resource.plural == plural) return std::string(resource.kind);
  }
  return std::string(plural);
}

std::string EventLine(std::string_view type, std::string_view object) {
  std::string line;
  line.reserve(object.size() + 32);
  line.append(R"({"type":")").append(type).append(R"(","object":)").append(object).append("}\n");
  return line;
}

std::string Bookmark(const std::string& plural, std::uint64_t version) {
  return EventLine("BOOKMARK",
                   json::serialize(json::value{
                       {"kind", KindOf(plural)},
                       {"apiVersion", "v1"},
                       {"metadata", {{"resourceVersion", std::to_string(version)}, {"creationTimestamp", nullptr}}}}));
}

// How the event looks to somebody who sees only what SELECTOR shows; empty: not at all.
std::string LineFor(const FakeEvent& event, const FakeSelector& selector) {
  const bool before = selector.Matches(event.before);
  const bool after = selector.Matches(event.after);
  if (after) return EventLine(before ? "MODIFIED" : "ADDED", event.after->text);
  if (!before) return {};
  if (!event.after) return EventLine("DELETED", event.deleted_text);
  // Still there, but out of sight: the last state that was in sight, with the version of the change.
  json::value last = event.before->Value();
  last.at("metadata").as_object()["resourceVersion"] = std::to_string(event.version);
  return EventLine("DELETED", json::serialize(last));
}

}  // namespace

FakeApiServer::FakeApiServer(const FakeOptions& options) : options_(options), store_(options.most_history) {
  net::ServerOptions server;
  server.max_threads = options.max_threads;
  server.tls = options.tls;
  server.tls_look_interval = net::Duration::zero();
  server.join_answers = true;
  auto started = net::Server::Start(server, [this](const net::Request& request) { return Handle(request); });
  if (!started) {
    // A test without its server can not go on.
    base::LogError(started.error());
    std::abort();
  }
  server_ = *std::move(started);
}

FakeApiServer::~FakeApiServer() { server_->Stop(std::chrono::seconds(1)); }

Config FakeApiServer::config() const {
  Config config;
  config.server = {options_.tls.has_value(), "127.0.0.1", server_->port(), ""};
  config.token = options_.token;
  return config;
}

json::value FakeApiServer::Put(const Resource& resource, const json::value& object) {
  const json::object& metadata = object.at("metadata").as_object();
  const std::string ns = resource.namespaced ? base::GetString(metadata, "namespace").value_or("default") : "";
  FakeOutcome outcome = store_.Create(resource.plural, ns, object);
  if (outcome.status == 409) {
    outcome = store_.Modify(resource.plural, ns, std::string(metadata.at("name").as_string()), [&](json::value& now) {
      now = object;
      now.at("metadata").as_object().erase("resourceVersion");
      return FakeOutcome{};
    });
  }
  return outcome.object ? outcome.object->Value() : json::value();
}

std::optional<json::value> FakeApiServer::Get(const Resource& resource, std::string_view ns,
                                              std::string_view name) const {
  const FakeOutcome outcome = store_.Get(resource.plural, ns, name);
  return outcome.object ? std::optional(outcome.object->Value()) : std::nullopt;
}

bool FakeApiServer::Edit(const Resource& resource, std::string_view ns, std::string_view name,
                         const std::function<void(json::value& object)>& edit) {
  const FakeOutcome outcome = store_.Modify(resource.plural, ns, name, [&](json::value& object) {
    edit(object);
    return FakeOutcome{};
  });
  return outcome.status == 200;
}

bool FakeApiServer::Remove(const Resource& resource, std::string_view ns, std::string_view name) {
  return store_.Delete(resource.plural, ns, name).status == 200;
}

std::vector<json::value> FakeApiServer::All(const Resource& resource, const std::string& ns) const {
  std::vector<json::value> all;
  for (const FakePtr& object : store_.List(resource.plural, *FakeSelector::Parse("", "", ns), 0, "").objects) {
    all.push_back(object->Value());
  }
  return all;
}

void FakeApiServer::Add(FakeFault fault) {
  const std::scoped_lock lock(mutex_);
  faults_.push_back(std::move(fault));
}

void FakeApiServer::DropWatches() {
  drops_.fetch_add(1);
  store_.WakeAll();
}

void FakeApiServer::SendBookmarks() {
  bookmarks_.fetch_add(1);
  store_.WakeAll();
}

std::uint64_t FakeApiServer::Asked(const std::string& verb) const {
  const std::scoped_lock lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [what, count] : asked_) sum += what.starts_with(verb + " ") ? count : 0;
  return sum;
}

std::uint64_t FakeApiServer::AskedInAll() const {
  const std::scoped_lock lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [what, count] : asked_) sum += count;
  return sum;
}

std::optional<FakeApiServer::Route> FakeApiServer::RouteOf(std::string_view target) {
  constexpr std::size_t kMostParts = 9;  // one more than any path has
  std::array<std::string, kMostParts> parts;
  std::size_t count = 0;
  for (std::string_view path = net::PathOf(target); !path.empty() && count < kMostParts; ++count) {
    path.remove_prefix(1);
    const std::string_view part = path.substr(0, path.find('/'));
    auto decoded = net::PercentDecode(part);
    if (!decoded) return std::nullopt;
    parts[count] = *std::move(decoded);
    path.remove_prefix(part.size());
  }
  Route route;
  std::size_t at = 0;
  const auto next = [&] { return at < count ? std::move(parts[at++]) : std::string(); };
  const std::string root = next();
  if (root == "api") {
    route.group_version = next();
  } else if (root == "apis") {
    route.group_version = next();
    route.group_version += "/" + next();
  } else {
    return std::nullopt;
  }
  if (count > at + 2 && parts[at] == "namespaces") {
    ++at;
    route.ns = next();
  }
  route.plural = next();
  route.name = next();
  route.subresource = next();
  if (route.plural.empty() || at < count) return std::nullopt;
  return route;
}

std::string FakeApiServer::Route::Asks(const net::Request& request, bool watch) const {
  std::string_view verb = request.method;
  if (watch) {
    verb = "WATCH";
  } else if (verb == "GET") {
    verb = name.empty() ? "LIST" : "GET";
  } else if (subresource == "binding") {
    verb = "BIND";
  }
  return base::Concat({verb, " ", plural, subresource.empty() ? "" : "/", subresource});
}

std::set<std::string> FakeApiServer::Permissions() const {
  const std::scoped_lock lock(mutex_);
  std::set<std::string> permissions;
  for (const auto& [what, count] : asked_) {
    const std::size_t end = what.find(' ');
    std::string verb = base::ToLower(what.substr(0, end));
    if (verb == "post" || verb == "bind") verb = "create";
    if (verb == "put") verb = "update";
    permissions.insert(verb + what.substr(end));
  }
  return permissions;
}

std::optional<FakeFault> FakeApiServer::TakeFault(const net::Request& request) {
  const std::scoped_lock lock(mutex_);
  for (auto fault = faults_.begin(); fault != faults_.end(); ++fault) {
    if (!fault->method.empty() && fault->method != request.method) continue;
    if (request.target.find(fault->path_part) == std::string::npos) continue;
    FakeFault taken = *fault;
    if (--fault->times <= 0) faults_.erase(fault);
    return taken;
  }
  return std::nullopt;
}

net::Response FakeApiServer::Handle(const net::Request& request) {
  const auto route = request.target.starts_with('/') ? RouteOf(request.target) : std::nullopt;
  if (!route) return Refusal(404, "NotFound", "the server could not find the requested resource");
  const bool watch = request.method == "GET" && Parameter(net::ParseQuery(request.target), "watch") == "true";
  {
    std::string what = route->Asks(request, watch);
    const std::scoped_lock lock(mutex_);
    ++asked_[std::move(what)];
  }
  if (!options_.token.empty()) {
    const std::string* given = request.headers.Find("Authorization");
    if (given == nullptr || *given != "Bearer " + options_.token) return Refusal(401, "Unauthorized", "Unauthorized");
  }
  const auto fault = TakeFault(request);
  if (!fault) return Answer(request, *route, watch);
  net::Response response;
  switch (fault->kind) {
    case FakeFault::Kind::kStatus:
      response = Refusal(fault->status, "", "a fault was asked for");
      if (fault->retry_after > 0) response.headers.emplace_back("Retry-After", std::to_string(fault->retry_after));
      return response;
    case FakeFault::Kind::kDropAfter:
      Answer(request, *route, watch);
      [[fallthrough]];
    case FakeFault::Kind::kDropBefore:
      response.abort = true;
      return response;
    case FakeFault::Kind::kDelay:
      std::this_thread::sleep_for(fault->delay);
      break;
  }
  return Answer(request, *route, watch);
}

net::Response FakeApiServer::Answer(const net::Request& request, const Route& route, bool watch) {
  if (watch) return Watch(request, route);
  if (request.method != "GET") return Write(request, route);
  if (route.name.empty()) return List(request, route);
  return AnswerOf(store_.Get(route.plural, route.ns, route.name));
}

net::Response FakeApiServer::List(const net::Request& request, const Route& route) const {
  const net::Query query = net::ParseQuery(request.target);
  const auto selector =
      FakeSelector::Parse(Parameter(query, "labelSelector"), Parameter(query, "fieldSelector"), route.ns);
  if (!selector) return Refusal(400, "BadRequest", "unable to parse the selector");
  const auto limit = base::ParseNumber(Parameter(query, "limit")).value_or(0);
  // "version:key", where version is that of the first page.
  const std::string token = Parameter(query, "continue");
  const auto colon = token.find(':');
  const auto first_version = base::ParseNumber(token.substr(0, colon));
  if (!token.empty() && (!first_version || colon == std::string::npos)) {
    return Refusal(400, "BadRequest", "continue key is not valid");
  }
  if (first_version && *first_version < store_.oldest()) {
    return Refusal(410, "Expired", "The provided continue parameter is too old");
  }
  const auto page =
      store_.List(route.plural, *selector, limit, token.empty() ? std::string() : token.substr(colon + 1));
  const std::string version = std::to_string(first_version.value_or(page.version));
  json::object metadata{{"resourceVersion", version}};
  if (!page.last_key.empty()) metadata["continue"] = version + ":" + page.last_key;
  std::string body = R"({"kind":")" + KindOf(route.plural) + R"(List","apiVersion":")" + route.group_version +
                     R"(","metadata":)" + json::serialize(metadata) + R"(,"items":[)";
  for (const FakePtr& object : page.objects) {
    if (&object != page.objects.data()) body += ',';
    body += object->text;
  }
  body += "]}";
  return JsonAnswer(200, std::move(body));
}

net::Response FakeApiServer::Watch(const net::Request& request, const Route& route) {
  const net::Query query = net::ParseQuery(request.target);
  const auto selector =
      FakeSelector::Parse(Parameter(query, "labelSelector"), Parameter(query, "fieldSelector"), route.ns);
  if (!selector) return Refusal(400, "BadRequest", "unable to parse the selector");
  const auto seconds = base::ParseNumber(Parameter(query, "timeoutSeconds")).value_or(1800);
  const net::Deadline end = net::After(std::chrono::seconds(std::min<std::uint64_t>(seconds, 3600)));
  const bool bookmarks = Parameter(query, "allowWatchBookmarks") == "true";
  const std::uint64_t from = base::ParseNumber(Parameter(query, "resourceVersion")).value_or(0);
  net::Response response = JsonAnswer(200, "");
  response.stream = [this, plural = route.plural, selector = *selector, from, bookmarks, end](net::BodyWriter& out) {
    watching_.fetch_add(1);
    RunWatch(out, plural, selector, from, bookmarks, end);
    watching_.fetch_sub(1);
  };
  return response;
}

void FakeApiServer::RunWatch(net::BodyWriter& out, const std::string& plural, const FakeSelector& selector,
                             std::uint64_t from, bool bookmarks, net::Deadline end) {
  const std::uint64_t drops = drops_.load();
  std::uint64_t bookmarks_seen = bookmarks_.load();
  net::Deadline next_bookmark = net::After(options_.bookmark_interval);
  if (from == 0) {
    // From anywhere: first what there is.
    const auto page = store_.List(plural, selector, 0, "");
    for (const FakePtr& object : page.objects) out.Write(EventLine("ADDED", object->text));
    from = page.version;
  }
  while (out.Alive() && net::Clock::now() < end) {
    const auto batch = store_.WaitForEvents(plural, from, std::min(end, net::After(kWatchStep)));
    if (drops_.load() != drops) return out.Cut();
    if (batch.expired) {
      out.Write(EventLine("ERROR", StatusText(410, "Expired", "too old resource version")));
      return;
    }
    std::string lines;
    for (const FakeEvent& event : batch.events) lines += LineFor(event, selector);
    from = batch.version;
    const bool asked = bookmarks_.load() != bookmarks_seen;
    if (bookmarks && (asked || net::Clock::now() >= next_bookmark)) {
      bookmarks_seen = bookmarks_.load();
      next_bookmark = net::After(options_.bookmark_interval);
      lines += Bookmark(plural, from);
    }
    if (!out.Write(lines)) return;
    if (!lines.empty()) std::this_thread::sleep_for(kWatchRest);
  }
}

net::Response FakeApiServer::Write(const net::Request& request, const Route& route) {
  if (request.method == "POST" && route.name.empty()) {
    const auto created = store_.CreatePlain(route.plural, route.ns, request.body);
    if (created) return AnswerOf(*created);
  }
  json::monotonic_resource memory;
  json::value body(&memory);
  if (!request.body.empty()) {
    auto parsed = ParseDocument(request.body, &memory);
    if (!parsed) return Refusal(400, "BadRequest", parsed.error().message);
    body = *std::move(parsed);
  }
  if (request.method == "POST" && route.subresource == "binding") return Bind(body, route);
  if (request.method == "POST" && route.name.empty())
    return AnswerOf(store_.Create(route.plural, route.ns, std::move(body)));
  if (route.name.empty()) return Refusal(405, "MethodNotAllowed", "the server does not allow this method");
  if (request.method != "PATCH") return Refusal(405, "MethodNotAllowed", "the server does not allow this method");
  const std::string* type = request.headers.Find("Content-Type");
  const bool merge = type != nullptr && *type == "application/merge-patch+json";
  if (!merge && (type == nullptr || *type != "application/json-patch+json")) {
    return Refusal(415, "UnsupportedMediaType", "neither a merge patch nor a JSON patch");
  }
  return AnswerOf(store_.Modify(route.plural, route.ns, route.name, [&](json::value& object) -> FakeOutcome {
    if (merge) {
      ApplyMergePatch(object, body);
      return {};
    }
    const auto applied = ApplyJsonPatch(object, body);
    return applied ? FakeOutcome{} : FakeOutcome{422, "Invalid", applied.error().message, nullptr};
  }));
}

net::Response FakeApiServer::Bind(const json::value& binding, const Route& route) {
  const json::object* whole = binding.if_object();
  const json::value* target = whole == nullptr ? nullptr : whole->if_contains("target");
  const json::value* metadata = whole == nullptr ? nullptr : whole->if_contains("metadata");
  const std::string node =
      target != nullptr && target->is_object() ? base::GetString(target->get_object(), "name").value_or("") : "";
  if (node.empty()) return Refusal(422, "Invalid", "target.name is required");
  const json::object none;
  const json::object& given = metadata != nullptr && metadata->is_object() ? metadata->get_object() : none;
  const std::string uid = base::GetString(given, "uid").value_or("");
  const std::string version = base::GetString(given, "resourceVersion").value_or("");
  const FakeOutcome outcome = store_.Modify(route.plural, route.ns, route.name, [&](json::value& pod) -> FakeOutcome {
    json::object& object = pod.as_object();
    json::object& own = object["metadata"].as_object();
    if (!uid.empty() && base::GetString(own, "uid") != uid) {
      return {409, "Conflict", "the uid in the precondition differs", nullptr};
    }
    if (!version.empty() && base::GetString(own, "resourceVersion") != version) {
      return {409, "Conflict", "the resourceVersion in the precondition differs", nullptr};
    }
    if (own.contains("deletionTimestamp")) return {409, "Conflict", "the pod is being deleted", nullptr};
    if (!object["spec"].is_object()) object["spec"].emplace_object();
    json::object& spec = object["spec"].get_object();
    const std::string bound = base::GetString(spec, "nodeName").value_or("");
    if (!bound.empty()) {
      return {409, "Conflict", "pod " + route.name + " is already assigned to node \"" + bound + "\"", nullptr};
    }
    // As the real server: what the Binding carries is merged into the pod.
    for (const char* key : {"annotations", "labels"}) {
      const json::value* texts = given.if_contains(key);
      if (texts == nullptr || !texts->is_object()) continue;
      if (key == std::string_view("labels") && !options_.bindings_carry_labels) continue;
      if (!own[key].is_object()) own[key].emplace_object();
      for (const auto& text : texts->get_object()) own[key].get_object()[text.key()] = text.value();
    }
    spec["nodeName"] = node;
    return {201, "", "", nullptr};
  });
  if (outcome.status >= 400) return AnswerOf(outcome);
  return JsonAnswer(201, StatusText(201, "", ""));
}

}  // namespace hami::kube
