// SPDX-License-Identifier: Apache-2.0

#include "kube/client.h"

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "kube/base64.h"
#include "kube/scanner.h"

namespace hami::kube {
namespace {

constexpr int kMostRetries = 5;
constexpr int kMostRestarts = 2;
constexpr std::size_t kMostErrorBody = 1U << 20U;
constexpr std::size_t kMostAnswerBytes = 256U << 20U;
constexpr std::size_t kMostWatchLine = 16U << 20U;
// A watch is silent between bookmarks (about one a minute); the server ends it by its timeout, and this much later we
// do.
constexpr auto kWatchSlack = std::chrono::seconds(30);
// How much later than it could a watch tells of a change that follows close behind another.
constexpr auto kWatchRest = std::chrono::milliseconds(5);
// How long answers that nobody waits for gather.
constexpr auto kAnswersRest = std::chrono::milliseconds(2);

json::string_view View(std::string_view text) { return {text.data(), text.size()}; }

const json::value* Member(const json::value& value, std::string_view key) {
  const json::object* object = value.if_object();
  return object == nullptr ? nullptr : object->if_contains(View(key));
}

std::string TextOf(const json::value* value) {
  return value != nullptr && value->is_string() ? std::string(value->get_string().data(), value->get_string().size())
                                                : std::string();
}

std::string MetadataText(const json::value& object, std::string_view key) {
  const json::value* metadata = Member(object, "metadata");
  return metadata == nullptr ? std::string() : TextOf(Member(*metadata, key));
}

void Add(net::Query& query, const Selection& selection) {
  if (!selection.label_selector.empty()) query.emplace_back("labelSelector", selection.label_selector);
  if (!selection.field_selector.empty()) query.emplace_back("fieldSelector", selection.field_selector);
}

std::optional<WatchType> WatchTypeOf(std::string_view name) {
  if (name == "ADDED") return WatchType::kAdded;
  if (name == "MODIFIED") return WatchType::kModified;
  if (name == "DELETED") return WatchType::kDeleted;
  if (name == "BOOKMARK") return WatchType::kBookmark;
  return std::nullopt;
}

std::string Text(const json::value& value) { return json::serialize(value); }

// "Basic …" of RFC 7617, or nothing.
std::string BasicOf(const Config& config) {
  return config.user_name.empty() ? std::string() : "Basic " + Base64Encode(config.user_name + ":" + config.password);
}

// Whether LINE, of a watch, tells of a modification that is known already; IDENTITY is then its object's.
bool IsKnown(std::string_view line, const AlreadyKnown& known, Identity& identity) {
  base::JsonCursor cursor(line);
  std::string_view key;
  std::string_view type;
  if (!known || !cursor.Take('{') || !cursor.TakeKey(key) || key != "type" || !cursor.TakeValue(type)) return false;
  if (type != "\"MODIFIED\"" || !cursor.Take(',') || !cursor.TakeKey(key) || key != "object") return false;
  return FindIdentity(cursor, identity) && known(identity);
}

// The Status that an event brings in place of an object.
tl::unexpected<Error> ErrorIn(std::string_view line) {
  const auto event = ParseDocument(line);
  return tl::unexpected<Error>(event ? FromStatus(*Member(*event, "object"), 500) : event.error());
}

std::optional<json::value> Take(base::JsonCursor& cursor, const json::storage_ptr& storage,
                                const CallContext& context) {
  return context.read ? context.read(cursor, storage) : base::TakeParts(cursor, context.parts, storage);
}

// One line of a watch. What goes wrong with it is an error; false: the receiver had enough.
Result<bool> Deliver(std::string_view line, const AlreadyKnown& known, const CallContext& context,
                     const OnWatchEvent& on_event) {
  if (Identity identity; IsKnown(line, known, identity)) {
    return on_event(WatchType::kBookmark, {{"metadata", {{"resourceVersion", View(identity.version)}}}});
  }
  std::array<unsigned char, 16384> buffer;
  json::monotonic_resource storage(buffer.data(), buffer.size());
  std::string name;
  std::optional<json::value> object;
  HAMI_NET_TRY(ReadText(line, [&](base::JsonCursor& cursor) {
    std::string_view passed;
    if (cursor.Next() != '{') return cursor.TakeValue(passed);
    return cursor.TakeObject([&](std::string_view key, bool plain) {
      const std::string decoded = plain ? std::string() : base::DecodeJsonString(key);
      if (!plain) key = decoded;
      if (key == "object") return (object = Take(cursor, &storage, context)).has_value();
      if (key != "type") return cursor.TakeValue(passed);
      const auto type = base::TakeParts(cursor, {}, &storage);
      if (type) name = TextOf(&*type);
      return type.has_value();
    });
  }));
  if (!object) return Fail(Reason::kBadAnswer, "watch: an event without an object");
  if (name == "ERROR") return ErrorIn(line);
  const auto type = WatchTypeOf(name);
  if (!type) return Fail(Reason::kBadAnswer, "watch: unknown type of event");
  return on_event(*type, *object);
}

// `,"KEY":"VALUE"`, unless there is none.
void AppendMember(std::string& out, std::string_view key, std::string_view value) {
  if (value.empty()) return;
  out.append(",\"").append(key).append("\":");
  base::AppendJsonString(out, value);
}

void AppendMember(std::string& out, std::string_view key, const StringMap& map) {
  if (map.empty()) return;
  out.append(",\"").append(key).append("\":");
  char before = '{';
  for (const auto& [name, value] : map) {
    out += std::exchange(before, ',');
    base::AppendJsonString(out, name);
    out += ':';
    base::AppendJsonString(out, value);
  }
  out += '}';
}

// Every pod has one: written without a document.
std::string BodyOf(const Binding& binding) {
  std::string out = R"({"apiVersion":"v1","kind":"Binding","metadata":{"name":)";
  out.reserve(1024);
  base::AppendJsonString(out, binding.name);
  AppendMember(out, "namespace", binding.ns);
  AppendMember(out, "uid", binding.uid);
  AppendMember(out, "resourceVersion", binding.version);
  AppendMember(out, "annotations", binding.annotations);
  AppendMember(out, "labels", binding.labels);
  out += R"(},"target":{"apiVersion":"v1","kind":"Node")";
  AppendMember(out, "name", binding.node);
  return out += "}}";
}

}  // namespace

struct Client::Page {
  std::string resource_version;
  std::string next;  // continue token; empty: the last page
};

Client::Client(std::shared_ptr<net::Client> http, net::ClientOptions http_options, const Config& config,
               const ClientOptions& options)
    : server_(config.server),
      http_options_(std::move(http_options)),
      options_(options),
      basic_(BasicOf(config)),
      token_(config.token, config.token_file),
      http_(std::move(http)),
      rate_(options.qps, options.burst) {
  if (config.exec) exec_ = std::make_unique<ExecSource>([plugin = *config.exec] { return AskPlugin(plugin); });
}

base::Result<std::unique_ptr<Client>> Client::Make(const Config& config, const ClientOptions& options) {
  net::ClientOptions http_options;
  http_options.tls = config.tls;
  http_options.proxy = config.proxy;
  http_options.max_idle = options.max_idle_connections;
  http_options.headers = {{"Accept", "application/json"}, {"User-Agent", options.user_agent}};
  http_options.headers.insert(http_options.headers.end(), config.impersonation.begin(), config.impersonation.end());
  auto http = net::Client::Make(config.server, http_options);
  if (!http) return tl::unexpected<base::Error>(http.error());
  return std::unique_ptr<Client>(new Client(*std::move(http), std::move(http_options), config, options));
}

base::Result<Client::Session> Client::Open() {
  Session session;
  if (exec_) {
    auto credential = exec_->Get();
    if (!credential) return tl::unexpected(credential.error());
    session.credential = *std::move(credential);
    session.token = session.credential.token;
  } else {
    auto token = token_.Get();
    if (!token) return tl::unexpected(token.error());
    session.token = *std::move(token);
  }
  const std::scoped_lock lock(http_mutex_);
  if (session.credential.key != http_key_) {
    net::ClientOptions options = http_options_;
    if (!session.credential.key.empty()) {
      options.tls.certificate = {"clientCertificateData of the exec program", session.credential.certificate};
      options.tls.key = {"clientKeyData of the exec program", session.credential.key};
    }
    auto http = net::Client::Make(server_, options);
    if (!http) return tl::unexpected<base::Error>(http.error());
    http_ = *std::move(http);
    http_key_ = session.credential.key;
  }
  session.http = http_;
  return session;
}

bool Client::Renewed(const Session& session) {
  return exec_ ? exec_->Refused(session.credential) : token_.Refused(session.token);
}

net::Call Client::NewCall(std::string method, std::string target, const CallContext& context) const {
  return {.method = std::move(method),
          .target = std::move(target),
          .headers = {},
          .body = {},
          .deadline = net::After(context.timeout == net::Duration{} ? options_.timeout : context.timeout),
          .canceller = context.stop};
}

Status Client::WaitTurn(const net::Call& call) {
  if (options_.qps <= 0) return {};  // no limit
  const net::Deadline now = net::Clock::now();
  std::optional<net::Duration> wait;
  {
    const std::scoped_lock lock(rate_mutex_);
    wait = rate_.Take(now, call.deadline - now);
  }
  if (!wait) return Fail(Reason::kNotSent, "the client's own rate limit leaves no time");
  if (*wait == net::Duration{}) return {};
  static const net::Canceller never;
  if ((call.canceller == nullptr ? never : *call.canceller).SleepUntil(now + *wait)) {
    ReturnTurns(1);
    return Fail(Reason::kCancelled, "cancelled");
  }
  return {};
}

void Client::ReturnTurns(std::size_t count) {
  const std::scoped_lock lock(rate_mutex_);
  for (; count > 0; --count) rate_.Return();
}

void Client::Sign(net::Call& call, const std::string& token) const {
  std::erase_if(call.headers, [](const auto& header) { return header.first == "Authorization"; });
  std::string authorization = token.empty() ? basic_ : "Bearer " + token;
  if (!authorization.empty()) call.headers.emplace_back("Authorization", std::move(authorization));
}

Status Client::ExchangeOnce(net::Client& http, const net::Call& call,
                            const std::function<Status(std::string_view)>& sink, bool* body_begun) {
  std::string error_body;
  Status verdict;
  const auto start = http.Stream(call, [&](const net::ResponseStart& head, std::string_view piece) {
    if (head.status / 100 != 2) {
      error_body += piece.substr(0, kMostErrorBody - error_body.size());
      return true;
    }
    *body_begun = true;
    verdict = sink(piece);
    return verdict.has_value();
  });
  if (!verdict) return verdict;
  if (!start) return tl::unexpected(FromTransport(start.error()));
  if (start->status / 100 == 2) return {};
  return tl::unexpected(FromAnswer(start->status, error_body, start->headers.Find("Retry-After")));
}

Status Client::Exchange(net::Call call, const std::function<Status(std::string_view)>& sink) {
  bool renewed = false;
  Status outcome;
  for (int retries = 0;; ++retries) {
    // What was sent before says more than that it can not be sent again.
    if (const Status turn = WaitTurn(call); !turn) return retries > 0 ? outcome : turn;
    const auto session = Open();
    if (!session) return Fail(Reason::kUnauthorized, session.error().message);
    calls_.fetch_add(1, std::memory_order_relaxed);
    bool body_begun = false;
    Sign(call, session->token);
    outcome = ExchangeOnce(*session->http, call, sink, &body_begun);
    if (outcome || body_begun || retries >= kMostRetries) return outcome;
    const Error& error = outcome.error();
    if (error.reason == Reason::kUnauthorized && !renewed && Renewed(*session)) {
      renewed = true;
    } else if ((error.code == 429 || error.code == 503) && error.retry_after) {
      const net::Deadline again = net::After(*error.retry_after);
      if (again >= call.deadline) return outcome;
      static const net::Canceller never;
      const net::Canceller& stop = call.canceller == nullptr ? never : *call.canceller;
      if (stop.SleepUntil(again)) return Fail(Reason::kCancelled, "cancelled");
    } else {
      return outcome;
    }
    retries_.fetch_add(1, std::memory_order_relaxed);
  }
}

Status Client::ExchangeStatus(net::Call call) {
  return Exchange(std::move(call), [](std::string_view) { return Status(); });
}

Result<json::value> Client::ExchangeJson(net::Call call, base::Parts parts) {
  std::string body;
  HAMI_NET_TRY(Exchange(std::move(call), [&](std::string_view piece) -> Status {
    if (body.size() + piece.size() > kMostAnswerBytes) return Fail(Reason::kBadAnswer, "the answer is too large");
    body += piece;
    return {};
  }));
  // The document is read and dropped as a whole: its parts need no memory of their own each.
  return ParseDocument(body, json::make_shared_resource<json::monotonic_resource>(2 * body.size()), parts);
}

Result<json::value> Client::Get(const Resource& resource, std::string_view ns, std::string_view name,
                                const CallContext& context) {
  return ExchangeJson(NewCall("GET", PathTo(resource, ns, name), context), context.parts);
}

Result<Client::Page> Client::ListPage(const std::string& target, const ListSink& sink, const CallContext& context) {
  std::vector<unsigned char> buffer(65536);
  ListScanner scanner([&](std::string_view text) -> Status {
    json::monotonic_resource storage(buffer.data(), buffer.size());
    std::optional<json::value> item;
    HAMI_NET_TRY(ReadText(text, [&](base::JsonCursor& cursor) {
      item = Take(cursor, &storage, context);
      return item.has_value();
    }));
    sink.item(*item);
    return {};
  });
  HAMI_NET_TRY(Exchange(NewCall("GET", target, context), [&](std::string_view piece) { return scanner.Feed(piece); }));
  const auto frame = scanner.Finish();
  if (!frame) return tl::unexpected(frame.error());
  if (!frame->is_object()) return Fail(Reason::kBadAnswer, "list: not an object");
  return Page{MetadataText(*frame, "resourceVersion"), MetadataText(*frame, "continue")};
}

Result<std::string> Client::List(const Resource& resource, std::string_view ns, const ListRequest& request,
                                 const ListSink& sink, const CallContext& context) {
  const std::string path = PathTo(resource, ns);
  std::string next;
  int restarts = 0;
  while (true) {
    net::Query query;
    Add(query, request.selection);
    // A collection that changes faster than it can be paged is asked for in one piece at last.
    if (request.page > 0 && restarts <= kMostRestarts) query.emplace_back("limit", std::to_string(request.page));
    if (!next.empty()) query.emplace_back("continue", next);
    auto page = ListPage(path + net::EncodeQuery(query), sink, context);
    if (!page) {
      if (page.error().reason != Reason::kExpired || next.empty()) return tl::unexpected(page.error());
      ++restarts;
      next.clear();
      if (sink.restart) sink.restart();
      continue;
    }
    if (page->next.empty()) return page->resource_version;
    next = std::move(page->next);
  }
}

Status Client::Watch(const Resource& resource, std::string_view ns, const WatchRequest& request,
                     const OnWatchEvent& on_event, const CallContext& context) {
  net::Query query{{"watch", "true"},
                   {"allowWatchBookmarks", "true"},
                   {"resourceVersion", request.resource_version},
                   {"timeoutSeconds", std::to_string(request.timeout.count())}};
  Add(query, request.selection);
  net::Call call = NewCall("GET", PathTo(resource, ns) + net::EncodeQuery(query), context);
  call.deadline = net::After(request.timeout + kWatchSlack);
  call.rest = kWatchRest;
  std::string unread;
  bool enough = false;
  auto outcome = Exchange(std::move(call), [&](std::string_view piece) -> Status {
    // An event is one line: JSON strings hold no raw line breaks.
    for (auto end = piece.find('\n'); end != std::string_view::npos; end = piece.find('\n')) {
      const std::string_view line = unread.empty() ? piece.substr(0, end) : unread.append(piece.substr(0, end));
      piece.remove_prefix(end + 1);
      if (!line.empty()) {
        const auto go_on = Deliver(line, request.known, context, on_event);
        if (!go_on) return tl::unexpected(go_on.error());
        enough = !*go_on;
      }
      unread.clear();
      // Cancelled only towards Exchange: how a receiver that had enough ends the stream.
      if (enough) return Fail(Reason::kCancelled, "");
    }
    unread += piece;
    if (unread.size() > kMostWatchLine) return Fail(Reason::kBadAnswer, "watch: an event is too large");
    return {};
  });
  if (enough) return {};
  return outcome;
}

net::Call Client::CreateCall(const Resource& resource, std::string_view ns, std::string text,
                             const CallContext& context) const {
  net::Call call = NewCall("POST", PathTo(resource, ns), context);
  call.headers.emplace_back("Content-Type", "application/json");
  call.body = std::move(text);
  return call;
}

Result<json::value> Client::Create(const Resource& resource, std::string_view ns, const json::value& object,
                                   const CallContext& context) {
  return ExchangeJson(CreateCall(resource, ns, Text(object), context), context.parts);
}

std::vector<Status> Client::CreateAll(const Resource& resource, std::span<NewObject> objects,
                                      const CallContext& context) {
  const auto session = Open();
  Status ready = session ? Status() : Fail(Reason::kUnauthorized, session.error().message);
  std::vector<net::Call> calls;
  calls.reserve(objects.size());
  for (NewObject& one : objects) {
    net::Call& call = calls.emplace_back(CreateCall(resource, one.ns, std::move(one.text), context));
    call.rest = kAnswersRest;
    if (ready) ready = WaitTurn(call);
    if (!ready) {
      if (session) ReturnTurns(calls.size() - 1);
      return std::vector<Status>(objects.size(), ready);
    }
    Sign(call, session->token);
  }
  calls_.fetch_add(calls.size(), std::memory_order_relaxed);
  const auto answers = session->http->SendAll(calls);
  std::vector<Status> outcomes;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto& answer = answers[i];
    if (!answer) {
      outcomes.push_back(tl::unexpected(FromTransport(answer.error())));
    } else if (answer->status / 100 == 2) {
      outcomes.emplace_back();
    } else if (answer->status == 401 || answer->status == 429 || answer->status == 503) {
      // Perhaps to be asked again: what is to be heeded then, Exchange knows.
      outcomes.push_back(ExchangeStatus(std::move(calls[i])));
    } else {
      outcomes.push_back(tl::unexpected(FromAnswer(answer->status, answer->body, answer->headers.Find("Retry-After"))));
    }
  }
  return outcomes;
}

Result<json::value> Client::Patch(const Resource& resource, std::string_view ns, std::string_view name, PatchType type,
                                  const json::value& patch, const CallContext& context) {
  net::Call call = NewCall("PATCH", PathTo(resource, ns, name), context);
  call.headers.emplace_back("Content-Type",
                            type == PatchType::kMerge ? "application/merge-patch+json" : "application/json-patch+json");
  call.body = Text(patch);
  return ExchangeJson(std::move(call), context.parts);
}

Status Client::Bind(std::string_view ns, std::string_view pod, std::string_view uid, std::string_view node,
                    const CallContext& context) {
  return PostBinding({std::string(ns), std::string(pod), std::string(uid), {}, std::string(node), {}, {}}, context);
}

Status Client::PostBinding(const Binding& binding, const CallContext& context) {
  net::Call call = NewCall("POST", PathTo(kPods, binding.ns, binding.name, "binding"), context);
  call.headers.emplace_back("Content-Type", "application/json");
  call.body = BodyOf(binding);
  return ExchangeStatus(std::move(call));
}

Status Client::Evict(std::string_view ns, std::string_view pod, std::string_view uid, bool only_try,
                     const CallContext& context) {
  net::Call call = NewCall("POST", PathTo(kPods, ns, pod, "eviction"), context);
  call.headers.emplace_back("Content-Type", "application/json");
  call.body = R"({"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":)";
  base::AppendJsonString(call.body, pod);
  AppendMember(call.body, "namespace", ns);
  call.body += R"(},"deleteOptions":{"preconditions":{"uid":)";
  base::AppendJsonString(call.body, uid);
  call.body += only_try ? R"(},"dryRun":["All"]}})" : "}}}";
  return ExchangeStatus(std::move(call));
}

}  // namespace hami::kube
